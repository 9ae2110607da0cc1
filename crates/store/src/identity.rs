//! The plane of identity: the rows that its decisions declare and are shown, and the reads of records and audit logs.

use asyncgate_core::{
    PrincipalKey, RecordId, Seq, TenantId, Timestamp,
    identity::{
        ApiKey, Changes, Find, Record, RecordKind, Rejection,
        audit::{Entry, Event, Log, Severity},
    },
};

use crate::{Answer, Declared, Job, Plane, Work, fair::Lane};

/// Tenants, keys and whatever else lets somebody in, with the audit logs.
///
/// Records are found before anybody knows whose they are, so this plane is the server's: a job takes the turn of its
/// tenant, but what it reads and writes may be of any.
#[derive(Debug)]
pub enum Records {}

impl Plane for Records {
    type Reads = Reads;
    type Snapshot = Snapshot;
    type Changes = Changes;
    type Rejection = Rejection;

    fn is_empty(changes: &Changes) -> bool {
        changes.is_empty()
    }

    fn receipts(_: &Changes) -> usize {
        // Audit logs are chains of their own and never touch the ledger.
        0
    }

    fn work(job: Job<Self>) -> Work {
        Work::Records(job)
    }
}

/// The rows that a decision needs. What is not declared is not loaded.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Records by id or name. A decision that gives a record a name must have looked for that name.
    pub records: Vec<Find>,
    /// The two keys of platform admins that are valid the longest: whether there is another than this one.
    pub platform_keys: bool,
    /// Records whose time is over, and how many at most.
    pub over: usize,
    /// The oldest entries of an audit log.
    pub oldest: Option<Oldest>,
}

/// A wish for the oldest entries of an audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oldest {
    /// The log.
    pub tenant: Option<TenantId>,
    /// The most entries.
    pub limit: usize,
}

impl Declared for Reads {
    type Plane = Records;

    fn lane(&self) -> Lane {
        Lane::Records
    }

    fn rows(&self) -> usize {
        let oldest = self.oldest.map_or(0, |oldest| oldest.limit);
        self.records.len() + self.over + oldest
    }
}

/// The most keys of platform admins that a decision is shown: whether a key is the last one shows from two.
pub const PLATFORM_KEYS: usize = 2;

/// The rows that were declared, as they stand.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The declared records, each where it was declared.
    pub records: Vec<Option<Record>>,
    /// The keys of platform admins, the one that is valid the longest first.
    pub platform_keys: Vec<ApiKey>,
    /// Records whose time is over.
    pub over: Vec<Record>,
    /// The oldest entries of the log, the oldest first.
    pub oldest: Vec<Entry>,
}

impl Snapshot {
    /// Returns the record that was declared first, if there is one.
    pub fn first_record(&self) -> Option<&Record> {
        self.records.first().and_then(Option::as_ref)
    }
}

/// Durable records and audit logs. They are written by [`Store::transact`](crate::Store::transact), whose contract
/// holds for them. Beyond it:
/// - An entry gets its place and link from the store, in the commit that writes it.
/// - No two records of a kind have one name. A decision that gives a record a name has looked whether it is free; one
///   that has not is a defect, and a store need not survive it.
/// - The default tenant has a record from the start ([`TenantRecord::built_in`]).
///
/// [`TenantRecord::built_in`]: asyncgate_core::identity::TenantRecord::built_in
pub trait Identity: Send + Sync {
    /// Returns one record.
    fn record(&self, find: Find) -> Answer<'_, Option<Record>>;

    /// Returns records that match, in the order of their ids, which is that of their creation.
    fn records(&self, filter: RecordFilter) -> Answer<'_, Vec<Record>>;

    /// Returns the audit log of a tenant, or of the server.
    fn audit_log(&self, tenant: Option<TenantId>) -> Answer<'_, Log>;

    /// Returns entries that match, newest first. See [`AuditPage`] for the meaning of a short page.
    fn audit(&self, filter: AuditFilter) -> Answer<'_, AuditPage>;

    /// Returns the logs that have entries from before a time, so that they can be forgotten, in any order.
    fn audit_logs_from_before(
        &self,
        time: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<Option<TenantId>>>;
}

/// The owner of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Whoever there is.
    Anyone,
    /// A tenant.
    Tenant(TenantId),
    /// A principal of a tenant: the records let somebody act as it.
    Principal(TenantId, PrincipalKey),
}

/// A choice of records.
#[derive(Debug, Clone)]
pub struct RecordFilter {
    /// Those of this kind.
    pub kind: RecordKind,
    /// Those of this owner.
    pub owner: Owner,
    /// Only those after this one.
    pub after: Option<RecordId>,
    /// The most to return.
    pub limit: usize,
}

impl RecordFilter {
    /// Chooses all records of a kind in a tenant.
    pub const fn of_tenant(kind: RecordKind, tenant: TenantId, limit: usize) -> Self {
        Self {
            kind,
            owner: Owner::Tenant(tenant),
            after: None,
            limit,
        }
    }

    /// Returns true if a record is to be listed.
    pub fn matches(&self, record: &Record) -> bool {
        let key = record.key();
        let is_owned = match &self.owner {
            Owner::Anyone => true,
            Owner::Tenant(tenant) => *tenant == record.tenant(),
            Owner::Principal(tenant, principal) => {
                *tenant == record.tenant() && record.principal() == Some(principal)
            }
        };
        is_owned && key.kind == self.kind && self.after.is_none_or(|after| key.id > after)
    }
}

/// A choice of entries of one audit log.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// The log: a tenant's, or the server's own.
    pub tenant: Option<TenantId>,
    /// Only this event.
    pub event: Option<Event>,
    /// Only what a principal with this id did, of whatever kind it is.
    pub principal_id: Option<String>,
    /// Only those at or after this time.
    pub since: Option<Timestamp>,
    /// Only those at or before this time.
    pub until: Option<Timestamp>,
    /// Only those of this severity.
    pub severity: Option<Severity>,
    /// Only those before this place.
    pub before: Option<Seq>,
    /// The most to return.
    pub limit: usize,
}

impl AuditFilter {
    /// Returns true if an entry of the log is to be listed.
    pub fn matches(&self, entry: &Entry) -> bool {
        let said = &entry.said;
        let principal = || said.principal.as_ref().map(|principal| &*principal.id);
        self.event.is_none_or(|event| event == said.event)
            && (self.principal_id.is_none() || self.principal_id.as_deref() == principal())
            && self.since.is_none_or(|since| said.at >= since)
            && self.until.is_none_or(|until| said.at <= until)
            && self
                .severity
                .is_none_or(|severity| severity == said.severity)
            && self.before.is_none_or(|before| entry.seq < before)
    }
}

/// The most entries that a look goes through before it answers with what it has: a rare filter costs the caller more
/// pages, never the server a scan.
const MAX_LOOKED_AT: usize = 2_000;

impl AuditFilter {
    /// Returns how many entries to look at.
    pub fn looks_at(&self) -> usize {
        // One more than wanted tells whether there are more.
        MAX_LOOKED_AT.max(self.limit.saturating_add(1))
    }
}

/// A page of an audit log. The search through entries that do not match is bounded, so a page may be short, or even
/// empty, and still have a `next`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditPage {
    /// The entries, newest first.
    pub entries: Vec<Entry>,
    /// The value of `before` for the next page; absent when there is none.
    pub next: Option<Seq>,
}
