//! A cluster: knows which server has which slot, and follows slots that move.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use asyncgate_store::Error;
use bytes::Bytes;

use crate::{
    address::{Login, Node},
    connection::Connection,
    dial::{Dialer, Target},
    redis::accepted,
    resp::{Args, Kind, Value},
    tls::Tls,
};

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;
/// The most servers that one request is sent to.
const MAX_REDIRECTS: usize = 5;

/// Returns the slot of a hash tag, the text between the braces of a key.
pub(crate) fn slot(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let carry = crc & 0x8000 != 0;
            (crc << 1) ^ if carry { 0x1021 } else { 0 }
        })
    });
    crc % SLOTS
}

/// A cluster. Clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Cluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    seeds: Vec<Node>,
    login: Option<Login>,
    tls: Option<Tls>,
    map: Mutex<Map>,
    /// True while a task refreshes the map.
    refreshing: AtomicBool,
}

#[derive(Debug, Default)]
struct Map {
    connections: HashMap<Node, Arc<Connection>>,
    /// Ranges of slots, first and last slot included, and the server that has them.
    slots: Vec<(u16, u16, Node)>,
    /// Slots that moved since the map was read.
    moved: HashMap<u16, Node>,
}

impl Map {
    fn owner(&self, slot: u16) -> Option<Node> {
        if let Some(node) = self.moved.get(&slot) {
            return Some(node.clone());
        }
        let mut ranges = self.slots.iter();
        let range = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
        range.map(|(_, _, node)| node.clone())
    }
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Node>, login: Option<Login>, tls: Option<Tls>) -> Self {
        Self(Arc::new(Inner {
            seeds,
            login,
            tls,
            map: Mutex::default(),
            refreshing: AtomicBool::new(false),
        }))
    }

    /// Sends a request to the server that has `slot` now.
    pub(crate) async fn send(&self, slot: u16, request: Bytes, kind: Kind) -> Result<Value, Error> {
        let owner = self.map().owner(slot);
        let mut node = match owner {
            Some(node) => node,
            None => self.find(slot).await?,
        };
        let mut ask = false;
        for _ in 0..MAX_REDIRECTS {
            let connection = self.connection(&node);
            let sent = match ask {
                true => {
                    let mut both = Args::of([b"ASKING"]).request();
                    both.extend_from_slice(&request);
                    connection.send(both.into(), 2, kind).await
                }
                false => connection.send(request.clone(), 1, kind).await,
            };
            let redirect = match &sent {
                Ok(Value::Error(text)) => Redirect::read(text, &node),
                Ok(_) => None,
                Err(_) => {
                    self.refresh();
                    None
                }
            };
            match redirect {
                None => return sent,
                Some(Redirect { to, only_now }) => {
                    if !only_now {
                        self.map().moved.insert(slot, to.clone());
                        self.refresh();
                    }
                    (node, ask) = (to, only_now);
                }
            }
        }
        let text = format!("slot {slot} moved {MAX_REDIRECTS} times while it was asked");
        Err(Error::Unavailable(text))
    }

    /// Pings every master.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        let mut masters: Vec<Node> = {
            let map = self.map();
            map.slots.iter().map(|(_, _, node)| node.clone()).collect()
        };
        if masters.is_empty() {
            masters.push(self.find(0).await?);
        }
        masters.sort_by_key(Node::to_string);
        masters.dedup();
        for node in masters {
            let ping = Args::of([b"PING"]).request();
            let connection = self.connection(&node);
            let sent = connection.send(ping.into(), 1, Kind::Bytes).await;
            if let Err(error) = sent.and_then(accepted) {
                self.refresh();
                return Err(error);
            }
        }
        Ok(())
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.0.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self, node: &Node) -> Arc<Connection> {
        let connect = || {
            Arc::new(Connection::new(Dialer {
                target: Target::Node(node.clone()),
                login: self.0.login.clone(),
                database: 0,
                tls: self.0.tls.clone(),
            }))
        };
        let mut map = self.map();
        Arc::clone(map.connections.entry(node.clone()).or_insert_with(connect))
    }

    /// Reads the map, and returns the server that has a slot.
    async fn find(&self, slot: u16) -> Result<Node, Error> {
        self.read_map().await?;
        let owner = self.map().owner(slot);
        owner.ok_or_else(|| {
            let text = format!("no server of the cluster has slot {slot}");
            Error::Unavailable(text)
        })
    }

    /// Starts a task that reads the map, unless one is running. Requests do not wait for it.
    fn refresh(&self) {
        if self.0.refreshing.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            if let Err(error) = this.read_map().await {
                tracing::debug!(%error, "no server of the cluster tells where the slots are");
            }
            this.0.refreshing.store(false, Ordering::Relaxed);
        });
    }

    /// Asks the known servers and then those of the address, until one of them knows the map.
    async fn read_map(&self) -> Result<(), Error> {
        let mut nodes: Vec<Node> = self.map().connections.keys().cloned().collect();
        for seed in &self.0.seeds {
            if !nodes.contains(seed) {
                nodes.push(seed.clone());
            }
        }
        let mut last = Error::Unavailable("the cluster has no servers".to_owned());
        for node in nodes {
            let request = Args::of([b"CLUSTER", b"SLOTS"]).request();
            let sent = self
                .connection(&node)
                .send(request.into(), 1, Kind::List)
                .await;
            match sent {
                Ok(answer) => match read_slots(&answer, &node) {
                    Some(slots) if !slots.is_empty() => {
                        let mut map = self.map();
                        let known = |node: &Node, _: &mut Arc<Connection>| {
                            slots.iter().any(|(_, _, owner)| owner == node)
                        };
                        map.connections.retain(known);
                        map.slots = slots;
                        map.moved.clear();
                        return Ok(());
                    }
                    _ => last = Error::Unavailable(format!("{node} is not part of a cluster")),
                },
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// A server's answer that another server has the slot.
struct Redirect {
    to: Node,
    /// True while the slot is moving: this request goes to the other server, but later ones do not yet.
    only_now: bool,
}

impl Redirect {
    /// Reads `MOVED slot host:port` and `ASK slot host:port`. An empty host means the host that answered.
    fn read(text: &str, from: &Node) -> Option<Self> {
        let mut words = text.split(' ');
        let only_now = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        // Redis writes IPv6 addresses without brackets, so the port follows the last colon.
        let (host, port) = words.nth(1)?.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        let host = if host.is_empty() { &from.host } else { host };
        let to = Node {
            host: host.to_owned(),
            port: port.parse().ok()?,
        };
        Some(Self { to, only_now })
    }
}

/// Reads the answer to `CLUSTER SLOTS`: first and last slot, the master, its replicas.
fn read_slots(answer: &Value, from: &Node) -> Option<Vec<(u16, u16, Node)>> {
    let range = |range: &Value| {
        let [first, last, master, ..] = range.list()? else {
            return None;
        };
        let [host, port, ..] = master.list()? else {
            return None;
        };
        // A server that does not know its own address leaves the host out.
        let host = host.text().filter(|host| !host.is_empty() && *host != "?");
        let node = Node {
            host: host.unwrap_or(&from.host).to_owned(),
            port: u16::try_from(port.int()?).ok()?,
        };
        let slot = |value: &Value| u16::try_from(value.int()?).ok();
        Some((slot(first)?, slot(last)?, node))
    };
    answer.list()?.iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // The answers of CLUSTER KEYSLOT.
        for (tag, expected) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("user1000", 3_443),
        ] {
            assert_eq!(slot(tag.as_bytes()), expected, "{tag}");
        }
    }

    #[test]
    fn redirects_are_read() {
        let from = Node::parse("here", 1).unwrap();
        for (text, expected) in [
            ("MOVED 3999 127.0.0.1:6381", Some(("127.0.0.1:6381", false))),
            ("ASK 3999 h:1", Some(("h:1", true))),
            ("MOVED 3999 :6381", Some(("here:6381", false))),
            ("MOVED 3999 ::1:6381", Some(("[::1]:6381", false))),
            ("MOVED 3999", None),
            ("MOVED 3999 h:x", None),
            ("ERR MOVED 1 h:1", None),
        ] {
            let found = Redirect::read(text, &from);
            let found = found.map(|it| (it.to.to_string(), it.only_now));
            let expected = expected.map(|(to, only_now)| (to.to_owned(), only_now));
            assert_eq!(found, expected, "{text}");
        }
    }
}
