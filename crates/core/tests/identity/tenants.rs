use asyncgate_core::{
    Ids, PrincipalKey, PrincipalKind, Stamp, Timestamp,
    admission::Bucket,
    identity::{
        ExceptionEffect, LimitException, Quota, QuotaExceeded, QuotaName, Quotas, Record,
        Rejection, Tenant, TenantRecord, TenantSuspended, TenantTier,
        audit::{Draft, Event},
        end_exception, except,
    },
};

use QuotaName::{
    ActiveTasks, ApiCallsPerHour, ConcurrentLeases, LeaseTtlSecs, PayloadBytes,
    PrincipalApiCallsPerHour, ReceiptStorageBytes, ReceiptsPerTask, TasksPerHour,
};

fn tenant(tier: TenantTier) -> Tenant {
    Tenant {
        tier,
        own_quotas: Quotas::default(),
        suspended_at: None,
        exception: None,
    }
}

#[test]
fn each_tier_has_its_quotas() {
    // By quota: its name, and its value for free, paid and enterprise.
    let table = [
        (ActiveTasks, "active_tasks", [-1, -1, -1]),
        (PayloadBytes, "payload_bytes", [1_048_576, 1_048_576, -1]),
        (ConcurrentLeases, "concurrent_leases", [10, 100, -1]),
        (LeaseTtlSecs, "lease_ttl_secs", [-1, -1, -1]),
        (TasksPerHour, "tasks_per_hour", [100, 10_000, -1]),
        (ApiCallsPerHour, "api_calls_per_hour", [1_000, 100_000, -1]),
        (
            PrincipalApiCallsPerHour,
            "principal_api_calls_per_hour",
            [-1, -1, -1],
        ),
        (
            ReceiptStorageBytes,
            "receipt_storage_bytes",
            [1 << 30, 10 << 30, -1],
        ),
        (ReceiptsPerTask, "receipts_per_task", [-1, -1, -1]),
    ];
    assert_eq!(table.map(|row| row.0), QuotaName::ALL);
    for (name, text, values) in table {
        assert_eq!(name.as_str(), text);
        assert_eq!(text.parse(), Ok(name));
        for (tier, value) in TenantTier::ALL.into_iter().zip(values) {
            assert_eq!(tier.as_str().parse(), Ok(tier));
            let quotas = tenant(tier).quotas(Quotas::default());
            assert_eq!(quotas.get(name).as_number(), value, "{tier:?} {text}");
        }
    }
    assert!("".parse::<QuotaName>().is_err());
    assert!("Free".parse::<TenantTier>().is_err());
}

#[test]
fn a_tenants_own_quotas_come_first_then_those_of_the_settings() {
    let own = Quotas::default()
        .with(TasksPerHour, Quota::None)
        .with(ActiveTasks, Quota::AtMost(3));
    let of_settings = Quotas::default()
        .with(TasksPerHour, Quota::AtMost(7))
        .with(ConcurrentLeases, Quota::AtMost(8));
    let tenant = Tenant {
        own_quotas: own,
        ..tenant(TenantTier::Free)
    };
    let quotas = tenant.quotas(of_settings);
    assert_eq!(quotas.get(TasksPerHour), Quota::None);
    assert_eq!(quotas.get(ActiveTasks), Quota::AtMost(3));
    assert_eq!(quotas.get(ConcurrentLeases), Quota::AtMost(8));
    assert_eq!(quotas.get(ApiCallsPerHour), Quota::AtMost(1_000));
    assert_eq!(own.iter().count(), 2);
}

#[test]
fn values_are_bounded() {
    for name in QuotaName::ALL {
        assert_eq!(name.read(-1), Ok(Quota::None));
        assert_eq!(name.read(1), Ok(Quota::AtMost(1)));
        for bad in [-2, i64::MIN, i64::MAX] {
            let message = name.read(bad).unwrap_err().to_string();
            assert!(message.starts_with(name.as_str()), "{message}");
        }
        let zero_is_fine = matches!(name, ActiveTasks | ConcurrentLeases | ReceiptStorageBytes);
        assert_eq!(name.read(0).is_ok(), zero_is_fine, "{name:?}");
    }
}

#[test]
fn hourly_quotas_are_buckets_that_come_back_in_an_hour() {
    for name in QuotaName::ALL.into_iter().filter(|name| name.is_hourly()) {
        for value in [1, 7, 100, 999_999_937, 1_000_000_000] {
            let bucket = name.read(value).unwrap().hourly_bucket();
            let number = value.unsigned_abs();
            assert_eq!(bucket, Bucket::new(number, number, 3_600_000).ok());
            assert!(bucket.is_some(), "{value}");
        }
        assert!(name.read(1_000_000_001).is_err());
    }
    assert_eq!(Quota::None.hourly_bucket(), None);
}

#[test]
fn a_full_quota_takes_no_more() {
    let quotas = Quotas::default().with(ActiveTasks, Quota::AtMost(2));
    assert_eq!(quotas.check(ActiveTasks, 1), Ok(()));
    let full = QuotaExceeded {
        quota: ActiveTasks,
        limit: 2,
        current: 2,
    };
    assert_eq!(quotas.check(ActiveTasks, 2), Err(full));
    assert!(full.to_string().contains("active_tasks"));
    assert_eq!(quotas.check(ReceiptsPerTask, u64::MAX), Ok(()));

    let leases = Quota::AtMost(10);
    assert_eq!((leases.room(4), leases.room(12)), (Some(6), Some(0)));
    assert_eq!(Quota::None.room(12), None);
    assert_eq!((leases.clamp(60), leases.clamp(5)), (10, 5));
    assert_eq!(Quota::None.clamp(60), 60);
}

