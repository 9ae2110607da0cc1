//! Drawing the inputs of the clients' calls.

use std::collections::VecDeque;

use asyncgate_engine::Role;

use super::{Generator, Named, keep};
use crate::{step::Op, world::World};

const TYPES: [&str; 4] = ["echo", "render", "fetch", "train"];
const NEEDS: [&str; 6] = ["", "", "", "\"gpu\"", "\"net\",\"db\"", "\"gpu\",\"gpu\""];
const STATUSES: [&str; 6] = [
    "queued",
    "leased",
    "running",
    "succeeded",
    "failed",
    "canceled",
];
const RECEIPT_TYPES: [&str; 4] = [
    "task.assigned",
    "lease.expired",
    "system.anomaly",
    "ledger.signed",
];

/// The operations that agents call, with their weights.
const AGENT: [(Op, u32); 15] = [
    (Op::CREATE, 40),
    (Op::GET, 28),
    (Op::LIST, 2),
    (Op::CANCEL, 6),
    (Op::OBLIGATIONS, 4),
    (Op::BOOTSTRAP, 1),
    (Op::INBOX, 2),
    (Op::LEDGER, 2),
    (Op::RECEIPT, 4),
    (Op::ACK, 3),
    (Op::HEAD, 1),
    (Op::READ, 1),
    (Op::CONFIG, 1),
    (Op::HEALTH, 1),
    (Op::LEASE, 1),
];
/// The operations that workers call, with their weights.
const WORKER: [(Op, u32); 14] = [
    (Op::LEASE, 24),
    (Op::COMPLETE, 26),
    (Op::FAIL, 10),
    (Op::RENEW, 8),
    (Op::START, 8),
    (Op::PROGRESS, 7),
    (Op::RELEASE, 4),
    (Op::GET, 5),
    (Op::LEDGER, 2),
    (Op::INBOX, 1),
    (Op::OBLIGATIONS, 1),
    (Op::RECEIPT, 2),
    (Op::ACK, 1),
    (Op::CREATE, 1),
];

impl Generator {
    pub(super) fn operation(&mut self, actor: usize, world: &World) -> Op {
        let role = world.actors()[actor].caller.role;
        let works = match role {
            Role::Agent => false,
            Role::Worker => true,
            Role::Admin | Role::System => self.rng.one_in(2),
        };
        if works {
            WORKER[self.rng.weighted(&WORKER.map(|(_, weight)| weight))].0
        } else {
            AGENT[self.rng.weighted(&AGENT.map(|(_, weight)| weight))].0
        }
    }

    /// Draws an input, and returns the lease it is about.
    pub(super) fn input(
        &mut self,
        actor: usize,
        op: Op,
        patient: bool,
        world: &World,
    ) -> (String, Option<Named>) {
        let mut input = Input::default();
        let mut hold = None;
        match op {
            Op::CREATE => self.create(actor, &mut input, world),
            Op::GET => {
                self.task(actor, &mut input);
                if patient && self.rng.one_in(4) {
                    input.number("wait_seconds", 1 + self.rng.below(10) as i64);
                }
            }
            Op::LIST => {
                if self.rng.one_in(2) {
                    input.text("status", STATUSES[self.rng.below(6)]);
                }
                if self.rng.one_in(3) {
                    input.text("type", TYPES[self.rng.below(4)]);
                }
                self.limit(&mut input, "limit");
            }
            Op::CANCEL => {
                self.task(actor, &mut input);
                if self.rng.one_in(2) {
                    input.text("reason", "changed my mind");
                }
            }
            Op::OBLIGATIONS | Op::INBOX | Op::READ => self.page(actor, &mut input, "limit"),
            Op::BOOTSTRAP => self.page(actor, &mut input, "max_items"),
            Op::LEDGER => self.ledger(actor, &mut input),
            Op::RECEIPT | Op::ACK => {
                let receipt = self.named(actor, |client| &client.receipts);
                input.name("receipt_id", "r", receipt);
            }
            Op::LEASE => self.lease(actor, &mut input, patient, world),
            Op::RENEW | Op::RELEASE | Op::START | Op::PROGRESS | Op::COMPLETE | Op::FAIL => {
                hold = self.under_lease(actor, op, &mut input, world);
            }
            _ => {}
        }
        // Now and then an unknown field, which must be refused.
        if self.rng.one_in(200) {
            input.number("odd", 1);
        }
        self.principal(op, &mut input, actor, world);
        (input.finish(), hold)
    }

