//! The management of records: who may do what to whom, and what the audit log says of it.

mod incident;

use std::sync::Arc;

use asyncgate_core::{
    Decision, Env, Ids, Policy, PrincipalKey, PrincipalKind, RecordId, Stamp, TenantId, Timestamp,
    identity::{
        ApiKey, Changes, Find, KeyRejection, Person, Quota, QuotaName, Quotas, Record, RecordKind,
        Rejection, Role, Scope, Scopes, TenantRecord, TenantTier,
        audit::{Draft, Event, Severity},
        manage::{
            Actor, Origin, Rights,
            keys::{self, KeyProof, NewKey},
            macaroons::{self, MAX_LIFE_SECS, NewMacaroon},
            people::{self, NewPerson},
            tenants::{self, NewTenant, TenantChange},
            token_key,
        },
    },
};

const NOW: Timestamp = Timestamp::from_millis(1_767_610_800_000);
const OURS: TenantId = TenantId::from_bytes([7; 16]);
const THEIRS: TenantId = TenantId::from_bytes([8; 16]);

fn env() -> Env {
    Env {
        now: NOW,
        ids: Ids::new(Stamp::of_millis(5), 1),
        instance: "test".into(),
        policy: Arc::new(Policy::default()),
        quotas: None,
    }
}

fn someone(kind: PrincipalKind, id: &str) -> PrincipalKey {
    PrincipalKey {
        kind,
        id: id.into(),
    }
}

fn actor(scopes: Scopes) -> Actor {
    Actor {
        tenant: OURS,
        principal: someone(PrincipalKind::Human, "root"),
        scopes,
        narrowed: false,
        origin: Origin {
            ip: "10.0.0.1".parse().ok(),
            user_agent: Some("curl/8".to_owned()),
            corr_id: Some("corr".to_owned()),
        },
    }
}

fn admin() -> Actor {
    actor(Role::Admin.default_scopes())
}

fn platform_admin() -> Actor {
    actor(Role::Admin.widest_scopes())
}

fn rights(role: Role, scopes: Option<&[Scope]>) -> Rights {
    Rights {
        principal: someone(PrincipalKind::Worker, "w1"),
        role,
        scopes: scopes.map(Scopes::of),
    }
}

fn wish(tenant: TenantId, rights: Rights) -> NewKey {
    NewKey {
        tenant,
        rights,
        label: Some("a label".to_owned()),
        expires_at: None,
        expires_in_secs: None,
    }
}

fn proof(lookup_id: &str) -> KeyProof {
    KeyProof {
        lookup_id: lookup_id.to_owned(),
        hash: "a slow hash".to_owned(),
        check: "c".to_owned(),
    }
}

fn tenant(id: TenantId) -> Record {
    Record::Tenant(TenantRecord {
        id,
        name: "acme".to_owned(),
        ..TenantRecord::built_in()
    })
}

fn key(n: u8, tenant: TenantId, role: Role, scopes: Option<Scopes>) -> ApiKey {
    ApiKey {
        id: RecordId::from_bytes([n; 16]),
        lookup_id: format!("id{n}"),
        tenant,
        principal: someone(PrincipalKind::Worker, "w1"),
        role,
        scopes,
        label: None,
        hash: "h".to_owned(),
        check: None,
        created_at: NOW,
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
        replaced_by: None,
    }
}

fn platform_key(n: u8) -> ApiKey {
    let scopes = Some(Role::Admin.widest_scopes());
    key(n, OURS, Role::Admin, scopes)
}

fn logs(changes: &Changes) -> Vec<(Option<TenantId>, Event)> {
    let entries = changes.audit.iter();
    entries.map(|entry| (entry.tenant, entry.event)).collect()
}

fn detail(draft: &Draft, name: &str) -> Option<String> {
    let details: serde_json::Value = serde_json::from_str(draft.details.text()).unwrap();
    Some(details.get(name)?.as_str()?.to_owned())
}

