//! Acknowledging a receipt: an audit record that changes no state.

use crate::{
    Decision, Env, Ledger, Principal, Receipt, ReceiptId, ReceiptType, Seq, ledger::Draft,
    receipt::Body,
};

/// Records that `by` has acknowledged `receipt`. If it did so `before`, that record stands and nothing is
/// written.
pub fn acknowledge(
    mut env: Env,
    head: Seq,
    receipt: &Receipt,
    by: &Principal,
    before: Option<ReceiptId>,
) -> Decision<ReceiptId> {
    if let Some(output) = before {
        return Decision {
            changes: Default::default(),
            output,
        };
    }
    let mut ledger = Ledger::after(head);
    let draft = Draft {
        receipt_type: ReceiptType::ReceiptAcknowledged,
        from: by,
        to: &Principal::system(),
        task_id: receipt.task_id,
        lease_id: receipt.lease_id,
        body: Body::new()
            .with("receipt_id", receipt.id.to_string())
            .finish(String::new),
    };
    let output = ledger.follow(&mut env, draft, vec![receipt.id]);
    Decision {
        changes: ledger.changes,
        output,
    }
}
