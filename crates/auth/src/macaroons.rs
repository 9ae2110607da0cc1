//! Macaroons that this server has minted, and those that were derived from them.

use std::sync::Arc;

use asyncgate_core::identity::{self, Find, Record, RecordKind};
use asyncgate_core::{Principal, Timestamp};
use asyncgate_credentials::macaroon::Macaroon;
use asyncgate_credentials::{Caveat, quotas};
use asyncgate_engine::{Caller, Caveats, Credential, CredentialKind};

use crate::auth::{Inner, Shown};
use crate::denied::Denied;
use crate::known::Known;
use crate::proofs::Proof;

/// Returns true if a credential begins as every macaroon does. In base64, `Ag` is the version byte of version 2, and
/// `MD` the first digit of the length with which version 1 begins.
pub(crate) fn looks_like_macaroon(credential: &str) -> bool {
    credential.starts_with("Ag") || credential.starts_with("MD")
}

impl Inner {
    /// Proves that a credential is a macaroon of ours whose record has not ended. Whether its conditions allow a call
    /// is asked with each call; only its end is found here.
    pub(crate) async fn prove_macaroon(&self, shown: &Shown<'_>) -> Result<Proof, Denied> {
        let (id, caveats) = self.genuine(shown.credential)?;
        let find = Find::id(RecordKind::Macaroon, id);
        let known = self.keyring.records.find(&find, shown.at).await?;
        let known = known.ok_or_else(|| Denied::bad_macaroon("its record is gone"))?;
        let record = minted(&known)?;
        let denied = |denied: Denied| denied.of(record.tenant, &record.principal);
        if record.revoked_at.is_some() {
            return Err(denied(Denied::bad_macaroon("it was revoked")));
        }
        if record.root_key != self.keyring.macaroon.name() {
            return Err(denied(Denied::bad_macaroon("another key made it")));
        }
        let principal = &record.principal;
        let caller = Caller {
            credential: Credential {
                kind: CredentialKind::Macaroon,
                id: Some(record.id),
                expires_at: Some(earliest_end(record.expires_at, &caveats.list)),
                caveats: Some(Arc::new(Caveats {
                    counted_until: record.expires_at,
                    ..caveats
                })),
            },
            ..Caller::new(
                record.tenant,
                Principal::new(principal.kind, Arc::clone(&principal.id)),
                record.role,
            )
        };
        let tenant = self.tenant(record.tenant, shown.at, Denied::bad_macaroon);
        let tenant = tenant.await.map_err(denied)?;
        Ok(Proof::new(caller, Some(Arc::clone(&known)), tenant))
    }

    /// Checks the signature of a macaroon. Returns the id of its record and its conditions, read once for all calls.
    fn genuine(&self, credential: &str) -> Result<(asyncgate_core::RecordId, Caveats), Denied> {
        let unlike_ours = |cause| Denied::bad_macaroon(cause).unlike_ours();
        let macaroon =
            Macaroon::decode(credential).map_err(|_| unlike_ours("it is no macaroon"))?;
        let key = &self.keyring.macaroon;
        let id = key.record_in(macaroon.identifier());
        let id = id.ok_or_else(|| unlike_ours("it is not of this server"))?;
        let signatures = macaroon.verify(key.key());
        let signatures = signatures.map_err(|_| unlike_ours("its signature is wrong"))?;
        let list: Vec<Caveat> = macaroon.caveats().iter().map(Caveat::read).collect();
        let quotas = quotas(&list, &signatures).collect();
        let caveats = Caveats {
            list,
            quotas,
            // The record knows it, and is looked up next.
            counted_until: Timestamp::default(),
        };
        Ok((id, caveats))
    }
}

fn minted(known: &Known) -> Result<&identity::Macaroon, Denied> {
    if let Record::Macaroon(macaroon) = &known.record {
        return Ok(macaroon);
    }
    Err(Denied::bad_macaroon("its record is no macaroon"))
}

/// Returns the first moment at which a macaroon is none any more.
fn earliest_end(of_record: Timestamp, caveats: &[Caveat]) -> Timestamp {
    let ends = caveats.iter().filter_map(|caveat| {
        if let Caveat::Before(end) = caveat {
            return Some(*end);
        }
        None
    });
    ends.fold(of_record, Timestamp::min)
}
