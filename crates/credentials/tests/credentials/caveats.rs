//! Caveats: how they are read, and which calls they allow.

use asyncgate_core::{
    PrincipalKey, PrincipalKind, TenantId, Timestamp,
    identity::{Scope, Scopes},
};
use asyncgate_credentials::{
    Call, Caveat, Denial, DenialReason, MailboxOp, QuotaUnit, Topic, check,
    macaroon::{RawCaveat, RootKey, mint},
    quotas,
};
use proptest::prelude::*;

const TENANT: &str = "019a2f6e-0000-7000-8000-000000000001";

fn ann() -> PrincipalKey {
    PrincipalKey {
        kind: PrincipalKind::Agent,
        id: "ann/x".into(),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn topic_caveat(name: &str, prefix: bool) -> Caveat {
    let name = name.to_owned();
    Caveat::Topic { name, prefix }
}

fn quota(unit: QuotaUnit, limit: u64) -> Caveat {
    Caveat::Quota { unit, limit }
}

#[test]
fn caveats_are_read_whatever_their_spaces() {
    let ops = |names: &[&str]| Caveat::Op(names.iter().map(|&name| name.to_owned()).collect());
    let tenant: TenantId = TENANT.parse().unwrap();
    let named = format!("tenant = {TENANT}");
    let table = [
        ("op = send,recv", ops(&["send", "recv"])),
        ("op=send", ops(&["send"])),
        (
            "  op   =  send ,  create_task  ",
            ops(&["send", "create_task"]),
        ),
        ("topic = user:42:*", topic_caveat("user:42:", true)),
        ("topic=user:42", topic_caveat("user:42", false)),
        ("topic = *", topic_caveat("", true)),
        ("topic = a=b<c", topic_caveat("a=b<c", false)),
        (
            "topic_class = inbox",
            Caveat::TopicClass("inbox".to_owned()),
        ),
        ("quota ops = 5", quota(QuotaUnit::Ops, 5)),
        ("quota  ops=0", quota(QuotaUnit::Ops, 0)),
        (
            "quota bytes =18446744073709551615",
            quota(QuotaUnit::Bytes, u64::MAX),
        ),
        ("scope = mailbox:send", Caveat::Scope(Scope::MailboxSend)),
        (named.as_str(), Caveat::Tenant(tenant)),
        ("principal = agent/ann/x", Caveat::Principal(ann())),
        (
            "time < 2026-01-05T11:00:00Z",
            Caveat::Before(at("2026-01-05T11:00:00Z")),
        ),
        (
            "time<2026-01-05T12:00:00+01:00",
            Caveat::Before(at("2026-01-05T11:00:00Z")),
        ),
    ];
    for (text, caveat) in table {
        assert_eq!(Caveat::parse(text), caveat, "{text}");
        assert!(caveat.is_understood());
        assert_eq!(Caveat::parse(&caveat.to_string()), caveat, "{caveat}");
    }
}

#[test]
fn what_is_not_understood_is_kept() {
    for text in [
        "",
        "=",
        "op",
        "op =",
        "op = ",
        "op = send,",
        "op = send,,recv",
        "op = Send",
        "op = send recv",
        "op < send",
        "OP = send",
        "o p = send",
        "topic =",
        "topic = a*b",
        "topic = **",
        "topic = *a",
        "topics = a",
        "quota = 5",
        "quota ops = -1",
        "quota ops = +1",
        "quota ops = 1.5",
        "quota ops = 18446744073709551616",
        "quota ops bytes = 5",
        "quota messages = 5",
        "quotaops = 5",
        "scope = everything",
        "scope = mailbox:send,mailbox:recv",
        "tenant = default",
        "principal = ann",
        "principal = agent/",
        "principal = robot/ann",
        "time < tomorrow",
        "time < 2020-01-01T00:00",
        "time = 2026-01-05T11:00:00Z",
        "time > 2026-01-05T11:00:00Z",
        "time <= 2026-01-05T11:00:00Z",
        "account = 3735928559",
    ] {
        let caveat = Caveat::parse(text);
        assert_eq!(caveat, Caveat::Unknown(text.to_owned()), "{text}");
        assert!(!caveat.is_understood());
        assert_eq!(caveat.to_string(), text);
    }
    let raw = RawCaveat {
        identifier: b"op = send\xff".to_vec(),
        third_party: None,
    };
    assert!(matches!(Caveat::read(&raw), Caveat::Unknown(_)));
}

/// A call to `mailbox_send` on one topic.
struct Example {
    operation: &'static str,
    mailbox_op: Option<MailboxOp>,
    topics: Vec<(&'static str, &'static [&'static str])>,
    scopes: Scopes,
}

impl Example {
    fn send(topic: &'static str) -> Self {
        Self {
            operation: "mailbox_send",
            mailbox_op: Some(MailboxOp::Send),
            topics: vec![(topic, &["inbox"][..])],
            scopes: Scopes::of(&[Scope::MailboxSend]),
        }
    }

    fn create() -> Self {
        Self {
            operation: "create_task",
            mailbox_op: None,
            topics: Vec::new(),
            scopes: Scopes::of(&[Scope::TasksWrite]),
        }
    }

    fn outcome(&self, texts: &[&str]) -> Result<(), (String, DenialReason)> {
        let caveats: Vec<Caveat> = texts.iter().map(|text| Caveat::parse(text)).collect();
        let topics: Vec<Topic<'_>> = self
            .topics
            .iter()
            .map(|&(name, classes)| Topic { name, classes })
            .collect();
        let call = Call {
            operation: self.operation,
            mailbox_op: self.mailbox_op,
            topics: Some(&topics),
            scopes: self.scopes,
            tenant: TENANT.parse().unwrap(),
            principal: &ann(),
            now: at("2026-01-05T11:00:00Z"),
        };
        let denied = |denial: Denial<'_>| (denial.caveat.to_string(), denial.reason);
        check(&caveats, &call).map_err(denied)
    }

    fn allowed(&self, text: &str) -> bool {
        match self.outcome(&[text]) {
            Ok(()) => true,
            Err((_, reason)) => {
                assert_eq!(reason, DenialReason::NotAllowed, "{text}");
                false
            }
        }
    }
}

#[test]
fn each_caveat_allows_what_it_says() {
    let send = Example::send("user:42:inbox");
    let own = format!("tenant = {TENANT}");
    let other = "tenant = 019a2f6e-0000-7000-8000-000000000002";
    for (text, expected) in [
        ("op = send", true),
        ("op = recv,send", true),
        ("op = mailbox_send", true),
        ("op = recv", false),
        ("op = create_task", false),
        ("topic = user:42:*", true),
        ("topic = user:42:inbox", true),
        ("topic = user:42:inbox*", true),
        ("topic = *", true),
        ("topic = user:42:inbo", false),
        ("topic = user:43:*", false),
        ("topic_class = inbox", true),
        ("topic_class = outbox", false),
        ("quota ops = 0", true),
        ("scope = mailbox:send", true),
        ("scope = admin:write", true),
        ("scope = mailbox:recv", false),
        (own.as_str(), true),
        (other, false),
        ("principal = agent/ann/x", true),
        ("principal = agent/ann", false),
        ("principal = worker/ann/x", false),
        ("time < 2026-01-05T11:00:00.001Z", true),
        ("account = 1", false),
    ] {
        assert_eq!(send.allowed(text), expected, "{text}");
    }
}

#[test]
fn a_topic_caveat_bars_calls_without_a_topic_and_binds_every_topic() {
    let create = Example::create();
    for text in ["topic = *", "topic = a", "topic_class = inbox"] {
        assert!(!create.allowed(text), "{text}");
    }
    let mut batch = Example::send("a:1");
    batch.topics.push(("b:1", &[][..]));
    for (text, expected) in [
        ("topic = *", true),
        ("topic = a:*", false),
        ("topic = b:*", false),
        ("topic_class = inbox", false),
    ] {
        assert_eq!(batch.allowed(text), expected, "{text}");
    }
}

#[test]
fn the_sorts_of_the_mailbox_name_nothing_else() {
    let create = Example::create();
    assert!(create.allowed("op = create_task"));
    for text in ["op = send", "op = admin"] {
        assert!(!create.allowed(text), "{text}");
    }
    for (op, name) in [
        (MailboxOp::Send, "send"),
        (MailboxOp::Recv, "recv"),
        (MailboxOp::Ack, "ack"),
        (MailboxOp::Nack, "nack"),
        (MailboxOp::Admin, "admin"),
    ] {
        let example = Example {
            mailbox_op: Some(op),
            ..Example::send("t")
        };
        assert!(example.allowed(&format!("op = {name}")));
        assert!(!example.allowed("op = create_task"));
    }
}

#[test]
fn time_is_exact_and_comes_first() {
    let send = Example::send("t");
    let over = "time < 2026-01-05T11:00:00Z";
    let canonical = "time < 2026-01-05T11:00:00.000Z".to_owned();
    let expired = Err((canonical, DenialReason::Expired));
    assert_eq!(send.outcome(&[over]), expired);
    assert_eq!(send.outcome(&["op = recv", "unknown", over]), expired);
}

#[test]
fn all_caveats_must_hold() {
    let send = Example::send("user:42:inbox");
    assert_eq!(send.outcome(&[]), Ok(()));
    assert_eq!(send.outcome(&["op = send", "topic = user:*"]), Ok(()));
    let denied = send.outcome(&["op = send", "topic = user:*", "op=recv", "topic = x"]);
    let first = ("op = recv".to_owned(), DenialReason::NotAllowed);
    assert_eq!(denied, Err(first));
}

#[test]
fn one_scope_must_meet_all_caveats() {
    let read = Example {
        scopes: Scopes::of(&[Scope::TasksRead, Scope::TasksLease]),
        ..Example::create()
    };
    assert!(read.allowed("scope = tasks:read") && read.allowed("scope = tasks:lease"));
    assert!(
        read.outcome(&["scope = tasks:read", "scope = admin:read"])
            .is_ok()
    );
    assert!(
        read.outcome(&["scope = tasks:read", "scope = tasks:lease"])
            .is_err()
    );
    // What needs no scope is not narrowed by one.
    let free = Example {
        scopes: Scopes::NONE,
        ..Example::create()
    };
    assert!(free.allowed("scope = tasks:read"));
}

#[test]
fn a_third_partys_caveat_denies() {
    let text = "who knows".to_owned();
    let caveats = [Caveat::ThirdParty(text)];
    let call = Call {
        operation: "health",
        mailbox_op: None,
        topics: Some(&[]),
        scopes: Scopes::NONE,
        tenant: TENANT.parse().unwrap(),
        principal: &ann(),
        now: at("2026-01-05T11:00:00Z"),
    };
    let denial = check(&caveats, &call).unwrap_err();
    assert_eq!(denial.reason, DenialReason::NotAllowed);
}

/// A quota is counted under one name in everything that is derived from its macaroon.
#[test]
fn derived_macaroons_share_their_quotas() {
    let root = RootKey::derive(b"a secret");
    let texts = ["op = send", "quota ops = 5", "quota bytes = 9"].map(str::to_owned);
    let parent = mint(&root, "id", &texts).unwrap();
    let child = parent.clone().attenuate("quota ops = 5").unwrap();
    let stranger = mint(&root, "other", &texts).unwrap();
    let counted = |macaroon: &asyncgate_credentials::macaroon::Macaroon| {
        let signatures = macaroon.verify(&root).unwrap();
        let caveats: Vec<Caveat> = macaroon.caveats().iter().map(Caveat::read).collect();
        quotas(&caveats, &signatures).collect::<Vec<_>>()
    };
    let (of_parent, of_child) = (counted(&parent), counted(&child));
    assert_eq!(of_parent[..], of_child[..2]);
    let figures: Vec<_> = of_child.iter().map(|quota| (quota.0, quota.1)).collect();
    let (ops, bytes) = (QuotaUnit::Ops, QuotaUnit::Bytes);
    assert_eq!(figures, [(ops, 5), (bytes, 9), (ops, 5)]);
    let mut names: Vec<[u8; 32]> = [of_child, counted(&stranger)]
        .concat()
        .iter()
        .map(|quota| quota.2)
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5);
}

proptest! {
    /// Any text is read, and what was read says the same after it is written.
    #[test]
    fn reading_is_total_and_stable(text in ".{0,60}|(op|topic|quota ops|scope|time) ?[=<] ?.{0,30}") {
        let caveat = Caveat::parse(&text);
        prop_assert_eq!(Caveat::parse(&caveat.to_string()), caveat);
    }
}
