//! Audit logs.

use asyncgate_core::{
    TenantId, Timestamp,
    identity::{
        Changes,
        audit::{Draft, Entry, Event, Log, LogCheck, Severity, cut},
    },
};

use super::driver::{IdentityDriver, draft};
use crate::{
    conformance::{Case, Driver, agent, cases, worker},
    identity::{AuditFilter, Oldest, Reads},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        an_entry_is_read_back_as_it_was,
        logs_are_chained_and_apart,
        entries_are_listed_newest_first_by_every_filter,
        a_rare_filter_finds_what_is_far_back,
        times_never_run_back_in_a_log,
        old_entries_are_forgotten_and_the_rest_still_verifies,
        logs_with_old_entries_are_found,
    ]
}

fn of(tenant: Option<TenantId>) -> AuditFilter {
    AuditFilter {
        tenant,
        ..AuditFilter::default()
    }
}

/// Checks what is kept of a log. Returns it, the oldest entry first.
async fn verified(driver: &IdentityDriver, tenant: Option<TenantId>) -> Vec<Entry> {
    let (log, mut entries) = (driver.log(tenant).await, driver.audited(of(tenant)).await);
    entries.reverse();
    let mut check = LogCheck::new(log);
    for entry in &entries {
        check.push(entry).unwrap();
    }
    check.finish().unwrap();
    entries
}

async fn an_entry_is_read_back_as_it_was(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = Some(driver.tenant);
    let (told, said) = std::sync::mpsc::channel();
    let changed = driver.try_change(Reads::default(), move |mut env, _| {
        let mut all: Vec<Draft> = Event::ALL
            .into_iter()
            .map(|event| draft(&mut env, tenant, event))
            .collect();
        let address = "2001:db8::1".parse().unwrap();
        all.push(
            Draft::new(&mut env.ids, env.now, tenant, Event::AuthFailure)
                .from_request(Some(address), None, None)
                .of_severity(Severity::Critical),
        );
        told.send(all.clone()).unwrap();
        Changes {
            audit: all,
            ..Changes::default()
        }
    });
    changed.await.unwrap();
    let expected = said.try_iter().last().unwrap();
    let entries = verified(&driver, tenant).await;
    let found: Vec<Draft> = entries.iter().map(|entry| entry.said.clone()).collect();
    assert_eq!(found, expected);
    let texts = |all: &[Draft]| -> Vec<String> {
        let texts = all.iter().map(|said| said.details.text().to_owned());
        texts.collect()
    };
    assert_eq!(texts(&found), texts(&expected));
}

async fn logs_are_chained_and_apart(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let other = Driver::of_tenant(driver.store().clone(), 2).tenant;
    let logs = [None, Some(driver.tenant), Some(other)];
    for tenant in logs {
        assert_eq!(driver.log(tenant).await, Log::default());
        assert!(driver.audited(of(tenant)).await.is_empty());
    }
    for round in 0..3 {
        for tenant in logs {
            driver
                .record(tenant, &[Event::AuthSuccess, Event::AuthFailure])
                .await;
        }
        driver.wait_ms(round);
    }
    let mut heads = Vec::new();
    for tenant in logs {
        let entries = verified(&driver, tenant).await;
        assert_eq!(entries.len(), 6);
        assert!(entries.iter().all(|entry| entry.said.tenant == tenant));
        heads.push(driver.log(tenant).await.head.link);
    }
    assert!(heads[0] != heads[1] && heads[1] != heads[2]);
}

async fn entries_are_listed_newest_first_by_every_filter(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = Some(driver.tenant);
    let begin = driver.now;
    let events = [Event::AuthSuccess, Event::AuthFailure, Event::KeyRevoked];
    for n in 0..24_usize {
        let changed = driver.try_change(Reads::default(), move |mut env, _| {
            let who = if n.is_multiple_of(2) {
                agent("alice")
            } else {
                worker("bob")
            };
            let mut said = Draft::new(&mut env.ids, env.now, tenant, events[n % 3]);
            if !n.is_multiple_of(5) {
                said = said.by(&who.key());
            }
            if n.is_multiple_of(7) {
                said = said.of_severity(Severity::Critical);
            }
            Changes {
                audit: vec![said],
                ..Changes::default()
            }
        });
        changed.await.unwrap();
        if n % 2 == 1 {
            driver.wait_ms(1_000);
        }
    }
    let all = verified(&driver, tenant).await;
    assert_eq!(all.len(), 24);
    let times = [
        None,
        Some(-1),
        Some(0),
        Some(3_500),
        Some(4_000),
        Some(99_000),
    ];
    let times = times.map(|ms| ms.map(|ms| begin.plus_millis(ms)));
    let events = [None, Some(Event::AuthFailure), Some(Event::DataErased)];
    let severities = Severity::ALL.map(Some).into_iter().chain([None]);
    for severity in severities {
        for event in events {
            for principal in [None, Some("alice"), Some("ali")] {
                for (since, until) in times.iter().zip(times.iter().rev()) {
                    let filter = AuditFilter {
                        event,
                        severity,
                        principal_id: principal.map(ToOwned::to_owned),
                        since: *since,
                        until: *until,
                        ..of(tenant)
                    };
                    let expected: Vec<Entry> = all
                        .iter()
                        .rev()
                        .filter(|entry| filter.matches(entry))
                        .cloned()
                        .collect();
                    assert_eq!(driver.audited(filter.clone()).await, expected, "{filter:?}");
                }
            }
        }
    }
}