#[test]
fn a_tenant_is_its_own_or_named_by_a_platform_admin() {
    for (actor, named, expected) in [
        (admin(), None, Ok(OURS)),
        (admin(), Some(OURS), Ok(OURS)),
        (admin(), Some(THEIRS), Err(Rejection::AnotherTenant)),
        (platform_admin(), None, Ok(OURS)),
        (platform_admin(), Some(THEIRS), Ok(THEIRS)),
        (
            actor(Scopes::of(&[Scope::PlatformAdmin])),
            Some(THEIRS),
            Ok(THEIRS),
        ),
        (
            actor(Scopes::of(&[Scope::AdminWrite])),
            Some(THEIRS),
            Err(Rejection::AnotherTenant),
        ),
    ] {
        assert_eq!(actor.target(named), expected);
    }
}

#[test]
fn records_of_others_are_looked_for_where_the_actor_may_look() {
    let id = RecordId::from_bytes([1; 16]);
    let within = |actor: Actor, named| match actor.find(named, RecordKind::ApiKey, id) {
        Ok(Find::Id { within, .. }) => Ok(within),
        Ok(Find::Name { .. }) => panic!("it is named by its id"),
        Err(rejection) => Err(rejection),
    };
    assert_eq!(within(admin(), None), Ok(Some(OURS)));
    assert_eq!(within(platform_admin(), None), Ok(None));
    assert_eq!(within(platform_admin(), Some(THEIRS)), Ok(Some(THEIRS)));
    let other = within(admin(), Some(THEIRS));
    assert_eq!(other, Err(Rejection::AnotherTenant));
}

#[test]
fn nobody_gives_away_more_than_it_has() {
    use Scope::{AdminWrite, HostUse, PlatformAdmin, TasksLease, TasksRead};
    let read_only = Scopes::of(&[Scope::AdminRead]);
    let platform_only = Scopes::of(&[PlatformAdmin]);
    for (scopes, rights, expected) in [
        (admin().scopes, rights(Role::Worker, None), Ok(())),
        (admin().scopes, rights(Role::Admin, None), Ok(())),
        (
            Scopes::of(&[AdminWrite]),
            rights(Role::Agent, Some(&[HostUse])),
            Ok(()),
        ),
        (
            admin().scopes,
            rights(Role::Admin, Some(&[PlatformAdmin])),
            Err(Rejection::Beyond(PlatformAdmin)),
        ),
        // Outside of its role the scope gives nothing, so nothing is given away.
        (
            admin().scopes,
            rights(Role::Agent, Some(&[PlatformAdmin])),
            Ok(()),
        ),
        (
            platform_admin().scopes,
            rights(Role::Admin, Some(&[PlatformAdmin])),
            Ok(()),
        ),
        (platform_only, rights(Role::Worker, None), Ok(())),
        (read_only, rights(Role::Admin, Some(&[TasksRead])), Ok(())),
        (
            read_only,
            rights(Role::Worker, None),
            Err(Rejection::Beyond(TasksLease)),
        ),
    ] {
        assert_eq!(actor(scopes).may_give(&rights), expected, "{rights:?}");
    }
    let narrowed = Actor {
        narrowed: true,
        ..platform_admin()
    };
    let refused = narrowed.may_give(&rights(Role::Worker, None));
    assert_eq!(refused, Err(Rejection::Narrowed));
    let server = Rights {
        principal: someone(PrincipalKind::System, "asyncgate"),
        ..rights(Role::Agent, None)
    };
    let refused = platform_admin().may_give(&server);
    assert_eq!(refused, Err(Rejection::ServerItself));
}

