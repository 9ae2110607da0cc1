//! Access tokens: JWTs that this server has signed.

use std::sync::Arc;

use asyncgate_core::identity::{Find, Record, RecordKind};
use asyncgate_core::{Principal, RecordId, Timestamp};
use asyncgate_credentials::jwt::{Claims, Refusal};
use asyncgate_engine::{Caller, Credential, CredentialKind};

use crate::auth::{Inner, Shown};
use crate::denied::Denied;
use crate::known::Known;
use crate::proofs::Proof;

impl Inner {
    /// Proves that a credential is a token of ours that has not ended, nor has the family that it belongs to.
    pub(crate) async fn prove_token(&self, shown: &Shown<'_>) -> Result<Proof, Denied> {
        let claims = self.keyring.verify_token(shown.credential);
        let claims = claims.map_err(refused)?;
        let denied = |denied: Denied| denied.of(claims.tenant, &claims.principal);
        let family = self.family(&claims, shown.at).await.map_err(denied)?;
        let tenant = self.tenant(claims.tenant, shown.at, Denied::not_valid);
        let tenant = tenant.await.map_err(denied)?;
        let role = claims.effective_role();
        let principal = &claims.principal;
        let caller = Caller {
            scopes: role.effective_scopes(claims.scopes),
            credential: Credential {
                id: family.as_ref().map(|family| family.key.id),
                expires_at: Some(end_of(claims.expires_at)),
                ..Credential::of_kind(CredentialKind::Jwt)
            },
            ..Caller::new(
                claims.tenant,
                Principal::new(principal.kind, Arc::clone(&principal.id)),
                role,
            )
        };
        Ok(Proof::new(caller, family, tenant))
    }

    /// Returns the family of a token; none if the token names none.
    async fn family(
        &self,
        claims: &Claims,
        began: Timestamp,
    ) -> Result<Option<Arc<Known>>, Denied> {
        let Some(family) = &claims.family else {
            return Ok(None);
        };
        let gone = || Denied::not_valid("its family is unknown");
        let id: RecordId = family.parse().map_err(|_| gone())?;
        let find = Find::within(claims.tenant, RecordKind::TokenFamily, id);
        let known = self.keyring.records.find(&find, began).await?;
        let known = known.ok_or_else(gone)?;
        let Record::TokenFamily(family) = &known.record else {
            return Err(gone());
        };
        // What is known of a record is found by its id alone.
        if family.tenant != claims.tenant {
            return Err(gone());
        }
        if family.revoked_at.is_some() {
            return Err(Denied::not_valid("its family was revoked"));
        }
        Ok(Some(known))
    }
}

fn end_of(second: i64) -> Timestamp {
    Timestamp::from_millis(second.saturating_mul(1_000))
}

fn refused(refusal: Refusal) -> Denied {
    match refusal {
        Refusal::TooLarge => Denied::not_valid("the token is too large").unlike_ours(),
        Refusal::Malformed(_) => Denied::not_valid("it is no token").unlike_ours(),
        Refusal::Algorithm => Denied::not_valid("the token is not signed with RS256").unlike_ours(),
        Refusal::UnknownKey => Denied::not_valid("the token's key is unknown").unlike_ours(),
        Refusal::Signature => Denied::not_valid("the token's signature is wrong").unlike_ours(),
        Refusal::Issuer => Denied::not_valid("the token has another issuer"),
        Refusal::Audience => Denied::not_valid("the token is meant for another audience"),
        Refusal::Expired => Denied::not_valid("its time is over"),
        Refusal::NotYetValid => Denied::not_valid("the token is not valid yet"),
    }
}
