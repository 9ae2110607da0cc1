//! Transactions: all or nothing, one after the other, and visible once answered.

use std::sync::Arc;

use asyncgate_core::{
    Timestamp,
    mailbox::{Changes, Decision, Full, Kind, Rejection, Wish},
};

use super::{ALL, MailDriver, dead, driver::keys_of, mail, mail_cases, of_topic};
use crate::{
    Health, Job, Messages,
    conformance::{Case, Driver},
    mailbox::{Load, Reads},
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
        tenants_share_the_bounds,
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
    assert_eq!(mailbox.load().await.unwrap(), Load::default());
    let snapshot = mail.look(Reads::default()).await;
    assert_eq!((snapshot.send_context.head, snapshot.inflight), (0, 0));
}

async fn what_was_decided_is_visible_once_it_is_answered(mut driver: MailDriver) {
    for n in 1..=20_u64 {
        let id = driver.send(mail(&n.to_string())).await;
        assert_eq!(id.seq(), n, "places have no gaps");
        let written = driver.written().messages.remove(0).message;
        assert_eq!(driver.message(id).await, Some(written));
        assert_eq!(driver.messages().await.len() as u64, n);
        assert_eq!(driver.peek(of_topic("inbox")).await.len() as u64, n);
        let load = driver.mailbox().load().await.unwrap();
        assert_eq!(load.remembered, n);
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
    assert!(nothing.send_context.shards.is_empty());
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
    let shard = all.dead[0].shard;
    assert_eq!(all.depths, [(shard, 1)].into());
    assert_eq!(all.send_context.shards.len(), 1);
    let (chain, depth) = all.send_context.shards[&shard];
    assert_eq!((chain, depth), (all.messages[0].chain_head(), 1));
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
    assert_eq!(driver.mailbox().load().await.unwrap().inflight(), 7);
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

/// The capacity of shards and the ceiling of deliveries are the server's, not a tenant's.
async fn tenants_share_the_bounds(mut mine: MailDriver) {
    let mut theirs = mine.other(2);
    theirs.send(mail("a")).await;
    theirs.send(mail("b")).await;
    theirs.take().await;
    let snapshot = mine
        .look(Reads {
            sends: mine.keys(&[mail("a")]),
            ..Reads::default()
        })
        .await;
    assert_eq!(snapshot.inflight, 1);
    assert_eq!(snapshot.send_context.remembered, 2);
    let (_, (chain, depth)) = snapshot.send_context.shards.into_iter().next().unwrap();
    assert_eq!((chain.seq, depth), (0, 1), "their message, my chain");
    mine.send(mail("a")).await;
    let load = mine.mailbox().load().await.unwrap();
    let ready = load.shards.values().map(|counts| counts.of(Kind::Ready));
    assert_eq!((ready.sum::<u64>(), load.inflight()), (2, 1));
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