#[test]
fn a_key_and_its_entry_are_one_change() {
    let new = NewKey {
        expires_in_secs: Some(60),
        ..wish(OURS, rights(Role::Worker, Some(&[Scope::TasksLease])))
    };
    let record = tenant(OURS);
    let made = keys::create(&admin(), &mut env(), Some(&record), None, new, proof("a"));
    let Decision { changes, output } = made.unwrap();
    assert_eq!(output.expires_at, Some(NOW.plus_millis(60_000)));
    assert_eq!((output.tenant, output.role), (OURS, Role::Worker));
    assert_eq!(output.scopes, Some(Scopes::of(&[Scope::TasksLease])));
    assert_eq!(changes.put, [Record::ApiKey(output.clone())]);
    assert_eq!(logs(&changes), [(Some(OURS), Event::KeyCreated)]);
    let entry = &changes.audit[0];
    assert_eq!(detail(entry, "key_id"), Some(output.id.to_string()));
    assert_eq!(detail(entry, "for").as_deref(), Some("worker/w1"));
    assert_eq!(detail(entry, "scopes").as_deref(), Some("tasks:lease"));
    assert_eq!(entry.principal, Some(admin().principal));
    assert_eq!(entry.user_agent.as_deref(), Some("curl/8"));
    assert!(!entry.details.text().contains("slow hash"));
}

#[test]
fn an_act_in_another_tenant_is_in_both_logs() {
    let new = wish(THEIRS, rights(Role::Admin, None));
    let record = tenant(THEIRS);
    let actor = platform_admin();
    let made = keys::create(&actor, &mut env(), Some(&record), None, new, proof("a"));
    let changes = made.unwrap().changes;
    let created = Event::KeyCreated;
    let expected = [(Some(THEIRS), created), (Some(OURS), created)];
    assert_eq!(logs(&changes), expected);
    let [there, here] = &changes.audit[..] else {
        panic!("two entries")
    };
    assert_eq!(detail(there, "actor_tenant_id"), Some(OURS.to_string()));
    assert_eq!(detail(here, "target_tenant_id"), Some(THEIRS.to_string()));
    assert_ne!(there.id, here.id);
}

#[test]
fn keys_are_refused_for_their_own_reasons() {
    let (ours, taken) = (
        tenant(OURS),
        Record::ApiKey(key(1, OURS, Role::Agent, None)),
    );
    let worker = || wish(OURS, rights(Role::Worker, None));
    let late = NewKey {
        expires_at: Some(NOW),
        ..worker()
    };
    let beyond = wish(OURS, rights(Role::Admin, Some(&[Scope::PlatformAdmin])));
    for (tenant, taken, new, expected) in [
        (None, None, worker(), Rejection::NotFound),
        (Some(&taken), None, worker(), Rejection::NotFound),
        (Some(&ours), Some(&taken), worker(), Rejection::NameTaken),
        (
            Some(&ours),
            None,
            late,
            Rejection::Key(KeyRejection::ExpiryNotAhead),
        ),
        (
            Some(&ours),
            None,
            beyond,
            Rejection::Beyond(Scope::PlatformAdmin),
        ),
        (
            Some(&ours),
            None,
            wish(THEIRS, rights(Role::Worker, None)),
            Rejection::AnotherTenant,
        ),
    ] {
        let made = keys::create(&admin(), &mut env(), tenant, taken, new, proof("a"));
        assert_eq!(made, Err(expected));
    }
}

#[test]
fn a_rotated_key_keeps_its_rights_and_names_its_successor() {
    let old = key(1, OURS, Role::Worker, Some(Scopes::of(&[Scope::HostUse])));
    let found = Record::ApiKey(old.clone());
    let rotated = keys::rotate(&admin(), &mut env(), Some(&found), None, 60, proof("b"));
    let Decision { changes, output } = rotated.unwrap();
    let (was, is) = (output.old, output.new);
    assert_eq!(was.expires_at, Some(NOW.plus_millis(60_000)));
    assert_eq!(was.replaced_by, Some(is.id));
    assert_eq!((is.lookup_id.as_str(), is.replaced_by), ("b", None));
    assert_eq!((is.role, is.scopes), (old.role, old.scopes));
    assert_eq!(changes.put, [Record::ApiKey(was), Record::ApiKey(is)]);
    assert_eq!(logs(&changes), [(Some(OURS), Event::KeyRotated)]);
}

