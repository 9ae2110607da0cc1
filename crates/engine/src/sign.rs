//! Signatures of ledger heads, on demand and from time to time.

use std::{sync::Arc, time::Duration};

use asyncgate_core::{
    Changes, Decision, Env, Head, TenantId, Timestamp,
    receipt::{SignedHead, record_signature},
};
use asyncgate_store::{ReadSet, Snapshot, Stopwatch};

use crate::{CryptoMetrics, CryptoWork, Engine, Fault, Signature};

/// An Ed25519 key that the server alone has.
pub trait Signer: Send + Sync {
    /// Returns the key that verifies its signatures.
    fn public_key(&self) -> [u8; 32];

    /// Signs a message. The same message gets the same signature.
    fn sign(&self, message: &[u8]) -> [u8; 64];
}

impl Engine {
    /// Signs a head, if the engine has a key.
    pub(crate) fn sign(
        &self,
        tenant: TenantId,
        head: Head,
        signed_at: Timestamp,
    ) -> Option<SignedHead> {
        let signer = self.signer.as_ref()?;
        let metrics = self.crypto_metrics();
        Some(sign_with(signer, metrics, tenant, head, signed_at))
    }

    /// Writes a signed head into every ledger that has grown, once an interval, until the engine drains. With an
    /// interval of zero it writes none.
    pub async fn sign_ledgers(&self) {
        loop {
            let interval = Duration::from_secs(self.settings().sign_interval_seconds);
            let pause = if interval.is_zero() {
                // The settings may be reloaded: look again from time to time.
                Duration::from_secs(60)
            } else {
                interval
            };
            if !self.wait_for(std::future::pending(), pause).await && self.is_draining() {
                return;
            }
            if interval.is_zero() {
                continue;
            }
            for tenant in self.take_unsigned() {
                if let Err(fault) = self.sign_ledger(tenant).await {
                    tracing::error!(cause = fault.cause, "could not sign a ledger; trying again");
                    self.mark_unsigned(tenant);
                }
            }
        }
    }

    /// Writes a signed head into a tenant's ledger.
    pub async fn sign_ledger(&self, tenant: TenantId) -> Result<(), Fault> {
        let Some(signer) = self.signer.clone() else {
            return Ok(());
        };
        let metrics = self.crypto_metrics().clone();
        let decide = move |env: Env, snapshot: Snapshot| {
            let mut changes = Changes::default();
            if snapshot.head > 0 {
                let signed = sign_with(&signer, &metrics, tenant, snapshot.ledger, env.now);
                changes = record_signature(env, snapshot.head, &signed).changes;
            }
            let output = ();
            Ok(Decision { changes, output })
        };
        let (store, env, reads) = (
            self.store.as_ref(),
            self.env(tenant, self.now()),
            ReadSet::default(),
        );
        // Not by `Engine::transact`: that would mark the ledger as grown, and it would be signed for ever.
        asyncgate_store::transact(store, tenant, env, 0, reads, decide).await??;
        Ok(())
    }
}

fn sign_with(
    signer: &Arc<dyn Signer>,
    metrics: &CryptoMetrics,
    tenant: TenantId,
    head: Head,
    signed_at: Timestamp,
) -> SignedHead {
    let statement = head.statement(tenant, signed_at);
    let watch = Stopwatch::start();
    let signature = signer.sign(&statement);
    metrics.took(CryptoWork::Sign(Signature::Ed25519), watch.elapsed());
    SignedHead {
        head,
        signed_at,
        public_key: signer.public_key(),
        signature,
    }
}
