//! Stored API keys: found by their public part, proved by Argon2id once.

use std::sync::Arc;

use asyncgate_core::Principal;
use asyncgate_core::identity::{Find, KeyStanding, Record};
use asyncgate_engine::{Caller, Credential, CredentialKind};

use crate::auth::{Inner, Shown};
use crate::denied::Denied;
use crate::known::Known;
use crate::plain_key::lookup_id;
use crate::proofs::Proof;

impl Inner {
    /// Proves that a credential is an API key that was stored and has not ended.
    ///
    /// An unknown public part is refused by a look, and a wrong secret mostly by a digest: public parts are no secret,
    /// so the time of the answer may tell that one does not exist.
    pub(crate) async fn prove_key(&self, shown: &Shown<'_>) -> Result<Proof, Denied> {
        let known = self.stored_key(shown).await?;
        let Record::ApiKey(key) = &known.record else {
            return Err(Denied::not_valid("its record is no key"));
        };
        let denied = |denied: Denied| denied.of(key.tenant, &key.principal);
        match key.life().standing(self.clock.now()) {
            KeyStanding::Valid => {}
            KeyStanding::Expired => return Err(denied(Denied::not_valid("its time is over"))),
            KeyStanding::Revoked => return Err(denied(Denied::not_valid("it was revoked"))),
        }
        let secret = known.secret.as_ref();
        let secret = secret.ok_or_else(|| denied(Denied::not_valid("its record is damaged")))?;
        let verified = self
            .verifier
            .verify(shown.client, shown.credential, shown.digest, secret);
        verified
            .await
            .map_err(|refusal| denied(Denied::from(refusal)))?;
        let caller = Caller {
            scopes: key.role.effective_scopes(key.scopes),
            credential: Credential {
                id: Some(key.id),
                expires_at: key.expires_at,
                ..Credential::of_kind(CredentialKind::ApiKey)
            },
            ..Caller::new(
                key.tenant,
                Principal::new(key.principal.kind, Arc::clone(&key.principal.id)),
                key.role,
            )
        };
        let tenant = self.tenant(key.tenant, shown.at, Denied::not_valid);
        let tenant = tenant.await.map_err(denied)?;
        Ok(Proof::new(caller, Some(Arc::clone(&known)), tenant))
    }

    async fn stored_key(&self, shown: &Shown<'_>) -> Result<Arc<Known>, Denied> {
        let id = lookup_id(shown.credential);
        let id =
            id.ok_or_else(|| Denied::not_valid("it has not the form of a key").unlike_ours())?;
        let _turn = self.lookups.turn(shown.client, shown.at).await?;
        let found = self.keyring.records.find(&Find::key(id), shown.at).await?;
        found.ok_or_else(|| {
            self.lookups.count_unknown(shown.client, shown.at);
            Denied::not_valid("no key has this id")
        })
    }
}
