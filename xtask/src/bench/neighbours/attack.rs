//! The attacks: what each sends, over how many connections, and what it finds prepared.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use clap::ValueEnum;

use super::crowd::{Crowd, Script};
use super::frames;
use crate::bench::caller::Caller;
use crate::bench::load::http::Head;
use crate::bench::load::{Plan, Then, Workload, drive};
use crate::bench::mailbox::workload::{Batches, Names, receive};
use crate::bench::server::Server;
use crate::bench::workload::Create;
use crate::bench::{Bench, CONNECTIONS};

/// The content of a large task.
const LARGE: usize = 1_000_000;
/// The most names in a list of types or capabilities.
const NAMES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// Claims over 50,000 types with as many sets of capabilities
    Classes,
    /// Batches of 1,000 messages
    Batches,
    /// Creates of 1 MB
    LargeCreates,
    /// 5,000 claims that wait for 64 types each
    Waiters,
    /// Lists filtered by a type that nobody has
    Filters,
    /// Lists of tasks of 1 MB
    LargeLists,
    /// Batches of 100 `list_tasks` over MCP
    McpBatches,
    /// Lists of tasks of 1 MB that nobody reads
    Unread,
    /// HTTP/2 connections that let nothing be sent to them
    Window,
    /// Strangers' bodies that never end
    Bodies,
    /// Small messages until there is no room for more
    Fill,
    /// Messages that a receiver keeps
    Held,
    /// Bodies of 50,000 gzip members
    Members,
    /// Connections that say nothing, or "P"
    Silent,
    /// Wrong secrets for a key that exists
    Secrets,
}

/// The size of an attack.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub connections: usize,
    /// True if the attack lives from answers. The others hold on to something.
    pub has_rate: bool,
    /// The most requests in a run that is long, for an attack whose writes stay.
    pub bound: Option<u64>,
}

impl Attack {
    pub fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    pub fn shape(self) -> Shape {
        let (connections, has_rate, bound) = match self {
            Self::Classes | Self::Filters | Self::LargeLists | Self::McpBatches => {
                (CONNECTIONS, true, None)
            }
            Self::Batches => (CONNECTIONS, true, Some(3_000)),
            Self::LargeCreates => (200, true, Some(3_000)),
            Self::Fill => (CONNECTIONS, false, Some(10_000)),
            Self::Held | Self::Members | Self::Window | Self::Secrets => (CONNECTIONS, false, None),
            Self::Unread => (300, false, None),
            Self::Bodies => (1_000, false, None),
            Self::Silent => (2_000, false, None),
            Self::Waiters => (5_000, false, None),
        };
        Shape {
            connections,
            has_rate,
            bound,
        }
    }

