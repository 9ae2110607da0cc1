//! Sends: repetitions are recognised for as long as they must be, and forgotten after.

use asyncgate_core::mailbox::{Outgoing, Rejection, SendContext};

use super::{ALL, MailDriver, dead, mail, mail_cases};
use crate::{
    conformance::Case,
    mailbox::{DeadFilter, Reads},
};

const T_REPLAY: i64 = 300_000;

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        a_send_is_recognised_until_its_window_is_over,
        whatever_became_of_the_message,
        names_are_not_confused,
        a_name_that_is_used_again_stands_for_the_newer_message,
        remembered_sends_are_counted_and_forgotten,
        a_longer_window_brings_back_what_it_covers,
        a_batch_is_one_transaction,
        chains_grow_by_shard_and_tenant,
    ]
}

async fn a_send_is_recognised_until_its_window_is_over(mut driver: MailDriver) {
    let id = driver.send(mail("a")).await;
    driver.wait_ms(T_REPLAY - 1);
    // Transactions of others in between forget nothing that must be known.
    driver.send(mail("b")).await;
    let again = driver.try_send(mail("a")).await.unwrap();
    assert!(again.duplicate && again.id == id);
    let changed = Outgoing {
        payload: "other".into(),
        ..mail("a")
    };
    let refused = driver.try_send(changed.clone()).await;
    assert_eq!(refused, Err(Rejection::IdemConflict { msg_id: id }));
    driver.wait_ms(1);
    let new = driver.send(changed.clone()).await;
    assert_ne!(new, id);
    assert_eq!(driver.try_send(changed).await.unwrap().id, new);
}

async fn whatever_became_of_the_message(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    driver.policy.mailbox.dlq_retention_ms = 1_000;
    for key in ["acked", "dead", "purged"] {
        driver.send(mail(key)).await;
    }
    for message in driver.receive(ALL).await {
        match &*message.idem_key {
            "acked" => drop(driver.ack(message.id, None).await.unwrap()),
            _ => drop(driver.give_back(message.id, "no").await),
        }
    }
    let purged = DeadFilter {
        after: driver.messages().await.get(1).map(|message| message.id),
        ..dead(None)
    };
    assert_eq!(driver.purge_dead(purged).await, 1);
    driver.wait_ms(T_REPLAY - 1);
    driver.sweep_mail().await;
    for key in ["acked", "dead", "purged"] {
        assert!(driver.try_send(mail(key)).await.unwrap().duplicate, "{key}");
    }
    driver.wait_ms(1);
    driver.sweep_mail().await;
    for key in ["acked", "dead", "purged"] {
        driver.send(mail(key)).await;
    }
}

async fn names_are_not_confused(mut driver: MailDriver) {
    let names = [
        ("a", "bc"),
        ("ab", "c"),
        ("abc", ""),
        ("a", "bC"),
        ("A", "bc"),
        ("a\0", "bc"),
        ("a", "\0bc"),
        ("a", "bc "),
        ("ä", "bc"),
    ];
    let to = |(topic, key): (&str, &str)| Outgoing {
        topic: topic.to_owned(),
        ..mail(key)
    };
    let mut ids = Vec::new();
    for name in names {
        ids.push(driver.send(to(name)).await);
    }
    for (name, id) in names.into_iter().zip(ids) {
        let again = driver.try_send(to(name)).await.unwrap();
        assert!(again.duplicate && again.id == id, "{name:?}");
    }
}

async fn a_name_that_is_used_again_stands_for_the_newer_message(mut driver: MailDriver) {
    let mut last = driver.send(mail("a")).await;
    for _ in 0..5 {
        driver.wait_ms(T_REPLAY);
        let next = driver.send(mail("a")).await;
        assert_ne!(next, last);
        // The older message is still ready; ending it changes nothing about the name.
        let (old, lease) = driver.take().await;
        assert_eq!(old, last);
        driver.ack(old, Some(lease)).await.unwrap();
        driver.sweep_mail().await;
        assert_eq!(driver.try_send(mail("a")).await.unwrap().id, next);
        last = next;
    }
}

