//! Drawing the clients' calls to the mailbox.

use asyncgate_engine::Role;

use super::{
    Generator, Named,
    inputs::{Input, pick},
    keep,
};
use crate::step::Op;

pub(super) const TOPICS: [&str; 4] = ["jobs", "jobs", "user:42:inbox", "mail"];
/// Payloads in base64; plain letters are base64, too.
const PAYLOADS: [&str; 5] = ["", "eyJzIjoiaGkifQ==", "AAEC/w==", "@x8", "@x32"];
const REASONS: [&str; 3] = ["E_PARSE", "busy", "nack"];
const STATES: [&str; 3] = ["ready", "dlq", "all"];

/// The operations that clients call, with their weights.
const CALLS: [(Op, u32); 16] = [
    (Op::SEND, 30),
    (Op::SEND_BATCH, 6),
    (Op::RECV, 34),
    (Op::ACK_MESSAGE, 16),
    (Op::ACK_BATCH, 5),
    (Op::NACK, 12),
    (Op::EXTEND, 6),
    (Op::PEEK, 2),
    (Op::PURGE, 1),
    (Op::TOPICS, 2),
    (Op::DEAD_LETTERS, 3),
    (Op::REPROCESS, 2),
    (Op::HEADS, 1),
    (Op::GET_MESSAGE, 4),
    (Op::DELETE_MESSAGE, 1),
    (Op::REDRIVE_MESSAGE, 1),
];
/// The operations of operators.
const ADMINS: [Op; 4] = [
    Op::PURGE,
    Op::REPROCESS,
    Op::DELETE_MESSAGE,
    Op::REDRIVE_MESSAGE,
];
/// Items of batches that cannot be read.
const UNREADABLE: [&str; 3] = ["7", "{\"topic\":1}", "{\"msg_id\":[]}"];

impl Generator {
    /// Draws a call about messages, and returns the delivery it is about.
    pub(super) fn mail(
        &mut self,
        actor: usize,
        role: Role,
        patient: bool,
    ) -> (Op, String, Option<Named>) {
        let op = CALLS[self.rng.weighted(&CALLS.map(|(_, weight)| weight))].0;
        // Only admins may do some of these; others rarely try. A client with nothing to settle mostly
        // looks for messages.
        let admins = ADMINS.contains(&op);
        let settles = [Op::ACK_MESSAGE, Op::ACK_BATCH, Op::NACK, Op::EXTEND].contains(&op);
        let idle = settles && self.clients[actor].deliveries.is_empty();
        let op = match role {
            Role::Admin if self.rng.one_in(4) => *self.rng.pick(&ADMINS),
            Role::Agent | Role::Worker if admins && !self.rng.one_in(8) => Op::RECV,
            Role::Admin | Role::System | Role::Agent | Role::Worker
                if idle && !self.rng.one_in(8) =>
            {
                Op::RECV
            }
            Role::Admin | Role::System | Role::Agent | Role::Worker => op,
        };
        let mut input = Input::default();
        let mut held = None;
        match op {
            Op::SEND => self.letter(&mut input),
            Op::SEND_BATCH => {
                let sends = self.list(|generator| {
                    let mut one = Input::default();
                    generator.letter(&mut one);
                    one.finish()
                });
                input.raw("messages", &sends);
            }
            Op::RECV => self.receive(&mut input, patient),
            Op::ACK_MESSAGE | Op::NACK | Op::EXTEND => {
                held = self.settle(actor, op, &mut input);
            }
            Op::ACK_BATCH => {
                let acks = self.list(|generator| {
                    let mut one = Input::default();
                    generator.settle(actor, Op::ACK_MESSAGE, &mut one);
                    one.finish()
                });
                input.raw("acks", &acks);
            }
            Op::PEEK => {
                input.text("topic", TOPICS[self.rng.below(4)]);
                self.bounds(&mut input);
            }
            Op::PURGE => {
                input.text("topic", TOPICS[self.rng.below(4)]);
                input.text("state", STATES[self.rng.below(3)]);
            }
            Op::TOPICS => {
                if self.rng.one_in(2) {
                    input.text("cursor", TOPICS[self.rng.below(4)]);
                }
                self.page_of_mail(&mut input);
            }
            Op::GET_MESSAGE | Op::DELETE_MESSAGE | Op::REDRIVE_MESSAGE => {
                let message = match self.rng.one_in(3) {
                    true => self.named(actor, |client| &client.deliveries),
                    false => self.named(actor, |client| &client.sent),
                };
                input.name("msg_id", "m", message);
            }
            Op::DEAD_LETTERS => self.dead_letters(actor, &mut input),
            Op::REPROCESS => self.reprocess(&mut input),
            _ => {}
        }
        if self.rng.one_in(200) {
            input.number("odd", 1);
        }
        (op, input.finish(), held)
    }

