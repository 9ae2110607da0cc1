//! Random histories against a model. It checks every answer, and the state of every message after
//! each step.

use asyncgate_core::{
    LeaseId, MessageId,
    mailbox::{Full, Kind, Nack, Outgoing, Policy, Rejection, Sent, State, Wish},
};
use bytes::Bytes;
use proptest::{prelude::*, test_runner::FileFailurePersistence};

use crate::{
    twin::{Is, Twin},
    world::World,
};

const TOPICS: [&str; 3] = ["inbox", "outbox", "orders"];

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<Order>),
    Recv {
        topic: usize,
        wish: Wish,
    },
    Ack {
        pick: usize,
        by: By,
    },
    Nack {
        pick: usize,
        by: By,
        nack: Nack,
    },
    Extend {
        pick: usize,
        by: By,
        ms: i64,
    },
    Tick(i64),
    /// Waits until a message's deadline, or nearly.
    TickTo {
        pick: usize,
        off: i64,
    },
    Sweep,
    Redrive {
        topic: usize,
        limit: usize,
    },
    Purge {
        topic: usize,
        dead: bool,
    },
    Delete {
        pick: usize,
    },
}

#[derive(Debug, Clone)]
struct Order {
    topic: usize,
    key: u8,
    partition: Option<u8>,
    content: u8,
    priority: i32,
    delay_ms: i64,
    ttl_ms: Option<i64>,
}

/// The lease that a call names.
#[derive(Debug, Clone, Copy)]
enum By {
    Latest,
    Older(usize),
    Nobody,
}

/// Limits so small that every bound is reached often. A dead letter's retention is shorter than the
/// replay window of its key.
fn policy() -> Policy {
    Policy {
        shards: 2,
        topic_capacity: 7,
        global_inflight: 5,
        dedup_capacity: 14,
        t_replay_ms: 10_000,
        backoff_base_ms: 100,
        backoff_max_ms: 500,
        max_attempts: 3,
        ready_retention_ms: 30_000,
        inflight_factor: 3,
        dlq_retention_ms: 6_000,
        ..Policy::default()
    }
}

struct Pair {
    world: World,
    twins: Vec<Twin>,
    /// First deliveries of messages that were never delayed, by topic, priority and place.
    first: Vec<(usize, i32, u64)>,
    /// First deliveries of messages that never came back, by topic, key and place.
    keyed: Vec<(usize, u8, u64)>,
}

