//! Dead letters: which are listed, which are brought back, and where there is room for them.

use asyncgate_core::{
    MessageId,
    mailbox::{Full, Kind, Outgoing, Rejection},
};

use super::{ALL, MailDriver, dead, driver::keys_of, mail, mail_cases, of_topic};
use crate::{
    conformance::Case,
    mailbox::{DeadFilter, MAX_LOOKED_AT, Reads},
};

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        dead_letters_say_why_and_keep_their_content,
        filters_apply_together,
        lists_go_on_page_by_page,
        a_rare_filter_costs_pages_and_not_a_scan,
        a_redrive_takes_the_oldest_that_match,
        a_redrive_finds_out_how_full_the_topics_are,
        what_is_brought_back_is_delivered_in_its_old_order,
        a_purge_of_dead_letters_leaves_the_rest,
    ]
}

/// Sends messages and makes them dead letters: topic, key and reason of each.
async fn kill(driver: &mut MailDriver, letters: &[(&str, &str, &str)]) -> Vec<MessageId> {
    driver.policy.mailbox.max_attempts = 1;
    let mut ids = Vec::new();
    for (topic, key, reason) in letters {
        let topic = (*topic).to_owned();
        let id = driver
            .send(Outgoing {
                topic: topic.clone(),
                ..mail(key)
            })
            .await;
        driver.receive_from(&topic, ALL).await.unwrap();
        driver.give_back(id, reason).await;
        driver.wait_ms(1_000);
        ids.push(id);
    }
    ids
}

async fn dead_letters_say_why_and_keep_their_content(mut driver: MailDriver) {
    let ids = kill(&mut driver, &[("inbox", "a", "E_PARSE")]).await;
    let found = driver.dead_letters(dead(None)).await;
    assert_eq!(found, [driver.message(ids[0]).await.unwrap()]);
    assert_eq!(found[0].reason.as_deref(), Some("E_PARSE"));
    assert_eq!(found[0].payload, "a");
    assert_eq!(found[0].flaw(), None);
    assert_eq!(
        (found[0].attempt, found[0].standing().kind),
        (1, Kind::Dead)
    );
}

const LETTERS: [(&str, &str, &str); 7] = [
    ("inbox", "a", "busy"),
    ("outbox", "b", "busy"),
    ("inbox", "c", "E_PARSE"),
    ("inbox", "d", "busy"),
    ("outbox", "e", "E_PARSE"),
    ("inbox", "f", "Busy"),
    ("inbox", "g", "busy"),
];

async fn filters_apply_together(mut driver: MailDriver) {
    let start = driver.now;
    let ids = kill(&mut driver, &LETTERS).await;
    let mut other = driver.other(2);
    kill(&mut other, &LETTERS[..2]).await;
    driver.send(mail("ready")).await;
    let by = |millis| Some(start.plus_millis(millis));
    for (topic, reason, died_by, after, keys) in [
        (None, None, None, None, "abcdefg"),
        (Some("inbox"), None, None, None, "acdfg"),
        (Some("outbox"), None, None, None, "be"),
        (Some("nowhere"), None, None, None, ""),
        (None, Some("busy"), None, None, "abdg"),
        (Some("inbox"), Some("busy"), None, None, "adg"),
        (None, Some("bus"), None, None, ""),
        (None, None, by(2_000), None, "abc"),
        (None, None, by(1_999), None, "ab"),
        (None, None, by(-1), None, ""),
        (Some("inbox"), Some("busy"), by(3_000), None, "ad"),
        (Some("inbox"), Some("busy"), by(3_000), Some(ids[0]), "d"),
        (None, None, None, Some(ids[3]), "efg"),
        (None, None, None, Some(ids[6]), ""),
    ] {
        let filter = DeadFilter {
            topic: topic.map(str::to_owned),
            reason: reason.map(str::to_owned),
            died_by,
            after,
            limit: 99,
        };
        let found = driver.dead_letters(filter.clone()).await;
        assert_eq!(keys_of(&found).concat(), keys, "{filter:?}");
        let reads = Reads {
            dead: Some(filter),
            ..Reads::default()
        };
        assert_eq!(keys_of(&driver.look(reads).await.dead).concat(), keys);
    }
}

async fn lists_go_on_page_by_page(mut driver: MailDriver) {
    kill(&mut driver, &LETTERS).await;
    for topic in [None, Some("inbox")] {
        let all = driver.dead_letters(dead(topic)).await;
        for limit in 1..4 {
            let mut filter = DeadFilter {
                limit,
                ..dead(topic)
            };
            let mut paged = Vec::new();
            loop {
                let page = driver.dead_letters(filter.clone()).await;
                assert!(page.len() <= limit);
                let Some(last) = page.last() else { break };
                filter.after = Some(last.id);
                paged.extend(page);
            }
            assert_eq!(paged, all, "{limit}");
        }
    }
}