#[test]
fn a_rotation_gives_the_new_key_away() {
    let above = Record::ApiKey(platform_key(1));
    let refused = keys::rotate(&admin(), &mut env(), Some(&above), None, 0, proof("b"));
    let beyond = Rejection::Beyond(Scope::PlatformAdmin);
    assert_eq!(refused.unwrap_err(), beyond);
    let narrowed = Actor {
        narrowed: true,
        ..platform_admin()
    };
    let refused = keys::rotate(&narrowed, &mut env(), Some(&above), None, 0, proof("b"));
    assert_eq!(refused.unwrap_err(), Rejection::Narrowed);
    let theirs = Record::ApiKey(key(2, THEIRS, Role::Agent, None));
    let refused = keys::rotate(&admin(), &mut env(), Some(&theirs), None, 0, proof("b"));
    assert_eq!(refused.unwrap_err(), Rejection::NotFound);
    let replaced = Record::ApiKey(ApiKey {
        replaced_by: Some(RecordId::from_bytes([9; 16])),
        ..key(3, OURS, Role::Agent, None)
    });
    let refused = keys::rotate(&admin(), &mut env(), Some(&replaced), None, 0, proof("b"));
    let again = Rejection::Key(KeyRejection::Replaced);
    assert_eq!(refused.unwrap_err(), again);
}

#[test]
fn revoking_again_changes_nothing_and_leaves_no_entry() {
    let found = Record::ApiKey(key(1, OURS, Role::Agent, None));
    let first = keys::revoke(&admin(), &mut env(), Some(&found), &[]).unwrap();
    assert_eq!(first.output.revoked_at, Some(NOW));
    assert_eq!(logs(&first.changes), [(Some(OURS), Event::KeyRevoked)]);
    let mut later = env();
    later.now = NOW.plus_millis(5);
    let again = keys::revoke(&admin(), &mut later, Some(&first.changes.put[0]), &[]);
    let again = again.unwrap();
    assert_eq!(again.output.revoked_at, Some(NOW));
    assert!(again.changes.is_empty());
}

#[test]
fn the_last_key_of_a_platform_admin_stays() {
    let last = Rejection::Key(KeyRejection::LastPlatformAdmin);
    let (first, second) = (platform_key(1), platform_key(2));
    let expired = ApiKey {
        expires_at: Some(NOW),
        ..platform_key(3)
    };
    let revoke = |platform_keys: &[ApiKey]| {
        let found = Record::ApiKey(first.clone());
        keys::revoke(&platform_admin(), &mut env(), Some(&found), platform_keys)
    };
    assert_eq!(revoke(std::slice::from_ref(&first)).unwrap_err(), last);
    assert_eq!(revoke(&[first.clone(), expired]).unwrap_err(), last);
    assert!(revoke(&[second, first.clone()]).is_ok());
    let found = Record::ApiKey(first.clone());
    let lesser = keys::revoke(&admin(), &mut env(), Some(&found), &[platform_key(2)]);
    assert_eq!(lesser.unwrap_err(), Rejection::Beyond(Scope::PlatformAdmin));
}

#[test]
fn a_macaroon_ends_with_the_earliest_of_its_conditions() {
    let second = |n: i64| NOW.plus_millis(n * 1_000);
    for (seconds, conditions, expected) in [
        (None, vec![], Ok(second(86_400))),
        (Some(60), vec![], Ok(second(60))),
        (Some(60), vec![second(30), second(90)], Ok(second(30))),
        (
            Some(MAX_LIFE_SECS),
            vec![],
            Ok(second(MAX_LIFE_SECS as i64)),
        ),
        (
            Some(MAX_LIFE_SECS + 1),
            vec![],
            Err(Rejection::MacaroonLife),
        ),
        (Some(u64::MAX), vec![], Err(Rejection::MacaroonLife)),
        (
            Some(0),
            vec![],
            Err(Rejection::Key(KeyRejection::ExpiryNotAhead)),
        ),
        (
            Some(60),
            vec![NOW],
            Err(Rejection::Key(KeyRejection::ExpiryNotAhead)),
        ),
    ] {
        assert_eq!(macaroons::life(NOW, seconds, conditions), expected);
    }
}

