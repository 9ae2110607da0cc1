//! Records.

use asyncgate_core::{
    Timestamp,
    identity::{
        ApiKey, Changes, DEFAULT_TENANT, Find, Person, Record, RecordKind, Scope, Scopes,
        TenantRecord, audit::Event, forget, import_keys,
    },
};

use super::driver::{
    IdentityDriver, api_key, by_id, code, draft, every, family, link, macaroon, tenant_record,
};
use crate::{
    conformance::{Case, Driver, agent, cases},
    identity::{AuditFilter, Owner, Reads, RecordFilter},
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        every_kind_is_read_back_as_it_was,
        a_record_is_found_by_its_name_and_id,
        a_record_of_another_tenant_is_not_found_within_this_one,
        a_record_that_is_put_again_replaces_the_first,
        what_is_removed_is_gone_and_its_name_free,
        records_are_listed_by_owner_page_by_page,
        the_default_tenant_is_there_from_the_start,
        records_whose_time_is_over_are_shown_and_forgotten,
        the_last_key_of_a_platform_admin_shows,
        keys_are_imported_once,
        a_record_and_its_entry_share_a_commit,
    ]
}

fn samples(driver: &IdentityDriver) -> Vec<Record> {
    let tenant = driver.tenant;
    let mut all = vec![
        tenant_record(tenant, "acme"),
        Record::ApiKey(ApiKey {
            scopes: Some(Scopes::of(&[Scope::PlatformAdmin])),
            label: Some("ünï".to_owned()),
            expires_at: Some(driver.now),
            last_used_at: Some(driver.now),
            revoked_at: Some(driver.now),
            replaced_by: Some(api_key(tenant, 2).id),
            ..api_key(tenant, 1)
        }),
        macaroon(tenant, 1),
        link(tenant, 1, Person::Subject("1234".to_owned())),
        link(tenant, 2, Person::Email("Ann@acme.example".to_owned())),
        code(tenant, 1),
    ];
    all.extend(family(tenant, 1));
    all
}

async fn every_kind_is_read_back_as_it_was(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let all = samples(&driver);
    driver.put(all.clone()).await;
    for record in all {
        assert_eq!(driver.find(by_id(record.key())).await, Some(record));
    }
}

async fn a_record_is_found_by_its_name_and_id(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let (tenant, all) = (driver.tenant, samples(&driver));
    driver.put(all.clone()).await;
    let ann = Person::Email("ann@ACME.example".to_owned());
    let subject = Person::Subject("1234".to_owned());
    for (find, n) in [
        (Find::tenant(tenant), 0),
        (Find::tenant_named("acme"), 0),
        (Find::key("lookup000001"), 1),
        (Find::person(tenant, "acme", &subject), 3),
        (Find::person(tenant, "acme", &ann), 4),
        (Find::code("code1"), 5),
        (Find::refresh_token("refresh1"), 8),
    ] {
        assert_eq!(driver.find(find).await.as_ref(), Some(&all[n]), "{n}");
    }
    let other = Driver::of_tenant(driver.store().clone(), 2).tenant;
    for find in [
        Find::tenant(other),
        Find::tenant_named("acm"),
        Find::key("lookup000002"),
        Find::key("code1"),
        Find::person(other, "acme", &subject),
        Find::person(tenant, "other", &subject),
        Find::person(tenant, "acme", &Person::Email("1234".to_owned())),
        Find::id(RecordKind::Macaroon, api_key(tenant, 9).id),
    ] {
        assert_eq!(driver.find(find.clone()).await, None, "{find:?}");
    }
}

async fn a_record_of_another_tenant_is_not_found_within_this_one(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let other = Driver::of_tenant(driver.store().clone(), 2).tenant;
    let key = api_key(other, 1);
    driver.put([Record::ApiKey(key.clone())]).await;
    let within = |tenant| Find::within(tenant, RecordKind::ApiKey, key.id);
    assert_eq!(driver.find(within(driver.tenant)).await, None);
    let found = driver.find(within(other)).await;
    assert_eq!(found, Some(Record::ApiKey(key)));
}

