//! Open obligations, recomputed from nothing but receipts.
//!
//! Stores keep an index of open obligations so that listing them is cheap; the ledger is the truth,
//! and this is how the index is checked against it.

use std::collections::{BTreeMap, HashSet};

use crate::{
    ObligationKey, Receipt, ReceiptId, ReceiptType,
    receipt::{can_terminate, opens_obligation},
};

/// The obligations that no receipt of the ledger discharges, in ledger order.
///
/// An obligation is discharged by any receipt, by whomever, whose type can terminate the
/// obligation's and which names it as a parent.
pub fn open<'a>(ledger: impl IntoIterator<Item = &'a Receipt>) -> Vec<ObligationKey> {
    let mut types: BTreeMap<ReceiptId, ReceiptType> = BTreeMap::new();
    let mut opened = Vec::new();
    let mut discharged: HashSet<ReceiptId> = HashSet::new();
    for receipt in ledger {
        types.insert(receipt.id, receipt.receipt_type);
        if opens_obligation(receipt.receipt_type) {
            opened.push(receipt);
        }
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
