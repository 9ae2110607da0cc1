//! What a tenant uses of the server, counted as it happens.

use crate::{Changes, ClassLoad, Receipt, Timestamp};

/// The bytes that a receipt takes beside its body: ids, times, names and its link. A fixed figure, so that the same
/// ledger counts the same everywhere.
const RECEIPT_BYTES: u64 = 200;

/// The counts of a tenant that do not follow from the tasks that it has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The number of tasks that were ever created.
    pub tasks_created: u64,
    /// The bytes of all receipts.
    pub receipt_bytes: u64,
    /// The sum of the times at which leases ended, less the sum of the times at which leases began. With the present
    /// time once for each lease that is held, it is the time for which leases were held, without a look at any of them.
    pub lease_balance_ms: i64,
}

impl Tally {
    /// Counts what a decision writes.
    pub fn count(&mut self, changes: &Changes) {
        for write in &changes.tasks {
            let was_held = match write.before.map(|before| before.status) {
                None => {
                    self.tasks_created += 1;
                    false
                }
                Some(status) => status.is_held(),
            };
            match (was_held, write.task.lease()) {
                (false, Some(lease)) => self.move_balance(-lease.created_at.as_millis()),
                (true, None) => self.move_balance(write.task.updated_at.as_millis()),
                (true, Some(_)) | (false, None) => {}
            }
        }
        let receipts = changes.receipts.iter();
        self.receipt_bytes += receipts.map(Receipt::stored_bytes).sum::<u64>();
    }

    /// The balance of many leases may leave the range of a number; the difference that counts never does.
    const fn move_balance(&mut self, millis: i64) {
        self.lease_balance_ms = self.lease_balance_ms.wrapping_add(millis);
    }
}

impl Receipt {
    /// Returns the bytes for which it counts in its tenant's storage.
    pub fn stored_bytes(&self) -> u64 {
        RECEIPT_BYTES + self.body.len() as u64
    }
}

/// What a tenant uses, at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// The number of tasks that have not ended.
    pub active_tasks: u64,
    /// The number of leases that are held.
    pub concurrent_leases: u64,
    /// The bytes of all receipts.
    pub receipt_storage_bytes: u64,
    /// The number of tasks that were ever created.
    pub tasks_created: u64,
    /// The time for which leases were held, those that are held now included.
    pub lease_seconds: u64,
}

/// What a tenant has in use, as the creation of one more task sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantLoad {
    /// What it uses.
    pub usage: Usage,
    /// The classes of its tasks.
    pub classes: ClassLoad,
}

impl Usage {
    /// Returns the usage of a tenant with these counts and so many tasks that wait or are held.
    pub fn at(now: Timestamp, tally: &Tally, queued: u64, held: u64) -> Self {
        let moments = now.as_millis().wrapping_mul(held.cast_signed());
        let held_ms = tally.lease_balance_ms.wrapping_add(moments);
        Self {
            active_tasks: queued + held,
            concurrent_leases: held,
            receipt_storage_bytes: tally.receipt_bytes,
            tasks_created: tally.tasks_created,
            // A reader's clock may be a moment behind the one that a lease began by.
            lease_seconds: u64::try_from(held_ms / 1_000).unwrap_or(0),
        }
    }
}