#[test]
fn a_suspended_tenant_is_not_admitted() {
    let now = Timestamp::from_millis(5);
    let suspended = tenant(TenantTier::Paid).suspended(true, now);
    assert_eq!(suspended.admit(), Err(TenantSuspended));
    let again = suspended.suspended(true, Timestamp::from_millis(9));
    assert_eq!(again.suspended_at, Some(now));
    assert_eq!(again.suspended(false, now).admit(), Ok(()));
}

#[test]
fn little_is_left_of_a_quota_from_nine_tenths_on() {
    let quota = Quota::AtMost(1_000);
    for (current, nearly) in [(0, false), (899, false), (900, true), (5_000, true)] {
        assert_eq!(quota.is_nearly_used(current), nearly, "{current}");
    }
    assert!(!Quota::None.is_nearly_used(u64::MAX));
    assert!(Quota::AtMost(u64::MAX).is_nearly_used(u64::MAX));
    assert!(Quota::AtMost(0).is_nearly_used(0));
}

#[test]
fn a_bypass_lifts_the_hourly_limits_and_nothing_else_until_its_time() {
    let until = Timestamp::from_millis(100);
    let free = Tenant {
        exception: Some((ExceptionEffect::Bypass, until)),
        ..tenant(TenantTier::Free)
    };
    let at = |millis| free.quotas_at(Quotas::default(), Timestamp::from_millis(millis));
    assert!(!at(99).has_hourly());
    assert!(at(100).has_hourly(), "it ends on time");
    assert_eq!(at(99).get(ConcurrentLeases), Quota::AtMost(10));
    assert_eq!(at(100), free.quotas(Quotas::default()));
}

#[test]
fn a_throttle_makes_limits_stricter_and_never_wider() {
    let strict = Quotas::default()
        .with(ApiCallsPerHour, Quota::AtMost(10))
        .with(TasksPerHour, Quota::AtMost(1_000_000))
        .with(PrincipalApiCallsPerHour, Quota::AtMost(5))
        .with(ConcurrentLeases, Quota::None);
    let throttled = Tenant {
        exception: Some((ExceptionEffect::Throttle(strict), Timestamp::from_millis(9))),
        ..tenant(TenantTier::Free)
    };
    let now = throttled.quotas_at(Quotas::default(), Timestamp::from_millis(1));
    assert_eq!(now.get(ApiCallsPerHour), Quota::AtMost(10));
    assert_eq!(now.get(TasksPerHour), Quota::AtMost(100));
    assert_eq!(now.get(PrincipalApiCallsPerHour), Quota::AtMost(5));
    assert_eq!(now.get(ConcurrentLeases), Quota::AtMost(10));
    assert_eq!(now.get(PayloadBytes), Quota::AtMost(1 << 20));
}

#[test]
fn exceptions_are_made_replaced_and_ended_with_an_entry_each() {
    let draft = |event| Draft::new(&mut ids(), Timestamp::from_millis(1), None, event);
    let exception = |effect, until| LimitException {
        effect,
        reason: "contract 3.2".to_owned(),
        since: Timestamp::from_millis(1),
        until: Timestamp::from_millis(until),
        approved_by: PrincipalKey {
            kind: PrincipalKind::Human,
            id: "ann".into(),
        },
    };
    let begin = || Some(Record::Tenant(TenantRecord::built_in()));
    let bypass = exception(ExceptionEffect::Bypass, 50);
    let event = Event::RateLimitBypassGranted;
    let made = except(begin(), bypass.clone(), draft(event)).unwrap();
    assert_eq!(made.output.exception, Some(bypass));
    assert_eq!(made.changes.put, [Record::Tenant(made.output.clone())]);
    assert_eq!(made.changes.audit[0].event, event);
    // The text of a record has it, and one without it is read as before.
    for record in [Record::Tenant(made.output.clone()), begin().unwrap()] {
        let text = record.to_text().unwrap();
        assert_eq!(Record::from_text(&text).unwrap(), record, "{text}");
        let has_one = matches!(&record, Record::Tenant(tenant) if tenant.exception.is_some());
        assert_eq!(text.contains("exception"), has_one);
    }

    let strict = Quotas::default().with(TasksPerHour, Quota::AtMost(1));
    let throttle = exception(ExceptionEffect::Throttle(strict), 80);
    let bypassed = Some(Record::Tenant(made.output));
    let event = Event::TenantChanged;
    let made = except(bypassed, throttle.clone(), draft(event)).unwrap();
    assert_eq!(made.output.exception, Some(throttle));
    let throttled = || Some(Record::Tenant(made.output.clone()));
    let text = throttled().unwrap().to_text().unwrap();
    assert_eq!(Record::from_text(&text).unwrap(), throttled().unwrap());

    // There is no bypass to end any more, and after its time no throttle either.
    for (sort, now, ends) in [
        ("bypass", 10, false),
        ("throttle", 79, true),
        ("throttle", 80, false),
    ] {
        let now = Timestamp::from_millis(now);
        let ended = end_exception(throttled(), sort, now, draft(event)).unwrap();
        assert_eq!(ended.output.1, ends, "{sort}");
        assert_eq!(ended.changes.is_empty(), !ends);
        assert_eq!(ended.output.0.exception.is_none(), ends);
    }
    let none = except(None, exception(ExceptionEffect::Bypass, 9), draft(event));
    assert_eq!(none, Err(Rejection::NotFound));
}

fn ids() -> Ids {
    Ids::new(Stamp::of_millis(1), 1)
}
