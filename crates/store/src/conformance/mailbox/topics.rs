//! Topics: the order of delivery, the number of messages that a look takes, and the counts.

use asyncgate_core::mailbox::{Kind, Outgoing, Wish};

use super::{ALL, MailDriver, ONE, driver::keys_of, mail, mail_cases, of_topic};
use crate::{
    conformance::Case,
    mailbox::{Counts, Reads, Take, Topic},
};

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        priority_goes_before_age,
        topics_are_apart,
        what_is_not_ready_is_not_taken,
        what_returns_takes_its_old_place,
        at_most_the_wished_number_is_taken,
        bytes_are_those_of_the_content,
        peeking_takes_nothing,
        waiting_messages_come_ready_ones_first,
        counts_follow_every_change,
        topics_are_listed_by_name_and_page_by_page,
        a_topic_is_there_as_long_as_it_has_messages,
        the_first_message_tells_a_topics_age,
        messages_are_listed_in_the_order_in_which_they_were_sent,
    ]
}

async fn priority_goes_before_age(mut driver: MailDriver) {
    for (key, priority) in [
        ("d", 0),
        ("b", 9),
        ("f", -1),
        ("a", i32::MAX),
        ("e", 0),
        ("c", 9),
        ("g", i32::MIN),
    ] {
        driver
            .send(Outgoing {
                priority,
                ..mail(key)
            })
            .await;
    }
    let order = ["a", "b", "c", "d", "e", "f", "g"];
    assert_eq!(keys_of(&driver.peek(of_topic("inbox")).await), order);
    assert_eq!(keys_of(&driver.receive(ALL).await), order);
}

async fn topics_are_apart(mut driver: MailDriver) {
    for (n, topic) in ["a", "b", "a", "A", "a:b", "b"].into_iter().enumerate() {
        let topic = topic.to_owned();
        driver
            .send(Outgoing {
                topic,
                ..mail(&n.to_string())
            })
            .await;
    }
    for (topic, keys) in [
        ("a", &["0", "2"][..]),
        ("b", &["1", "5"]),
        ("A", &["3"]),
        ("a:b", &["4"]),
        ("a:", &[]),
        ("", &[]),
    ] {
        let taken = driver.receive_from(topic, ALL).await.unwrap().messages;
        assert_eq!(keys_of(&taken), keys, "{topic}");
        assert!(taken.iter().all(|message| &*message.topic == topic));
    }
}

async fn what_is_not_ready_is_not_taken(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    for key in ["leased", "dead", "gone"] {
        driver.send(mail(key)).await;
    }
    let taken = driver.receive(ALL).await;
    driver.give_back(taken[1].id, "no").await;
    driver.ack(taken[2].id, None).await.unwrap();
    let delay_ms = 1_000;
    driver
        .send(Outgoing {
            delay_ms,
            ..mail("delayed")
        })
        .await;
    assert!(driver.peek(of_topic("inbox")).await.is_empty());
    driver.send(mail("ready")).await;
    assert_eq!(keys_of(&driver.receive(ALL).await), ["ready"]);
}

async fn what_returns_takes_its_old_place(mut driver: MailDriver) {
    for key in ["a", "b", "c"] {
        driver.send(mail(key)).await;
    }
    let (first, _) = driver.take().await;
    let (second, _) = driver.take().await;
    driver.give_back(second, "later").await;
    driver.wait_ms(5_000);
    driver.sweep_mail().await;
    let taken = driver.receive(ALL).await;
    assert_eq!(keys_of(&taken), ["a", "b", "c"]);
    assert_eq!((taken[0].id, taken[0].attempt), (first, 2));
}

async fn at_most_the_wished_number_is_taken(mut driver: MailDriver) {
    for n in 0..5 {
        driver.send(mail(&n.to_string())).await;
    }
    for (max_messages, found) in [(1, 1), (4, 4), (5, 5), (9, 5), (usize::MAX, 5)] {
        let take = Take {
            max_messages,
            ..of_topic("inbox")
        };
        assert_eq!(driver.peek(take.clone()).await.len(), found);
        let ready = Some(take);
        let reads = Reads {
            ready,
            ..Reads::default()
        };
        assert_eq!(driver.look(reads).await.ready.len(), found);
    }
    assert_eq!(keys_of(&driver.receive(ONE).await), ["0"]);
    assert_eq!(driver.receive(ALL).await.len(), 4);
}

