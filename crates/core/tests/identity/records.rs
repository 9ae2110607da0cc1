//! Records: the text in which they are kept stays readable, and what they are found by follows from them.

use asyncgate_core::{
    PrincipalKind, RecordId, TenantId, Timestamp,
    identity::{
        ApiKey, DEFAULT_TENANT, Find, KeyStanding, Person, Record, RecordKind, Rejection, Role,
        Scope, Scopes, TenantRecord, TenantTier, first_key, import_keys, note_uses,
    },
};

/// A key as the first version of the format wrote it.
const KEY: &str = r#"{"api_key":{"id":"01020304-0506-7708-890a-0b0c0d0e0f10","lookup_id":"abcdefghijkl","tenant":"00000000-0000-7000-8000-000000000001","principal":"service/admin/x","role":"admin","scopes":"tasks:read platform:admin","label":null,"hash":"$argon2id$","created_at":1767610800000,"expires_at":1767610900000,"last_used_at":null,"revoked_at":null,"replaced_by":null}}"#;

/// The default tenant, with a quota and without.
const TENANT: &str = r#"{"tenant":{"id":"00000000-0000-7000-8000-000000000001","name":"default","tier":"enterprise","own_quotas":"active_tasks=5 tasks_per_hour=-1","suspended_at":null,"created_at":0}}"#;

/// A client that an admin registered, and one that registered itself.
const CLIENTS: [&str; 2] = [
    r#"{"oauth_client":{"id":"01020304-0506-7708-890a-0b0c0d0e0f10","tenant":"00000000-0000-7000-8000-000000000001","name":"one","redirect_uris":["https://a.example/cb"],"scopes":"tasks:read","secret_hash":"ab","created_at":5,"expires_at":null}}"#,
    r#"{"oauth_client":{"id":"01020304-0506-7708-890a-0b0c0d0e0f11","tenant":"00000000-0000-7000-8000-000000000001","name":"two","redirect_uris":["http://localhost:1/"],"scopes":"tasks:read","secret_hash":null,"created_at":5,"expires_at":86400005}}"#,
];

/// People with a provider and with a password, and what one of them granted.
const PEOPLE: [&str; 3] = [
    r#"{"identity_link":{"id":"01020304-0506-7708-890a-0b0c0d0e0f12","tenant":"00000000-0000-7000-8000-000000000001","provider":"acme","person":{"email":"a@x.example"},"principal":"human/ada","role":"agent","scopes":null,"created_at":5}}"#,
    r#"{"identity_link":{"id":"01020304-0506-7708-890a-0b0c0d0e0f13","tenant":"00000000-0000-7000-8000-000000000001","provider":"local","person":{"subject":"ada"},"principal":"human/ada","role":"agent","scopes":null,"password_hash":"$argon2id$","created_at":5}}"#,
    r#"{"token_family":{"id":"01020304-0506-7708-890a-0b0c0d0e0f14","tenant":"00000000-0000-7000-8000-000000000001","grant":{"client":"01020304-0506-7708-890a-0b0c0d0e0f10","identity":"01020304-0506-7708-890a-0b0c0d0e0f13","principal":"human/ada","role":"agent","scopes":"tasks:read","resource":null},"created_at":5,"expires_at":9,"revoked_at":null}}"#,
];

fn key() -> ApiKey {
    let Record::ApiKey(key) = Record::from_text(KEY).unwrap() else {
        panic!("it is a key");
    };
    key
}