    /// Names a principal: an admin acts for others; others name themselves, or try what they must not.
    fn principal(&mut self, op: Op, input: &mut Input, actor: usize, world: &World) {
        let who = &world.actors()[actor].caller;
        let worker = [
            Op::LEASE,
            Op::RENEW,
            Op::RELEASE,
            Op::START,
            Op::PROGRESS,
            Op::COMPLETE,
            Op::FAIL,
        ];
        if [Op::CONFIG, Op::HEALTH, Op::HEAD, Op::READ].contains(&op) {
            return;
        }
        let works = worker.contains(&op);
        match who.role {
            Role::Admin if works && self.rng.one_in(4) => input.text("worker_id", "w1"),
            Role::Admin if !works && self.rng.one_in(3) => input.text("principal_id", "a0"),
            Role::Worker if works && self.rng.one_in(3) => {
                input.text("worker_id", &who.principal.id);
            }
            Role::Worker if works && self.rng.one_in(200) => input.text("worker_id", "somebody"),
            Role::Agent if !works && self.rng.one_in(200) => {
                input.text("principal_id", "somebody");
            }
            Role::Admin | Role::System | Role::Worker | Role::Agent => {}
        }
    }

    fn create(&mut self, actor: usize, input: &mut Input, world: &World) {
        let keyed = self.rng.one_in(2);
        // The content under a key mostly follows from the key, so that most repetitions are honest ones.
        let key = self.rng.below(400) + actor;
        let content = if keyed && !self.rng.one_in(12) {
            key
        } else {
            self.rng.below(1_000)
        };
        input.text("type", TYPES[content % TYPES.len()]);
        match content % 7 {
            0 => {}
            1 => input.raw("payload", "[1, 2.50,{\"b\":1,\"a\" : null}]"),
            2 => input.raw("payload", "\"\\u0000 and \\u00e9\""),
            _ => input.field("payload", &["{\"n\":", &content.to_string(), "}"]),
        }
        let needs = NEEDS[content % NEEDS.len()];
        if !needs.is_empty() {
            let value = ["{\"capabilities\":[", needs, "],\"tags\":[\"x\"]}"];
            input.field("requirements", &value);
        }
        if keyed {
            input.field("idempotency_key", &["\"k", &key.to_string(), "\""]);
        } else if self.rng.one_in(300) {
            input.text("payload", "@x600");
        }
        if self.rng.one_in(2) {
            input.number("priority", self.rng.below(5) as i64 - 2);
        }
        self.contract(content, input);
        if self.rng.one_in(4) {
            input.number("delay_seconds", *self.rng.pick(&[0, 1, 5, 60]));
        }
        if self.rng.one_in(2) {
            input.number("max_attempts", 1 + self.rng.below(4) as i64);
        }
        input.number(
            "retry_backoff_seconds",
            *self.rng.pick(&[0, 1, 1, 10, 4_000_000_000]),
        );
        if world.actors()[actor].caller.role == Role::Admin && self.rng.one_in(2) {
            input.text("principal_kind", "human");
            input.text("principal_id", "a1");
        }
    }