impl Pair {
    fn now(&self) -> i64 {
        self.world.now.as_millis()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(orders) => self.send(orders),
            Step::Recv { topic, wish } => self.receive(*topic, wish),
            Step::Ack { pick, by } => self.ack(*pick, *by),
            Step::Nack { pick, by, nack } => self.nack(*pick, *by, nack),
            Step::Extend { pick, by, ms } => self.extend(*pick, *by, *ms),
            Step::Tick(ms) => self.world.wait_ms(*ms),
            Step::TickTo { pick, off } => self.tick_to(*pick, *off),
            Step::Sweep => self.sweep(),
            Step::Redrive { topic, limit } => self.redrive(*topic, *limit),
            Step::Purge { topic, dead } => self.purge(*topic, *dead),
            Step::Delete { pick } => self.delete(*pick),
        }
        self.pass_turns();
        self.compare();
    }

    /// Gives the turn to the oldest message of every partition in which nobody has it.
    fn pass_turns(&mut self) {
        let now = self.now();
        for n in 0..self.twins.len() {
            let Twin {
                topic, partition, ..
            } = self.twins[n];
            let beside = |twin: &&Twin| twin.topic == topic && twin.partition == partition;
            let mut taken = self.twins.iter().filter(beside);
            if !taken.any(Twin::has_turn) {
                self.twins[n].take_turn(now);
            }
        }
    }

    /// Returns the last message under this name, if the name is still remembered.
    fn named(&self, order: &Order) -> Option<&Twin> {
        let since = self.now() - policy().t_replay_ms;
        let mut twins = self.twins.iter().rev();
        let twin = twins.find(|twin| twin.topic == order.topic && twin.key == order.key);
        twin.filter(|twin| twin.sent > since)
    }

    fn send(&mut self, orders: &[Order]) {
        let outgoing = orders.iter().map(|order| Outgoing {
            topic: TOPICS[order.topic].to_owned(),
            idem_key: order.key.to_string(),
            payload: payload(order.content),
            is_text: false,
            attrs: [("key".to_owned(), order.key.to_string())].into(),
            partition_key: order.partition.map(|key| key.to_string()),
            delay_ms: order.delay_ms,
            ttl_ms: order.ttl_ms,
            priority: order.priority,
            corr_id: None,
        });
        let answers = self.world.send_all(outgoing.collect());
        for (order, answer) in orders.iter().zip(answers) {
            self.sent(order, answer);
        }
    }

    fn sent(&mut self, order: &Order, answer: Result<Sent, Rejection>) {
        let (now, policy) = (self.now(), policy());
        if let Some(twin) = self.named(order) {
            let msg_id = twin.id;
            if twin.content == order.content {
                let answer = answer.unwrap();
                assert!(answer.duplicate && answer.id == msg_id);
            } else {
                assert_eq!(answer, Err(Rejection::IdemConflict { msg_id }));
            }
            return;
        }
        if self.depth(order.topic) >= policy.topic_capacity as usize {
            let capacity = policy.topic_capacity;
            let full = Rejection::Saturated(Full::Topic { capacity });
            assert_eq!(answer, Err(full));
            return;
        }
        let since = now - policy.t_replay_ms;
        let mut remembered = self.twins.iter().filter(|twin| twin.sent > since);
        let oldest = remembered.next().map(|twin| twin.sent);
        if remembered.count() + 1 >= policy.dedup_capacity as usize {
            let Err(Rejection::Saturated(Full::Dedup { until })) = answer else {
                panic!("{answer:?}");
            };
            assert_eq!(Some(until.as_millis() - policy.t_replay_ms), oldest);
            return;
        }
        let answer = answer.unwrap();
        assert!(!answer.duplicate);
        self.twins.push(Twin {
            id: answer.id,
            topic: order.topic,
            key: order.key,
            partition: order.partition,
            content: order.content,
            priority: order.priority,
            bytes: payload(order.content).len(),
            sent: now,
            since: now,
            expires: order.ttl_ms.map(|ttl| now + ttl),
            is: if order.partition.is_some() {
                Is::Blocked(now + order.delay_ms)
            } else if order.delay_ms > 0 {
                Is::Delayed(now + order.delay_ms)
            } else {
                Is::Ready
            },
            attempt: 0,
            leases: Vec::new(),
            delivered: false,
            lease_ends: 0,
            reason: None,
            error: None,
            irregular: order.delay_ms > 0 || order.partition.is_some(),
            came_back: false,
        });
        self.pass_turns();
    }

    fn depth(&self, topic: usize) -> usize {
        let waiting = self.twins.iter().filter(|twin| twin.waits());
        waiting.filter(|twin| twin.topic == topic).count()
    }

    fn inflight(&self) -> usize {
        let leased = |twin: &&Twin| matches!(twin.is, Is::Leased(_));
        self.twins.iter().filter(leased).count()
    }

    fn receive(&mut self, topic: usize, wish: &Wish) {
        let (now, policy) = (self.now(), policy());
        let answer = self.world.try_receive(TOPICS[topic], wish);
        let room = policy.global_inflight as usize - self.inflight();
        let here = |twin: &&mut Twin| twin.topic == topic && twin.is == Is::Ready;
        let mut line: Vec<&mut Twin> = self.twins.iter_mut().filter(here).collect();
        line.sort_by_key(|twin| (-twin.priority, twin.id.seq()));
        if room == 0 && !line.is_empty() {
            assert_eq!(answer, Err(Rejection::Saturated(Full::Inflight)));
            return;
        }
        let answer = answer.unwrap();
        assert!(answer.damaged.is_empty());
        let (mut given, mut died) = (answer.messages.iter(), answer.died.iter());
        let (mut count, mut bytes) = (0, 0);
        for twin in line {
            if twin.is_old(now, &policy) {
                twin.die(asyncgate_core::mailbox::Cause::Expired, now);
                assert_eq!(Some(&died.next().unwrap().reason), twin.reason.as_ref());
                continue;
            }
            let fits = count == 0 || bytes + twin.bytes <= wish.max_bytes;
            if !fits || count == wish.max_messages.min(room) {
                break;
            }
            count += 1;
            bytes += twin.bytes;
            let message = given.next().unwrap();
            assert_eq!(message.id, twin.id, "in line");
            assert!(!matches!(twin.is, Is::Acked(_)), "delivered after its end");
            if twin.leases.is_empty() && !twin.irregular {
                self.first.push((topic, twin.priority, twin.id.seq()));
            }
            if let (Some(key), true, false) =
                (twin.partition, twin.leases.is_empty(), twin.came_back)
            {
                self.keyed.push((topic, key, twin.id.seq()));
            }
            twin.attempt += 1;
            twin.leases.push(message.delivery.unwrap().lease);
            twin.delivered = true;
            twin.lease_ends = now + wish.visibility_ms * 3;
            twin.is = Is::Leased(now + wish.visibility_ms);
        }
        assert!(given.next().is_none() && died.next().is_none());
    }

    /// Returns the message and the lease that a call names.
    fn resolve(&self, pick: usize, by: By) -> Option<(usize, MessageId, Option<LeaseId>)> {
        let n = pick % self.twins.len().max(1);
        let twin = self.twins.get(n)?;
        let lease = match by {
            By::Latest => Some(*twin.leases.last()?),
            By::Older(n) => Some(*twin.leases.get(n % twin.leases.len().max(1))?),
            By::Nobody => None,
        };
        Some((n, twin.id, lease))
    }

    fn ack(&mut self, pick: usize, by: By) {
        let Some((n, id, lease)) = self.resolve(pick, by) else {
            return;
        };
        let now = self.now();
        let answer = self.world.ack(id, lease).map(|said| said.repeated);
        assert_eq!(answer, self.twins[n].ack(now, lease, &policy()), "{by:?}");
    }

    fn nack(&mut self, pick: usize, by: By, nack: &Nack) {
        let Some((n, id, lease)) = self.resolve(pick, by) else {
            return;
        };
        let (now, policy) = (self.now(), policy());
        let answer = self.world.nack(id, lease, nack.clone());
        let twin = &mut self.twins[n];
        let expected = twin.nack(now, lease);
        assert_eq!(
            answer.as_ref().map(|said| !said.repeated),
            expected.as_ref().map(|x| *x)
        );
        if expected != Ok(true) {
            return;
        }
        twin.reason = Some(nack.reason.clone().unwrap_or_else(|| "nack".to_owned()));
        twin.error = nack.error.clone();
        if twin.attempt >= policy.max_attempts {
            twin.die(asyncgate_core::mailbox::Cause::MaxAttempts, now);
            assert!(answer.unwrap().died.is_some());
            return;
        }
        let wait = match self.world.message(id).state {
            State::Delayed { until } => until.as_millis() - now,
            _ => 0,
        };
        match nack.delay_ms {
            Some(delay) => assert_eq!(wait, delay.max(0)),
            None => assert!((0..=policy.backoff_max_ms.min(100 << twin.attempt)).contains(&wait)),
        }
        twin.is = if wait > 0 {
            Is::Delayed(now + wait)
        } else {
            Is::Ready
        };
    }

    fn extend(&mut self, pick: usize, by: By, ms: i64) {
        let Some((n, id, lease)) = self.resolve(pick, by) else {
            return;
        };
        let now = self.now();
        let answer = self.world.extend(id, lease, ms);
        let answer = answer.map(|until| until.as_millis());
        assert_eq!(answer, self.twins[n].extend(now, lease, ms), "{by:?}");
    }

    fn tick_to(&mut self, pick: usize, off: i64) {
        let due = self
            .world
            .rows
            .values()
            .filter_map(|row| row.standing().due);
        let due: Vec<_> = due.collect();
        if let Some(at) = due.get(pick % due.len().max(1)) {
            self.world.now = self.world.now.max(at.plus_millis(off));
        }
    }

    fn sweep(&mut self) {
        self.world.sweep();
        let (now, policy) = (self.now(), policy());
        for twin in &mut self.twins {
            twin.sweep(now, &policy);
        }
    }

    fn redrive(&mut self, topic: usize, limit: usize) {
        let dead = |twin: &&Twin| twin.topic == topic && matches!(twin.is, Is::Dead(..));
        let dead = self.twins.iter().filter(dead).take(limit);
        let ids: Vec<MessageId> = dead.map(|twin| twin.id).collect();
        let answer = self.world.redrive(&ids);
        let after = self.depth(topic) + ids.len();
        let capacity = policy().topic_capacity;
        if !ids.is_empty() && after > capacity as usize {
            let full = Rejection::Saturated(Full::Topic { capacity });
            assert_eq!(answer, Err(full));
            return;
        }
        assert_eq!(answer, Ok(ids.len()));
        let now = self.now();
        let named = self.twins.iter_mut().filter(|twin| ids.contains(&twin.id));
        named.for_each(|twin| twin.redrive(now));
    }

    fn purge(&mut self, topic: usize, dead: bool) {
        let rows = self.world.rows.values();
        let here = rows.filter(|row| &*row.topic == TOPICS[topic]);
        let is_meant = |kind| match kind {
            Kind::Dead => dead,
            Kind::Ready | Kind::Delayed | Kind::Leased | Kind::Gone => !dead,
        };
        let meant = here.filter(|row| is_meant(row.standing().kind));
        let ids: Vec<MessageId> = meant.map(|row| row.id).collect();
        let answer = self.world.purge(&ids);
        let until = self.now() + policy().t_replay_ms;
        let mut purged = 0;
        for twin in self.twins.iter_mut().filter(|twin| ids.contains(&twin.id)) {
            if twin.waits() || matches!(twin.is, Is::Dead(..)) {
                twin.is = Is::Purged(until);
                purged += 1;
            }
        }
        assert_eq!(answer, purged);
    }

    fn delete(&mut self, pick: usize) {
        let (now, until) = (self.now(), self.now() + policy().t_replay_ms);
        let n = pick % self.twins.len().max(1);
        let Some(twin) = self.twins.get_mut(n) else {
            return;
        };
        let answer = self.world.delete(twin.id).map(|said| said.repeated);
        let expected = match twin.is {
            Is::Forgotten => Err(Rejection::NotFound),
            Is::Acked(until) | Is::Purged(until) if until <= now => Err(Rejection::NotFound),
            Is::Acked(_) | Is::Purged(_) => Ok(true),
            Is::Leased(_) => Err(Rejection::Leased),
            Is::Ready | Is::Delayed(_) | Is::Blocked(_) | Is::Dead(..) => {
                twin.is = Is::Purged(until);
                Ok(false)
            }
        };
        assert_eq!(answer, expected);
    }

    /// Checks that every message is in exactly one place, the one that the model says.
    fn compare(&self) {
        let (now, policy) = (self.now(), policy());
        let stored = self.twins.iter().filter(|twin| twin.is != Is::Forgotten);
        assert_eq!(self.world.rows.len(), stored.count());
        for twin in &self.twins {
            assert_eq!(self.world.kind(twin.id), twin.kind(), "{twin:?}");
            if twin.is == Is::Forgotten {
                assert!(
                    twin.sent + policy.t_replay_ms <= now,
                    "its key was remembered"
                );
                continue;
            }
            let row = self.world.message(twin.id);
            assert_eq!(row.attempt, twin.attempt);
            let lease = row.delivery.map(|delivery| delivery.lease);
            let current = twin.leases.last().filter(|_| twin.delivered);
            assert_eq!(lease.as_ref(), current);
            match (row.state, twin.is) {
                (State::Delayed { until }, Is::Delayed(model))
                | (State::Blocked { until }, Is::Blocked(model))
                | (State::Leased { until }, Is::Leased(model))
                | (State::Gone { until }, Is::Acked(model) | Is::Purged(model)) => {
                    assert_eq!(until.as_millis(), model);
                }
                (State::Dead { cause, at, .. }, Is::Dead(model, died)) => {
                    assert_eq!((cause, at.as_millis()), (model, died));
                    assert_eq!(row.reason, twin.reason);
                    assert_eq!(row.last_error, twin.error);
                }
                _ => assert_eq!(row.state, State::Ready),
            }
        }
        self.bounds();
    }

    fn bounds(&self) {
        let policy = policy();
        assert!(self.inflight() <= policy.global_inflight as usize);
        for topic in 0..TOPICS.len() {
            // A message that comes back from a receiver is accepted even if its topic is full by then.
            let most = policy.topic_capacity + policy.global_inflight;
            assert!(self.depth(topic) <= most as usize);
        }
        // No two messages with one name were accepted within one window.
        for (n, twin) in self.twins.iter().enumerate() {
            let mut later = self.twins[n + 1..].iter();
            let next = later.find(|next| next.topic == twin.topic && next.key == twin.key);
            assert!(next.is_none_or(|next| next.sent >= twin.sent + policy.t_replay_ms));
        }
        // Messages of one topic and key are first delivered in the order in which they were sent, one
        // at a time.
        for topic in 0..TOPICS.len() {
            for key in 0..2 {
                let same = self.keyed.iter().filter(|f| (f.0, f.1) == (topic, key));
                assert!(same.is_sorted_by_key(|(.., seq)| *seq));
                let held = self.twins.iter().filter(|twin| {
                    matches!(twin.is, Is::Leased(_))
                        && (twin.topic, twin.partition) == (topic, Some(key))
                });
                assert!(held.count() <= 1);
            }
        }
        // Messages of one topic and priority are first delivered in the order in which they were sent.
        for topic in 0..TOPICS.len() {
            for priority in -1..=1 {
                let equals = self
                    .first
                    .iter()
                    .filter(|f| (f.0, f.1) == (topic, priority));
                assert!(equals.is_sorted_by_key(|(.., seq)| *seq));
            }
        }
    }

    /// Checks "at least once": when receivers take and finish all they can get, nothing is left waiting.
    fn drain(&mut self) {
        for _ in 0..200 {
            self.world.wait_ms(600);
            self.sweep();
            self.pass_turns();
            for topic in 0..TOPICS.len() {
                let wish = Wish {
                    visibility_ms: 1_000,
                    max_messages: 3,
                    max_bytes: 1_000,
                };
                self.receive(topic, &wish);
            }
            for n in 0..self.twins.len() {
                if matches!(self.twins[n].is, Is::Leased(_)) {
                    self.ack(n, By::Latest);
                }
            }
            self.pass_turns();
        }
        self.compare();
        let settled = |twin: &Twin| !twin.waits() && !matches!(twin.is, Is::Leased(_));
        assert!(self.twins.iter().all(settled), "a message was left behind");
    }
}

