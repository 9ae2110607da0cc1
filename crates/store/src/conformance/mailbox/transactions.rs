//! Transactions: all or nothing, one after the other, and visible once answered.

use std::sync::Arc;

use asyncgate_core::{
    Timestamp,
    mailbox::{Changes, Decision, Full, Outgoing, Rejection, Share, Wish},
};

use super::{ALL, MailDriver, dead, driver::keys_of, mail, mail_cases, of_topic};
use crate::{
    Health, Job, Messages,
    conformance::{Case, Driver},
    mailbox::{Load, Reads, Used},
};

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        a_new_mailbox_is_empty,
        what_was_decided_is_visible_once_it_is_answered,
        a_decision_sees_what_it_declared_and_nothing_else,
        a_refused_decision_writes_nothing,
        a_decision_that_changes_nothing_is_no_commit,
        a_decision_that_panics_harms_nobody_else,
        concurrent_sends_under_one_key_make_one_message,
        concurrent_receivers_never_share_a_message,
        concurrent_receivers_respect_the_ceiling_together,
        tenants_see_nothing_of_each_other,
        tenants_have_parts_of_the_shared_bounds,
        one_tenant_does_not_fill_the_part_of_another,
        a_full_topic_turns_nobody_else_away,
        both_planes_share_one_clock,
    ]
}