    /// Draws an owner's terms. They follow from the content, because they are part of it.
    fn contract(&mut self, content: usize, input: &mut Input) {
        match content % 16 {
            0 => input.raw("timeouts", "{\"deadline_seconds\":5}"),
            1 => input.raw(
                "timeouts",
                "{\"deadline_seconds\":90,\"lease_ttl_seconds\":2}",
            ),
            2 => input.raw("timeouts", "{\"deadline_seconds\":600}"),
            3 => input.raw("timeouts", "{\"lease_ttl_seconds\":9999}"),
            4 => input.text("instructions", "do it well"),
            5 => input.raw("success_criteria", "{\"pages\":3}"),
            _ => {}
        }
        if self.rng.one_in(8) {
            input.number("max_lease_expiries", *self.rng.pick(&[0, 1, 1, 2]));
        }
    }

    fn lease(&mut self, actor: usize, input: &mut Input, patient: bool, world: &World) {
        let offers = world.actors()[actor].offers;
        if !offers.is_empty() {
            let mut list = offers.to_vec();
            list.rotate_left(self.rng.below(offers.len()));
            input.field("capabilities", &["[\"", &list.join("\",\""), "\"]"]);
        }
        if self.rng.one_in(6) {
            let types = [self.rng.pick(&TYPES), self.rng.pick(&TYPES)];
            let value = ["[\"", types[0], "\",\"", types[1], "\"]"];
            input.field("accept_types", &value);
        }
        if self.rng.one_in(6) {
            input.number(
                "max_tasks",
                *self.rng.pick(&[1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 100]),
            );
        }
        if self.rng.one_in(2) {
            input.number(
                "lease_ttl_seconds",
                *self.rng.pick(&[1, 1, 5, 30, 1_800, 9_999]),
            );
        }
        if patient && self.rng.one_in(4) {
            input.number("wait_seconds", 1 + self.rng.below(20) as i64);
        }
    }

    fn under_lease(
        &mut self,
        actor: usize,
        op: Op,
        input: &mut Input,
        world: &World,
    ) -> Option<Named> {
        let hold = self.hold(actor, op, world);
        input.name("task_id", "t", hold);
        input.name("lease_id", "l", hold);
        match op {
            Op::RENEW if self.rng.one_in(2) => {
                input.number("extend_by_seconds", *self.rng.pick(&[1, 5, 60, 5_000]));
            }
            Op::PROGRESS => {
                let done = self.rng.below(100).to_string();
                input.field("progress", &["{\"done\":", &done, "}"]);
            }
            Op::COMPLETE => self.complete(input),
            Op::FAIL => {
                input.raw("error", "{\"why\":\"it broke\"}");
                if !self.rng.one_in(4) {
                    input.raw("retryable", "true");
                }
                if self.rng.one_in(8) {
                    input.number("retry_after_seconds", *self.rng.pick(&[0, 3, 300]));
                }
            }
            _ => {}
        }
        hold
    }

    fn complete(&mut self, input: &mut Input) {
        match self.rng.below(64) {
            0 => input.text("result", "@x600"),
            // Larger than a receipt may be, in worlds that allow such payloads.
            1 if self.rng.one_in(8) => input.text("result", "@x70000"),
            _ => input.raw("result", "{\"answer\": 42}"),
        }
        match self.rng.below(16) {
            0..=7 => input.raw("artifacts", "[{\"type\":\"url\",\"url\":\"s3://x\"}]"),
            8 => input.raw("artifacts", "{\"id\":7}"),
            9 | 10 => input.raw("delivery_proof", "{\"sent\":true}"),
            11 => {
                let texts = ["[]", "\"\"", "\"s3://b/x\""];
                input.raw("artifacts", texts[self.rng.below(texts.len())]);
            }
            12 if self.rng.one_in(8) => input.text("artifacts", "@a101"),
            13 if self.rng.one_in(8) => input.text("artifacts", "@a100"),
            _ => {}
        }
    }