#[test]
fn macaroons_are_minted_and_revoked_once() {
    let new = NewMacaroon {
        id: RecordId::from_bytes([5; 16]),
        tenant: OURS,
        rights: rights(Role::Agent, None),
        root_key: "k1".to_owned(),
        created_at: NOW,
        expires_at: NOW.plus_millis(1_000),
    };
    let record = tenant(OURS);
    let minted = macaroons::mint(&admin(), &mut env(), Some(&record), new.clone());
    let minted = minted.unwrap();
    assert_eq!(minted.output.id, new.id);
    assert_eq!(logs(&minted.changes), [(Some(OURS), Event::MacaroonMinted)]);
    let unknown = macaroons::mint(&admin(), &mut env(), None, new.clone());
    assert_eq!(unknown.unwrap_err(), Rejection::NotFound);
    let other = NewMacaroon {
        tenant: THEIRS,
        ..new
    };
    let refused = macaroons::mint(&admin(), &mut env(), Some(&record), other);
    assert_eq!(refused.unwrap_err(), Rejection::AnotherTenant);

    let revoked = macaroons::revoke(&admin(), &mut env(), Some(&minted.changes.put[0]));
    let revoked = revoked.unwrap();
    assert_eq!(revoked.output.revoked_at, Some(NOW));
    let event = Event::MacaroonRevoked;
    assert_eq!(logs(&revoked.changes), [(Some(OURS), event)]);
    let again = macaroons::revoke(&admin(), &mut env(), Some(&revoked.changes.put[0]));
    assert!(again.unwrap().changes.is_empty());
    let no_macaroon = macaroons::revoke(&admin(), &mut env(), Some(&record));
    assert_eq!(no_macaroon.unwrap_err(), Rejection::NotFound);
}

#[test]
fn tenants_have_names_of_their_own() {
    let wish = |name: &str| NewTenant {
        name: name.to_owned(),
        tier: TenantTier::Paid,
        quotas: Quotas::default().with(QuotaName::ActiveTasks, Quota::AtMost(5)),
    };
    let made = tenants::create(&platform_admin(), &mut env(), None, wish("acme")).unwrap();
    let id = made.output.id;
    assert_eq!(made.output.name, "acme");
    assert_eq!(made.output.suspended_at, None);
    assert_ne!(id, OURS);
    let created = Event::TenantCreated;
    let both = [(Some(id), created), (Some(OURS), created)];
    assert_eq!(logs(&made.changes), both);
    let taken = tenant(THEIRS);
    let again = tenants::create(&platform_admin(), &mut env(), Some(&taken), wish("acme"));
    assert_eq!(again.unwrap_err(), Rejection::NameTaken);
    for name in ["none", &OURS.to_string()] {
        let unfit = tenants::create(&platform_admin(), &mut env(), None, wish(name));
        assert_eq!(unfit.unwrap_err(), Rejection::UnfitName);
    }
    let refused = tenants::create(&admin(), &mut env(), None, wish("acme"));
    let beyond = Rejection::Beyond(Scope::PlatformAdmin);
    assert_eq!(refused.unwrap_err(), beyond);
}

#[test]
fn only_a_platform_admin_has_tokens_signed_with_another_key_and_two_logs_tell_of_it() {
    let rotated = token_key::rotate(&platform_admin(), &mut env(), "the-kid").unwrap();
    let event = Event::KeyRotated;
    let both = [(None, event), (Some(OURS), event)];
    assert_eq!(logs(&rotated.changes), both);
    for told in &rotated.changes.audit {
        assert!(told.details.text().contains("the-kid"), "{told:?}");
    }
    assert!(rotated.changes.put.is_empty());
    let refused = token_key::rotate(&admin(), &mut env(), "the-kid");
    let beyond = Rejection::Beyond(Scope::PlatformAdmin);
    assert_eq!(refused.unwrap_err(), beyond);
}