async fn a_new_mailbox_is_empty(mail: MailDriver) {
    let (mailbox, tenant) = (mail.mailbox(), mail.tenant);
    assert!(mail.messages().await.is_empty());
    assert!(mail.peek(of_topic("inbox")).await.is_empty());
    assert!(mail.dead_letters(dead(None)).await.is_empty());
    assert!(mailbox.topics(tenant, None, 9).await.unwrap().is_empty());
    assert!(mailbox.chains(tenant).await.unwrap().is_empty());
    let end = Timestamp::from_millis(i64::MAX);
    assert!(mailbox.messages_due(end, 9).await.unwrap().is_empty());
    assert!(
        mailbox
            .waiting_since(end, None, 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(mailbox.next_message_due().await.unwrap(), None);
    assert_eq!(mailbox.load(mail.now).await.unwrap(), Load::default());
    let snapshot = mail.look(Reads::default()).await;
    assert_eq!(
        (snapshot.send_context.head, snapshot.inflight.total),
        (0, 0)
    );
}

async fn what_was_decided_is_visible_once_it_is_answered(mut driver: MailDriver) {
    for n in 1..=20_u64 {
        let id = driver.send(mail(&n.to_string())).await;
        assert_eq!(id.seq(), n, "places have no gaps");
        let written = driver.written().messages.remove(0).message;
        assert_eq!(driver.message(id).await, Some(written));
        assert_eq!(driver.messages().await.len() as u64, n);
        assert_eq!(driver.peek(of_topic("inbox")).await.len() as u64, n);
        let load = driver.mailbox().load(driver.now).await.unwrap();
        assert_eq!(load.remembered(), n);
    }
    let (id, lease) = driver.take().await;
    let written = driver.written().messages.remove(0).message;
    assert_eq!(driver.message(id).await, Some(written));
    driver.ack(id, Some(lease)).await.unwrap();
    let written = driver.written().messages.remove(0).message;
    assert_eq!(driver.message(id).await, Some(written));
}

async fn a_decision_sees_what_it_declared_and_nothing_else(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    let first = driver.send(mail("a")).await;
    driver.take().await;
    driver.give_back(first, "no").await;
    let second = driver.send(mail("b")).await;
    let nothing = driver.look(Reads::default()).await;
    assert!(nothing.messages.is_empty() && nothing.ready.is_empty());
    assert!(nothing.dead.is_empty() && nothing.depths.is_empty());
    assert!(nothing.waiting.is_empty() && nothing.send_context.keyed.is_empty());
    assert!(nothing.send_context.chains.is_empty() && nothing.send_context.depths.is_empty());
    assert!(nothing.lines.is_empty() && nothing.occupied.is_empty());
    assert_eq!(nothing.send_context.head, 2);
    let unknown = driver.env().ids.message(2);
    let all = driver
        .look(Reads {
            sends: driver.keys(&[mail("b"), mail("z"), mail("a")]),
            messages: vec![second, unknown, first],
            ready: Some(of_topic("inbox")),
            dead: Some(dead(Some("inbox"))),
            waiting: Some(("inbox".to_owned(), 9)),
        })
        .await;
    assert_eq!(keys_of(&all.messages), ["b", "a"], "in the order declared");
    assert_eq!(keys_of(&all.ready), ["b"]);
    assert_eq!(keys_of(&all.dead), ["a"]);
    assert_eq!(keys_of(&all.waiting), ["b"]);
    let keyed = all
        .send_context
        .keyed
        .iter()
        .map(|found| found.as_ref().map(|m| m.id));
    assert_eq!(keyed.collect::<Vec<_>>(), [Some(second), None, Some(first)]);
    assert_eq!(all.depths, [("inbox".into(), 1)].into());
    assert_eq!(all.send_context.depths, all.depths);
    let chain = (all.dead[0].shard, all.messages[0].chain_head());
    assert_eq!(all.send_context.chains, [chain].into());
    assert!(all.lines.is_empty(), "no message has a key");
}

async fn a_refused_decision_writes_nothing(mut driver: MailDriver) {
    let id = driver.send(mail("a")).await;
    driver.take().await;
    let store = Arc::clone(driver.store());
    let before = (driver.messages().await, store.last_time());
    driver.wait_ms(1_000);
    let stale = Some(driver.env().ids.lease(1));
    assert_eq!(driver.ack(id, stale).await, Err(Rejection::StaleLease));
    let mut other = mail("a");
    other.payload = "other".into();
    assert!(driver.try_send(other).await.is_err());
    let unknown = driver.env().ids.message(9);
    assert_eq!(driver.ack(unknown, None).await, Err(Rejection::NotFound));
    assert_eq!((driver.messages().await, store.last_time()), before);
    assert_eq!(driver.look(Reads::default()).await.send_context.head, 1);
}

/// A repeat that is answered from what is there must not cost an fsync, nor move the clock.
async fn a_decision_that_changes_nothing_is_no_commit(mut driver: MailDriver) {
    let id = driver.send(mail("a")).await;
    let (_, lease) = driver.take().await;
    driver.ack(id, Some(lease)).await.unwrap();
    let store = Arc::clone(driver.store());
    let before = (store.metrics().commits.get(), store.last_time());
    driver.wait_ms(1_000);
    assert!(driver.ack(id, Some(lease)).await.unwrap().repeated);
    assert!(driver.try_send(mail("a")).await.unwrap().duplicate);
    assert!(driver.receive(ALL).await.is_empty());
    assert_eq!(driver.sweep_mail().await.moved(), 0);
    let nothing = |_, _| {
        Ok(Decision {
            changes: Changes::default(),
            output: (),
        })
    };
    driver.decide_mail(Reads::default(), nothing).await.unwrap();
    assert_eq!((store.metrics().commits.get(), store.last_time()), before);
}

/// A panic is a defect, and its caller may see it as one; everyone else's work goes on.
async fn a_decision_that_panics_harms_nobody_else(mut driver: MailDriver) {
    driver.send(mail("a")).await;
    let mut careless = driver.other(1);
    let panicked = tokio::spawn(async move {
        let decide = |_, _| -> Result<Decision<()>, Rejection> { panic!("on purpose") };
        careless.try_decide_mail(Reads::default(), decide).await
    });
    let answer = panicked.await;
    assert!(!matches!(answer, Ok(Ok(_))), "nothing was decided");
    assert_eq!(driver.store().health(), Health::Ready);
    assert!(driver.try_send(mail("a")).await.unwrap().duplicate);
    driver.send(mail("b")).await;
    assert_eq!(driver.receive(ALL).await.len(), 2);
}

async fn concurrent_sends_under_one_key_make_one_message(driver: MailDriver) {
    let mut sending = Vec::new();
    for n in 0..40 {
        let mut own = driver.other(1);
        let key = (n % 4).to_string();
        sending.push(tokio::spawn(async move {
            own.try_send(mail(&key)).await.unwrap()
        }));
    }
    let (mut fresh, mut ids) = (0, Vec::new());
    for sent in sending {
        let sent = sent.await.unwrap();
        fresh += usize::from(!sent.duplicate);
        ids.push(sent.id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((fresh, ids.len()), (4, 4));
    assert_eq!(driver.messages().await.len(), 4);
}

async fn concurrent_receivers_never_share_a_message(mut driver: MailDriver) {
    for n in 0..20 {
        driver.send(mail(&n.to_string())).await;
    }
    let mut receiving = Vec::new();
    for _ in 0..15 {
        let mut own = driver.other(1);
        let two = Wish {
            max_messages: 2,
            ..ALL
        };
        receiving.push(tokio::spawn(async move { own.receive(two).await }));
    }
    let mut taken = Vec::new();
    for received in receiving {
        taken.extend(
            received
                .await
                .unwrap()
                .into_iter()
                .map(|message| message.id),
        );
    }
    assert_eq!(taken.len(), 20);
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 20, "each message exactly once");
}

async fn concurrent_receivers_respect_the_ceiling_together(mut driver: MailDriver) {
    for n in 0..20 {
        driver.send(mail(&n.to_string())).await;
    }
    let mut receiving = Vec::new();
    for _ in 0..10 {
        let mut own = driver.other(1);
        own.policy.mailbox.global_inflight = 7;
        let two = Wish {
            max_messages: 2,
            ..ALL
        };
        receiving.push(tokio::spawn(
            async move { own.receive_from("inbox", two).await },
        ));
    }
    let (mut taken, mut refused) = (0, 0);
    for received in receiving {
        match received.await.unwrap() {
            Ok(received) => taken += received.messages.len(),
            Err(Rejection::Saturated(Full::Inflight)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((taken, refused), (7, 6));
    assert_eq!(
        driver.mailbox().load(driver.now).await.unwrap().inflight(),
        7
    );
}

async fn tenants_see_nothing_of_each_other(mut mine: MailDriver) {
    let mut theirs = mine.other(2);
    theirs.policy.mailbox.max_attempts = 1;
    let id = theirs.send(mail("a")).await;
    theirs.send(mail("b")).await;
    theirs.take().await;
    theirs.give_back(id, "no").await;
    assert_eq!(mine.message(id).await, None);
    assert!(mine.messages().await.is_empty());
    assert!(mine.peek(of_topic("inbox")).await.is_empty());
    assert!(mine.dead_letters(dead(None)).await.is_empty());
    assert!(mine.dead_letters(dead(Some("inbox"))).await.is_empty());
    assert!(mine.receive(ALL).await.is_empty());
    assert_eq!(mine.ack(id, None).await, Err(Rejection::NotFound));
    assert_eq!(mine.redrive(dead(None)).await, Ok(0));
    assert_eq!(mine.purge_waiting("inbox", 9).await, 0);
    assert_eq!(mine.purge_dead(dead(None)).await, 0);
    let (mailbox, tenant) = (mine.mailbox(), mine.tenant);
    assert!(mailbox.topics(tenant, None, 9).await.unwrap().is_empty());
    assert!(mailbox.chains(tenant).await.unwrap().is_empty());
    // The same key and topic mean another message here: names and places are the tenant's own.
    let own = mine.send(mail("a")).await;
    assert_eq!(own.seq(), 1);
    let message = mine.message(own).await.unwrap();
    assert_eq!(message.chain_seq, 1);
    assert_eq!(theirs.messages().await.len(), 2);
    assert_eq!(
        theirs.message(own).await,
        None,
        "another message has the place"
    );
}

/// What others have of a shared bound is counted, and kept apart from the tenant's own part. The
/// capacity of topics is not shared at all.
async fn tenants_have_parts_of_the_shared_bounds(mut mine: MailDriver) {
    let mut theirs = mine.other(2);
    for key in ["a", "b", "c"] {
        theirs.send(mail(key)).await;
    }
    theirs.take().await;
    theirs.take().await;
    let reads = Reads {
        sends: mine.keys(&[mail("a")]),
        ..Reads::default()
    };
    let share = |total, own, tenants| Share {
        total,
        own,
        tenants,
    };
    let snapshot = mine.look(reads.clone()).await;
    assert_eq!(snapshot.inflight, share(2, 0, 1));
    assert_eq!(snapshot.send_context.remembered, share(3, 0, 1));
    assert_eq!(snapshot.send_context.oldest_remembered, None);
    assert_eq!(snapshot.send_context.depths, [("inbox".into(), 0)].into());
    mine.wait_ms(1_000);
    mine.send(mail("a")).await;
    mine.take().await;
    let snapshot = mine.look(reads).await;
    assert_eq!(snapshot.inflight, share(3, 1, 2));
    assert_eq!(snapshot.send_context.remembered, share(4, 1, 2));
    assert_eq!(snapshot.send_context.oldest_remembered, Some(mine.now));
    let load = mine.mailbox().load(mine.now).await.unwrap();
    let used = |inflight, remembered| Used {
        inflight,
        remembered,
    };
    let expected = [(mine.tenant, used(1, 1)), (theirs.tenant, used(2, 3))];
    assert_eq!(load.tenants, expected.into());
    assert_eq!((load.inflight(), load.remembered()), (3, 4));
    // Their sends are forgotten although nobody asks for them.
    mine.wait_ms(300_000 - 1_000);
    mine.look(Reads::default()).await;
    mine.send(mail("b")).await;
    let load = mine.mailbox().load(mine.now).await.unwrap();
    assert_eq!(load.remembered(), 2);
}

/// A tenant that holds, or has sent, as much as there may be takes nothing away from another.
async fn one_tenant_does_not_fill_the_part_of_another(mut mine: MailDriver) {
    let mut theirs = mine.other(2);
    for driver in [&mut mine, &mut theirs] {
        driver.policy.mailbox.global_inflight = 4;
        driver.policy.mailbox.dedup_capacity = 8;
    }
    for n in 0..8 {
        theirs.send(mail(&n.to_string())).await;
    }
    assert!(theirs.try_send(mail("8")).await.is_err());
    assert_eq!(theirs.receive(ALL).await.len(), 4);
    let refused = theirs.receive_from("inbox", ALL).await.unwrap_err();
    assert_eq!(refused, Rejection::Saturated(Full::Inflight));
    for n in 0..4 {
        mine.send(mail(&n.to_string())).await;
    }
    let refused = mine.try_send(mail("4")).await.unwrap_err();
    let until = mine.now.plus_millis(300_000);
    assert_eq!(refused, Rejection::Saturated(Full::Dedup { until }));
    assert_eq!(mine.receive(ALL).await.len(), 2);
    let refused = mine.receive_from("inbox", ALL).await.unwrap_err();
    assert_eq!(refused, Rejection::Saturated(Full::Inflight));
}

/// Neither another topic in the same shard nor another tenant's topic of the same name counts.
async fn a_full_topic_turns_nobody_else_away(mut mine: MailDriver) {
    let mut theirs = mine.other(2);
    for driver in [&mut mine, &mut theirs] {
        driver.policy.mailbox.shards = 1;
        driver.policy.mailbox.topic_capacity = 2;
    }
    let first = mine.send(mail("a")).await;
    let delayed = Outgoing {
        delay_ms: 60_000,
        ..mail("b")
    };
    mine.send(delayed).await;
    let full = Rejection::Saturated(Full::Topic { capacity: 2 });
    assert_eq!(mine.try_send(mail("c")).await, Err(full));
    let again = mine.try_send(mail("a")).await.unwrap();
    assert!(again.duplicate && again.id == first);
    theirs.send(mail("a")).await;
    let elsewhere = Outgoing {
        topic: "outbox".to_owned(),
        ..mail("c")
    };
    mine.send(elsewhere).await;
    mine.take().await;
    mine.send(mail("c")).await;
}

async fn both_planes_share_one_clock(mut driver: MailDriver) {
    driver.send(mail("a")).await;
    let sent = driver.now;
    assert_eq!(driver.store().last_time(), sent);
    let mut tasks = Driver::new(Arc::clone(driver.store()));
    tasks.now = sent.plus_millis(5_000);
    tasks.create(crate::conformance::echo()).await;
    let (decided_at, _) = driver.show(Reads::default()).await;
    assert_eq!(decided_at, tasks.now);
    let job = Job::<Messages> {
        tenant: driver.tenant,
        reads: Reads::default(),
        now: sent.plus_millis(9_000),
        weight: 0,
        decide: Box::new(|_, _| None),
    };
    driver.store().transact(job.into()).await.unwrap();
    assert_eq!(driver.store().last_time(), tasks.now, "nothing was written");
}
