//! JetStream with a pull consumer, driven by the same load generator as the gate.

use anyhow::{Context, Result, bail};

use crate::bench::load::{Frame, Then, Workload, http};
use crate::bench::mailbox::nats::{frame, publish};

const STREAM: &str = r#"{"name":"jobs","subjects":["job"],"storage":"file","num_replicas":1}"#;
const CONSUMER: &str = r#"{"stream_name":"jobs","config":{"durable_name":"worker","ack_policy":"explicit","max_ack_pending":100000}}"#;

/// The steps of a connection: the first three once, the others again and again. To create what is there already
/// changes nothing.
const CONNECT: usize = 0;
const CREATE_STREAM: usize = 1;
const CREATE_CONSUMER: usize = 2;
const PUBLISH: usize = 3;
const PULL: usize = 4;
const ACK: usize = 5;

/// A workload: each connection publishes a message, pulls one and acknowledges it, each with an answer.
pub struct Messages {
    payload: String,
    /// For each connection, its next step, and where the message that it pulled is acknowledged.
    next: Vec<(usize, String)>,
}

impl Messages {
    pub fn new(connections: usize, payload: &str) -> Self {
        Self {
            payload: payload.to_owned(),
            next: vec![(CONNECT, String::new()); connections],
        }
    }
}

impl Workload for Messages {
    fn kinds(&self) -> &'static [&'static str] {
        &[
            "connect",
            "stream",
            "consumer",
            "publish",
            "pull",
            "acknowledge",
        ]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (step, acknowledge) = &self.next[connection];
        let inbox = format!("_INBOX.bench.{connection}");
        let text = match *step {
            CONNECT => format!(
                "CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {inbox} 1\r\nPING\r\n"
            ),
            CREATE_STREAM => publish("$JS.API.STREAM.CREATE.jobs", &inbox, STREAM),
            CREATE_CONSUMER => publish(
                "$JS.API.CONSUMER.DURABLE.CREATE.jobs.worker",
                &inbox,
                CONSUMER,
            ),
            PUBLISH => publish("job", &inbox, &self.payload),
            PULL => publish("$JS.API.CONSUMER.MSG.NEXT.jobs.worker", &inbox, "1"),
            _ => publish(acknowledge, &inbox, "+ACK"),
        };
        out.extend_from_slice(text.as_bytes());
        Some(*step)
    }

    fn frame(&self, input: &[u8]) -> Result<Option<Frame>> {
        frame(input)
    }

    fn answer(
        &mut self,
        connection: usize,
        step: usize,
        _status: u16,
        message: &[u8],
    ) -> Result<Then> {
        if step != PULL && message.windows(7).any(|part| part == b"\"error\"") {
            bail!("JetStream answered {}", http::shown(message));
        }
        let (next, acknowledge) = &mut self.next[connection];
        if step == PULL {
            let subject = reply_subject(message);
            let subject = subject.filter(|subject| subject.starts_with("$JS.ACK."));
            let asked = || format!("a pull was answered {}", http::shown(message));
            subject.with_context(asked)?.clone_into(acknowledge);
        }
        *next = step + 1;
        if step == ACK {
            *next = PUBLISH;
            return Ok(Then::Finished);
        }
        Ok(Then::Continue)
    }
}

/// Reads where a message wants its answer, from `MSG <subject> <id> <reply> <bytes>`.
fn reply_subject(message: &[u8]) -> Option<&str> {
    let line = message.split(|&byte| byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ').skip(3);
    let subject = words.next()?;
    // Without a size behind it, it is the size.
    words.next().map(|_| subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_the_answer_is_read() {
        let message = b"MSG job 1 $JS.ACK.jobs.worker.1.1.1.0.0 5\r\nhello";
        let subject = "$JS.ACK.jobs.worker.1.1.1.0.0";
        assert_eq!(reply_subject(message), Some(subject));
        assert_eq!(reply_subject(b"MSG _INBOX.bench.0 1 5\r\nhello"), None);
    }

    #[test]
    fn a_cycle_is_publish_pull_acknowledge() {
        let mut messages = Messages::new(1, "hello");
        messages.next[0].0 = PUBLISH;
        let mut out = Vec::new();
        assert_eq!(messages.request(0, &mut out), Some(PUBLISH));
        assert_eq!(out, b"PUB job _INBOX.bench.0 5\r\nhello\r\n");
        let published = b"MSG _INBOX.bench.0 1 24\r\n{\"stream\":\"jobs\",\"seq\":1}";
        let then = messages.answer(0, PUBLISH, 200, published).unwrap();
        assert_eq!(then, Then::Continue);
        assert_eq!(messages.request(0, &mut out), Some(PULL));
        assert!(messages.answer(0, PULL, 200, published).is_err());
        let pulled = b"MSG job 1 $JS.ACK.jobs.worker.1.1.1.0.0 5\r\nhello";
        assert_eq!(
            messages.answer(0, PULL, 200, pulled).unwrap(),
            Then::Continue
        );
        out.clear();
        assert_eq!(messages.request(0, &mut out), Some(ACK));
        assert!(out.starts_with(b"PUB $JS.ACK.jobs.worker.1.1.1.0.0 _INBOX"));
        let then = messages.answer(0, ACK, 200, b"MSG _INBOX.bench.0 1 0\r\n");
        assert_eq!(then.unwrap(), Then::Finished);
        assert_eq!(messages.request(0, &mut out), Some(PUBLISH));
    }
}