    /// Draws a lease to work under: mostly one that is held, sometimes an old one or another client's.
    fn hold(&mut self, actor: usize, op: Op, world: &World) -> Option<Named> {
        if self.rng.one_in(16) {
            let other = self.rng.below(self.clients.len());
            let other = if world.actors()[other].tenant == world.actors()[actor].tenant
                || self.rng.one_in(4)
            {
                other
            } else {
                actor
            };
            return pick(&self.clients[other].holds, self.rng.next_u64());
        }
        let client = &mut self.clients[actor];
        if client.holds.is_empty() || self.rng.one_in(12) {
            return pick(&client.stale, self.rng.next_u64());
        }
        let n = self.rng.below(client.holds.len());
        let hold = client.holds.get(n).copied();
        let over = [Op::COMPLETE, Op::FAIL, Op::RELEASE].contains(&op);
        if over && !self.rng.one_in(8) {
            client.holds.remove(n);
            client.stale.extend(hold);
            keep(&mut client.stale);
        }
        hold
    }

    fn task(&mut self, actor: usize, input: &mut Input) {
        let task = self.named(actor, |client| &client.tasks);
        input.name("task_id", "t", task);
    }

    fn page(&mut self, actor: usize, input: &mut Input, limit: &'static str) {
        if self.rng.one_in(3) {
            let receipt = self.named(actor, |client| &client.receipts);
            if receipt.is_some() {
                input.name("since_receipt_id", "r", receipt);
            }
        }
        self.limit(input, limit);
    }

    fn limit(&mut self, input: &mut Input, name: &'static str) {
        if self.rng.one_in(2) {
            input.number(name, 1 + self.rng.below(10) as i64);
        }
    }

    fn ledger(&mut self, actor: usize, input: &mut Input) {
        match self.rng.below(8) {
            0 => input.text("receipt_type", RECEIPT_TYPES[self.rng.below(4)]),
            1 => {
                let hold = self.named(actor, |client| &client.holds);
                input.name("lease_id", "l", hold);
            }
            2 => {}
            _ => self.task(actor, input),
        }
        self.page(actor, input, "limit");
    }

    /// Draws something that the client knows; rarely something that only another client was told.
    pub(super) fn named(
        &mut self,
        actor: usize,
        list: impl Fn(&super::Client) -> &VecDeque<Named>,
    ) -> Option<Named> {
        let who = if self.rng.one_in(24) {
            self.rng.below(self.clients.len())
        } else {
            actor
        };
        pick(list(&self.clients[who]), self.rng.next_u64())
    }
}

pub(super) fn pick(list: &VecDeque<Named>, random: u64) -> Option<Named> {
    let count = list.len().max(1) as u64;
    list.get((random % count) as usize).copied()
}

/// A JSON object under construction. A field that is given twice keeps its first value. Its parts
/// are appended as they are: formatting them would be most of what drawing a step costs.
pub(super) struct Input {
    json: String,
    fields: Vec<&'static str>,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            json: String::with_capacity(128),
            fields: Vec::with_capacity(12),
        }
    }
}

impl Input {
    pub(super) fn raw(&mut self, name: &'static str, value: &str) {
        self.field(name, &[value]);
    }

    pub(super) fn text(&mut self, name: &'static str, value: &str) {
        self.field(name, &["\"", value, "\""]);
    }

    pub(super) fn number(&mut self, name: &'static str, value: i64) {
        self.field(name, &[&value.to_string()]);
    }

    pub(super) fn name(&mut self, field: &'static str, kind: &str, named: Option<Named>) {
        let (label, index) = named.unwrap_or((0, 0));
        let (label, index) = (label.to_string(), index.to_string());
        self.field(field, &["\"@", kind, &label, ".", &index, "\""]);
    }

    pub(super) fn field(&mut self, name: &'static str, value: &[&str]) {
        if self.fields.contains(&name) {
            return;
        }
        let mark = if self.fields.is_empty() { "{\"" } else { ",\"" };
        for part in [mark, name, "\":"].iter().chain(value) {
            self.json.push_str(part);
        }
        self.fields.push(name);
    }

    pub(super) fn finish(mut self) -> String {
        self.json
            .push_str(if self.fields.is_empty() { "{}" } else { "}" });
        self.json
    }
}
