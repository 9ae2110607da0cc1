//! Partitions: messages with one key come one at a time, in their order, over restarts and for whatever
//! reason the one before them ended.

use std::sync::Arc;

use asyncgate_core::mailbox::{Kind, Line, Outgoing, Partition, State, Wish};
use futures_util::FutureExt;

use super::{ALL, MailDriver, ONE, dead, driver::keys_of, mail, mail_cases, of_topic};
use crate::{conformance::Case, mailbox::Reads};

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        one_message_of_a_key_at_a_time,
        blocked_messages_are_shown_as_delayed_ones,
        lines_show_one_message_more_than_was_asked_for,
        the_turn_passes_on_however_its_message_ends,
        one_call_may_end_several_messages_of_a_key,
        dead_letters_join_behind_the_one_that_has_the_turn,
        partitions_of_tenants_and_topics_are_apart,
        a_message_that_gets_the_turn_wakes_a_receiver,
        many_blocked_messages_come_in_their_order,
    ]
}

fn keyed(key: &str, partition: &str) -> Outgoing {
    Outgoing {
        partition_key: Some(partition.to_owned()),
        ..mail(key)
    }
}

fn partition(key: &str) -> Partition {
    ("inbox".into(), key.into())
}

async fn one_message_of_a_key_at_a_time(mut driver: MailDriver) {
    for key in ["a1", "b1", "a2", "b2", "a3"] {
        driver.send(keyed(key, &key[..1])).await;
    }
    let mut order = Vec::new();
    loop {
        let taken = driver.receive(ALL).await;
        if taken.is_empty() {
            break;
        }
        order.push(keys_of(&taken).join(" "));
        assert!(driver.receive(ALL).await.is_empty());
        for message in taken {
            driver.ack(message.id, None).await.unwrap();
        }
    }
    assert_eq!(order, ["a1 b1", "a2 b2", "a3"]);
}

async fn blocked_messages_are_shown_as_delayed_ones(mut driver: MailDriver) {
    let until = driver.now.plus_millis(9_000);
    driver.send(keyed("1", "k")).await;
    let second = driver
        .send(Outgoing {
            delay_ms: 9_000,
            ttl_ms: Some(60_000),
            ..keyed("2", "k")
        })
        .await;
    let blocked = driver.message(second).await.unwrap();
    assert_eq!(blocked.state, State::Blocked { until });
    assert_eq!(keys_of(&driver.peek(of_topic("inbox")).await), ["1"]);
    let (mailbox, tenant) = (driver.mailbox(), driver.tenant);
    let topics = mailbox.topics(tenant, None, 9).await.unwrap();
    let counts = topics[0].counts;
    assert_eq!((counts.of(Kind::Ready), counts.of(Kind::Delayed)), (1, 1));
    // Only its life ends by itself; its delay does not matter before its turn.
    let next = mailbox.next_message_due().await.unwrap();
    assert_eq!(next, Some(driver.now.plus_millis(60_000)));
    let (first, lease) = driver.take().await;
    driver.ack(first, Some(lease)).await.unwrap();
    let state = driver.message(second).await.unwrap().state;
    assert_eq!(state, State::Delayed { until });
    let next = driver.mailbox().next_message_due().await.unwrap();
    assert_eq!(next, Some(until));
}

async fn lines_show_one_message_more_than_was_asked_for(mut driver: MailDriver) {
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(driver.send(keyed(&n.to_string(), "k")).await);
    }
    let about = |messages: &[asyncgate_core::MessageId]| Reads {
        messages: messages.to_vec(),
        ..Reads::default()
    };
    for (asked, shown) in [(&ids[..1], 2), (&ids[3..4], 2), (&ids[..3], 4), (&ids, 5)] {
        let lines = driver.look(about(asked)).await.lines;
        let Line { turns, blocked } = &lines[&partition("k")];
        assert_eq!((lines.len(), turns.as_slice()), (1, &[ids[0].seq()][..]));
        let shown: Vec<_> = ids[1..shown].to_vec();
        assert_eq!(blocked.iter().map(|m| m.id).collect::<Vec<_>>(), shown);
    }
    let ready = Reads {
        ready: Some(of_topic("inbox")),
        ..Reads::default()
    };
    assert_eq!(
        driver.look(ready).await.lines[&partition("k")]
            .blocked
            .len(),
        1
    );
    let sends = Reads {
        sends: driver.keys(&[keyed("a", "k"), keyed("b", "none"), mail("c")]),
        ..Reads::default()
    };
    let snapshot = driver.look(sends).await;
    assert_eq!(snapshot.send_context.occupied, [partition("k")].into());
    assert!(snapshot.lines.is_empty() && snapshot.occupied.is_empty());
}

