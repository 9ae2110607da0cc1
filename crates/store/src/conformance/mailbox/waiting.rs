//! Waiting: commits wake those who wait for what they changed, and nobody else.
//!
//! A store may tell waiters a moment after it has answered, so a case that says "nobody was woken"
//! first makes another commit: what the one before had to tell is told by then.

use std::sync::Arc;

use asyncgate_core::mailbox::Outgoing;
use futures_util::FutureExt;

use super::{ALL, MailDriver, dead, mail, mail_cases};
use crate::{MessageWait, conformance::Case};

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        a_message_that_becomes_ready_wakes_a_receiver,
        each_message_wakes_one_receiver,
        a_batch_wakes_as_many_as_it_has_messages,
        others_are_not_woken,
        what_is_not_ready_wakes_nobody,
        an_unused_wake_up_passes_to_the_next_receiver,
        a_used_wake_up_passes_to_nobody,
        a_receiver_that_has_gone_is_passed_over,
        deliveries_are_settled_however_they_end,
        an_earlier_deadline_wakes_the_one_who_watches,
    ]
}

/// Makes commits that tell nobody anything, and waits until what came before them is told.
async fn settle(driver: &MailDriver) {
    let mut elsewhere = driver.other(9);
    for _ in 0..2 {
        let known = elsewhere.messages().await.len();
        elsewhere.send(mail(&known.to_string())).await;
    }
}

fn is_woken(wait: &mut MessageWait<'_>) -> bool {
    wait.woken().now_or_never().is_some()
}

async fn a_message_that_becomes_ready_wakes_a_receiver(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 2;
    let store = Arc::clone(driver.store());
    for how in ["sent", "delayed", "given back", "timed out", "redriven"] {
        if how == "delayed" {
            let delay_ms = 1_000;
            let sent = Outgoing {
                delay_ms,
                ..mail(how)
            };
            driver.send(sent).await;
        } else if how != "sent" {
            driver.send(mail(how)).await;
            driver.receive(ALL).await;
        }
        let last = driver.messages().await.pop().map(|message| message.id);
        if how == "redriven" {
            driver.give_back(last.unwrap(), "no").await;
            driver.receive(ALL).await;
            driver.give_back(last.unwrap(), "no").await;
        }
        settle(&driver).await;
        let mut wait = store.signals().message(driver.tenant, "inbox");
        assert!(!is_woken(&mut wait), "{how}");
        match how {
            "sent" => drop(driver.try_send(mail(how)).await),
            "given back" => drop(driver.give_back(last.unwrap(), "no").await),
            "redriven" => assert_eq!(driver.redrive(dead(None)).await, Ok(1)),
            _ => {
                driver.wait_ms(5_000);
                driver.sweep_mail().await;
            }
        }
        wait.woken().await;
        wait.looked();
        for message in driver.receive(ALL).await {
            driver.ack(message.id, None).await.unwrap();
        }
    }
}

async fn each_message_wakes_one_receiver(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    let wait = || store.signals().message(driver.tenant, "inbox");
    let (mut first, mut second, mut third) = (wait(), wait(), wait());
    driver.send(mail("a")).await;
    settle(&driver).await;
    assert!(is_woken(&mut first));
    assert!(!is_woken(&mut second) && !is_woken(&mut third));
    driver.send(mail("b")).await;
    settle(&driver).await;
    assert!(is_woken(&mut second) && !is_woken(&mut third));
}

async fn a_batch_wakes_as_many_as_it_has_messages(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    let mut waits: Vec<_> = (0..4)
        .map(|_| store.signals().message(driver.tenant, "inbox"))
        .collect();
    let later = Outgoing {
        delay_ms: 1_000,
        ..mail("c")
    };
    driver
        .send_all(vec![mail("a"), mail("b"), mail("a"), later])
        .await;
    settle(&driver).await;
    let woken: Vec<bool> = waits.iter_mut().map(is_woken).collect();
    assert_eq!(woken, [true, true, false, false]);
}

async fn others_are_not_woken(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    let other = driver.other(2);
    let mut theirs = store.signals().message(other.tenant, "inbox");
    let mut elsewhere = store.signals().message(driver.tenant, "outbox");
    driver.send(mail("a")).await;
    settle(&driver).await;
    assert!(!is_woken(&mut theirs) && !is_woken(&mut elsewhere));
}