    /// The settings under which the attack can reach what it is after.
    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // One tenant alone gets three quarters of it.
            Self::Fill => &[("ASYNCGATE_MAILBOX_DEDUP_CAPACITY", "42000")],
            // A tenant may have 10,000 by default.
            Self::Classes => &[("ASYNCGATE_MAX_TASK_CLASSES", "51000")],
            Self::Batches
            | Self::LargeCreates
            | Self::Waiters
            | Self::Filters
            | Self::LargeLists
            | Self::Unread
            | Self::McpBatches
            | Self::Window
            | Self::Bodies
            | Self::Held
            | Self::Members
            | Self::Silent
            | Self::Secrets => &[],
        }
    }

    /// Fills the attacker's tenant with what the attack needs.
    pub fn prepare(self, bench: &Bench, server: &Server, key: &str) -> Result<()> {
        let head = Head::new(&server.addr.to_string(), key);
        let fewer = |full: u64, quick: u64| if bench.quick { quick } else { full };
        let plan = Plan::to_the_end(CONNECTIONS);
        match self {
            Self::Classes => {
                let mut classes = Classes { head, left: 50_000 };
                drive(server.addr, plan, &mut classes)?;
            }
            Self::Filters | Self::McpBatches => {
                let mut tasks = Create::echo(&head).times(fewer(200_000, 20_000));
                drive(server.addr, plan, &mut tasks)?;
            }
            Self::LargeLists | Self::Unread | Self::Window => {
                let mut caller = Caller::connect(server.addr)?;
                for _ in 0..fewer(100, 60) {
                    caller.send(&large_create(&head))?;
                    caller.answer(201)?;
                }
            }
            Self::Held => {
                let mut messages = Batches::new(&head, 100).messages(20_000);
                drive(server.addr, plan, &mut messages)?;
            }
            Self::Batches
            | Self::LargeCreates
            | Self::Waiters
            | Self::Bodies
            | Self::Fill
            | Self::Members
            | Self::Silent
            | Self::Secrets => {}
        }
        Ok(())
    }

    pub fn crowd(self, addr: SocketAddr, key: &str) -> Crowd {
        Crowd {
            connections: self.shape().connections,
            reads: !matches!(self, Self::Unread | Self::Window),
            left: u64::MAX,
            script: self.script(addr, key),
        }
    }

    fn script(self, addr: SocketAddr, key: &str) -> Script {
        let host = addr.to_string();
        let head = Head::new(&host, key);
        match self {
            Self::Classes => claims(&head),
            Self::Batches => batches(head, 1_000),
            Self::Fill => batches(head, 100),
            Self::LargeCreates => same(large_create(&head)),
            Self::Waiters => waiters(head),
            Self::Filters => same(head.get("/v1/tasks?type=nope&limit=200")),
            Self::LargeLists | Self::Unread => same(head.get("/v1/tasks?limit=200")),
            Self::McpBatches => same(mcp_batch(&host, key)),
            Self::Window => same(frames::zero_window(&host, key, "/v1/tasks?limit=200")),
            Self::Bodies => bodies(&host),
            Self::Held => same(receive(&head, 32, 43_200_000, 0)),
            Self::Members => same(members(&host, key)),
            // Half of them say nothing at all.
            Self::Silent => Box::new(|member| Arc::from(&b"P"[..member % 2])),
            Self::Secrets => secrets(host, key),
        }
    }
}

fn same(request: Vec<u8>) -> Script {
    let request: Arc<[u8]> = request.into();
    Box::new(move |_| Arc::clone(&request))
}

