//! The changes of a decision about identity, and the small rules that a store's keeper needs.

use super::{
    ApiKey, KeyRejection, Record, RecordKey,
    audit::{Cut, Draft},
};
use crate::{Decision, outbox::NewDispatch};

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
    /// The key does not allow it.
    #[error(transparent)]
    Key(#[from] KeyRejection),
}

/// Takes over keys that were kept elsewhere. Those whose public part is `known` stay as they are, so that
/// importing twice changes nothing and revives nothing. Returns how many are new.
pub fn import_keys(known: &[Option<Record>], keys: Vec<ApiKey>) -> Decision<usize, Changes> {
    let is_known = |key: &ApiKey| {
        let mut names = known.iter().flatten().filter_map(Record::name);
        names.any(|name| name == key.lookup_id)
    };
    let mut put: Vec<Record> = Vec::new();
    let mut taken = std::collections::BTreeSet::new();
    for key in keys {
        if !is_known(&key) && taken.insert(key.lookup_id.clone()) {
            put.push(Record::ApiKey(key));
        }
    }
    Decision {
        output: put.len(),
        changes: Changes {
            put,
            ..Changes::default()
        },
    }
}

/// Removes records whose time is over.
pub fn forget(over: &[Record]) -> Changes {
    Changes {
        removed: over.iter().map(Record::key).collect(),
        ..Changes::default()
    }
}
