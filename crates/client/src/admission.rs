//! A method for every operation of admission.
//!
//! What uses something up (a nonce, a count, a token) is not sent again once it may be used, be it
//! that the answer was lost or that the server had none from its backend (`HOST_UNAVAILABLE`): the
//! repetition would be told that it is one.

use asyncgate_api::*;

use crate::{Client, Error, Items, pages::Page};

impl Client {
    /// Uses a nonce, or many.
    pub async fn check_nonces(&self, input: &CheckNoncesInput) -> Result<CheckNoncesOutput, Error> {
        self.call::<CheckNonces>(input).await
    }

    /// Counts a call in a window of time.
    pub async fn increment_counter(
        &self,
        input: &IncrementCounterInput,
    ) -> Result<IncrementCounterOutput, Error> {
        self.call::<IncrementCounter>(input).await
    }

    /// Asks what is revoked.
    pub async fn check_revocations(
        &self,
        input: &CheckRevocationsInput,
    ) -> Result<CheckRevocationsOutput, Error> {
        self.call::<CheckRevocations>(input).await
    }

    /// Revokes.
    pub async fn revoke(&self, input: &RevokeInput) -> Result<RevokeOutput, Error> {
        self.call::<Revoke>(input).await
    }

    /// Takes a revocation back.
    pub async fn unrevoke(&self, input: &UnrevokeInput) -> Result<UnrevokeOutput, Error> {
        self.call::<Unrevoke>(input).await
    }

    /// All revocations, by kind and hash.
    pub fn revocations(&self, input: ListRevocationsInput) -> Items<RevocationRecord> {
        self.items::<ListRevocations, _>(
            input,
            |page| Page::new(page.revocations, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// How the backend of admission is doing.
    pub async fn host_health(&self) -> Result<HostHealth, Error> {
        self.call::<GetHostHealth>(&NoInput {}).await
    }

    /// Asks whether a chain of warrants allows a call.
    pub async fn verify_warrant(
        &self,
        input: &VerifyWarrantInput,
    ) -> Result<VerifyWarrantOutput, Error> {
        self.call::<VerifyWarrant>(input).await
    }

    /// Asks a limit, or several.
    pub async fn check_limits(&self, input: &CheckLimitsInput) -> Result<CheckLimitsOutput, Error> {
        self.call::<CheckLimits>(input).await
    }

    /// The policies that limits can be asked by.
    pub async fn policies(&self) -> Result<ListPoliciesOutput, Error> {
        self.call::<ListPolicies>(&NoInput {}).await
    }

    /// Sets a client's tier.
    pub async fn set_tier(&self, input: &SetTierInput) -> Result<TierRecord, Error> {
        self.call::<SetTier>(input).await
    }

    /// Reads a client's tier.
    pub async fn get_tier(&self, input: &TierInput) -> Result<TierRecord, Error> {
        self.call::<GetTier>(input).await
    }

    /// Takes a client's tier back.
    pub async fn clear_tier(&self, input: &TierInput) -> Result<TierRecord, Error> {
        self.call::<ClearTier>(input).await
    }

    /// All clients that have a tier of their own.
    pub fn tiers(&self, input: ListTiersInput) -> Items<TierRecord> {
        self.items::<ListTiers, _>(
            input,
            |page| Page::new(page.tiers, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }
}