    fn letter(&mut self, input: &mut Input) {
        // Half of the names are drawn from few, so that they come again. The content mostly follows from
        // the name, so that most repetitions are honest ones.
        let names = *self.rng.pick(&[40, 40_000]);
        let key = self.rng.below(names);
        let content = if self.rng.one_in(12) {
            self.rng.below(60)
        } else {
            key
        };
        let topic = if self.rng.one_in(200) {
            ""
        } else {
            TOPICS[key % TOPICS.len()]
        };
        input.text("topic", topic);
        input.field("idem_key", &["\"k", &key.to_string(), "\""]);
        // Some payloads are too large.
        let payload = match self.rng.below(300) {
            0 => "@x800",
            _ => PAYLOADS[content % PAYLOADS.len()],
        };
        // Some are given as text; a few in both forms, or in none.
        match self.rng.below(400) {
            0 => {}
            1 => {
                input.text("payload_b64", payload);
                input.text("payload_text", payload);
            }
            2..100 => input.text("payload_text", payload),
            _ => input.text("payload_b64", payload),
        }
        if self.rng.one_in(4) {
            input.raw("attrs", "{\"content-type\":\"text\",\"a\":\"\"}");
        }
        if self.rng.one_in(3) {
            input.text("partition_key", ["p0", "p1", "p2"][self.rng.below(3)]);
        }
        if self.rng.one_in(4) {
            let delay = *self.rng.pick(&[0, 1, 300, 5_000, 60_000]);
            input.number("delay_ms", if self.rng.one_in(40) { -1 } else { delay });
        }
        if self.rng.one_in(5) {
            input.number("ttl_ms", *self.rng.pick(&[1, 1_000, 20_000, 3_600_000]));
        }
        if self.rng.one_in(3) {
            input.number("priority", self.rng.below(3) as i64 - 1);
        }
        if self.rng.one_in(10) {
            input.text("idempotency_mode", "409-conflict");
        }
    }

    fn receive(&mut self, input: &mut Input, patient: bool) {
        input.text("topic", TOPICS[self.rng.below(4)]);
        self.bounds(input);
        if self.rng.one_in(2) {
            let visibility = *self.rng.pick(&[250, 300, 1_000, 5_000, 60_000, 43_200_000]);
            let visibility = if self.rng.one_in(60) { 1 } else { visibility };
            input.number("visibility_ms", visibility);
        }
        if patient && self.rng.one_in(3) {
            input.number("wait_seconds", 1 + self.rng.below(20) as i64);
        }
    }

    /// Draws the number of messages and their size together.
    fn bounds(&mut self, input: &mut Input) {
        if !self.rng.one_in(4) {
            let most = if self.rng.one_in(40) {
                0
            } else {
                1 + self.rng.below(4)
            };
            input.number("max_messages", most as i64);
        }
        if self.rng.one_in(5) {
            input.number("max_bytes", *self.rng.pick(&[0, 10, 30, 60]));
        }
    }

    fn settle(&mut self, actor: usize, op: Op, input: &mut Input) -> Option<Named> {
        let message = self.delivery(actor, op);
        input.name("msg_id", "m", message);
        if !self.rng.one_in(6) {
            input.name("lease", "d", message);
        }
        match op {
            Op::NACK => {
                if self.rng.one_in(2) {
                    input.text("reason", REASONS[self.rng.below(3)]);
                }
                if self.rng.one_in(4) {
                    input.text("error", "it broke");
                }
                if self.rng.one_in(3) {
                    input.number("delay_ms", *self.rng.pick(&[0, 0, 1, 400, 30_000]));
                }
            }
            Op::EXTEND if self.rng.one_in(2) => {
                let visibility = *self.rng.pick(&[250, 1_000, 10_000, 600_000]);
                input.number("visibility_ms", visibility);
            }
            _ => {}
        }
        message
    }

    /// Draws a message to settle: mostly one that is held, sometimes one that was settled before, belongs to
    /// another client or was only sent.
    fn delivery(&mut self, actor: usize, op: Op) -> Option<Named> {
        match self.rng.below(24) {
            0 => return self.named(actor, |client| &client.sent),
            1 => {
                let other = self.rng.below(self.clients.len());
                return pick(&self.clients[other].deliveries, self.rng.next_u64());
            }
            _ => {}
        }
        let client = &mut self.clients[actor];
        if client.deliveries.is_empty() || self.rng.one_in(12) {
            return pick(&client.settled, self.rng.next_u64());
        }
        let n = self.rng.below(client.deliveries.len());
        let held = client.deliveries.get(n).copied();
        if op != Op::EXTEND && !self.rng.one_in(8) {
            client.deliveries.remove(n);
            client.settled.extend(held);
            keep(&mut client.settled);
        }
        held
    }

    fn page_of_mail(&mut self, input: &mut Input) {
        if self.rng.one_in(2) {
            let limit = if self.rng.one_in(40) {
                0
            } else {
                1 + self.rng.below(10)
            };
            input.number("limit", limit as i64);
        }
    }

    fn dead_letters(&mut self, actor: usize, input: &mut Input) {
        if self.rng.one_in(2) {
            input.text("topic", TOPICS[self.rng.below(4)]);
        }
        if self.rng.one_in(8) {
            let after = self.named(actor, |client| &client.sent);
            input.name("cursor", "m", after);
        }
        self.which_dead(input);
    }

    fn reprocess(&mut self, input: &mut Input) {
        input.text("topic", TOPICS[self.rng.below(4)]);
        if self.rng.one_in(8) {
            input.raw("dry_run", "true");
        } else if self.rng.one_in(6) {
            input.number("per_second", 1 + self.rng.below(3) as i64);
        }
        self.which_dead(input);
    }

    fn which_dead(&mut self, input: &mut Input) {
        if self.rng.one_in(4) {
            input.text("reason", ["E_PARSE", "nack", "expired"][self.rng.below(3)]);
        }
        if self.rng.one_in(6) {
            input.number("older_than_secs", *self.rng.pick(&[0, 1, 60]));
        }
        self.page_of_mail(input);
    }

    /// Draws a list of one to six items.
    fn list(&mut self, item: impl Fn(&mut Self) -> String) -> String {
        let count = 1 + self.rng.below(6);
        let items = (0..count).map(|_| match self.rng.one_in(60) {
            true => (*self.rng.pick(&UNREADABLE)).to_owned(),
            false => item(self),
        });
        let items: Vec<String> = items.collect();
        format!("[{}]", items.join(","))
    }
}