fn payload(content: u8) -> Bytes {
    vec![content; usize::from(content) * 40].into()
}

fn order() -> impl Strategy<Value = Order> {
    let delay = prop_oneof![4 => Just(0_i64), 1 => 1..3_000_i64];
    let ttl = proptest::option::weighted(0.2, 1..8_000_i64);
    let partition = proptest::option::weighted(0.5, 0..2_u8);
    let names = (0..6_u8, partition);
    (0..3_usize, names, 0..3_u8, -1..=1_i32, delay, ttl).prop_map(
        |(topic, (key, partition), content, priority, delay_ms, ttl_ms)| Order {
            topic,
            key,
            partition,
            content,
            priority,
            delay_ms,
            ttl_ms,
        },
    )
}

fn by() -> impl Strategy<Value = By> {
    prop_oneof![
        4 => Just(By::Latest),
        1 => (0..4_usize).prop_map(By::Older),
        1 => Just(By::Nobody),
    ]
}

fn nack() -> impl Strategy<Value = Nack> {
    let word = |from: &'static [&'static str]| {
        proptest::option::of(proptest::sample::select(from).prop_map(str::to_owned))
    };
    let delay = proptest::option::of(prop_oneof![Just(0_i64), 1..2_000_i64]);
    (word(&["busy", "E_PARSE"]), word(&["what?"]), delay).prop_map(|(reason, error, delay_ms)| {
        Nack {
            reason,
            error,
            delay_ms,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let wish = (250..3_000_i64, 1..5_usize, 0..200_usize).prop_map(|(ms, count, bytes)| Wish {
        visibility_ms: ms,
        max_messages: count,
        max_bytes: bytes,
    });
    let pick = || 0..30_usize;
    prop_oneof![
        6 => proptest::collection::vec(order(), 1..4).prop_map(Step::Send),
        7 => (0..3_usize, wish).prop_map(|(topic, wish)| Step::Recv { topic, wish }),
        4 => (pick(), by()).prop_map(|(pick, by)| Step::Ack { pick, by }),
        6 => (pick(), by(), nack()).prop_map(|(pick, by, nack)| Step::Nack { pick, by, nack }),
        2 => (pick(), by(), 0..9_000_i64).prop_map(|(pick, by, ms)| Step::Extend { pick, by, ms }),
        2 => prop_oneof![0..50_i64, 0..2_000_i64, 0..12_000_i64].prop_map(Step::Tick),
        3 => (pick(), -1..2_i64).prop_map(|(pick, off)| Step::TickTo { pick, off }),
        5 => Just(Step::Sweep),
        2 => (0..3_usize, 1..6_usize).prop_map(|(topic, limit)| Step::Redrive { topic, limit }),
        1 => (0..3_usize, any::<bool>()).prop_map(|(topic, dead)| Step::Purge { topic, dead }),
        1 => pick().prop_map(|pick| Step::Delete { pick }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_agrees_with_the_model(steps in proptest::collection::vec(step(), 1..150)) {
        let mut pair = Pair {
            world: World::with(policy()),
            twins: Vec::new(),
            first: Vec::new(),
            keyed: Vec::new(),
        };
        for step in &steps {
            pair.step(step);
        }
        pair.drain();
    }
}