fn large_create(head: &Head) -> Vec<u8> {
    let content = "x".repeat(LARGE);
    head.post(
        "/v1/tasks",
        &format!(r#"{{"type":"large","payload":"{content}"}}"#),
    )
}

/// Names of types or capabilities: `"a-0","a-1",...`.
fn names(prefix: &str) -> String {
    let mut text = String::new();
    for n in 0..NAMES {
        let _ = write!(text, r#"{}"{prefix}-{n}""#, if n == 0 { "" } else { "," });
    }
    text
}

/// Claims that find nothing among many classes: by types that nobody has, and by capabilities that never suffice.
fn claims(head: &Head) -> Script {
    let claim = |extra: String| {
        let body = format!(r#"{{"worker_id":"w1","max_tasks":100,{extra}}}"#);
        Arc::<[u8]>::from(head.post("/v1/leases/claim", &body))
    };
    let by_type = claim(format!(r#""accept_types":[{}]"#, names("nope")));
    let by_capability = claim(format!(r#""capabilities":[{}]"#, names("c")));
    let mut turn = 0_u64;
    Box::new(move |_| {
        turn += 1;
        Arc::clone(if turn.is_multiple_of(2) {
            &by_type
        } else {
            &by_capability
        })
    })
}

/// Each class has a type of its own and a set of capabilities of its own, of which one is never offered.
struct Classes {
    head: Head,
    left: u64,
}

impl Workload for Classes {
    fn kinds(&self) -> &'static [&'static str] {
        &["create"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let n = self.left;
        let (first, second, third) = (n % 64, n / 64 % 64, n / 4_096);
        let body = format!(
            r#"{{"type":"type-{n}","payload":{{}},"requirements":{{"capabilities":["c-{first}","c-{second}","missing-{third}"]}}}}"#
        );
        self.head.write_post(out, &["/v1/tasks"], &[&body]);
        Some(0)
    }

    fn answer(
        &mut self,
        _connection: usize,
        _kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        anyhow::ensure!(status == 201, "{status}: {}", String::from_utf8_lossy(body));
        Ok(Then::Finished)
    }
}

fn batches(head: Head, size: usize) -> Script {
    let mut all = Names::default();
    Box::new(move |member| {
        let mut body = String::with_capacity(size * 96);
        body.push_str(r#"{"messages":["#);
        for n in 0..size {
            let name = all.next();
            let comma = if n == 0 { "" } else { "," };
            let _ = write!(
                body,
                r#"{comma}{{"topic":"loud:{member}","idem_key":"{name}","payload_b64":"YQ=="}}"#
            );
        }
        body.push_str("]}");
        head.post("/v1/send/batch", &body).into()
    })
}

fn waiters(head: Head) -> Script {
    Box::new(move |member| {
        let types = names(&format!("nope-{member}"));
        let body = format!(r#"{{"worker_id":"w1","accept_types":[{types}],"wait_seconds":30}}"#);
        head.post("/v1/leases/claim", &body).into()
    })
}

fn mcp_batch(host: &str, key: &str) -> Vec<u8> {
    let call = |id: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"asyncgate_list_tasks","arguments":{{"limit":200}}}}}}"#
        )
    };
    let calls: Vec<String> = (0..100).map(call).collect();
    let accept = "Accept: application/json, text/event-stream\r\n";
    request(
        host,
        Some(key),
        "/mcp",
        accept,
        format!("[{}]", calls.join(",")).as_bytes(),
    )
}

/// Bodies of strangers of which only the start comes, on every path that might read one.
fn bodies(host: &str) -> Script {
    let begun = |path: &str, announced: usize, sent: usize| {
        let mut whole = request(host, None, path, "", &vec![b' '; announced]);
        whole.truncate(whole.len() - announced + sent);
        Arc::<[u8]>::from(whole)
    };
    let requests = [
        begun("/v1/tasks", LARGE, 100_000),
        begun("/mcp", 4_000, 100),
        begun("/v1/ingress/nobody", LARGE, 100_000),
        begun("/domain/quotaStatus", LARGE, 100_000),
    ];
    Box::new(move |member| Arc::clone(&requests[member % requests.len()]))
}

/// A create whose compressed body has 50,000 parts, each of them empty.
fn members(host: &str, key: &str) -> Vec<u8> {
    const EMPTY: [u8; 20] = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    request(
        host,
        Some(key),
        "/v1/tasks",
        "Content-Encoding: gzip\r\n",
        &EMPTY.repeat(50_000),
    )
}

/// Guesses at the secret of a key, each of them another one.
fn secrets(host: String, key: &str) -> Script {
    // The form of a key: `aga_`, a lookup id of 12 characters, and the secret.
    let known = key.get(..16).unwrap_or(key).to_owned();
    let mut guess = 0_u64;
    Box::new(move |_| {
        guess += 1;
        Head::new(&host, &format!("{known}{guess:040}"))
            .get("/v1/tasks?limit=1")
            .into()
    })
}

fn request(host: &str, key: Option<&str>, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let credential = key.map_or(String::new(), |key| {
        format!("Authorization: Bearer {key}\r\n")
    });
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\n{credential}Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_sends_what_it_says() {
        let addr: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let key = "aga_0123456789ABsecret";
        for attack in Attack::value_variants() {
            let mut crowd = attack.crowd(addr, key);
            assert!(crowd.connections >= CONNECTIONS);
            let request = (crowd.script)(1);
            assert!(
                request.starts_with(b"P") || request.starts_with(b"GET "),
                "{attack:?}"
            );
            let strange = String::from_utf8_lossy(&request);
            let known = strange.contains("aga_0123456789AB");
            let stranger = matches!(attack, Attack::Bodies | Attack::Silent);
            assert_eq!(known, !stranger, "{attack:?}");
        }
        let mut guesses = Attack::Secrets.script(addr, key);
        assert_ne!(guesses(0), guesses(0));
    }

    #[test]
    fn unfinished_bodies_are_shorter_than_announced() {
        let addr: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let mut script = Attack::Bodies.script(addr, "");
        for member in 0..4 {
            let request = script(member);
            let text = std::str::from_utf8(&request).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let length = head.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
            assert!(!body.is_empty() && body.len() < length);
        }
    }
}
