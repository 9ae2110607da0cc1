//! Deadlines: every message is found when its time comes, and what nobody came for is found too.

use asyncgate_core::{MessageId, Timestamp, mailbox::Outgoing};

use super::{ALL, MailDriver, mail, mail_cases};
use crate::conformance::Case;

pub(super) fn cases() -> Vec<Case> {
    mail_cases![
        what_is_due_comes_earliest_first_over_all_tenants,
        a_deadline_is_due_from_its_very_millisecond,
        due_lists_at_most_its_limit,
        the_next_deadline_follows_every_change,
        what_is_ready_and_may_live_on_is_never_due,
        the_end_of_time_is_a_deadline_like_any_other,
        what_nobody_came_for_is_found_by_its_age,
        old_messages_are_found_page_by_page,
    ]
}

fn delayed(key: &str, delay_ms: i64) -> Outgoing {
    Outgoing {
        delay_ms,
        ..mail(key)
    }
}

fn mortal(key: &str, ttl_ms: i64) -> Outgoing {
    Outgoing {
        ttl_ms: Some(ttl_ms),
        ..mail(key)
    }
}

async fn due(driver: &MailDriver, limit: usize) -> Vec<MessageId> {
    let due = driver.mailbox().messages_due(driver.now, limit).await;
    due.unwrap().into_iter().map(|(_, id)| id).collect()
}

async fn next_in(driver: &MailDriver) -> Option<i64> {
    let next = driver.mailbox().next_message_due().await.unwrap();
    next.map(|at| at.millis_since(driver.now))
}

async fn what_is_due_comes_earliest_first_over_all_tenants(mut driver: MailDriver) {
    let mut other = driver.other(2);
    let third = driver.send(delayed("a", 3_000)).await;
    let first = driver.send(mortal("b", 1_000)).await;
    driver.send(delayed("c", 9_000)).await;
    let second = other.send(delayed("a", 2_000)).await;
    driver.wait_ms(3_000);
    let due = driver.mailbox().messages_due(driver.now, 10).await;
    let (mine, theirs) = (driver.tenant, other.tenant);
    assert_eq!(
        due.unwrap(),
        [(mine, first), (theirs, second), (mine, third)]
    );
}

async fn a_deadline_is_due_from_its_very_millisecond(mut driver: MailDriver) {
    let id = driver.send(delayed("a", 1_000)).await;
    driver.wait_ms(999);
    assert!(due(&driver, 9).await.is_empty());
    driver.wait_ms(1);
    assert_eq!(due(&driver, 9).await, [id]);
    driver.sweep_mail().await;
    assert!(due(&driver, 9).await.is_empty());
}

async fn due_lists_at_most_its_limit(mut driver: MailDriver) {
    for n in 0..5 {
        driver.send(delayed(&n.to_string(), 1_000)).await;
    }
    driver.wait_ms(1_000);
    for (limit, found) in [(0, 0), (1, 1), (4, 4), (5, 5), (99, 5)] {
        assert_eq!(due(&driver, limit).await.len(), found);
    }
}

async fn the_next_deadline_follows_every_change(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    assert_eq!(next_in(&driver).await, None);
    driver.send(delayed("a", 60_000)).await;
    assert_eq!(next_in(&driver).await, Some(60_000));
    let id = driver.send(mortal("b", 50_000)).await;
    assert_eq!(next_in(&driver).await, Some(50_000));
    let (_, lease) = driver.take().await;
    assert_eq!(next_in(&driver).await, Some(5_000), "the delivery");
    driver.extend(id, Some(lease), 20_000).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(20_000));
    driver.give_back(id, "no").await;
    assert_eq!(
        next_in(&driver).await,
        Some(60_000),
        "dead for fourteen days"
    );
    driver.purge_waiting("inbox", 9).await;
    assert_eq!(
        next_in(&driver).await,
        Some(300_000),
        "gone for five minutes"
    );
    driver.redrive(super::dead(None)).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(50_000), "its life goes on");
    driver.purge_waiting("inbox", 9).await;
    driver.wait_ms(300_000);
    driver.sweep_mail().await;
    assert_eq!(next_in(&driver).await, None, "all is forgotten");
    assert!(driver.messages().await.is_empty());
}

async fn what_is_ready_and_may_live_on_is_never_due(mut driver: MailDriver) {
    driver.send(mail("a")).await;
    assert_eq!(next_in(&driver).await, None);
    driver.wait_ms(1 << 45);
    assert!(due(&driver, 9).await.is_empty());
}

async fn the_end_of_time_is_a_deadline_like_any_other(mut driver: MailDriver) {
    let id = driver.send(delayed("a", i64::MAX)).await;
    let end = Timestamp::from_millis(i64::MAX);
    let next = driver.mailbox().next_message_due().await.unwrap();
    assert_eq!(next, Some(end));
    driver.now = end;
    assert_eq!(due(&driver, 9).await, [id]);
}

async fn old(driver: &MailDriver, age_ms: i64) -> Vec<MessageId> {
    let since = driver.now.plus_millis(-age_ms);
    let found = driver.mailbox().waiting_since(since, None, 99).await;
    found.unwrap().into_iter().map(|(_, id)| id).collect()
}

async fn what_nobody_came_for_is_found_by_its_age(mut driver: MailDriver) {
    driver.policy.mailbox.max_attempts = 1;
    driver.policy.mailbox.ready_retention_ms = 60_000;
    let killed = driver.send(mail("dead")).await;
    driver.take().await;
    driver.give_back(killed, "no").await;
    driver.send(mail("gone")).await;
    let (gone, _) = driver.take().await;
    driver.ack(gone, None).await.unwrap();
    driver.send(mail("leased")).await;
    driver.take().await;
    let ready = driver.send(mail("ready")).await;
    let late = driver.send(delayed("delayed", 90_000)).await;
    driver.wait_ms(1_000);
    let young = driver.send(mail("young")).await;
    driver.wait_ms(59_000);
    assert_eq!(old(&driver, 60_000).await, [ready, late]);
    assert!(old(&driver, 60_001).await.is_empty());
    assert_eq!(old(&driver, 59_000).await, [ready, late, young]);
    // A message that is brought back counts its age from its return, however long ago it was sent.
    driver.redrive(super::dead(None)).await.unwrap();
    assert_eq!(old(&driver, 60_000).await, [ready, late]);
    let swept = driver.sweep_these(vec![ready, late, young, killed]).await;
    assert_eq!(swept.died.len(), 2);
    assert!(old(&driver, 60_000).await.is_empty());
    driver.wait_ms(60_000);
    assert_eq!(old(&driver, 60_000).await, [killed, young]);
}

async fn old_messages_are_found_page_by_page(mut driver: MailDriver) {
    let mut others = [driver.other(2), driver.other(3)];
    for n in 0..5 {
        let key = n.to_string();
        driver.send(mail(&key)).await;
        for other in &mut others {
            other.send(mail(&key)).await;
        }
    }
    others[0].receive(ALL).await;
    let since = driver.now;
    let mailbox = driver.mailbox();
    for limit in [1, 2, 3, 9, 10, 11] {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = mailbox.waiting_since(since, after, limit).await.unwrap();
            assert!(page.len() <= limit);
            after = page.last().copied();
            if after.is_none() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged.len(), 10, "{limit}");
        paged.sort_unstable();
        paged.dedup();
        assert_eq!(paged.len(), 10, "none twice");
        assert!(paged.iter().all(|(tenant, _)| *tenant != others[0].tenant));
    }
}
