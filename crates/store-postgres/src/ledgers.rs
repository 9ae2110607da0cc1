//! The heads and counts of all tenants, which the owner keeps in memory.

use asyncgate_core::{Head, Link, Receipt, Tally, TenantId, task::Status};
use asyncgate_store::Depths;
use foldhash::HashMap;
use tokio_postgres::Row;

use crate::{pack::damaged, session::Statement, shards::shard_of};

/// The bits of a tenant's number that count the tenants of a shard.
const TENANT_BITS: u32 = 32;

/// The key of a row: the tenant's number, and a place in its ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) tenant: i64,
    pub(crate) seq: i64,
}

impl Key {
    pub(crate) const fn new(tenant: i64, seq: u64) -> Self {
        let seq = seq.cast_signed();
        Self { tenant, seq }
    }
}

/// The ledger head of a tenant, its counts, and the number by which rows name it.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) tenant: i64,
    pub(crate) id: TenantId,
    pub(crate) head: Head,
    pub(crate) depths: Depths,
    pub(crate) tally: Tally,
    /// The last place that was given to a message.
    pub(crate) mail_head: u64,
}

impl Ledger {
    /// Moves the head over a receipt. Returns the receipt's link.
    pub(crate) fn append(&mut self, receipt: &Receipt) -> Link {
        self.head.seq += 1;
        self.head.link = self.head.link.then(self.id, receipt);
        self.head.link
    }

    /// Returns the shard that the tenant belongs to.
    pub(crate) fn shard(&self) -> i32 {
        shard_of_number(self.tenant)
    }
}

/// Returns the shard of the tenant with a number.
pub(crate) fn shard_of_number(tenant: i64) -> i32 {
    i32::try_from(tenant >> TENANT_BITS).unwrap_or_default()
}

/// The tenants of all shards.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    known: HashMap<TenantId, Ledger>,
    ids: HashMap<i64, TenantId>,
    /// The last number that was given out in each shard.
    last: HashMap<i32, i64>,
    shards: i32,
}

impl Ledgers {
    pub(crate) fn new(shards: i32) -> Self {
        Self {
            shards,
            ..Self::default()
        }
    }

    /// Returns the statement that reads all tenants.
    pub(crate) fn all() -> Statement {
        Statement::new(
            "SELECT queued, leased, running, succeeded, failed, canceled, tenant, id, head, link, open,
                    tasks_created, receipt_bytes, lease_balance, mail_head FROM tenant",
        )
    }

    /// Takes back a tenant that was read.
    pub(crate) fn restore(&mut self, row: &Row) -> Result<(), asyncgate_store::Error> {
        let tenant: i64 = row.get(6);
        let ledger = Ledger {
            tenant,
            id: TenantId::from_bytes(fixed(row, 7)?),
            depths: read_depths(row),
            head: read_head(row, 8)?,
            tally: read_tally(row, 11),
            mail_head: row.get::<_, i64>(14).unsigned_abs(),
        };
        let last = self.last.entry(ledger.shard()).or_default();
        *last = (*last).max(tenant & ((1 << TENANT_BITS) - 1));
        self.ids.insert(tenant, ledger.id);
        self.known.insert(ledger.id, ledger);
        Ok(())
    }

    /// Returns the tenant's ledger. If the tenant is new, its ledger is begun, and written once it changes.
    pub(crate) fn of(&mut self, id: TenantId) -> &mut Ledger {
        let (last, ids, shards) = (&mut self.last, &mut self.ids, self.shards);
        self.known.entry(id).or_insert_with(|| {
            let shard = shard_of(id, shards);
            let number = last.entry(shard).or_default();
            *number += 1;
            let tenant = (i64::from(shard) << TENANT_BITS) | *number;
            ids.insert(tenant, id);
            Ledger {
                tenant,
                id,
                head: Head::default(),
                depths: Depths::default(),
                tally: Tally::default(),
                mail_head: 0,
            }
        })
    }

    /// Returns all ledgers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Ledger> {
        self.known.values()
    }

    /// Returns the id of the tenant with a number.
    pub(crate) fn id(&self, tenant: i64) -> Option<TenantId> {
        self.ids.get(&tenant).copied()
    }
}

/// Reads bytes whose number is known.
pub(crate) fn fixed<const N: usize>(
    row: &Row,
    column: usize,
) -> Result<[u8; N], asyncgate_store::Error> {
    let bytes: &[u8] = row.get(column);
    <[u8; N]>::try_from(bytes).map_err(|_| damaged("a value has another length"))
}

/// Reads counts from the first six columns, in the order of [`Status::ALL`].
pub(crate) fn read_depths(row: &Row) -> Depths {
    let mut depths = Depths::default();
    for (column, status) in Status::ALL.into_iter().enumerate() {
        depths.set(status, row.get(column));
    }
    depths
}

/// Reads counts from the columns `tasks_created`, `receipt_bytes` and `lease_balance`.
pub(crate) fn read_tally(row: &Row, first: usize) -> Tally {
    Tally {
        tasks_created: row.get::<_, i64>(first).unsigned_abs(),
        receipt_bytes: row.get::<_, i64>(first + 1).unsigned_abs(),
        lease_balance_ms: row.get(first + 2),
    }
}

/// Reads a head from the columns `head`, `link` and `open`.
pub(crate) fn read_head(row: &Row, first: usize) -> Result<Head, asyncgate_store::Error> {
    Ok(Head {
        seq: row.get::<_, i64>(first).unsigned_abs(),
        link: Link::from_bytes(fixed(row, first + 1)?),
        open_obligations: row.get::<_, i64>(first + 2).unsigned_abs(),
    })
}