#[test]
fn a_tenant_is_changed_where_something_is_named() {
    let before = tenant(THEIRS);
    let change = |change: TenantChange| {
        tenants::change(&platform_admin(), &mut env(), Some(&before), &change)
    };
    assert!(change(TenantChange::default()).unwrap().changes.is_empty());
    let changed = change(TenantChange {
        tier: Some(TenantTier::Free),
        quotas: vec![(QuotaName::ActiveTasks, Some(Quota::AtMost(3)))],
        suspended: Some(true),
    });
    let Decision { changes, output } = changed.unwrap();
    assert_eq!(output.tier, TenantTier::Free);
    assert_eq!(output.suspended_at, Some(NOW));
    let quota = output.own_quotas.set_value(QuotaName::ActiveTasks);
    assert_eq!(quota, Some(Quota::AtMost(3)));
    let entry = &changes.audit[0];
    assert_eq!(entry.event, Event::TenantChanged);
    assert_eq!(detail(entry, "tier").as_deref(), Some("enterprise to free"));
    assert_eq!(detail(entry, "suspended").as_deref(), Some("true"));
    let quota = detail(entry, "active_tasks");
    assert_eq!(quota.as_deref(), Some("that of the tier to 3"));

    let back = TenantChange {
        quotas: vec![(QuotaName::ActiveTasks, None)],
        suspended: Some(false),
        ..TenantChange::default()
    };
    let back = tenants::change(&platform_admin(), &mut env(), Some(&changes.put[0]), &back);
    let back = back.unwrap().output;
    assert_eq!(back.suspended_at, None);
    assert_eq!(back.own_quotas, Quotas::default());
}

#[test]
fn nobody_locks_itself_out() {
    let suspend = TenantChange {
        suspended: Some(true),
        ..TenantChange::default()
    };
    let change = |actor: Actor, id| {
        let record = tenant(id);
        tenants::change(&actor, &mut env(), Some(&record), &suspend).map(|_| ())
    };
    assert_eq!(change(platform_admin(), OURS), Err(Rejection::OwnTenant));
    assert_eq!(change(platform_admin(), THEIRS), Ok(()));
    let beyond = Rejection::Beyond(Scope::PlatformAdmin);
    assert_eq!(change(admin(), OURS), Err(beyond));
}

#[test]
fn a_person_enters_once_and_leaves() {
    let new = NewPerson {
        tenant: OURS,
        provider: "google".to_owned(),
        person: Person::Email("alice@example.com".to_owned()),
        rights: rights(Role::Agent, None),
        password_hash: None,
    };
    let record = tenant(OURS);
    let added = people::add(&admin(), &mut env(), Some(&record), None, new.clone());
    let added = added.unwrap();
    assert_eq!(logs(&added.changes), [(Some(OURS), Event::IdentityAdded)]);
    assert!(!added.changes.audit[0].details.text().contains("alice"));
    let link = &added.changes.put[0];
    let again = people::add(&admin(), &mut env(), Some(&record), Some(link), new.clone());
    assert_eq!(again.unwrap_err(), Rejection::NameTaken);
    let removed = people::remove(&admin(), &mut env(), Some(link)).unwrap();
    assert_eq!(removed.changes.removed, [link.key()]);
    let event = Event::IdentityRemoved;
    assert_eq!(logs(&removed.changes), [(Some(OURS), event)]);
    let gone = people::remove(&admin(), &mut env(), None);
    assert_eq!(gone.unwrap_err(), Rejection::NotFound);
    let above = NewPerson {
        rights: rights(Role::Admin, Some(&[Scope::PlatformAdmin])),
        ..new
    };
    let refused = people::add(&admin(), &mut env(), Some(&record), None, above);
    let beyond = Rejection::Beyond(Scope::PlatformAdmin);
    assert_eq!(refused.unwrap_err(), beyond);
}

#[test]
fn events_of_management_are_no_alarms() {
    for event in [Event::KeyRevoked, Event::IdentityRemoved] {
        assert_eq!(event.severity(), Severity::Info);
    }
}
