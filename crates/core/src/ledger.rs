//! The end of the ledger: gives receipts their places and enforces what holds for every receipt.

use crate::{
    Changes, Env, Json, LeaseId, ObligationKey, Principal, Receipt, ReceiptId, ReceiptType, Seq,
    TaskId,
    receipt::{MAX_PARENTS, is_terminal, opens_obligation},
};

/// Appends receipts to [`Changes`], starting at the ledger's next free place.
#[derive(Debug)]
pub struct Ledger {
    next: Seq,
    /// The changes decided so far.
    pub changes: Changes,
}

/// A receipt that has no place yet.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub receipt_type: ReceiptType,
    pub from: &'a Principal,
    pub to: &'a Principal,
    pub task_id: Option<TaskId>,
    pub lease_id: Option<LeaseId>,
    pub body: Json,
}

impl Ledger {
    /// Continues a ledger whose last receipt stands at `head` (0 when there is none).
    pub fn after(head: Seq) -> Self {
        Self {
            next: head + 1,
            changes: Changes::default(),
        }
    }

    /// Returns the place that the next receipt will get.
    pub(crate) const fn next_seq(&self) -> Seq {
        self.next
    }

    /// Appends a receipt that discharges nothing, and opens an obligation if its type does.
    pub(crate) fn append(&mut self, env: &mut Env, draft: Draft<'_>) -> ReceiptId {
        let (opens, owner) = (opens_obligation(draft.receipt_type), draft.to.key());
        let id = self.push(env, draft, Vec::new());
        if opens {
            let seq = id.seq();
            self.changes.opened.push(ObligationKey { owner, seq });
        }
        id
    }

    /// Appends a terminal receipt that discharges the obligations `parents`, which must all be owed to
    /// its addressee. There is no other way to write a terminal receipt with parents, so the index of
    /// open obligations cannot drift from the ledger.
    pub(crate) fn discharge(
        &mut self,
        env: &mut Env,
        draft: Draft<'_>,
        parents: Vec<ReceiptId>,
    ) -> ReceiptId {
        // Callers in this crate guarantee these; the simulator and the verifier check them in every ledger.
        debug_assert!(is_terminal(draft.receipt_type));
        debug_assert!(!parents.is_empty() && parents.len() <= MAX_PARENTS);
        for parent in &parents {
            self.changes.closed.push(ObligationKey {
                owner: draft.to.key(),
                seq: parent.seq(),
            });
        }
        self.push(env, draft, parents)
    }

    /// Appends a receipt that names `parents` as its cause, without discharging them.
    pub(crate) fn follow(
        &mut self,
        env: &mut Env,
        draft: Draft<'_>,
        parents: Vec<ReceiptId>,
    ) -> ReceiptId {
        debug_assert!(!is_terminal(draft.receipt_type));
        self.push(env, draft, parents)
    }

    fn push(&mut self, env: &mut Env, draft: Draft<'_>, parents: Vec<ReceiptId>) -> ReceiptId {
        let id = env.ids.receipt(self.next);
        self.next += 1;
        self.changes.receipts.push(Receipt {
            id,
            receipt_type: draft.receipt_type,
            created_at: env.now,
            from: draft.from.clone(),
            to: draft.to.clone(),
            task_id: draft.task_id,
            lease_id: draft.lease_id,
            parents,
            body: draft.body,
            instance: env.instance.clone(),
        });
        id
    }
}
