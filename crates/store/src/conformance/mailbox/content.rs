//! Content: every message comes back as it was sent, whatever is in it and whatever happens to it.

use asyncgate_core::mailbox::{Message, Nack, Outgoing};

use super::{ALL, MailDriver, dead, mail, mail_cases, of_topic};
use crate::conformance::Case;

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        any_bytes_come_back,
        the_largest_content_comes_back,
        odd_texts_come_back,
        what_happens_to_a_message_leaves_its_content_alone,
        what_is_gone_keeps_no_content,
        refusals_are_kept_word_for_word,
    ]
}

async fn any_bytes_come_back(mut driver: MailDriver) {
    let every: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    for (n, payload) in [vec![], vec![0], vec![0, 0xff, 0xfe], every]
        .into_iter()
        .enumerate()
    {
        let id = driver
            .send(Outgoing {
                payload: payload.clone().into(),
                ..mail(&n.to_string())
            })
            .await;
        assert_eq!(driver.message(id).await.unwrap().payload, payload);
        let taken = driver.receive(ALL).await;
        assert_eq!((taken.len(), &taken[0].payload[..]), (1, &payload[..]));
    }
}

async fn the_largest_content_comes_back(mut driver: MailDriver) {
    let payload: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    for n in 0..3 {
        let sent = Outgoing {
            payload: payload.clone().into(),
            ..mail(&n.to_string())
        };
        driver.send(sent.clone()).await;
        assert!(driver.try_send(sent).await.unwrap().duplicate);
    }
    let taken = driver.receive(ALL).await;
    assert_eq!(taken.len(), 3);
    for message in taken {
        assert_eq!(message.payload, payload);
        assert_eq!(message.flaw(), None);
        driver.ack(message.id, None).await.unwrap();
    }
}

async fn odd_texts_come_back(mut driver: MailDriver) {
    let odd = [
        "",
        " ",
        "a\0b",
        "\0",
        "'; DROP TABLE message; --",
        "ünï\u{1f600}\u{0301}",
        "\r\n\t\\\"",
        "NULL",
        "%_*?",
        "0123",
        &"x".repeat(5_000),
    ];
    for (n, text) in odd.iter().enumerate() {
        let sent = Outgoing {
            topic: format!("t{text}"),
            idem_key: format!("{text}{n}"),
            partition_key: Some((*text).to_owned()),
            attrs: odd
                .iter()
                .map(|key| ((*key).to_owned(), format!("{text}{key}")))
                .collect(),
            priority: n as i32 - 3,
            ttl_ms: Some(1_000 + n as i64),
            corr_id: Some([n as u8; 16]),
            ..mail(text)
        };
        let id = driver.send(sent.clone()).await;
        let written = driver.written().messages.remove(0).message;
        let stored = driver.message(id).await.unwrap();
        assert_eq!(stored, written, "{text:?}");
        assert_eq!(
            (&*stored.topic, &*stored.attrs),
            (sent.topic.as_str(), &sent.attrs)
        );
        assert_eq!(driver.try_send(sent.clone()).await.unwrap().id, id);
        let peeked = driver.peek(of_topic(&sent.topic)).await;
        assert_eq!(peeked, [written], "{text:?}");
        assert_eq!(peeked[0].flaw(), None);
    }
}

/// Returns everything that the sender said, and the hashes.
fn sent(message: &Message) -> impl PartialEq + std::fmt::Debug {
    let message = message.clone();
    (
        (
            message.topic,
            message.idem_key,
            message.payload,
            message.attrs,
        ),
        (
            message.partition_key,
            message.sent_at,
            message.corr_id,
            message.priority,
        ),
        (
            message.payload_hash,
            message.hash_chain,
            message.prev,
            message.chain_seq,
        ),
    )
}

async fn what_happens_to_a_message_leaves_its_content_alone(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 2;
    let id = driver
        .send(Outgoing {
            attrs: [("k".to_owned(), "v".to_owned())].into(),
            partition_key: Some("p".to_owned()),
            payload: vec![7; 50_000].into(),
            delay_ms: 1_000,
            ..mail("a")
        })
        .await;
    let first = driver.message(id).await.unwrap();
    for step in [
        "ready", "leased", "extended", "nacked", "leased", "dead", "back", "leased",
    ] {
        match step {
            "leased" => assert_eq!(driver.receive(ALL).await.len(), 1),
            "extended" => drop(driver.extend(id, None, 9_000).await.unwrap()),
            "nacked" | "dead" => drop(driver.give_back(id, "no").await),
            "back" => assert_eq!(driver.redrive(dead(None)).await, Ok(1)),
            _ => {
                driver.wait_ms(1_000);
                driver.sweep_mail().await;
            }
        }
        let now = driver.message(id).await.unwrap();
        assert_eq!(sent(&now), sent(&first), "{step}");
        assert_eq!(now.flaw(), None, "{step}");
    }
}

async fn what_is_gone_keeps_no_content(mut driver: MailDriver) {
    let attrs = || [("k".to_owned(), "v".to_owned())].into();
    for key in ["acked", "purged"] {
        driver
            .send(Outgoing {
                attrs: attrs(),
                ..mail(key)
            })
            .await;
    }
    let (acked, _) = driver.take().await;
    driver.ack(acked, None).await.unwrap();
    assert_eq!(driver.purge_waiting("inbox", 9).await, 1);
    for message in driver.messages().await {
        assert!(message.payload.is_empty() && message.attrs.is_empty());
        assert!(!message.idem_key.is_empty());
    }
    let chain = driver.mailbox().chains(driver.tenant).await.unwrap();
    let last = driver.messages().await.pop().unwrap();
    assert_eq!(
        chain[&last.shard],
        last.chain_head(),
        "the chain can be followed"
    );
}

async fn refusals_are_kept_word_for_word(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    for (n, text) in ["", "E_PARSE", "a\0b", "ünï", "'"].into_iter().enumerate() {
        let id = driver.send(mail(&n.to_string())).await;
        driver.take().await;
        let nack = Nack {
            reason: Some(text.to_owned()),
            error: Some(text.repeat(200)),
            delay_ms: None,
        };
        driver.nack(id, None, nack).await.unwrap();
        let found = driver.message(id).await.unwrap();
        assert_eq!(found.reason.as_deref(), Some(text));
        assert_eq!(found.last_error, Some(text.repeat(200)));
        let filter = crate::mailbox::DeadFilter {
            reason: Some(text.to_owned()),
            ..dead(None)
        };
        assert_eq!(driver.dead_letters(filter).await, [found], "{text:?}");
    }
}
