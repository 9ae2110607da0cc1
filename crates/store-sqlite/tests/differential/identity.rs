//! The same for identity: one random history of records and audit entries on both stores, compared look by look, over
//! restarts of the one that has a file.

use std::{path::PathBuf, sync::Arc};

use asyncgate_core::{
    TenantId,
    identity::{
        ApiKey, Changes, Find, Person, Record, RecordKind, Scope, Scopes,
        audit::{Draft, Event, Severity, cut},
        forget,
    },
};
use asyncgate_store::{
    Store,
    conformance::{
        Driver, IdentityDriver, agent, api_key, code, family, link, macaroon, tenant_record,
    },
    identity::{AuditFilter, Oldest, Owner, Reads, RecordFilter, Snapshot},
    memory::MemoryStore,
};
use proptest::prelude::*;

use crate::{TENANTS, config, open};

#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    Reopen,
    /// Puts the `n`th sample of a kind, if its name is free.
    Put {
        tenant: u8,
        kind: u8,
        n: u8,
        change: u8,
    },
    Remove {
        kind: u8,
        n: u8,
    },
    Forget,
    Audit {
        tenant: u8,
        events: Vec<u8>,
        late_ms: i64,
    },
    Cut {
        tenant: u8,
        age_ms: i64,
        limit: usize,
    },
}

struct Pair {
    memory: IdentityDriver,
    sqlite: IdentityDriver,
    path: PathBuf,
}

fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([number % TENANTS + 1; 16])
}

/// The log of a tenant, or of the server.
fn log(number: u8) -> Option<TenantId> {
    (number % (TENANTS + 1) < TENANTS).then(|| tenant(number % (TENANTS + 1)))
}

fn sample(of: u8, kind: u8, n: u8, change: u8) -> Record {
    let of = tenant(of);
    match RecordKind::ALL[usize::from(kind) % RecordKind::ALL.len()] {
        RecordKind::Tenant => tenant_record(of, &format!("name {}", change % 3)),
        RecordKind::ApiKey => {
            let made = api_key(of, n);
            let platform = Scopes::of(&[Scope::PlatformAdmin]);
            Record::ApiKey(ApiKey {
                scopes: change.is_multiple_of(2).then_some(platform),
                expires_at: change.is_multiple_of(3).then(|| {
                    made.created_at
                        .plus_millis(800_000 + i64::from(change) * 1_000)
                }),
                revoked_at: change.is_multiple_of(5).then_some(made.created_at),
                ..made
            })
        }
        RecordKind::Macaroon => macaroon(of, n),
        RecordKind::OauthClient => family(of, n)[0].clone(),
        RecordKind::IdentityLink => {
            let name = format!("Person{}", change % 3);
            let person = match change % 2 {
                0 => Person::Subject(name),
                _ => Person::Email(name),
            };
            link(of, n, person)
        }
        RecordKind::AuthorizationCode => code(of, n),
        RecordKind::TokenFamily => family(of, n)[1].clone(),
        RecordKind::RefreshToken => family(of, n)[2].clone(),
    }
}

/// Puts a record as a rule would: not if another has its name, and never into another tenant.
fn put(record: &Record, snapshot: &Snapshot) -> Changes {
    let mut found = snapshot.records.iter().flatten();
    let clashes =
        found.any(|found| found.key() != record.key() || found.tenant() != record.tenant());
    Changes {
        put: if clashes {
            vec![]
        } else {
            vec![record.clone()]
        },
        ..Changes::default()
    }
}

async fn act(driver: &mut IdentityDriver, step: Step) {
    let done = match step {
        Step::Wait(ms) => {
            driver.wait_ms(ms);
            Ok(())
        }
        Step::Reopen => Ok(()),
        Step::Put {
            tenant,
            kind,
            n,
            change,
        } => {
            let record = sample(tenant, kind, n, change);
            let key = record.key();
            let mut records = vec![Find::id(key.kind, key.id)];
            records.extend(record.name().map(|name| Find::Name {
                kind: key.kind,
                name,
            }));
            let reads = Reads {
                records,
                ..Reads::default()
            };
            driver
                .try_change(reads, move |_, snapshot| put(&record, &snapshot))
                .await
        }
        Step::Remove { kind, n } => {
            let removed = vec![sample(0, kind, n, 0).key()];
            let changes = Changes {
                removed,
                ..Changes::default()
            };
            driver
                .try_change(Reads::default(), move |_, _| changes.clone())
                .await
        }
        Step::Forget => {
            let reads = Reads {
                over: 2,
                ..Reads::default()
            };
            driver
                .try_change(reads, |_, snapshot| forget(&snapshot.over))
                .await
        }
        Step::Audit {
            tenant,
            events,
            late_ms,
        } => {
            let tenant = log(tenant);
            driver
                .try_change(Reads::default(), move |mut env, _| {
                    let drafts = events.iter().map(|event| {
                        let event = Event::ALL[usize::from(*event) % Event::ALL.len()];
                        let at = env.now.plus_millis(-late_ms);
                        let said = Draft::new(&mut env.ids, at, tenant, event);
                        if (event as u8).is_multiple_of(2) {
                            return said;
                        }
                        said.by(&agent("alice").key()).because("why\n")
                    });
                    Changes {
                        audit: drafts.collect(),
                        ..Changes::default()
                    }
                })
                .await
        }
        Step::Cut {
            tenant,
            age_ms,
            limit,
        } => {
            let tenant = log(tenant);
            let reads = Reads {
                oldest: Some(Oldest { tenant, limit }),
                ..Reads::default()
            };
            driver
                .try_change(reads, move |env, snapshot| Changes {
                    cut: cut(tenant, &snapshot.oldest, env.now.plus_millis(-age_ms)),
                    ..Changes::default()
                })
                .await
        }
    };
    done.unwrap();
}