async fn a_rare_filter_finds_what_is_far_back(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = Some(driver.tenant);
    driver.record(tenant, &[Event::TokenReuseDetected]).await;
    driver.record(tenant, &[Event::AuthSuccess; 2_500]).await;
    let first = driver.audited(AuditFilter {
        event: Some(Event::TokenReuseDetected),
        ..of(tenant)
    });
    assert_eq!(first.await.len(), 1);
    let critical = driver.audited(AuditFilter {
        severity: Some(Severity::Critical),
        ..of(tenant)
    });
    assert_eq!(critical.await[0].seq, 1);
    // No index has both, and neither is rare: the answer comes in pieces.
    let none = driver.audited(AuditFilter {
        event: Some(Event::AuthSuccess),
        severity: Some(Severity::Warning),
        ..of(tenant)
    });
    assert!(none.await.is_empty());
}

async fn times_never_run_back_in_a_log(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = Some(driver.tenant);
    let now = driver.now;
    let changed = driver.try_change(Reads::default(), move |mut env, _| Changes {
        audit: [5, 3, 9, 1]
            .map(|ms| {
                let at = now.plus_millis(-ms);
                Draft::new(&mut env.ids, at, tenant, Event::AuthSuccess)
            })
            .to_vec(),
        ..Changes::default()
    });
    changed.await.unwrap();
    let entries = verified(&driver, tenant).await;
    let times: Vec<i64> = entries
        .iter()
        .map(|entry| now.millis_since(entry.said.at))
        .collect();
    assert_eq!(times, [5, 3, 3, 1]);
}

async fn old_entries_are_forgotten_and_the_rest_still_verifies(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = Some(driver.tenant);
    for _ in 0..10 {
        driver.record(tenant, &[Event::AuthSuccess]).await;
        driver.wait_ms(1_000);
    }
    let all = verified(&driver, tenant).await;
    let before = all[7].said.at;
    for left in [6, 3, 3] {
        forget(&mut driver, tenant, before, 4).await;
        assert_eq!(verified(&driver, tenant).await, all[10 - left..]);
    }
    // The last one may go too; the log goes on where it ended.
    let now = driver.now;
    forget(&mut driver, tenant, now, 100).await;
    assert!(verified(&driver, tenant).await.is_empty());
    driver.record(tenant, &[Event::AuthFailure]).await;
    assert_eq!(verified(&driver, tenant).await[0].seq, 11);
}

async fn forget(
    driver: &mut IdentityDriver,
    tenant: Option<TenantId>,
    before: Timestamp,
    limit: usize,
) {
    let reads = Reads {
        oldest: Some(Oldest { tenant, limit }),
        ..Reads::default()
    };
    let forgotten = driver.try_change(reads, move |_, snapshot| Changes {
        cut: cut(tenant, &snapshot.oldest, before),
        ..Changes::default()
    });
    forgotten.await.unwrap();
}

async fn logs_with_old_entries_are_found(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let other = Driver::of_tenant(driver.store().clone(), 2).tenant;
    let logs = [None, Some(driver.tenant), Some(other)];
    let begin = driver.now;
    for tenant in logs {
        driver.record(tenant, &[Event::AuthSuccess]).await;
        driver.wait_ms(1_000);
    }
    let found = async |driver: &IdentityDriver, ms, limit| {
        let time = begin.plus_millis(ms);
        let mut found = driver
            .identity()
            .audit_logs_from_before(time, limit)
            .await
            .unwrap();
        found.sort_unstable();
        found
    };
    assert_eq!(found(&driver, 0, 9).await, []);
    assert_eq!(found(&driver, 1, 9).await, [None]);
    assert_eq!(found(&driver, 9_000, 9).await, logs);
    assert_eq!(found(&driver, 9_000, 2).await.len(), 2);
    forget(&mut driver, None, begin.plus_millis(1), 9).await;
    assert_eq!(found(&driver, 1_001, 9).await, [logs[1]]);
    driver.record(None, &[Event::AuthSuccess]).await;
    assert_eq!(found(&driver, 9_000, 9).await, logs);
}
