//! The same for messages: one random history on both stores, compared answer by answer, write by
//! write, and at the end read by read.

use std::{path::PathBuf, sync::Arc};

use asyncgate_core::{
    LeaseId, MessageId,
    mailbox::{Changes, Lines, Message, MessageWrite, Nack, Outgoing, Policy, Wish},
};
use asyncgate_store::{
    Store,
    conformance::{Driver, MailDriver, dead, of_topic},
    mailbox::{DeadFilter, Load, Reads, Take},
    memory::MemoryStore,
};
use proptest::prelude::*;

use crate::{TENANTS, config, open};

const TOPICS: [&str; 3] = ["inbox", "a\0b", "ünï"];
const WINDOW_MS: i64 = 20_000;

/// One step of a history. Numbers pick among what exists, whatever exists by then.
#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    Reopen,
    Do { tenant: usize, act: Act },
}

#[derive(Debug, Clone)]
enum Act {
    Send(Vec<Order>),
    Receive {
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
    Sweep,
    /// Looks at what has waited for this long.
    Bury(i64),
    Redrive(Filter),
    PurgeDead(Filter),
    PurgeWaiting {
        topic: usize,
        limit: usize,
    },
    Delete(usize),
    RedriveOne(usize),
}

#[derive(Debug, Clone)]
struct Order {
    topic: usize,
    key: u8,
    content: usize,
    priority: i32,
    delay_ms: i64,
    ttl_ms: Option<i64>,
    partition: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
enum By {
    Latest,
    Older(usize),
    Nobody,
}

#[derive(Debug, Clone)]
struct Filter {
    topic: Option<usize>,
    reason: Option<&'static str>,
    younger_ms: Option<i64>,
    limit: usize,
}

/// Messages with the leases that they were delivered under. Both stores are given the same picks.
#[derive(Debug, Default, Clone)]
struct Known(Vec<(MessageId, Vec<LeaseId>)>);

impl Known {
    fn learn(&mut self, changes: &Changes) {
        for MessageWrite { message, .. } in &changes.messages {
            let id = message.id;
            if !self.0.iter().any(|(known, _)| *known == id) {
                self.0.push((id, Vec::new()));
            }
            let known = self.0.iter_mut().find(|(known, _)| *known == id);
            let leases = known.map(|(_, leases)| leases);
            if let (Some(leases), Some(delivery)) = (leases, message.delivery)
                && leases.last() != Some(&delivery.lease)
            {
                leases.push(delivery.lease);
            }
        }
    }

