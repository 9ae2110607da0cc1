//! Open obligations, recomputed from nothing but receipts.
//!
//! Stores keep an index of open obligations so that listing them is cheap. The ledger is the truth;
//! this function recomputes the obligations, to check the index against it.

use std::collections::{BTreeMap, HashSet};

use crate::{
    ObligationKey, Receipt, ReceiptId, ReceiptType,
    receipt::{can_terminate, opens_obligation},
};

/// Returns the obligations that no receipt of the ledger discharges, in ledger order.
///
/// An obligation is discharged by any receipt, from any principal, whose type can terminate the
/// obligation's type and which names the obligation as a parent.
pub fn open<'a>(ledger: impl IntoIterator<Item = &'a Receipt>) -> Vec<ObligationKey> {
    let mut types: BTreeMap<ReceiptId, ReceiptType> = BTreeMap::new();
    let mut opened = Vec::new();
    let mut discharged: HashSet<ReceiptId> = HashSet::new();
    for receipt in ledger {
        types.insert(receipt.id, receipt.receipt_type);
        if opens_obligation(receipt.receipt_type) {
            opened.push(receipt);
        }
        // A parent always stands before its child in the ledger, so its type is known by now. A
        // parent that is not there is ignored: it cannot have opened an obligation.
        discharged.extend(receipt.parents.iter().filter(|parent| {
            types
                .get(parent)
                .is_some_and(|parent| can_terminate(receipt.receipt_type, *parent))
        }));
    }
    opened
        .into_iter()
        .filter(|receipt| !discharged.contains(&receipt.id))
        .map(|receipt| ObligationKey {
            owner: receipt.to.key(),
            seq: receipt.seq(),
        })
        .collect()
}
