//! The changes of a decision about identity, and the small rules that a store's keeper needs.

use super::{
    ApiKey, DEFAULT_TENANT, KeyRejection, KeyStanding, Quotas, Record, RecordKey, RecordKind,
    Scope, TenantRecord, TenantTier,
    audit::{Cut, Draft},
    manage::people::BadPassword,
    oauth::BadClient,
};
use crate::{Decision, RecordId, TenantId, Timestamp, outbox::NewDispatch};

/// Rows to write, of any tenants. Records and the entries that tell of them share a commit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// Records to insert or replace.
    pub put: Vec<Record>,
    /// Records to remove.
    pub removed: Vec<RecordKey>,
    /// Entries to append to their audit logs, in this order.
    pub audit: Vec<Draft>,
    /// The oldest entries of an audit log, to be forgotten.
    pub cut: Option<Cut>,
    /// What other systems are told of it.
    pub outbox: Vec<NewDispatch>,
}

impl Changes {
    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A refusal to change a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// There is no such record, or it is another tenant's.
    #[error("there is no such record")]
    NotFound,
    /// Another record has the name.
    #[error("the name is taken")]
    NameTaken,
    /// The name could be taken for something else.
    #[error("a tenant cannot be called `none` or like an id")]
    UnfitName,
    /// Only a platform admin may name another tenant.
    #[error("only a platform admin may name another tenant")]
    AnotherTenant,
    /// Nobody gives away, or takes from others, a right that it does not have.
    #[error("you do not have {0} yourself")]
    Beyond(Scope),
    /// What a narrowed credential makes would not be narrowed.
    #[error("a credential with conditions of its own cannot make others")]
    Narrowed,
    /// No credential makes its bearer the server.
    #[error("nobody can act as the server itself")]
    ServerItself,
    /// Whoever suspends its own tenant could not take that back.
    #[error("a tenant cannot be suspended from within")]
    OwnTenant,
    /// A macaroon lives for so long at the most.
    #[error(
        "a macaroon lives for at most {} seconds",
        super::manage::macaroons::MAX_LIFE_SECS
    )]
    MacaroonLife,
    /// The person cannot have this password, or must have one.
    #[error(transparent)]
    Password(#[from] BadPassword),
    /// The client could not be used, or not safely.
    #[error(transparent)]
    Client(#[from] BadClient),
    /// The key does not allow it.
    #[error(transparent)]
    Key(#[from] KeyRejection),
}

/// Takes over keys that were kept elsewhere. Those whose public part is `known` stay as they are, so that
/// importing twice changes nothing and revives nothing. A tenant of a new key that has no record yet gets one without
/// quotas, named by its id: where the keys come from, nobody had any. Returns how many keys are new.
///
/// `known` has to hold what is found by the public parts, by the ids of the tenants, and by these ids as names.
pub fn import_keys(
    known: &[Option<Record>],
    keys: Vec<ApiKey>,
    now: Timestamp,
) -> Result<Decision<usize, Changes>, Rejection> {
    let is_key = |lookup_id: &str| {
        known
            .iter()
            .flatten()
            .any(|record| matches!(record, Record::ApiKey(known) if known.lookup_id == lookup_id))
    };
    let is_tenant = |made: &[Record], id| {
        let records = known.iter().flatten().chain(made);
        let mut tenants = records.filter(|record| record.key().kind == RecordKind::Tenant);
        tenants.any(|tenant| tenant.tenant() == id)
    };
    let (mut put, mut imported) = (Vec::new(), 0);
    let mut taken = std::collections::BTreeSet::new();
    for key in keys {
        if is_key(&key.lookup_id) || !taken.insert(key.lookup_id.clone()) {
            continue;
        }
        if key.tenant != DEFAULT_TENANT && !is_tenant(&put, key.tenant) {
            put.push(Record::Tenant(imported_tenant(known, key.tenant, now)?));
        }
        put.push(Record::ApiKey(key));
        imported += 1;
    }
    Ok(Decision {
        output: imported,
        changes: Changes {
            put,
            ..Changes::default()
        },
    })
}

fn imported_tenant(
    known: &[Option<Record>],
    id: TenantId,
    now: Timestamp,
) -> Result<TenantRecord, Rejection> {
    let name = id.to_string();
    let mut names = known.iter().flatten();
    if names.any(|record| matches!(record, Record::Tenant(tenant) if tenant.name == name)) {
        return Err(Rejection::NameTaken);
    }
    Ok(TenantRecord {
        id,
        name,
        tier: TenantTier::Enterprise,
        own_quotas: Quotas::default(),
        suspended_at: None,
        exception: None,
        created_at: now,
    })
}

/// Keeps a key for whoever starts the server, if no platform admin has a valid one. Returns true if it is kept.
///
/// `platform_keys` are keys of platform admins, the one that is valid the longest first.
pub fn first_key(platform_keys: &[ApiKey], key: ApiKey, now: Timestamp) -> Decision<bool, Changes> {
    let is_valid = |key: &ApiKey| key.life().standing(now) == KeyStanding::Valid;
    let needed = !platform_keys.iter().any(is_valid);
    let put = needed.then_some(Record::ApiKey(key));
    Decision {
        output: needed,
        changes: Changes {
            put: put.into_iter().collect(),
            ..Changes::default()
        },
    }
}

/// Notes when keys were last used. A key that is gone is left out, and so is a time that is not news.
pub fn note_uses(keys: &[Option<Record>], used: &[(RecordId, Timestamp)]) -> Changes {
    let noted = |record: &Record| {
        let Record::ApiKey(key) = record else {
            return None;
        };
        let (_, at) = used.iter().find(|(id, _)| *id == key.id)?;
        (Some(*at) > key.last_used_at).then(|| {
            Record::ApiKey(ApiKey {
                last_used_at: Some(*at),
                ..key.clone()
            })
        })
    };
    Changes {
        put: keys.iter().flatten().filter_map(noted).collect(),
        ..Changes::default()
    }
}

/// Removes records whose time is over.
pub fn forget(over: &[Record]) -> Changes {
    Changes {
        removed: over.iter().map(Record::key).collect(),
        ..Changes::default()
    }
}