async fn a_record_that_is_put_again_replaces_the_first(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = driver.tenant;
    driver.put([tenant_record(tenant, "old")]).await;
    let renamed = tenant_record(tenant, "new");
    driver.put([renamed.clone()]).await;
    assert_eq!(driver.find(Find::tenant_named("old")).await, None);
    let found = driver.find(Find::tenant_named("new")).await;
    assert_eq!(found.as_ref(), Some(&renamed));
    assert_eq!(driver.listed(every(RecordKind::Tenant)).await.len(), 2);
    // The old name is free, also in the commit in which its record takes another.
    let other = Driver::of_tenant(driver.store().clone(), 2).tenant;
    let both = [tenant_record(tenant, "third"), tenant_record(other, "new")];
    driver.put(both).await;
    let found = driver.find(Find::tenant_named("new")).await.unwrap();
    assert_eq!(found.tenant(), other);
}

async fn what_is_removed_is_gone_and_its_name_free(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let first = Record::ApiKey(api_key(driver.tenant, 1));
    driver.put([first.clone()]).await;
    let second = Record::ApiKey(ApiKey {
        id: api_key(driver.tenant, 2).id,
        ..api_key(driver.tenant, 1)
    });
    driver
        .change(Changes {
            put: vec![second.clone()],
            removed: vec![first.key()],
            ..Changes::default()
        })
        .await;
    assert_eq!(driver.find(by_id(first.key())).await, None);
    assert_eq!(driver.find(Find::key("lookup000001")).await, Some(second));
    // What is not there can be removed too.
    driver.remove([first.key()]).await;
}

async fn records_are_listed_by_owner_page_by_page(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let (tenant, other) = (
        driver.tenant,
        Driver::of_tenant(driver.store().clone(), 2).tenant,
    );
    let keys = |tenant, of: std::ops::Range<u8>| -> Vec<Record> {
        of.map(|n| Record::ApiKey(api_key(tenant, n))).collect()
    };
    let (mine, theirs) = (keys(tenant, 1..6), keys(other, 6..9));
    driver.put(mine.iter().rev().chain(&theirs).cloned()).await;
    driver.put([macaroon(tenant, 1)]).await;
    let own = RecordFilter::of_tenant(RecordKind::ApiKey, tenant, 0);
    assert_eq!(driver.listed(own.clone()).await, mine);
    let all: Vec<Record> = mine.iter().chain(&theirs).cloned().collect();
    assert_eq!(driver.listed(every(RecordKind::ApiKey)).await, all);
    let alice = agent("alice").key();
    let hers = driver.listed(RecordFilter {
        owner: Owner::Principal(tenant, alice),
        ..own.clone()
    });
    assert_eq!(hers.await, [mine[1].clone(), mine[3].clone()]);
    let nobody = driver.listed(RecordFilter {
        owner: Owner::Principal(other, agent("ali").key()),
        ..own
    });
    assert_eq!(nobody.await, []);
}

async fn the_default_tenant_is_there_from_the_start(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let built_in = TenantRecord::built_in();
    let found = driver.find(Find::tenant(DEFAULT_TENANT)).await;
    assert_eq!(found, Some(Record::Tenant(built_in.clone())));
    let named = driver.find(Find::tenant_named("default")).await;
    assert_eq!(named, found);
    assert_eq!(driver.listed(every(RecordKind::Tenant)).await.len(), 1);
    let changed = Record::Tenant(TenantRecord {
        suspended_at: Some(driver.now),
        ..built_in
    });
    driver.put([changed.clone()]).await;
    let found = driver.find(Find::tenant(DEFAULT_TENANT)).await;
    assert_eq!(found, Some(changed));
}