async fn bytes_are_those_of_the_content(mut driver: MailDriver) {
    for (topic, sizes, max_bytes, given) in [
        ("exact", &[100, 100, 100][..], 200, 2),
        ("below", &[100, 100, 100], 199, 1),
        ("large", &[1_000, 1], 10, 1),
        ("none", &[1_000, 1], 0, 1),
        ("stop", &[10, 1_000, 10], 20, 1),
        ("empty", &[0, 0, 0], 0, 3),
        ("nearly", &[0, 1, 0], 0, 1),
        ("mixed", &[5, 0, 5, 0, 1], 10, 4),
    ] {
        for (n, bytes) in sizes.iter().enumerate() {
            driver
                .send(Outgoing {
                    topic: topic.to_owned(),
                    payload: vec![b'x'; *bytes].into(),
                    ..mail(&n.to_string())
                })
                .await;
        }
        let take = Take {
            max_bytes,
            ..of_topic(topic)
        };
        assert_eq!(driver.peek(take).await.len(), given, "{topic}");
        let wish = Wish { max_bytes, ..ALL };
        let taken = driver.receive_from(topic, wish).await.unwrap();
        assert_eq!(taken.messages.len(), given, "{topic}");
    }
}

async fn peeking_takes_nothing(mut driver: MailDriver) {
    driver.send(mail("a")).await;
    let before = driver.messages().await;
    assert_eq!(driver.peek(of_topic("inbox")).await, before);
    assert_eq!(driver.messages().await, before);
    assert_eq!(driver.receive(ALL).await.len(), 1);
}

async fn waiting_messages_come_ready_ones_first(mut driver: MailDriver) {
    for (key, priority, delay_ms) in [
        ("e", 0, 9_000),
        ("c", 0, 0),
        ("d", 5, 9_000),
        ("a", 5, 0),
        ("b", 5, 0),
    ] {
        driver
            .send(Outgoing {
                priority,
                delay_ms,
                ..mail(key)
            })
            .await;
    }
    let order = ["a", "b", "c", "d", "e"];
    for limit in 0..7 {
        let reads = Reads {
            waiting: Some(("inbox".to_owned(), limit)),
            ..Reads::default()
        };
        let found = driver.look(reads).await.waiting;
        assert_eq!(keys_of(&found), order[..limit.min(5)], "{limit}");
    }
    assert_eq!(driver.purge_waiting("inbox", 2).await, 2);
    assert_eq!(keys_of(&driver.peek(of_topic("inbox")).await), ["c"]);
    assert_eq!(driver.purge_waiting("inbox", 9).await, 3);
    assert_eq!(driver.purge_waiting("inbox", 9).await, 0);
}

/// Checks the counts of the topic and of the shards against the stored messages.
async fn check_counts(driver: &MailDriver) {
    let mut counts = Counts::default();
    for message in driver.messages().await {
        counts.count(None, Some(message.standing().kind));
    }
    let mailbox = driver.mailbox();
    let topics = mailbox.topics(driver.tenant, None, 9).await.unwrap();
    let topic = topics
        .first()
        .map_or(Counts::default(), |topic| topic.counts);
    assert_eq!(topic, counts);
    let mut sum = Counts::default();
    for shard in mailbox.load(driver.now).await.unwrap().shards.values() {
        for kind in Kind::ALL {
            sum.set(kind, sum.of(kind) + shard.of(kind));
        }
    }
    assert_eq!(sum, counts);
}

async fn counts_follow_every_change(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 2;
    for n in 0..6 {
        driver
            .send(Outgoing {
                delay_ms: n / 5 * 1_000,
                ..mail(&n.to_string())
            })
            .await;
        check_counts(&driver).await;
    }
    let taken = driver.receive(ALL).await;
    check_counts(&driver).await;
    driver.ack(taken[0].id, None).await.unwrap();
    driver.give_back(taken[1].id, "no").await;
    check_counts(&driver).await;
    driver.wait_ms(5_000);
    driver.sweep_mail().await;
    check_counts(&driver).await;
    for message in driver.receive(ALL).await {
        driver.give_back(message.id, "no").await;
        check_counts(&driver).await;
    }
    let one = crate::mailbox::DeadFilter {
        limit: 1,
        ..super::dead(Some("inbox"))
    };
    assert_eq!(driver.redrive(one.clone()).await, Ok(1));
    check_counts(&driver).await;
    assert_eq!(driver.purge_dead(one).await, 1);
    check_counts(&driver).await;
    driver.purge_waiting("inbox", 9).await;
    check_counts(&driver).await;
    driver.wait_ms(30 * 86_400_000);
    driver.sweep_mail().await;
    assert!(driver.messages().await.is_empty());
    check_counts(&driver).await;
}

