use asyncgate_core::{
    Timestamp,
    admission::Bucket,
    identity::{Quota, QuotaExceeded, QuotaName, Quotas, Tenant, TenantSuspended, TenantTier},
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
