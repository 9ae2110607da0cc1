//! A method for every operation of admission.
//!
//! A call that uses something up (a nonce, a count, a token) is not sent again once it may have been
//! done, because the answer was lost or the server had none from its backend (`HOST_UNAVAILABLE`): the
//! repetition would be refused as a replay, or counted twice.

use asyncgate_api::*;

use crate::{Client, Error, Items, pages::Page};

impl Client {
    /// Uses one nonce or several.
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

    /// Checks whether subjects are revoked.
    pub async fn check_revocations(
        &self,
        input: &CheckRevocationsInput,
    ) -> Result<CheckRevocationsOutput, Error> {
        self.call::<CheckRevocations>(input).await
    }

    /// Revokes a subject.
    pub async fn revoke(&self, input: &RevokeInput) -> Result<RevokeOutput, Error> {
        self.call::<Revoke>(input).await
    }

    /// Takes a revocation back.
    pub async fn unrevoke(&self, input: &UnrevokeInput) -> Result<UnrevokeOutput, Error> {
        self.call::<Unrevoke>(input).await
    }

    /// Streams all revocations, by kind and hash.
    pub fn revocations(&self, input: ListRevocationsInput) -> Items<RevocationRecord> {
        self.items::<ListRevocations, _>(
            input,
            |page| Page::new(page.revocations, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Reads the health of the backend of admission.
    pub async fn host_health(&self) -> Result<HostHealth, Error> {
        self.call::<GetHostHealth>(&NoInput {}).await
    }

    /// Verifies that a chain of warrants allows a call.
    pub async fn verify_warrant(
        &self,
        input: &VerifyWarrantInput,
    ) -> Result<VerifyWarrantOutput, Error> {
        self.call::<VerifyWarrant>(input).await
    }

    /// Checks one limit or several.
    pub async fn check_limits(&self, input: &CheckLimitsInput) -> Result<CheckLimitsOutput, Error> {
        self.call::<CheckLimits>(input).await
    }

    /// Lists the policies of limits.
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

    /// Removes a client's tier.
    pub async fn clear_tier(&self, input: &TierInput) -> Result<TierRecord, Error> {
        self.call::<ClearTier>(input).await
    }

    /// Streams all clients that have a tier of their own.
    pub fn tiers(&self, input: ListTiersInput) -> Items<TierRecord> {
        self.items::<ListTiers, _>(
            input,
            |page| Page::new(page.tiers, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }
}