async fn topics(driver: &MailDriver, after: Option<&str>, limit: usize) -> Vec<Topic> {
    let after = after.map(str::to_owned);
    let found = driver.mailbox().topics(driver.tenant, after, limit).await;
    found.unwrap()
}

async fn topics_are_listed_by_name_and_page_by_page(mut driver: MailDriver) {
    let mut other = driver.other(2);
    let names = ["Z", "a", "a\0b", "aa", "b", "ä"];
    for name in ["b", "ä", "a", "Z", "aa", "a\0b", "b"] {
        let sent = Outgoing {
            topic: name.to_owned(),
            ..mail("a")
        };
        let _ = driver.try_send(sent.clone()).await;
        let elsewhere = Outgoing {
            topic: format!("{name}{name}"),
            ..sent
        };
        let _ = other.try_send(elsewhere).await;
    }
    let all = topics(&driver, None, 99).await;
    let listed: Vec<&str> = all.iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!(listed, names);
    for limit in 1..4 {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = topics(&driver, after.as_deref(), limit).await;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            paged.extend(page);
        }
        assert_eq!(paged, all, "{limit}");
    }
    assert_eq!(topics(&driver, Some("ab"), 1).await[0].name, "b");
}

async fn a_topic_is_there_as_long_as_it_has_messages(mut driver: MailDriver) {
    let id = driver.send(mail("a")).await;
    let (_, lease) = driver.take().await;
    driver.ack(id, Some(lease)).await.unwrap();
    assert!(
        topics(&driver, None, 9).await.is_empty(),
        "it is remembered, but not there"
    );
    assert!(driver.message(id).await.is_some());
    driver.wait_ms(300_000);
    driver.sweep_mail().await;
    assert!(topics(&driver, None, 9).await.is_empty());
    assert_eq!(driver.message(id).await, None);
    let again = driver.send(mail("b")).await;
    assert_eq!(again.seq(), 2, "places are not given out twice");
    assert_eq!(&*driver.message(again).await.unwrap().topic, "inbox");
    let other = Outgoing {
        topic: "outbox".to_owned(),
        ..mail("c")
    };
    driver.send(other).await;
    assert_eq!(topics(&driver, None, 9).await.len(), 2);
    assert_eq!(keys_of(&driver.receive(ALL).await), ["b"]);
}

/// Returns since when the first message of the only topic waits.
async fn age(driver: &MailDriver) -> Option<asyncgate_core::Timestamp> {
    topics(driver, None, 1).await[0].oldest
}

async fn the_first_message_tells_a_topics_age(mut driver: MailDriver) {
    let start = driver.now;
    let delay_ms = 60_000;
    driver
        .send(Outgoing {
            delay_ms,
            ..mail("delayed")
        })
        .await;
    assert_eq!(age(&driver).await, Some(start), "better than nothing");
    driver.wait_ms(1_000);
    driver.send(mail("a")).await;
    assert_eq!(age(&driver).await, Some(start.plus_millis(1_000)));
    driver.wait_ms(1_000);
    driver
        .send(Outgoing {
            priority: 5,
            ..mail("b")
        })
        .await;
    assert_eq!(age(&driver).await, Some(start.plus_millis(2_000)));
    driver.receive(ALL).await;
    assert_eq!(age(&driver).await, Some(start));
    driver.purge_waiting("inbox", 9).await;
    assert_eq!(age(&driver).await, None);
}

async fn messages_are_listed_in_the_order_in_which_they_were_sent(mut driver: MailDriver) {
    for n in 0..7 {
        driver
            .send(Outgoing {
                priority: n,
                topic: format!("t{}", n % 3),
                ..mail(&n.to_string())
            })
            .await;
    }
    let (mailbox, tenant) = (driver.mailbox(), driver.tenant);
    let all = driver.messages().await;
    assert_eq!(keys_of(&all), ["0", "1", "2", "3", "4", "5", "6"]);
    for limit in 1..4 {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = mailbox.messages(tenant, after, limit).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            paged.extend(page);
        }
        assert_eq!(paged, all, "{limit}");
    }
}