async fn records_whose_time_is_over_are_shown_and_forgotten(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = driver.tenant;
    driver.put((1..5).map(|n| macaroon(tenant, n))).await;
    driver.put([Record::ApiKey(api_key(tenant, 1))]).await;
    let reads = Reads {
        over: 3,
        ..Reads::default()
    };
    assert!(driver.shown(reads.clone()).await.over.is_empty());
    driver.now = macaroon(tenant, 4).forget_at().unwrap();
    let over = driver.shown(reads.clone()).await.over;
    let expected: Vec<Record> = (1..4).map(|n| macaroon(tenant, n)).collect();
    assert_eq!(over, expected);
    let left = |snapshot: crate::identity::Snapshot| forget(&snapshot.over);
    for _ in 0..2 {
        let forgotten = driver.try_change(reads.clone(), move |_, snapshot| left(snapshot));
        forgotten.await.unwrap();
    }
    assert!(driver.listed(every(RecordKind::Macaroon)).await.is_empty());
    assert_eq!(driver.listed(every(RecordKind::ApiKey)).await.len(), 1);
}

async fn the_last_key_of_a_platform_admin_shows(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let (tenant, now) = (driver.tenant, driver.now);
    let platform = |n, expires_at| ApiKey {
        scopes: Some(Scopes::of(&[Scope::PlatformAdmin])),
        expires_at,
        ..api_key(tenant, n)
    };
    let ends = |ms| Some(Timestamp::plus_millis(now, ms));
    let revoked = ApiKey {
        revoked_at: Some(now),
        ..platform(5, None)
    };
    let keys = [
        api_key(tenant, 1),
        platform(2, ends(1_000)),
        platform(3, None),
        platform(4, ends(2_000)),
        revoked,
    ];
    driver.put(keys.map(Record::ApiKey)).await;
    let reads = Reads {
        platform_keys: true,
        ..Reads::default()
    };
    let shown = driver.shown(reads.clone()).await.platform_keys;
    assert_eq!(shown, [platform(3, None), platform(4, ends(2_000))]);
    driver.wait_ms(2_000);
    let shown = driver.shown(reads).await.platform_keys;
    assert_eq!(shown, [platform(3, None)]);
}

async fn keys_are_imported_once(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = driver.tenant;
    let revoked = ApiKey {
        revoked_at: Some(driver.now),
        ..api_key(tenant, 1)
    };
    driver.put([Record::ApiKey(revoked.clone())]).await;
    for _ in 0..2 {
        let keys: Vec<ApiKey> = (1..4)
            .map(|n| ApiKey {
                // An import makes ids of its own each time.
                id: api_key(tenant, n + 100).id,
                ..api_key(tenant, n)
            })
            .collect();
        let reads = Reads {
            records: keys.iter().map(|key| Find::key(&key.lookup_id)).collect(),
            ..Reads::default()
        };
        let imported = driver.try_change(reads, move |env, snapshot| {
            let imported = import_keys(&snapshot.records, keys.clone(), env.now);
            imported.unwrap().changes
        });
        imported.await.unwrap();
    }
    assert_eq!(driver.listed(every(RecordKind::ApiKey)).await.len(), 3);
    let found = driver.find(Find::key("lookup000001")).await;
    assert_eq!(found, Some(Record::ApiKey(revoked)));
}

async fn a_record_and_its_entry_share_a_commit(driver: Driver) {
    let mut driver = IdentityDriver::new(driver);
    let tenant = driver.tenant;
    let key = Record::ApiKey(api_key(tenant, 1));
    let put = vec![key.clone()];
    let changed = driver.try_change(Reads::default(), move |mut env, _| Changes {
        put: put.clone(),
        audit: vec![draft(&mut env, Some(tenant), Event::KeyCreated)],
        ..Changes::default()
    });
    changed.await.unwrap();
    assert_eq!(driver.find(by_id(key.key())).await, Some(key));
    let filter = AuditFilter {
        tenant: Some(tenant),
        ..AuditFilter::default()
    };
    assert_eq!(driver.audited(filter).await.len(), 1);
}