impl Pair {
    async fn step(&mut self, step: Step) {
        if matches!(step, Step::Reopen) {
            self.sqlite.detach();
            let store = open(&self.path);
            self.sqlite.attach(store);
        }
        act(&mut self.memory, step.clone()).await;
        act(&mut self.sqlite, step).await;
        self.compare_shown().await;
    }

    async fn compare_shown(&self) {
        let reads = Reads {
            platform_keys: true,
            over: 5,
            ..Reads::default()
        };
        let (left, right) = (self.sqlite.shown(reads.clone()), self.memory.shown(reads));
        let (left, right) = (left.await, right.await);
        assert_eq!(left.platform_keys, right.platform_keys);
        assert_eq!(left.over, right.over);
    }

    async fn compare(&self) {
        let (left, right) = (&self.sqlite, &self.memory);
        for kind in RecordKind::ALL {
            let mut owners = vec![Owner::Anyone];
            owners.extend((0..TENANTS).map(|n| Owner::Tenant(tenant(n))));
            owners.push(Owner::Principal(tenant(0), agent("alice").key()));
            for owner in owners {
                let filter = RecordFilter {
                    kind,
                    owner,
                    after: None,
                    limit: 0,
                };
                let listed = right.listed(filter.clone()).await;
                assert_eq!(left.listed(filter).await, listed);
                for name in listed.iter().filter_map(Record::name) {
                    let find = Find::Name { kind, name };
                    assert_eq!(left.find(find.clone()).await, right.find(find).await);
                }
            }
        }
        for n in 0..=TENANTS {
            let tenant = log(n);
            assert_eq!(left.log(tenant).await, right.log(tenant).await);
            let severities = Severity::ALL.map(Some).into_iter().chain([None]);
            for severity in severities {
                for principal in [None, Some("alice")] {
                    for age in [None, Some(20_000)] {
                        let filter = AuditFilter {
                            tenant,
                            severity,
                            principal_id: principal.map(ToOwned::to_owned),
                            since: age.map(|age: i64| left.now.plus_millis(-age)),
                            ..AuditFilter::default()
                        };
                        let expected = right.audited(filter.clone()).await;
                        assert_eq!(left.audited(filter).await, expected);
                    }
                }
            }
        }
        assert_eq!(left.store().last_time(), right.store().last_time());
    }
}

fn step() -> impl Strategy<Value = Step> {
    let put = (any::<u8>(), 0..8_u8, 0..6_u8, any::<u8>());
    let events = prop::collection::vec(any::<u8>(), 0..6);
    prop_oneof![
        2 => (0..60_000_i64).prop_map(Step::Wait),
        1 => (80_000_000..100_000_000_i64).prop_map(Step::Wait),
        1 => Just(Step::Reopen),
        8 => put.prop_map(|(tenant, kind, n, change)| Step::Put { tenant, kind, n, change }),
        2 => (0..8_u8, 0..6_u8).prop_map(|(kind, n)| Step::Remove { kind, n }),
        2 => Just(Step::Forget),
        6 => (any::<u8>(), events, 0..5_000_i64)
            .prop_map(|(tenant, events, late_ms)| Step::Audit { tenant, events, late_ms }),
        2 => (any::<u8>(), 0..90_000_i64, 1..8_usize)
            .prop_map(|(tenant, age_ms, limit)| Step::Cut { tenant, age_ms, limit }),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sqlite_keeps_records_as_memory_does(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let path = dir.path().join("a.db");
            let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let mut pair = Pair {
                memory: IdentityDriver::new(Driver::new(memory)),
                sqlite: IdentityDriver::new(Driver::new(open(&path))),
                path,
            };
            for step in steps {
                pair.step(step).await;
            }
            pair.compare().await;
        });
    }
}