async fn a_rare_filter_costs_pages_and_not_a_scan(mut driver: MailDriver) {
    let rare = kill(&mut driver, &[("inbox", "first", "rare")]).await;
    driver.policy.mailbox.topic_capacity = 10_000;
    let mortal = |n: usize| Outgoing {
        ttl_ms: Some(1),
        ..mail(&n.to_string())
    };
    let many = (0..MAX_LOOKED_AT + 1).map(mortal).collect();
    assert!(driver.send_all(many).await.iter().all(Result::is_ok));
    driver.wait_ms(1);
    driver.sweep_mail().await;
    let last = kill(&mut driver, &[("inbox", "last", "rare")]).await;
    for topic in [None, Some("inbox")] {
        let mut filter = DeadFilter {
            reason: Some("rare".to_owned()),
            limit: 9,
            ..dead(topic)
        };
        let first = driver.dead_page(filter.clone()).await;
        assert_eq!(keys_of(&first.letters), ["first"]);
        assert_eq!(first.letters[0].id, rare[0]);
        let reads = Reads {
            dead: Some(filter.clone()),
            ..Reads::default()
        };
        assert_eq!(driver.look(reads).await.dead_next, first.next);
        filter.after = first.next;
        let second = driver.dead_page(filter.clone()).await;
        assert_eq!(keys_of(&second.letters), ["last"]);
        assert_eq!((second.letters[0].id, second.next), (last[0], None));
        filter.after = None;
        filter.limit = 1;
        let short = driver.dead_page(filter.clone()).await;
        assert_eq!(short, first, "there may be more");
        filter.reason = None;
        let next = driver.dead_page(filter).await.next;
        assert_eq!(next, Some(rare[0]), "there is more");
    }
}

async fn a_redrive_takes_the_oldest_that_match(mut driver: MailDriver) {
    kill(&mut driver, &LETTERS).await;
    let filter = DeadFilter {
        reason: Some("busy".to_owned()),
        limit: 2,
        ..dead(Some("inbox"))
    };
    assert_eq!(driver.redrive(filter.clone()).await, Ok(2));
    let left = driver.dead_letters(dead(None)).await;
    assert_eq!(keys_of(&left), ["b", "c", "e", "f", "g"]);
    let back = driver.peek(of_topic("inbox")).await;
    assert_eq!(keys_of(&back), ["a", "d"]);
    assert!(back.iter().all(|message| message.attempt == 0));
    assert_eq!(driver.redrive(filter.clone()).await, Ok(1));
    assert_eq!(driver.redrive(filter).await, Ok(0));
}

async fn a_redrive_finds_out_how_full_the_topics_are(mut driver: MailDriver) {
    kill(&mut driver, &LETTERS[..3]).await;
    driver.other(2).send(mail("theirs")).await;
    driver
        .send(Outgoing {
            delay_ms: 9_000,
            ..mail("mine")
        })
        .await;
    driver.policy.mailbox.topic_capacity = 2;
    let full = Rejection::Saturated(Full::Topic { capacity: 2 });
    assert_eq!(driver.redrive(dead(None)).await, Err(full));
    assert_eq!(
        driver.dead_letters(dead(None)).await.len(),
        3,
        "all or none"
    );
    let two = DeadFilter {
        limit: 2,
        ..dead(None)
    };
    assert_eq!(driver.redrive(two).await, Ok(2));
}

async fn what_is_brought_back_is_delivered_in_its_old_order(mut driver: MailDriver) {
    kill(&mut driver, &LETTERS).await;
    driver.policy.mailbox.max_attempts = 5;
    driver.send(mail("new")).await;
    assert_eq!(driver.redrive(dead(Some("inbox"))).await, Ok(5));
    let taken = driver.receive(ALL).await;
    assert_eq!(keys_of(&taken), ["a", "c", "d", "f", "g", "new"]);
    assert!(taken.iter().all(|message| message.flaw().is_none()));
    assert!(taken.iter().all(|message| message.reason.is_none()));
}

async fn a_purge_of_dead_letters_leaves_the_rest(mut driver: MailDriver) {
    kill(&mut driver, &LETTERS).await;
    driver.send(mail("ready")).await;
    assert_eq!(driver.purge_dead(dead(Some("inbox"))).await, 5);
    let left = driver.dead_letters(dead(None)).await;
    assert_eq!(keys_of(&left), ["b", "e"]);
    assert_eq!(driver.receive(ALL).await.len(), 1);
}