async fn what_is_not_ready_wakes_nobody(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    let store = Arc::clone(driver.store());
    driver.send_all(vec![mail("a"), mail("b")]).await;
    settle(&driver).await;
    let mut wait = store.signals().message(driver.tenant, "inbox");
    let taken = driver.receive(ALL).await;
    driver.extend(taken[0].id, None, 9_000).await.unwrap();
    driver.ack(taken[0].id, None).await.unwrap();
    driver.give_back(taken[1].id, "no").await;
    driver.purge_dead(dead(None)).await;
    let delay_ms = 1_000;
    driver
        .send(Outgoing {
            delay_ms,
            ..mail("c")
        })
        .await;
    assert!(driver.try_send(mail("a")).await.unwrap().duplicate);
    settle(&driver).await;
    assert!(!is_woken(&mut wait));
}

/// The caller may have gone away after it was woken and before it looked.
async fn an_unused_wake_up_passes_to_the_next_receiver(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    for heard in [false, true] {
        let wait = || store.signals().message(driver.tenant, "inbox");
        let (mut first, mut second, mut third) = (wait(), wait(), wait());
        driver.send(mail(&heard.to_string())).await;
        settle(&driver).await;
        if heard {
            assert!(is_woken(&mut first));
        }
        assert!(!is_woken(&mut second));
        drop(first);
        assert!(is_woken(&mut second), "heard: {heard}");
        drop(second);
        assert!(is_woken(&mut third), "and on");
        third.looked();
    }
}

async fn a_used_wake_up_passes_to_nobody(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    let wait = || store.signals().message(driver.tenant, "inbox");
    let (mut first, mut second) = (wait(), wait());
    driver.send(mail("a")).await;
    settle(&driver).await;
    assert!(is_woken(&mut first));
    first.looked();
    assert!(!is_woken(&mut second));
}

async fn a_receiver_that_has_gone_is_passed_over(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    let wait = || store.signals().message(driver.tenant, "inbox");
    let (first, mut second) = (wait(), wait());
    drop(first);
    driver.send(mail("a")).await;
    second.woken().await;
}

async fn deliveries_are_settled_however_they_end(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 2;
    let store = Arc::clone(driver.store());
    for how in ["acked", "given back", "died", "timed out", "extended"] {
        driver.send(mail(how)).await;
        if how == "died" {
            let (id, _) = driver.take().await;
            driver.give_back(id, "no").await;
        }
        let taken = driver.receive(ALL).await.pop().unwrap();
        let (id, lease) = (taken.id, taken.delivery.unwrap().lease);
        let mut watched = store.signals().deliveries();
        let mut stranger = store.signals().deliveries();
        watched.watch(lease, driver.now.plus_millis(5_000));
        assert_eq!(
            (watched.open(driver.now), stranger.open(driver.now)),
            (1, 0)
        );
        match how {
            "acked" => drop(driver.ack(id, Some(lease)).await.unwrap()),
            "timed out" => {
                driver.wait_ms(5_000);
                driver.sweep_mail().await;
            }
            "extended" => {
                driver.extend(id, None, 9_000).await.unwrap();
                settle(&driver).await;
                assert_eq!(watched.open(driver.now), 1, "it goes on");
                assert!(watched.settled().now_or_never().is_none());
                driver.ack(id, None).await.unwrap();
            }
            _ => drop(driver.give_back(id, "no").await),
        }
        watched.settled().await;
        assert_eq!(watched.open(driver.now), 0, "{how}");
        assert!(stranger.settled().now_or_never().is_none());
        driver.purge_waiting("inbox", 9).await;
    }
}

async fn an_earlier_deadline_wakes_the_one_who_watches(mut driver: MailDriver) {
    let store = Arc::clone(driver.store());
    let signals = store.signals();
    let delayed = |key: &str, delay_ms| Outgoing {
        delay_ms,
        ..mail(key)
    };
    // Before it has looked, every deadline is news.
    driver.send(delayed("a", 60_000)).await;
    signals.earlier_message().await;
    signals.watch_messages(Some(driver.now.plus_millis(60_000)));
    driver.send(delayed("b", 60_000)).await;
    driver.send(delayed("c", 70_000)).await;
    driver.send(mail("d")).await;
    settle(&driver).await;
    assert!(signals.earlier_message().now_or_never().is_none());
    driver.send(delayed("e", 59_999)).await;
    signals.earlier_message().await;
    driver.receive(ALL).await;
    signals.earlier_message().await;
    let mut tasks = crate::conformance::Driver::new(Arc::clone(&store));
    tasks.create(crate::conformance::echo()).await;
    settle(&driver).await;
    assert!(signals.earlier_message().now_or_never().is_none());
}
