//! JetStream publishes with acknowledgement, driven by the same load generator.

use std::net::SocketAddr;

use anyhow::{Result, bail};

use crate::bench::Bench;
use crate::bench::load::{Frame, Plan, Then, Workload, drive, http};

const CONNECT: usize = 0;
const CREATE: usize = 1;
const PUBLISH: usize = 2;

/// Measures publishes per second with this many connections.
pub fn rate(addr: SocketAddr, clients: usize, bench: &Bench) -> Result<f64> {
    let plan = Plan::closed(clients, bench.seconds(2, 1), bench.seconds(6, 2));
    Ok(drive(addr, plan, &mut Publishes::new(clients))?.per_second())
}

/// A workload: each connection greets, one of them makes the stream, and all publish.
struct Publishes {
    next: Vec<usize>,
}

impl Publishes {
    fn new(connections: usize) -> Self {
        Self {
            next: vec![CONNECT; connections],
        }
    }
}

impl Workload for Publishes {
    fn kinds(&self) -> &'static [&'static str] {
        &["connect", "create", "publish"]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let kind = self.next[connection];
        let inbox = format!("_INBOX.bench.{connection}");
        let text = match kind {
            CONNECT => format!(
                "CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {inbox} 1\r\nPING\r\n"
            ),
            CREATE => {
                let config =
                    r#"{"name":"bench","subjects":["bench.>"],"storage":"file","num_replicas":1}"#;
                publish("$JS.API.STREAM.CREATE.bench", &inbox, config)
            }
            _ => publish("bench.inbox", &inbox, &"x".repeat(100)),
        };
        out.extend_from_slice(text.as_bytes());
        Some(kind)
    }

    fn frame(&self, input: &[u8]) -> Result<Option<Frame>> {
        frame(input)
    }

    fn answer(
        &mut self,
        connection: usize,
        kind: usize,
        _status: u16,
        body: &[u8],
    ) -> Result<Then> {
        if kind != CONNECT && body.windows(7).any(|part| part == b"\"error\"") {
            // While another connection is still making the stream, the answer is that nobody listens.
            bail!("JetStream answered {}", http::shown(body));
        }
        self.next[connection] = match kind {
            CONNECT => CREATE,
            _ => PUBLISH,
        };
        Ok(if kind == PUBLISH {
            Then::Finished
        } else {
            Then::Continue
        })
    }
}

/// Cuts one answer off the input: a PONG, or a message with its line and its content. Other lines of the server are
/// skipped.
pub fn frame(input: &[u8]) -> Result<Option<Frame>> {
    let mut at = 0;
    while let Some(end) = input[at..].windows(2).position(|pair| pair == b"\r\n") {
        let line = &input[at..at + end];
        let after = at + end + 2;
        if line.starts_with(b"PONG") {
            return Ok(Some(Frame {
                len: after,
                status: 200,
                body: at..at + end,
            }));
        }
        if line.starts_with(b"MSG ") {
            let text = std::str::from_utf8(line)?;
            let size: usize = text.rsplit(' ').next().unwrap_or_default().parse()?;
            let len = after + size + 2;
            let frame = Frame {
                len,
                status: 200,
                body: at..after + size,
            };
            return Ok((input.len() >= len).then_some(frame));
        }
        if line.starts_with(b"-ERR") {
            bail!("NATS answered {}", http::shown(line));
        }
        at = after;
    }
    Ok(None)
}

/// Writes a publish that is answered at `inbox`.
pub fn publish(subject: &str, inbox: &str, content: &str) -> String {
    format!("PUB {subject} {inbox} {}\r\n{content}\r\n", content.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_cut_behind_what_is_said_unasked() {
        let input = b"INFO {}\r\nPONG\r\nMSG _INBOX.bench.0 1 5\r\nhello\r\n";
        let pong = frame(input).unwrap().unwrap();
        assert_eq!((pong.len, &input[pong.body.clone()]), (15, &b"PONG"[..]));
        let rest = &input[pong.len..];
        let message = frame(rest).unwrap().unwrap();
        assert_eq!(
            &rest[message.body.clone()],
            b"MSG _INBOX.bench.0 1 5\r\nhello"
        );
        assert_eq!(message.len, rest.len());
        assert_eq!(frame(&rest[..rest.len() - 1]).unwrap(), None);
    }
}
