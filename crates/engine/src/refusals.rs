//! Counts what strangers are refused, by client and minute, so that neither the log nor memory grows with them.
//!
//! Invariant: the tables are bounded, whoever asks and from how many addresses.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::{Engine, Remote};

/// The time for which refusals are counted together.
const WINDOW_MS: i64 = 60_000;
/// The most clients, each with its kinds of refusals, that the log tells apart in a minute.
const LOGGED_MAX: usize = 1_024;

/// Who is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// An address. Of IPv6 it is the network of 64 bits, since one machine has as many addresses in it as it likes.
    Network(IpAddr),
    /// A user of this machine.
    Local { uid: u32 },
    /// Everybody else.
    Other,
}

impl From<Option<Remote>> for Client {
    fn from(remote: Option<Remote>) -> Self {
        match remote {
            Some(Remote::Local { uid }) => Self::Local { uid },
            Some(remote) => remote.network().map_or(Self::Other, Self::Network),
            None => Self::Other,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(IpAddr::V4(address)) => address.fmt(f),
            Self::Network(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Self::Local { uid } => write!(f, "uid:{uid}"),
            Self::Other => f.write_str("other"),
        }
    }
}

/// Counts by key, each for a minute from its first count.
#[derive(Debug)]
pub struct Windows<K> {
    windows: HashMap<K, Window>,
    looked_ms: i64,
}

/// A minute, and what was counted in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    since_ms: i64,
    /// The count.
    pub count: u64,
}

impl Window {
    /// Returns the seconds until the window is over, rounded up.
    pub fn left_secs(&self, now_ms: i64) -> u32 {
        let passed_ms = now_ms.saturating_sub(self.since_ms).clamp(0, WINDOW_MS);
        u32::try_from((WINDOW_MS - passed_ms) / 1_000 + 1).unwrap_or(1)
    }

    /// Returns true if the window is over. The clock may have been set back, too.
    const fn is_over(&self, now_ms: i64) -> bool {
        now_ms.abs_diff(self.since_ms) >= WINDOW_MS.unsigned_abs()
    }
}

impl<K> Default for Windows<K> {
    fn default() -> Self {
        Self {
            windows: HashMap::new(),
            looked_ms: i64::MIN,
        }
    }
}

impl<K: Eq + Hash> Windows<K> {
    /// Returns true if a key can be counted without more than `max` of them.
    pub fn has_room(&self, key: &K, max: usize) -> bool {
        self.windows.len() < max || self.windows.contains_key(key)
    }

    /// Returns the window of a key, and begins one if it has none.
    pub fn of(&mut self, key: K, now_ms: i64) -> &mut Window {
        let fresh = Window {
            since_ms: now_ms,
            count: 0,
        };
        self.windows.entry(key).or_insert(fresh)
    }

    /// Forgets what was counted of a key.
    pub fn forget(&mut self, key: &K) {
        self.windows.remove(key);
    }

    /// Takes out the windows that are over. It does so at most once a second, because it looks at all of them.
    pub fn take_over(&mut self, now_ms: i64) -> Vec<(K, Window)> {
        if now_ms.abs_diff(self.looked_ms) < 1_000 {
            return Vec::new();
        }
        self.looked_ms = now_ms;
        let over = |_: &K, window: &mut Window| window.is_over(now_ms);
        self.windows.extract_if(over).collect()
    }
}

/// A client, and the code of its refusals.
type Refused = (Client, &'static str);

/// The refusals that the log has told or will tell.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Windows<Refused>>);

impl Refusals {
    /// Counts a refusal. Returns how many the log is to tell of with this one, if any, and how many of others whose
    /// minute is over.
    fn count(
        &self,
        now_ms: i64,
        client: Client,
        code: &'static str,
    ) -> (Option<u64>, Vec<(Refused, u64)>) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = windows.take_over(now_ms);
        // Clients that are too many to be told apart are counted as one.
        let key = match windows.has_room(&(client, code), LOGGED_MAX) {
            true => (client, code),
            false => (Client::Other, code),
        };
        let window = windows.of(key, now_ms);
        window.count += 1;
        let mut this = (window.count == 1).then_some(1);
        drop(windows);
        let mut others = Vec::new();
        for (other, window) in over {
            // The first of each window was told when it came, so this one takes its place in the count.
            match window.count - 1 {
                _ if other == key => this = Some(window.count),
                0 => {}
                untold => others.push((other, untold)),
            }
        }
        (this, others)
    }
}

impl Engine {
    /// Counts a refusal of the current client, and returns how many the log is to tell of now: none, or this one
    /// and those before it that were not told. So a client has one line for each code and minute. What is left
    /// of clients that have gone is told here.
    pub(crate) fn untold_refusals(&self, code: &'static str) -> Option<u64> {
        let client = Client::from(Remote::current());
        let now_ms = self.now().as_millis();
        let (this, others) = self.refusals.count(now_ms, client, code);
        for ((client, code), refused) in others {
            tracing::info!(event = "refusals.counted", %client, code, refused);
        }
        this
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Client {
        let address: IpAddr = text.parse().unwrap();
        Some(Remote::Forwarded(address)).into()
    }

    #[test]
    fn a_client_is_an_address_and_of_ipv6_a_network() {
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
        assert_eq!(network("10.0.0.1"), network("::ffff:10.0.0.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("2001:db8::1").to_string(), "2001:db8::/64");
        let port = |port| Some(Remote::Network(([10, 0, 0, 1], port).into()));
        assert_eq!(Client::from(port(1)), Client::from(port(2)));
    }

    #[test]
    fn a_client_has_one_line_a_minute_with_its_count() {
        let refusals = Refusals::default();
        let (one, two) = (network("10.0.0.1"), network("10.0.0.2"));
        let count = |second: i64, client| refusals.count(second * 1_000, client, "A");
        assert_eq!(count(0, one), (Some(1), vec![]));
        for _ in 0..999 {
            assert_eq!(count(0, one), (None, vec![]));
        }
        assert_eq!(refusals.count(0, one, "B"), (Some(1), vec![]));
        assert_eq!(count(30, two), (Some(1), vec![]));
        assert_eq!(count(60, one), (Some(1_000), vec![]));
        assert_eq!(count(60, one), (None, vec![]));
        // What is left of a client that has gone is told by the next one.
        assert_eq!(count(120, two), (Some(1), vec![((one, "A"), 1)]));
        let set_back = count(-1_000, two);
        assert_eq!(set_back, (Some(1), vec![]));
    }

    #[test]
    fn many_clients_take_bounded_memory_and_few_lines() {
        let refusals = Refusals::default();
        let clients = (0..10_000_u32).map(|n| Client::Network(std::net::Ipv4Addr::from(n).into()));
        let lines = clients
            .filter(|client| refusals.count(0, *client, "A").0.is_some())
            .count();
        assert_eq!(lines, LOGGED_MAX + 1);
        assert_eq!(refusals.0.lock().unwrap().windows.len(), LOGGED_MAX + 1);
    }
}
