//! The rules for every receipt: its place, its size, its addressee, and parents that follow the
//! termination registry.

use std::sync::LazyLock;

use asyncgate_core::{
    Changes, Json, ObligationKey, Principal, Receipt, ReceiptType, Seq, Timestamp,
};

use super::{Model, Tenant};
use crate::violation::{Checked, broken, hold};

// These limits are written here again, so that a wrong value in core is noticed.
const MAX_BODY_BYTES: usize = 64 * 1024;
const MAX_PARENTS: usize = 10;

static SERVER: LazyLock<Principal> = LazyLock::new(Principal::system);

impl Model {
    /// Checks the receipts of a commit, and that it opens and closes exactly the obligations they name.
    pub(super) fn check_receipts(
        &self,
        number: usize,
        now: Timestamp,
        changes: &Changes,
    ) -> Checked {
        let tenant = &self.tenants[number];
        let mut opened = Vec::new();
        let mut closed = Vec::new();
        for (n, receipt) in changes.receipts.iter().enumerate() {
            let told = || format!("{} at {}", receipt.receipt_type.as_str(), receipt.seq());
            // Places count from 1 without gaps, across commits and within them.
            let place = (tenant.ledger.len() + n + 1) as Seq;
            hold(receipt.seq() == place, "gapless ledger", || {
                format!("{}, the ledger is at {place}", told())
            })?;
            hold(receipt.created_at == now, "receipt time", told)?;
            hold(receipt.body.len() <= MAX_BODY_BYTES, "body size", told)?;
            hold(receipt.parents.len() <= MAX_PARENTS, "parent count", told)?;
            let written = &changes.receipts[..n];
            tenant.check_addressee(receipt, changes)?;
            self.check_parents(tenant, receipt, written)?;
            let of = |seq| ObligationKey {
                owner: receipt.to.key(),
                seq,
            };
            if receipt.receipt_type == ReceiptType::TaskAssigned {
                opened.push(of(place));
            } else if ends(receipt.receipt_type) {
                closed.extend(receipt.parents.iter().map(|parent| of(parent.seq())));
            }
        }
        hold(opened == changes.opened, "obligations opened", || {
            format!("{:?}, should be {opened:?}", changes.opened)
        })?;
        hold(closed == changes.closed, "obligations closed", || {
            format!("{:?}, should be {closed:?}", changes.closed)
        })?;
        let still_open = closed.iter().all(|key| tenant.is_open(key));
        hold(still_open, "discharged once", || format!("{closed:?}"))
    }

    fn check_parents(&self, tenant: &Tenant, receipt: &Receipt, written: &[Receipt]) -> Checked {
        let told = || format!("{} at {}", receipt.receipt_type.as_str(), receipt.seq());
        let find = |parent| {
            let new = written.iter().find(|earlier| earlier.id == parent);
            new.or_else(|| tenant.receipt(parent))
        };
        let kind = receipt.receipt_type;
        for parent in &receipt.parents {
            let Some(found) = find(*parent) else {
                return broken("parents exist", told());
            };
            let fits = if ends(kind) {
                found.receipt_type == ReceiptType::TaskAssigned
                    && found.task_id == receipt.task_id
                    && found.to.is(&receipt.to)
            } else if kind == ReceiptType::TaskResultReady {
                ends(found.receipt_type) && found.task_id == receipt.task_id
            } else {
                kind == ReceiptType::ReceiptAcknowledged
            };
            hold(fits, "parent linkage", told)?;
        }
        if kind == ReceiptType::TaskCompleted {
            return self.check_locatable(receipt);
        }
        let follows = [
            ReceiptType::TaskFailed,
            ReceiptType::TaskCanceled,
            ReceiptType::ReceiptAcknowledged,
            ReceiptType::TaskResultReady,
        ];
        let parents = usize::from(follows.contains(&kind));
        hold(receipt.parents.len() == parents, "parent linkage", told)
    }

    /// Checks that a success discharges exactly when its receipt says where its result is: proof is never
    /// left out of it.
    fn check_locatable(&self, receipt: &Receipt) -> Checked {
        let body: Completed = serde_json::from_str(receipt.body.text()).unwrap_or_default();
        let says = |proof: &Option<Box<serde_json::value::RawValue>>, forms: &[char]| {
            let proof = proof.as_ref().map(|proof| proof.get().to_owned());
            let proof = proof.and_then(Json::from_text);
            proof.is_some_and(|json| json.text().starts_with(forms) && !json.says_nothing())
        };
        let located =
            says(&body.artifacts, &['[', '{', '"']) || says(&body.delivery_proof, &['[', '{']);
        let lenient = self.policy.locatability == asyncgate_core::Locatability::Lenient;
        hold(
            located != receipt.parents.is_empty() && (located || lenient),
            "locatability",
            || format!("{} with {:?}", receipt.seq(), receipt.parents),
        )
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Completed {
    artifacts: Option<Box<serde_json::value::RawValue>>,
    delivery_proof: Option<Box<serde_json::value::RawValue>>,
}

impl Tenant {
    /// Checks the addressee: receipts that concern the owner go to the owner, the rest to the server.
    fn check_addressee(&self, receipt: &Receipt, changes: &Changes) -> Checked {
        let owner = receipt.task_id.and_then(|id| {
            let story = self.tasks.get(&id.seq()).map(|story| &story.task);
            let new = changes.tasks.first().map(|write| &write.task);
            story.or(new).filter(|task| task.id == id)
        });
        let to_owner = owner.is_some_and(|task| receipt.to == task.created_by);
        let to_server = receipt.to == *SERVER;
        let right = match receipt.receipt_type {
            ReceiptType::TaskAssigned
            | ReceiptType::TaskRetryScheduled
            | ReceiptType::TaskCompleted
            | ReceiptType::TaskFailed
            | ReceiptType::TaskCanceled
            | ReceiptType::TaskResultReady
            | ReceiptType::LeaseExpired
            | ReceiptType::SystemAnomaly => to_owner,
            ReceiptType::TaskAccepted
            | ReceiptType::TaskStarted
            | ReceiptType::TaskProgress
            | ReceiptType::LeaseReleased
            | ReceiptType::ReceiptAcknowledged
            | ReceiptType::LedgerSigned => to_server,
        };
        hold(right, "addressee", || {
            format!("{} to {}", receipt.receipt_type.as_str(), receipt.to.key())
        })
    }
}

/// Returns true if receipts of this type are outcomes.
pub(super) const fn ends(kind: ReceiptType) -> bool {
    matches!(
        kind,
        ReceiptType::TaskCompleted | ReceiptType::TaskFailed | ReceiptType::TaskCanceled
    )
}