#[test]
fn the_first_format_is_read_and_written_for_ever() {
    for text in [KEY, TENANT].into_iter().chain(CLIENTS).chain(PEOPLE) {
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

const NOW: Timestamp = Timestamp::from_millis(1_767_610_850_000);

fn named(lookup: &str, n: u8) -> ApiKey {
    ApiKey {
        id: RecordId::from_bytes([n; 16]),
        lookup_id: lookup.to_owned(),
        ..key()
    }
}

#[test]
fn a_check_is_kept_and_records_without_one_are_read() {
    assert_eq!(key().check, None);
    let check = Some("0123456789abcdef".to_owned());
    let record = Record::ApiKey(ApiKey { check, ..key() });
    let text = record.to_text().unwrap();
    assert!(text.contains("0123456789abcdef"), "{text}");
    assert_eq!(Record::from_text(&text).unwrap(), record);
}

#[test]
fn importing_keys_leaves_those_that_are_known_alone() {
    let known = [None, Some(Record::ApiKey(key()))];
    let keys = vec![named("abcdefghijkl", 1), named("new", 2), named("new", 3)];
    let decision = import_keys(&known, keys, NOW).unwrap();
    assert_eq!(decision.output, 1);
    assert_eq!(decision.changes.put, [Record::ApiKey(named("new", 2))]);
}

#[test]
fn tenants_of_imported_keys_get_a_record_each_unless_they_have_one() {
    let tenant = TenantId::from_bytes([9; 16]);
    let of = |lookup, n| ApiKey {
        tenant,
        ..named(lookup, n)
    };
    let keys = || vec![of("a", 1), of("b", 2), named("c", 3)];
    let decision = import_keys(&[None, None], keys(), NOW).unwrap();
    assert_eq!(decision.output, 3);
    let [
        Record::Tenant(made),
        Record::ApiKey(a),
        Record::ApiKey(b),
        Record::ApiKey(c),
    ] = decision.changes.put.as_slice()
    else {
        panic!("{:?}", decision.changes.put);
    };
    assert_eq!((made.id, &made.name), (tenant, &tenant.to_string()));
    assert_eq!(
        (made.tier, made.suspended_at),
        (TenantTier::Enterprise, None)
    );
    assert_eq!([a, b, c].map(|key| key.lookup_id.as_str()), ["a", "b", "c"]);

    let known = [Some(Record::Tenant(made.clone()))];
    let again = import_keys(&known, keys(), NOW).unwrap();
    assert_eq!(again.changes.put.len(), 3);
    let taken = TenantRecord {
        id: TenantId::from_bytes([8; 16]),
        ..made.clone()
    };
    let refused = import_keys(&[Some(Record::Tenant(taken))], keys(), NOW);
    assert_eq!(refused, Err(Rejection::NameTaken));
}

#[test]
fn the_first_key_is_kept_only_if_no_platform_admin_has_a_valid_one() {
    let at = |millis| Timestamp::from_millis(millis);
    let end = key().expires_at.unwrap();
    let new = named("new", 2);
    let kept = |platform: &[ApiKey], now| first_key(platform, new.clone(), now);
    assert!(!kept(&[key()], at(end.as_millis() - 1)).output);
    let decision = kept(&[key()], end);
    assert!(decision.output);
    assert_eq!(decision.changes.put, [Record::ApiKey(new.clone())]);
    assert!(kept(&[], NOW).output);
    assert!(kept(&[key()], NOW).changes.is_empty());
}

#[test]
fn uses_are_noted_of_keys_that_are_there_and_never_run_back() {
    let known = |last_used_at| {
        [
            Some(Record::ApiKey(ApiKey {
                last_used_at,
                ..named("a", 1)
            })),
            None,
        ]
    };
    let used = [
        (RecordId::from_bytes([1; 16]), NOW),
        (RecordId::from_bytes([2; 16]), NOW),
    ];
    let noted = note_uses(&known(None), &used);
    assert_eq!(noted.put.as_slice(), [known(Some(NOW))[0].clone().unwrap()]);
    assert!(note_uses(&known(Some(NOW)), &used).is_empty());
    assert!(note_uses(&known(None), &[]).is_empty());
}

#[test]
fn kinds_are_stored_by_their_places() {
    let mut places = RecordKind::ALL.into_iter().zip(0..);
    assert!(places.all(|(kind, n)| kind as i32 == n));
}
