//! A method for every operation of identity.
//!
//! A call that makes a credential is not sent again once it may have been done: what it makes is shown in its
//! answer only, so a lost one is revoked and made anew.

use asyncgate_api::*;

use crate::{Client, Error, Items, pages::Page};

impl Client {
    /// Says who this client's credential makes it.
    pub async fn whoami(&self) -> Result<WhoAmIOutput, Error> {
        self.call::<WhoAmI>(&NoInput {}).await
    }

    /// Makes an API key.
    pub async fn create_key(&self, input: &CreateKeyInput) -> Result<CreatedKey, Error> {
        self.call::<CreateKey>(input).await
    }

    /// Streams all keys of a tenant, the oldest first.
    pub fn keys(&self, input: ListKeysInput) -> Items<KeyRecord> {
        self.items::<ListKeys, _>(
            input,
            |page| Page::new(page.keys, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Replaces an API key by a new one.
    pub async fn rotate_key(&self, input: &RotateKeyInput) -> Result<RotatedKey, Error> {
        self.call::<RotateKey>(input).await
    }

    /// Revokes an API key.
    pub async fn revoke_key(&self, input: &KeyInput) -> Result<RevokedKey, Error> {
        self.call::<RevokeKey>(input).await
    }

    /// Revokes every credential of a tenant or a principal.
    pub async fn revoke_all_credentials(
        &self,
        input: &RevokeAllInput,
    ) -> Result<RevokedAll, Error> {
        self.call::<RevokeAllCredentials>(input).await
    }

    /// Gives every key of a tenant or a principal an end.
    pub async fn rotate_all_keys(&self, input: &RotateAllInput) -> Result<RotatedAll, Error> {
        self.call::<RotateAllKeys>(input).await
    }

    /// Signs access tokens with a new key from now on.
    pub async fn rotate_token_key(&self) -> Result<RotatedTokenKey, Error> {
        self.call::<RotateTokenKey>(&NoInput {}).await
    }

    /// Makes a tenant.
    pub async fn create_tenant(&self, input: &CreateTenantInput) -> Result<TenantRecord, Error> {
        self.call::<CreateTenant>(input).await
    }

    /// Streams all tenants, the oldest first.
    pub fn tenants(&self, input: ListTenantsInput) -> Items<TenantRecord> {
        self.items::<ListTenants, _>(
            input,
            |page| Page::new(page.tenants, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Reads a tenant.
    pub async fn get_tenant(&self, input: &TenantInput) -> Result<TenantRecord, Error> {
        self.call::<GetTenant>(input).await
    }

    /// Changes, suspends or resumes a tenant.
    pub async fn change_tenant(&self, input: &ChangeTenantInput) -> Result<TenantRecord, Error> {
        self.call::<ChangeTenant>(input).await
    }

    /// Mints a macaroon.
    pub async fn create_macaroon(
        &self,
        input: &CreateMacaroonInput,
    ) -> Result<CreatedMacaroon, Error> {
        self.call::<CreateMacaroon>(input).await
    }

    /// Revokes a macaroon and all that were derived from it.
    pub async fn revoke_macaroon(&self, input: &MacaroonInput) -> Result<RevokedMacaroon, Error> {
        self.call::<RevokeMacaroon>(input).await
    }

    /// Lets a person in.
    pub async fn add_identity(&self, input: &AddIdentityInput) -> Result<IdentityRecord, Error> {
        self.call::<AddIdentity>(input).await
    }

    /// Streams all people of a tenant, the first who was added first.
    pub fn identities(&self, input: ListIdentitiesInput) -> Items<IdentityRecord> {
        self.items::<ListIdentities, _>(
            input,
            |page| Page::new(page.identities, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Reads what one person may do.
    pub async fn get_identity(&self, input: &IdentityInput) -> Result<IdentityRecord, Error> {
        self.call::<GetIdentity>(input).await
    }

    /// Takes a person's leave to enter away.
    pub async fn remove_identity(&self, input: &IdentityInput) -> Result<RemovedIdentity, Error> {
        self.call::<RemoveIdentity>(input).await
    }

    /// Streams entries of an audit log, the newest first.
    pub fn audit(&self, input: ListAuditInput) -> Items<AuditEntry> {
        self.items::<ListAudit, _>(
            input,
            |page| Page::new(page.entries, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Registers a program that asks people for tokens.
    pub async fn create_oauth_client(
        &self,
        input: &CreateOauthClientInput,
    ) -> Result<CreatedOauthClient, Error> {
        self.call::<CreateOauthClient>(input).await
    }

    /// Streams the programs of a tenant, the first that was registered first.
    pub fn oauth_clients(&self, input: ListOauthClientsInput) -> Items<OauthClientRecord> {
        self.items::<ListOauthClients, _>(
            input,
            |page| Page::new(page.clients, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Reads one program that asks people for tokens.
    pub async fn get_oauth_client(
        &self,
        input: &OauthClientInput,
    ) -> Result<OauthClientRecord, Error> {
        self.call::<GetOauthClient>(input).await
    }

    /// Removes a program that asks people for tokens.
    pub async fn remove_oauth_client(
        &self,
        input: &OauthClientInput,
    ) -> Result<RemovedOauthClient, Error> {
        self.call::<RemoveOauthClient>(input).await
    }

    /// Tells what a tenant uses now.
    pub async fn get_usage(&self, input: &UsageInput) -> Result<TenantUsage, Error> {
        self.call::<GetUsage>(input).await
    }

    /// Streams what a tenant used, the newest first.
    pub fn usage_events(&self, input: ListUsageEventsInput) -> Items<UsageEventRecord> {
        self.items::<ListUsageEvents, _>(
            input,
            |page| Page::new(page.events, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Lifts the hourly limits of a tenant for a time.
    pub async fn grant_bypass(
        &self,
        input: &GrantBypassInput,
    ) -> Result<LimitExceptionRecord, Error> {
        self.call::<GrantBypass>(input).await
    }

    /// Ends the bypass of a tenant.
    pub async fn end_bypass(&self, input: &ExceptionInput) -> Result<EndedException, Error> {
        self.call::<EndBypass>(input).await
    }

    /// Makes the limits of a tenant stricter for a time.
    pub async fn throttle_tenant(
        &self,
        input: &ThrottleTenantInput,
    ) -> Result<LimitExceptionRecord, Error> {
        self.call::<ThrottleTenant>(input).await
    }

    /// Ends the stricter limits of a tenant.
    pub async fn end_throttle(&self, input: &ExceptionInput) -> Result<EndedException, Error> {
        self.call::<EndThrottle>(input).await
    }
}