/// Returns what a send under the keys `a` and `b` is decided with.
async fn context(driver: &MailDriver) -> SendContext {
    let reads = Reads {
        sends: driver.keys(&[mail("a"), mail("b")]),
        ..Reads::default()
    };
    driver.look(reads).await.send_context
}

async fn remembered_sends_are_counted_and_forgotten(mut driver: MailDriver) {
    driver.policy.mailbox.dedup_capacity = 4;
    for n in 0..4 {
        driver.send(mail(&n.to_string())).await;
        driver.wait_ms(1_000);
    }
    let first = driver.now.plus_millis(-4_000);
    let now = context(&driver).await;
    assert_eq!(
        (now.remembered.own, now.oldest_remembered),
        (4, Some(first))
    );
    assert!(driver.try_send(mail("4")).await.is_err());
    driver.wait_ms(T_REPLAY - 4_000 - 1);
    assert_eq!(context(&driver).await.remembered.own, 4);
    driver.wait_ms(1);
    let now = context(&driver).await;
    let second = first.plus_millis(1_000);
    assert_eq!(
        (now.remembered.own, now.oldest_remembered),
        (3, Some(second))
    );
    driver.send(mail("4")).await;
    driver.wait_ms(T_REPLAY);
    let now = context(&driver).await;
    assert_eq!((now.remembered.own, now.oldest_remembered), (0, None));
}

async fn a_longer_window_brings_back_what_it_covers(mut driver: MailDriver) {
    let first = driver.send(mail("a")).await;
    driver.wait_ms(T_REPLAY);
    driver.send(mail("b")).await;
    let now = context(&driver).await;
    assert!(now.remembered.own == 1 && now.keyed[0].is_none() && now.keyed[1].is_some());
    driver.mailbox().set_replay_window(2 * T_REPLAY);
    let now = context(&driver).await;
    assert_eq!(now.remembered.own, 2);
    assert_eq!(now.keyed[0].as_ref().map(|found| found.id), Some(first));
    driver.mailbox().set_replay_window(1_000);
    driver.wait_ms(1_000);
    let now = context(&driver).await;
    assert_eq!((now.remembered.own, &now.keyed[..]), (0, &[None, None][..]));
}

async fn a_batch_is_one_transaction(mut driver: MailDriver) {
    let commits = driver.store().metrics().commits.get();
    let batch: Vec<Outgoing> = (0..100).map(|n| mail(&(n % 90).to_string())).collect();
    let answers = driver.send_all(batch).await;
    let fresh = answers.iter().flatten().filter(|sent| !sent.duplicate);
    assert_eq!((answers.len(), fresh.count()), (100, 90));
    assert_eq!(driver.store().metrics().commits.get(), commits + 1);
    let places: Vec<u64> = driver.messages().await.iter().map(|m| m.id.seq()).collect();
    assert_eq!(places, (1..=90).collect::<Vec<_>>());
}

async fn chains_grow_by_shard_and_tenant(mut driver: MailDriver) {
    let mut other = driver.other(2);
    for n in 0..40 {
        let sent = Outgoing {
            topic: format!("t{}", n % 9),
            partition_key: (n % 2 == 0).then(|| n.to_string()),
            ..mail(&n.to_string())
        };
        other.send(sent.clone()).await;
        driver.wait_ms(1);
        driver.send(sent).await;
    }
    for tenant in [&driver, &other] {
        let mut heads = std::collections::BTreeMap::new();
        for message in tenant.messages().await {
            let head: &mut asyncgate_core::mailbox::ChainHead =
                heads.entry(message.shard).or_default();
            assert_eq!((head.seq + 1, head.link), (message.chain_seq, message.prev));
            *head = head.then(&message.hash_chain);
        }
        let chains = tenant.mailbox().chains(tenant.tenant).await.unwrap();
        assert_eq!(chains, heads);
        assert!(chains.len() > 4, "several shards");
    }
    let mine = driver.mailbox().chains(driver.tenant).await.unwrap();
    assert_ne!(mine, other.mailbox().chains(other.tenant).await.unwrap());
    // A chain does not depend on what becomes of its messages.
    driver.receive_from("t1", ALL).await.unwrap();
    driver.purge_waiting("t2", 9).await;
    assert_eq!(driver.mailbox().chains(driver.tenant).await.unwrap(), mine);
}
