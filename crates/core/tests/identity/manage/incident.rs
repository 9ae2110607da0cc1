//! Incidents: all credentials of a tenant or of a principal end, but for what the actor needs.

use asyncgate_core::{
    PrincipalKind, RecordId, Timestamp,
    identity::{
        ApiKey, Changes, Grant, Record, RecordKey, Rejection, Role, Scopes, TokenFamily,
        audit::Event,
        manage::{
            Actor,
            incident::{End, Incident, Kept, Step},
        },
    },
};

use super::{NOW, OURS, THEIRS, admin, env, key, logs, platform_admin, platform_key, someone};

fn family(n: u8) -> Record {
    Record::TokenFamily(TokenFamily {
        id: RecordId::from_bytes([n; 16]),
        tenant: OURS,
        grant: Grant {
            identity: RecordId::from_bytes([3; 16]),
            client: RecordId::from_bytes([1; 16]),
            principal: someone(PrincipalKind::Human, "alice"),
            role: Role::Agent,
            scopes: Scopes::NONE,
            resource: None,
        },
        created_at: NOW,
        expires_at: NOW.plus_millis(1_000),
        revoked_at: None,
    })
}

fn step(
    actor: &Actor,
    end: End,
    platform_keys: &[ApiKey],
    records: &[Option<Record>],
) -> (Step, Changes) {
    let incident = Incident {
        actor,
        own: Some(RecordId::from_bytes([9; 16])),
        end,
        platform_keys,
    };
    let decided = incident.step(&mut env(), records).unwrap();
    (decided.output, decided.changes)
}

#[test]
fn an_incident_ends_everything_but_what_the_actor_needs() {
    let revoked = ApiKey {
        revoked_at: Some(NOW),
        ..key(3, OURS, Role::Agent, None)
    };
    let records = [
        Some(Record::ApiKey(key(1, OURS, Role::Agent, None))),
        None,
        Some(Record::ApiKey(revoked)),
        Some(family(4)),
        Some(Record::ApiKey(key(9, OURS, Role::Admin, None))),
        Some(Record::ApiKey(platform_key(8))),
    ];
    let (done, changes) = step(&admin(), End::Now, &[], &records);
    assert_eq!(done.seen, records.len());
    let ids: Vec<RecordKey> = done.ended.iter().map(Record::key).collect();
    let expected = [0, 3].map(|n: usize| records[n].as_ref().unwrap().key());
    assert_eq!(ids, expected);
    let kept = |n| RecordId::from_bytes([n; 16]);
    let expected = [(kept(9), Kept::Own), (kept(8), Kept::Beyond)];
    assert_eq!(done.kept, expected);
    assert_eq!(changes.put, done.ended);
    let events = [Event::KeyRevoked, Event::TokenRevoked];
    assert_eq!(logs(&changes), events.map(|event| (Some(OURS), event)));
    let ended: Vec<_> = done.ended.into_iter().map(Some).collect();
    let (again, changes) = step(&admin(), End::Now, &[], &ended);
    assert_eq!((again.ended, changes), (vec![], Changes::default()));
}

#[test]
fn an_incident_leaves_one_platform_admin_and_looks_again_for_each() {
    let keys = [1, 2, 3].map(platform_key);
    let records = keys.clone().map(|key| Some(Record::ApiKey(key)));
    let (first, _) = step(&platform_admin(), End::Now, &keys[..2], &records);
    assert_eq!((first.seen, first.ended.len()), (1, 1));
    let (second, _) = step(&platform_admin(), End::Now, &keys[1..], &records[1..]);
    assert_eq!((second.seen, second.ended.len()), (1, 1));
    let (third, changes) = step(&platform_admin(), End::Now, &keys[2..], &records[2..]);
    assert_eq!(third.kept, [(keys[2].id, Kept::LastPlatformAdmin)]);
    assert!(changes.is_empty());
}

#[test]
fn a_forced_rotation_gives_keys_an_end_and_does_not_prolong() {
    let overlap = End::After { overlap_secs: 60 };
    let short = ApiKey {
        expires_at: Some(NOW.plus_millis(5_000)),
        ..key(2, OURS, Role::Agent, None)
    };
    let records = [
        Some(Record::ApiKey(key(1, OURS, Role::Agent, None))),
        Some(Record::ApiKey(short)),
        Some(family(4)),
        // The actor's own key gets an end as well.
        Some(Record::ApiKey(key(9, OURS, Role::Agent, None))),
    ];
    let (done, changes) = step(&admin(), overlap, &[], &records);
    let ends: Vec<_> = done.ended.iter().map(end_of).collect();
    assert_eq!(ends, [Some(NOW.plus_millis(60_000)); 2]);
    let event = (Some(OURS), Event::KeyRotated);
    assert_eq!(logs(&changes), [event, event]);

    // Another platform admin that ends sooner is none by then.
    let sooner = ApiKey {
        expires_at: Some(NOW.plus_millis(60_000)),
        ..platform_key(2)
    };
    let keys = [platform_key(1), sooner];
    let records = [Some(Record::ApiKey(platform_key(1)))];
    let (done, _) = step(&platform_admin(), overlap, &keys, &records);
    assert_eq!(done.kept, [(keys[0].id, Kept::LastPlatformAdmin)]);
}

fn end_of(record: &Record) -> Option<Timestamp> {
    let Record::ApiKey(key) = record else {
        panic!("only keys get an end");
    };
    key.expires_at
}

#[test]
fn an_incident_stops_at_the_line_of_a_tenant() {
    let incident = Incident {
        actor: &admin(),
        own: None,
        end: End::Now,
        platform_keys: &[],
    };
    let theirs = Some(Record::ApiKey(key(1, THEIRS, Role::Agent, None)));
    let refused = incident.step(&mut env(), &[theirs]);
    assert_eq!(refused.unwrap_err(), Rejection::AnotherTenant);
}
