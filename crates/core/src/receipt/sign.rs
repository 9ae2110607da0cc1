//! Recording in the ledger that the server signed its head.

use crate::{
    Decision, Env, Head, Ledger, Principal, ReceiptId, ReceiptType, Seq, Timestamp, hex,
    ledger::Draft, receipt::Body,
};

/// A head with the server's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedHead {
    /// The head.
    pub head: Head,
    /// The time of the signature.
    pub signed_at: Timestamp,
    /// The Ed25519 key that verifies the signature.
    pub public_key: [u8; 32],
    /// The signature over [`Head::statement`].
    pub signature: [u8; 64],
}

/// Appends a receipt that carries a signed head, so that a copy of the ledger contains the
/// signatures that prove it.
pub fn record_signature(mut env: Env, head: Seq, signed: &SignedHead) -> Decision<ReceiptId> {
    let mut ledger = Ledger::after(head);
    let server = Principal::system();
    let body = Body::new()
        .with("seq", signed.head.seq)
        .with("link", signed.head.link.to_string())
        .with("open_obligations", signed.head.open_obligations)
        .with("signed_at", signed.signed_at.to_string())
        .with("signed_at_millis", signed.signed_at.as_millis())
        .with("public_key", hex::encode(&signed.public_key))
        .with("signature", hex::encode(&signed.signature));
    let draft = Draft {
        receipt_type: ReceiptType::LedgerSigned,
        from: &server,
        to: &server,
        task_id: None,
        lease_id: None,
        body: body.finish(String::new),
    };
    let output = ledger.append(&mut env, draft);
    Decision {
        changes: ledger.changes,
        output,
    }
}