async fn the_turn_passes_on_however_its_message_ends(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    for how in [
        "ack", "late ack", "nack", "timeout", "expired", "old", "purge", "delete",
    ] {
        let first = driver
            .send(Outgoing {
                ttl_ms: Some(60_000),
                ..keyed(&format!("{how} 1"), how)
            })
            .await;
        driver.send(keyed(&format!("{how} 2"), how)).await;
        let (second, third) = (format!("{how} 2"), format!("{how} 3"));
        driver.send(keyed(&third, how)).await;
        match how {
            "ack" => {
                driver.take().await;
                driver.ack(first, None).await.unwrap();
            }
            "late ack" => {
                driver.policy.mailbox.max_attempts = 2;
                let (_, lease) = driver.take().await;
                driver.wait_ms(5_000);
                driver.sweep_mail().await;
                driver.ack(first, Some(lease)).await.unwrap();
                driver.policy.mailbox.max_attempts = 1;
            }
            "nack" => {
                driver.take().await;
                driver.give_back(first, "no").await;
            }
            "timeout" => {
                driver.take().await;
                driver.wait_ms(5_000);
                driver.sweep_mail().await;
            }
            "expired" => {
                driver.wait_ms(60_000);
                let received = driver.receive_from("inbox", ONE).await.unwrap();
                assert_eq!(received.died.len(), 1);
            }
            "old" => {
                driver.wait_ms(60_000);
                driver.sweep_mail().await;
            }
            "purge" => assert_eq!(driver.purge_waiting("inbox", 1).await, 1),
            _ => drop(driver.delete(first).await.unwrap()),
        }
        for expected in [second, third] {
            let taken = driver.receive(ALL).await;
            assert_eq!(keys_of(&taken), [expected]);
            driver.ack(taken[0].id, None).await.unwrap();
        }
    }
}

async fn one_call_may_end_several_messages_of_a_key(mut driver: MailDriver) {
    let mut ids = Vec::new();
    for n in 0..6 {
        let ttl_ms = [1, 2, 3].contains(&n).then_some(1_000);
        let sent = Outgoing {
            ttl_ms,
            ..keyed(&n.to_string(), "k")
        };
        ids.push(driver.send(sent).await);
    }
    driver.policy.mailbox.max_attempts = 1;
    driver.take().await;
    driver.wait_ms(5_000);
    assert_eq!(driver.sweep_mail().await.died.len(), 4);
    assert_eq!(keys_of(&driver.peek(of_topic("inbox")).await), ["4"]);
    assert_eq!(driver.purge_waiting("inbox", 9).await, 2);
    assert!(driver.peek(of_topic("inbox")).await.is_empty());
    let next = driver.send(keyed("6", "k")).await;
    assert_eq!(driver.message(next).await.unwrap().state, State::Ready);
}

async fn dead_letters_join_behind_the_one_that_has_the_turn(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    for key in ["1", "2", "3", "4"] {
        driver.send(keyed(key, "k")).await;
    }
    let mut letters = Vec::new();
    for _ in 0..2 {
        let (id, _) = driver.take().await;
        driver.give_back(id, "no").await;
        letters.push(id);
    }
    let reads = Reads {
        dead: Some(dead(None)),
        ..Reads::default()
    };
    let snapshot = driver.look(reads).await;
    assert_eq!(snapshot.occupied, [partition("k")].into());
    assert_eq!(driver.redrive_one(letters[1]).await, Ok(true));
    assert_eq!(driver.redrive_one(letters[1]).await, Ok(false));
    assert_eq!(driver.redrive(dead(None)).await, Ok(1));
    for key in ["3", "1", "2", "4"] {
        let taken = driver.receive(ALL).await;
        assert_eq!(keys_of(&taken), [key]);
        driver.ack(taken[0].id, None).await.unwrap();
    }
}

async fn partitions_of_tenants_and_topics_are_apart(mut mine: MailDriver) {
    let mut theirs = mine.other(2);
    let there = Outgoing {
        topic: "outbox".to_owned(),
        ..keyed("1", "k")
    };
    mine.send(keyed("1", "k")).await;
    mine.send(there).await;
    mine.send(keyed("2", "K")).await;
    mine.send(keyed("3", "k\0")).await;
    theirs.send(keyed("1", "k")).await;
    assert_eq!(keys_of(&mine.receive(ALL).await), ["1", "2", "3"]);
    let outbox = mine.receive_from("outbox", ALL).await.unwrap();
    assert_eq!(outbox.messages.len(), 1);
    assert_eq!(theirs.receive(ALL).await.len(), 1);
}

async fn a_message_that_gets_the_turn_wakes_a_receiver(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    driver.send(keyed("1", "k")).await;
    driver.send(keyed("2", "k")).await;
    let (first, lease) = driver.take().await;
    let mut wait = store.signals().message_waiter(driver.tenant, "inbox");
    driver.send(keyed("3", "k")).await;
    driver.other(9).send(mail("another commit")).await;
    assert!(wait.woken().now_or_never().is_none(), "it is blocked");
    driver.ack(first, Some(lease)).await.unwrap();
    wait.woken().await;
    assert_eq!(keys_of(&driver.receive(ALL).await), ["2"]);
}

async fn many_blocked_messages_come_in_their_order(mut driver: MailDriver) {
    let batch = (0..300).map(|n| keyed(&n.to_string(), &(n % 3).to_string()));
    driver.send_all(batch.collect()).await;
    let two = Wish {
        max_messages: 2,
        ..ALL
    };
    let mut last = [-1, -1, -1];
    let mut taken = 0;
    loop {
        let received = driver.receive(two).await;
        if received.is_empty() {
            break;
        }
        for message in received {
            let n: i32 = message.idem_key.parse().unwrap();
            let line = &mut last[n as usize % 3];
            assert!(*line < n, "{n} after {line}");
            *line = n;
            taken += 1;
            driver.ack(message.id, None).await.unwrap();
        }
    }
    assert_eq!((taken, last), (300, [297, 298, 299]));
}
