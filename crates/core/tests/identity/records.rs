//! Records: the text in which they are kept stays readable, and what they are found by follows from them.

use asyncgate_core::{
    PrincipalKind, RecordId, Timestamp,
    identity::{
        ApiKey, DEFAULT_TENANT, Find, KeyStanding, Person, Record, RecordKind, Role, Scope, Scopes,
        TenantRecord, TenantTier, import_keys,
    },
};

/// A key as the first version of the format wrote it.
const KEY: &str = r#"{"api_key":{"id":"01020304-0506-7708-890a-0b0c0d0e0f10","lookup_id":"abcdefghijkl","tenant":"00000000-0000-7000-8000-000000000001","principal":"service/admin/x","role":"admin","scopes":"tasks:read platform:admin","label":null,"hash":"$argon2id$","created_at":1767610800000,"expires_at":1767610900000,"last_used_at":null,"revoked_at":null,"replaced_by":null}}"#;

/// The default tenant, with a quota and without.
const TENANT: &str = r#"{"tenant":{"id":"00000000-0000-7000-8000-000000000001","name":"default","tier":"enterprise","own_quotas":"active_tasks=5 tasks_per_hour=-1","suspended_at":null,"created_at":0}}"#;

fn key() -> ApiKey {
    let Record::ApiKey(key) = Record::from_text(KEY).unwrap() else {
        panic!("it is a key");
    };
    key
}

#[test]
fn the_first_format_is_read_and_written_for_ever() {
    for text in [KEY, TENANT] {
        let record = Record::from_text(text).unwrap();
        assert_eq!(record.to_text().unwrap(), text);
    }
    let key = key();
    assert_eq!(key.tenant, DEFAULT_TENANT);
    assert_eq!(key.principal.kind, PrincipalKind::Service);
    assert_eq!(&*key.principal.id, "admin/x");
    assert_eq!((key.role, key.is_platform_admin()), (Role::Admin, true));
    let built_in = Record::Tenant(TenantRecord::built_in());
    let text = built_in.to_text().unwrap();
    assert_eq!(Record::from_text(&text).unwrap(), built_in);
    assert_eq!(
        TenantRecord::built_in().tenant().tier,
        TenantTier::Enterprise
    );
}

#[test]
fn a_text_that_is_not_whole_is_no_record() {
    for (part, instead) in [
        ("admin\",\"scopes", "system\",\"scopes"),
        ("tasks:read", "tasks:reed"),
        ("service/", "service:"),
        ("01020304", "zz020304"),
        ("\"lookup_id\":\"abcdefghijkl\",", ""),
    ] {
        assert!(KEY.contains(part), "{part}");
        let text = KEY.replace(part, instead);
        assert!(Record::from_text(&text).is_err(), "{part}");
    }
    for (part, instead) in [("=5", "=x"), ("active_tasks", "tasks"), ("=-1", "=-2")] {
        assert!(Record::from_text(&TENANT.replace(part, instead)).is_err());
    }
}

#[test]
fn the_life_of_a_key_is_that_of_its_record() {
    let now = Timestamp::from_millis(1_767_610_850_000);
    let end = key().expires_at.unwrap();
    assert_eq!(key().life().standing(now), KeyStanding::Valid);
    assert_eq!(key().life().standing(end), KeyStanding::Expired);
    let record = Record::ApiKey(key());
    assert_eq!(record.platform_until(), Some(end));
    let without = |key: ApiKey| Record::ApiKey(key).platform_until();
    let revoked_at = Some(now);
    assert_eq!(
        without(ApiKey {
            revoked_at,
            ..key()
        }),
        None
    );
    let scopes = Some(Scopes::of(&[Scope::TasksRead]));
    assert_eq!(without(ApiKey { scopes, ..key() }), None);
    // A role that cannot have the scope does not have it.
    let role = Role::Agent;
    assert_eq!(without(ApiKey { role, ..key() }), None);
    let replaced_by = Some(key().id);
    assert!(
        ApiKey {
            replaced_by,
            ..key()
        }
        .life()
        .replaced
    );
}

#[test]
fn persons_are_apart_by_tenant_provider_and_the_way_they_are_named() {
    let other = asyncgate_core::TenantId::from_bytes([7; 16]);
    let subject = |text: &str| Person::Subject(text.to_owned());
    let email = |text: &str| Person::Email(text.to_owned());
    let all = [
        Find::person(DEFAULT_TENANT, "a", &subject("x")),
        Find::person(other, "a", &subject("x")),
        Find::person(DEFAULT_TENANT, "ax", &subject("")),
        Find::person(DEFAULT_TENANT, "a", &subject("X")),
        Find::person(DEFAULT_TENANT, "a", &email("x")),
    ];
    for (n, one) in all.iter().enumerate() {
        assert!(all[n + 1..].iter().all(|two| one != two), "{one:?}");
    }
    let upper = Find::person(DEFAULT_TENANT, "a", &email("X"));
    assert_eq!(upper, all[4]);
}

#[test]
fn importing_keys_leaves_those_that_are_known_alone() {
    let known = [None, Some(Record::ApiKey(key()))];
    let new = |lookup: &str, n: u8| ApiKey {
        id: RecordId::from_bytes([n; 16]),
        lookup_id: lookup.to_owned(),
        ..key()
    };
    let keys = vec![new("abcdefghijkl", 1), new("new", 2), new("new", 3)];
    let decision = import_keys(&known, keys);
    assert_eq!(decision.output, 1);
    assert_eq!(decision.changes.put, [Record::ApiKey(new("new", 2))]);
}

#[test]
fn kinds_are_stored_by_their_places() {
    let mut places = RecordKind::ALL.into_iter().zip(0..);
    assert!(places.all(|(kind, n)| kind as i32 == n));
}