    fn pick(&self, pick: usize, by: By) -> Option<(MessageId, Option<LeaseId>)> {
        let (id, leases) = self.0.get(pick % self.0.len().max(1))?;
        let lease = match by {
            By::Latest => Some(*leases.last()?),
            By::Older(n) => Some(*leases.get(n % leases.len().max(1))?),
            By::Nobody => None,
        };
        Some((*id, lease))
    }
}

fn policy() -> Policy {
    Policy {
        shards: 3,
        topic_capacity: 8,
        global_inflight: 7,
        dedup_capacity: 30,
        t_replay_ms: WINDOW_MS,
        backoff_base_ms: 100,
        backoff_max_ms: 2_000,
        max_attempts: 2,
        ready_retention_ms: 40_000,
        dlq_retention_ms: 60_000,
        ..Policy::default()
    }
}

/// Contents that are empty, odd, or too large for a page.
fn content(pick: usize) -> Vec<u8> {
    match pick % 4 {
        0 => Vec::new(),
        1 => vec![0, 0xff],
        2 => vec![7; 300],
        _ => vec![9; 20_000],
    }
}

impl Filter {
    fn of(&self, driver: &MailDriver) -> DeadFilter {
        DeadFilter {
            topic: self.topic.map(|topic| TOPICS[topic].to_owned()),
            reason: self.reason.map(str::to_owned),
            died_by: self.younger_ms.map(|ms| driver.now.plus_millis(-ms)),
            after: None,
            limit: self.limit,
        }
    }
}

fn told(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

impl Act {
    /// Does it, and tells what came of it. What was decided of messages that were only settled does
    /// not depend on their content, which need not be loaded for that.
    async fn run(&self, driver: &mut MailDriver, known: &Known) -> String {
        match self {
            Self::Send(orders) => {
                let outgoing = orders.iter().map(Order::outgoing);
                told(driver.send_all(outgoing.collect()).await)
            }
            Self::Receive { topic, wish } => told(driver.receive_from(TOPICS[*topic], *wish).await),
            Self::Ack { pick, by } => match known.pick(*pick, *by) {
                Some((id, lease)) => told(driver.ack(id, lease).await),
                None => String::new(),
            },
            Self::Nack { pick, by, nack } => match known.pick(*pick, *by) {
                Some((id, lease)) => told(driver.nack(id, lease, nack.clone()).await),
                None => String::new(),
            },
            Self::Extend { pick, by, ms } => match known.pick(*pick, *by) {
                Some((id, lease)) => told(driver.extend(id, lease, *ms).await),
                None => String::new(),
            },
            Self::Sweep => told(driver.sweep_mail().await),
            Self::Bury(age_ms) => {
                let since = driver.now.plus_millis(-age_ms);
                let old = driver.mailbox().waiting_since(since, None, 1_000).await;
                let mine = old.unwrap().into_iter();
                let mine = mine.filter(|(tenant, _)| *tenant == driver.tenant);
                let ids = mine.map(|(_, id)| id).collect();
                told(driver.sweep_these(ids).await)
            }
            Self::Redrive(filter) => told(driver.redrive(filter.of(driver)).await),
            Self::PurgeDead(filter) => told(driver.purge_dead(filter.of(driver)).await),
            Self::PurgeWaiting { topic, limit } => {
                told(driver.purge_waiting(TOPICS[*topic], *limit).await)
            }
            Self::Delete(pick) => match known.pick(*pick, By::Nobody) {
                Some((id, _)) => told(driver.delete(id).await),
                None => String::new(),
            },
            Self::RedriveOne(pick) => match known.pick(*pick, By::Nobody) {
                Some((id, _)) => told(driver.redrive_one(id).await),
                None => String::new(),
            },
        }
    }
}

impl Order {
    fn outgoing(&self) -> Outgoing {
        Outgoing {
            topic: TOPICS[self.topic].to_owned(),
            idem_key: self.key.to_string(),
            payload: content(self.content).into(),
            is_text: self.content.is_multiple_of(2),
            attrs: [("k\0".to_owned(), self.key.to_string())].into(),
            partition_key: self.partition.map(|key| key.to_string()),
            delay_ms: self.delay_ms,
            ttl_ms: self.ttl_ms,
            priority: self.priority,
            corr_id: None,
        }
    }
}

/// The two stores, driven alike.
struct Pair {
    memory: Vec<MailDriver>,
    sqlite: Vec<MailDriver>,
    path: PathBuf,
    known: Vec<Known>,
}

impl Pair {
    fn new(path: PathBuf) -> Self {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let sqlite = open_with_window(&path);
        memory.mailbox().set_replay_window(WINDOW_MS);
        let drivers = |store: &Arc<dyn Store>| -> Vec<MailDriver> {
            let of_tenant = |n| {
                let mut driver = Driver::of_tenant(Arc::clone(store), n);
                driver.policy.mailbox = policy();
                MailDriver::new(driver)
            };
            (1..=TENANTS).map(of_tenant).collect()
        };
        Self {
            memory: drivers(&memory),
            sqlite: drivers(&sqlite),
            path,
            known: vec![Known::default(); usize::from(TENANTS)],
        }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => {
                for driver in self.memory.iter_mut().chain(&mut self.sqlite) {
                    driver.wait_ms(*ms);
                }
            }
            Step::Reopen => {
                self.sqlite.iter_mut().for_each(|driver| driver.detach());
                let store = open_with_window(&self.path);
                for driver in &mut self.sqlite {
                    driver.attach(Arc::clone(&store));
                }
            }
            Step::Do { tenant, act } => {
                let tenant = tenant % usize::from(TENANTS);
                let (left, right) = (&mut self.memory[tenant], &mut self.sqlite[tenant]);
                let expected = act.run(left, &self.known[tenant]).await;
                let found = act.run(right, &self.known[tenant]).await;
                assert_eq!(found, expected, "{act:?}");
                let (expected, found) = (written(left), written(right));
                assert_eq!(found, expected, "{act:?}");
                self.known[tenant].learn(&expected);
            }
        }
    }
}

fn open_with_window(path: &std::path::Path) -> Arc<dyn Store> {
    let store = open(path);
    store.mailbox().set_replay_window(WINDOW_MS);
    store
}

/// What was written. The content of what was there before need not have been loaded.
fn written(driver: &MailDriver) -> Changes {
    let mut changes = driver.written();
    let writes = changes.messages.iter_mut().chain(&mut changes.forgotten);
    for write in writes.filter(|write| write.before.is_some()) {
        write.message.payload.clear();
    }
    changes
}

/// Every read of the tenant, and of the mailbox as a whole.
async fn compare(found: &MailDriver, expected: &MailDriver, known: &Known) {
    let stored = expected.messages().await;
    assert_eq!(found.messages().await, stored);
    for (id, _) in &known.0 {
        assert_eq!(found.message(*id).await, expected.message(*id).await);
    }
    lines(found, expected).await;
    letters(found, expected).await;
    deadlines(found, expected).await;
    snapshots(found, expected, known).await;
    let (left, right) = (found.mailbox(), expected.mailbox());
    let (mine, theirs) = (found.tenant, expected.tenant);
    for after in [None, Some("b".to_owned())] {
        for limit in [1, 99] {
            let topics = left.topics(mine, after.clone(), limit).await.unwrap();
            let other = right.topics(theirs, after.clone(), limit).await.unwrap();
            assert_eq!(topics, other);
        }
    }
    let chains = left.chains(mine).await.unwrap();
    assert_eq!(chains, right.chains(theirs).await.unwrap());
    let (load, other) = (
        left.load(found.now).await.unwrap(),
        right.load(found.now).await.unwrap(),
    );
    assert_eq!(load.shards, other.shards);
    let inflight = |load: Load| -> Vec<_> {
        let tenants = load.tenants.into_iter();
        tenants.map(|(id, used)| (id, used.inflight)).collect()
    };
    assert_eq!(inflight(load), inflight(other));
    assert_eq!(found.store().last_time(), expected.store().last_time());
}

async fn lines(found: &MailDriver, expected: &MailDriver) {
    for topic in TOPICS.into_iter().chain(["nowhere"]) {
        for (max_messages, max_bytes) in [(99, usize::MAX), (2, usize::MAX), (99, 500)] {
            let take = Take {
                topic: topic.to_owned(),
                max_messages,
                max_bytes,
            };
            let peeked = found.peek(take.clone()).await;
            assert_eq!(peeked, expected.peek(take).await);
            assert!(peeked.iter().all(|message| message.flaw().is_none()));
        }
    }
}

async fn letters(found: &MailDriver, expected: &MailDriver) {
    for topic in [None, Some(TOPICS[0]), Some(TOPICS[1])] {
        for reason in [None, Some("busy"), Some("visibility_timeout")] {
            for (younger_ms, limit) in [(None, 2), (Some(5_000), 99)] {
                let mut filter = DeadFilter {
                    reason: reason.map(str::to_owned),
                    died_by: younger_ms.map(|ms: i64| found.now.plus_millis(-ms)),
                    limit,
                    ..dead(topic)
                };
                loop {
                    let page = found.dead_letters(filter.clone()).await;
                    assert_eq!(page, expected.dead_letters(filter.clone()).await);
                    filter.after = page.last().map(|message| message.id);
                    if filter.after.is_none() {
                        break;
                    }
                }
            }
        }
    }
}

/// Two stores may list messages with one deadline, or tenants, in different orders.
async fn deadlines(found: &MailDriver, expected: &MailDriver) {
    let (left, right) = (found.mailbox(), expected.mailbox());
    let next = left.next_message_due().await.unwrap();
    assert_eq!(next, right.next_message_due().await.unwrap());
    for ahead in [-30_000, -5_000, 0, 5_000, 100_000] {
        let time = found.now.plus_millis(ahead);
        let mut due = left.messages_due(time, 9_999).await.unwrap();
        let mut other = right.messages_due(time, 9_999).await.unwrap();
        due.sort_unstable();
        other.sort_unstable();
        assert_eq!(due, other);
        let mut old = left.waiting_since(time, None, 9_999).await.unwrap();
        let mut other = right.waiting_since(time, None, 9_999).await.unwrap();
        old.sort_unstable();
        other.sort_unstable();
        assert_eq!(old, other);
    }
}

/// What the next decision would be given.
async fn snapshots(found: &MailDriver, expected: &MailDriver, known: &Known) {
    assert_eq!(found.decided_at().await, expected.decided_at().await);
    for topic in TOPICS {
        let sends: Vec<Outgoing> = (0..6)
            .map(|key| Outgoing {
                topic: topic.to_owned(),
                partition_key: Some(key.to_string()),
                ..asyncgate_store::conformance::mail(&key.to_string())
            })
            .collect();
        let reads = || Reads {
            sends: found.keys(&sends),
            messages: known.0.iter().rev().map(|(id, _)| *id).collect(),
            ready: Some(of_topic(topic)),
            dead: Some(dead(Some(topic))),
            waiting: Some((topic.to_owned(), 3)),
        };
        let (left, right) = (found.look(reads()).await, expected.look(reads()).await);
        assert_eq!(left.ready, right.ready);
        let without = |messages: &[Message]| -> Vec<Message> {
            let without = |message: &Message| Message {
                payload: Vec::new().into(),
                ..message.clone()
            };
            messages.iter().map(without).collect()
        };
        assert_eq!(without(&left.messages), without(&right.messages));
        assert_eq!(without(&left.dead), without(&right.dead));
        assert_eq!(without(&left.waiting), without(&right.waiting));
        assert_eq!(left.depths, right.depths);
        assert_eq!(left.occupied, right.occupied);
        let lines = |lines: Lines| -> Vec<_> {
            let lines = lines.into_iter();
            lines
                .map(|(name, line)| (name, line.turns, without(&line.blocked)))
                .collect()
        };
        assert_eq!(lines(left.lines), lines(right.lines));
        assert_eq!(left.inflight, right.inflight);
        let (mine, theirs) = (left.send_context, right.send_context);
        assert_eq!((mine.head, mine.chains), (theirs.head, theirs.chains));
        assert_eq!(mine.depths, theirs.depths);
        assert_eq!(mine.occupied, theirs.occupied);
        assert_eq!(mine.remembered, theirs.remembered);
        assert_eq!(mine.oldest_remembered, theirs.oldest_remembered);
        let keyed = |keyed: Vec<Option<Message>>| -> Vec<Vec<Message>> {
            keyed
                .iter()
                .map(|found| without(found.as_slice()))
                .collect()
        };
        assert_eq!(keyed(mine.keyed), keyed(theirs.keyed));
    }
}

fn order() -> impl Strategy<Value = Order> {
    let delay = prop_oneof![4 => Just(0_i64), 1 => 1..9_000_i64];
    let ttl = proptest::option::weighted(0.2, 1..30_000_i64);
    let partition = proptest::option::weighted(0.5, 0..3_u8);
    let first = (0..3_usize, 0..6_u8, 0..8_usize, -1..2_i32);
    (first, delay, ttl, partition).prop_map(
        |((topic, key, content, priority), delay_ms, ttl_ms, partition)| Order {
            topic,
            key,
            content,
            priority,
            delay_ms,
            ttl_ms,
            partition,
        },
    )
}

fn by() -> impl Strategy<Value = By> {
    prop_oneof![
        5 => Just(By::Latest),
        1 => (0..4_usize).prop_map(By::Older),
        1 => Just(By::Nobody),
    ]
}

fn nack() -> impl Strategy<Value = Nack> {
    let word = || proptest::option::of(Just("busy".to_owned()));
    let delay = proptest::option::of(prop_oneof![Just(0_i64), 1..9_000_i64]);
    (word(), word(), delay).prop_map(|(reason, error, delay_ms)| Nack {
        reason,
        error,
        delay_ms,
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    (
        proptest::option::of(0..3_usize),
        proptest::option::weighted(
            0.3,
            proptest::sample::select(&["busy", "nack", "expired"][..]),
        ),
        proptest::option::weighted(0.3, 0..20_000_i64),
        1..9_usize,
    )
        .prop_map(|(topic, reason, younger_ms, limit)| Filter {
            topic,
            reason,
            younger_ms,
            limit,
        })
}

fn act() -> impl Strategy<Value = Act> {
    let wish = (250..9_000_i64, 1..5_usize, 0..40_000_usize).prop_map(|(ms, count, bytes)| Wish {
        visibility_ms: ms,
        max_messages: count,
        max_bytes: bytes,
    });
    let pick = || 0..40_usize;
    prop_oneof![
        6 => proptest::collection::vec(order(), 1..5).prop_map(Act::Send),
        6 => (0..3_usize, wish).prop_map(|(topic, wish)| Act::Receive { topic, wish }),
        3 => (pick(), by()).prop_map(|(pick, by)| Act::Ack { pick, by }),
        5 => (pick(), by(), nack()).prop_map(|(pick, by, nack)| Act::Nack { pick, by, nack }),
        1 => (pick(), by(), 0..9_000_i64).prop_map(|(pick, by, ms)| Act::Extend { pick, by, ms }),
        5 => Just(Act::Sweep),
        1 => (0..50_000_i64).prop_map(Act::Bury),
        2 => filter().prop_map(Act::Redrive),
        1 => filter().prop_map(Act::PurgeDead),
        1 => (0..3_usize, 1..5_usize)
            .prop_map(|(topic, limit)| Act::PurgeWaiting { topic, limit }),
        1 => pick().prop_map(Act::Delete),
        1 => pick().prop_map(Act::RedriveOne),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![0..50_i64, 0..3_000_i64, 0..25_000_i64];
    prop_oneof![
        40 => (0..2_usize, act()).prop_map(|(tenant, act)| Step::Do { tenant, act }),
        8 => wait.prop_map(Step::Wait),
        2 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sqlite_keeps_messages_as_memory_does(steps in proptest::collection::vec(step(), 1..150)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new(dir.path().join("a.db"));
            for step in &steps {
                pair.step(step).await;
            }
            // Once as it stands, and once as it is read back.
            for _ in 0..2 {
                let both = pair.memory.iter().zip(&pair.sqlite).zip(&pair.known);
                for ((memory, sqlite), known) in both {
                    compare(sqlite, memory, known).await;
                }
                pair.step(&Step::Reopen).await;
            }
        });
    }
}
