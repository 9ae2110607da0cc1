//! The exchange of codes, the refresh of tokens, and their revocation.

use std::fmt;

use asyncgate_core::{
    Env, RecordId,
    identity::{
        Find, OauthClient, Record, RecordKey, RecordKind, Scopes,
        oauth::{
            ClientName, ErrorCode, Exchange, FoundCode, FoundToken, GrantRefusal, Issued, Refresh,
            exchange, family_of, prove_client, refresh, revoke,
        },
    },
};
use asyncgate_credentials::jwt::Claims;
use asyncgate_store::identity::{Reads, Snapshot};

use super::{Oauth, Visitor, WEIGHT, hash, oauth_fault, take};
use crate::{Fault, NewSecret};

/// The beginning of every refresh token, by which people recognise one.
const REFRESH_PREFIX: &str = "agr_";

/// Whoever asks for tokens, as it shows itself.
#[derive(Debug, Clone)]
pub struct ClientProof {
    /// The client that it says it is.
    pub client_id: String,
    /// The secret that it shows.
    pub secret: Option<NewSecret>,
}

/// The wish to exchange a code.
#[derive(Clone)]
pub struct CodeExchange {
    /// The code.
    pub code: String,
    /// The address to which it was sent.
    pub redirect_uri: String,
    /// The SHA-256 of the verifier, in base64url.
    pub challenge: String,
    /// The resource, if one is named. It is this server's.
    pub resource: Option<String>,
}

impl fmt::Debug for CodeExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CodeExchange(..)")
    }
}

/// The wish to refresh tokens.
#[derive(Clone)]
pub struct TokenRefresh {
    /// The refresh token.
    pub refresh_token: String,
    /// The scopes of the new access token, if fewer are wished than were granted.
    pub scope: Option<String>,
    /// The resource, if one is named. It is this server's.
    pub resource: Option<String>,
}

impl fmt::Debug for TokenRefresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenRefresh(..)")
    }
}

/// Tokens that a client is given.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// The access token.
    pub access_token: NewSecret,
    /// The refresh token.
    pub refresh_token: NewSecret,
    /// The seconds for which the access token lives.
    pub expires_in: i64,
    /// The scopes of the access token.
    pub scopes: Scopes,
}

impl Oauth {
    /// Exchanges a code for tokens.
    pub async fn exchange(&self, proof: &ClientProof, wish: CodeExchange) -> Result<Tokens, Fault> {
        let client = self.prove(proof).await?;
        self.can_sign()?;
        let find = Find::code(&hash(&wish.code));
        let Some(code) = self.find(find.clone()).await?.and_then(Record::into_code) else {
            return Err(self.refused(&client, GrantRefusal::Unknown));
        };
        let token = self.new_refresh_token()?;
        let asked = Exchange {
            client: client.id,
            redirect_uri: wish.redirect_uri,
            challenge: wish.challenge,
            resource: wish.resource,
            refresh_hash: hash(token.reveal()),
        };
        let records = vec![
            find,
            Find::id(RecordKind::TokenFamily, family_of(&code)),
            Find::id(RecordKind::OauthClient, client.id),
            Find::tenant(code.tenant),
            Find::id(RecordKind::IdentityLink, code.grant.identity),
        ];
        let (lifetimes, signer) = (self.settings.lifetimes, Visitor::current());
        let decide = move |mut env: Env, snapshot: Snapshot| {
            let [code, family, client, tenant, link] = take(snapshot.records);
            let found = FoundCode {
                code: code.and_then(Record::into_code),
                family: family.and_then(Record::into_family),
                client: client.and_then(Record::into_client),
                tenant: tenant.and_then(Record::into_tenant),
                link: link.and_then(Record::into_link),
            };
            Ok(signer.sign_all(exchange(&mut env, found, &asked, lifetimes)))
        };
        let decided = self
            .engine
            .transact(code.tenant, WEIGHT, reads(records), decide);
        let issued = decided.await?;
        self.hand_out(issued, token, family_of(&code), &client)
    }

    /// Gives a client new tokens for its refresh token.
    pub async fn refresh(&self, proof: &ClientProof, wish: TokenRefresh) -> Result<Tokens, Fault> {
        let client = self.prove(proof).await?;
        self.can_sign()?;
        let find = Find::refresh_token(&hash(&wish.refresh_token));
        let known = self.find(find.clone()).await?;
        let Some(known) = known.and_then(Record::into_refresh_token) else {
            return Err(self.refused(&client, GrantRefusal::Unknown));
        };
        let family = Find::id(RecordKind::TokenFamily, known.family);
        // Who granted a family never changes, so it can be read before the decision.
        let granted = self
            .find(family.clone())
            .await?
            .and_then(Record::into_family);
        let Some(granted) = granted else {
            return Err(self.refused(&client, GrantRefusal::Unknown));
        };
        let token = self.new_refresh_token()?;
        let asked = Refresh {
            client: client.id,
            scope: wish.scope,
            resource: wish.resource,
            refresh_hash: hash(token.reveal()),
        };
        let records = vec![
            find,
            family,
            Find::id(RecordKind::OauthClient, client.id),
            Find::tenant(known.tenant),
            Find::id(RecordKind::IdentityLink, granted.grant.identity),
        ];
        let (lifetimes, signer) = (self.settings.lifetimes, Visitor::current());
        let decide = move |mut env: Env, snapshot: Snapshot| {
            let [token, family, client, tenant, link] = take(snapshot.records);
            let found = FoundToken {
                token: token.and_then(Record::into_refresh_token),
                family: family.and_then(Record::into_family),
                client: client.and_then(Record::into_client),
                tenant: tenant.and_then(Record::into_tenant),
                link: link.and_then(Record::into_link),
            };
            Ok(signer.sign_all(refresh(&mut env, found, &asked, lifetimes)))
        };
        let decided = self
            .engine
            .transact(known.tenant, WEIGHT, reads(records), decide);
        let issued = decided.await?;
        self.hand_out(issued, token, known.family, &client)
    }

    /// Revokes a token, and with it all tokens that came of the same login. What is no token is no error.
    pub async fn revoke(&self, proof: &ClientProof, token: &str) -> Result<(), Fault> {
        let client = self.prove(proof).await?;
        let Some(family) = self.family_of_token(token).await? else {
            return Ok(());
        };
        let (id, signer) = (client.id, Visitor::current());
        let records = vec![Find::id(RecordKind::TokenFamily, family)];
        let decide = move |mut env: Env, snapshot: Snapshot| {
            let [family] = take(snapshot.records);
            let family = family.and_then(Record::into_family);
            Ok(signer.sign_all(revoke(&mut env, family, id)))
        };
        let decided = self
            .engine
            .transact(client.tenant, WEIGHT, reads(records), decide);
        let revoked = decided.await?;
        self.forget_family(family)?;
        revoked.map_err(|refusal| self.refused(&client, refusal))
    }

    /// Returns the family of a refresh token or of an access token.
    async fn family_of_token(&self, token: &str) -> Result<Option<RecordId>, Fault> {
        if let Some(claims) = self.engine.keyring()?.read_token(token) {
            return Ok(claims.family.and_then(|family| family.parse().ok()));
        }
        let found = self.find(Find::refresh_token(&hash(token))).await?;
        let token = found.and_then(Record::into_refresh_token);
        Ok(token.map(|token| token.family))
    }

    /// Returns the client, if it is the one that it says.
    async fn prove(&self, proof: &ClientProof) -> Result<OauthClient, Fault> {
        let client = match ClientName::parse(&proof.client_id) {
            Some(name) => self.client_named(&name).await?,
            None => None,
        };
        let shown = proof.secret.as_ref().map(|secret| hash(secret.reveal()));
        let proved = client
            .as_ref()
            .is_some_and(|client| prove_client(client, shown.as_deref()).is_ok());
        if let Some(client) = client.as_ref().filter(|_| proved) {
            return Ok(client.clone());
        }
        let tenant = client.as_ref().map(|client| client.tenant);
        let known = client.map(|client| client.id.to_string());
        let details = known.as_ref().map(|id| ("client_id", id.as_str()));
        let reason = match known {
            Some(_) => "the client's secret is wrong or missing",
            None => "the client is unknown",
        };
        self.note_failure(tenant, reason, details.as_slice());
        Err(refusal_fault(GrantRefusal::NoClient))
    }

    /// Refuses while there is no key to sign with, before a code is used up.
    fn can_sign(&self) -> Result<(), Fault> {
        let keys = self.public_keys()?;
        let none = keys["keys"].as_array().is_none_or(Vec::is_empty);
        if none {
            let message = "the key that signs tokens is being made; try again shortly";
            return Err(oauth_fault(ErrorCode::TemporarilyUnavailable, message).retry_after(1));
        }
        Ok(())
    }

    fn new_refresh_token(&self) -> Result<NewSecret, Fault> {
        let secret = self.engine.keyring()?.secret()?;
        Ok(NewSecret::new(format!(
            "{REFRESH_PREFIX}{}",
            secret.reveal()
        )))
    }

    /// Signs what was decided, or tells why nothing was issued.
    fn hand_out(
        &self,
        issued: Result<Issued, GrantRefusal>,
        refresh_token: NewSecret,
        family: RecordId,
        client: &OauthClient,
    ) -> Result<Tokens, Fault> {
        let issued = match issued {
            Ok(issued) => issued,
            Err(refusal) => {
                if refusal == GrantRefusal::Reused {
                    self.forget_family(family)?;
                }
                return Err(self.refused(client, refusal));
            }
        };
        let claims = self.claims(&issued, client);
        let access_token = self.engine.keyring()?.sign(&claims)?;
        Ok(Tokens {
            access_token: NewSecret::new(access_token),
            refresh_token,
            expires_in: claims.expires_at - claims.issued_at,
            scopes: issued.scopes,
        })
    }

    fn claims(&self, issued: &Issued, client: &OauthClient) -> Claims {
        let grant = &issued.grant;
        let mut audience = vec![self.settings.audience.clone()];
        audience.extend(grant.resource.clone());
        let seconds = |time: asyncgate_core::Timestamp| time.as_millis().div_euclid(1_000);
        Claims {
            issuer: self.settings.issuer.clone(),
            audience,
            subject: grant.identity.to_string(),
            tenant: issued.tenant,
            principal: grant.principal.clone(),
            role: Some(grant.role),
            scopes: Some(issued.scopes),
            expires_at: seconds(issued.access_expires_at),
            issued_at: seconds(issued.issued_at),
            not_before: None,
            client_id: Some(client.public_name()),
            token_id: Some(issued.token_id.to_string()),
            family: Some(issued.family.to_string()),
        }
    }

    /// Lets a revocation count at once on this server.
    fn forget_family(&self, id: RecordId) -> Result<(), Fault> {
        self.engine.keyring()?.forget(RecordKey {
            kind: RecordKind::TokenFamily,
            id,
        });
        Ok(())
    }

    /// Records why a client gets no tokens, and returns what it is told.
    fn refused(&self, client: &OauthClient, refusal: GrantRefusal) -> Fault {
        let id = client.id.to_string();
        self.note_failure(
            Some(client.tenant),
            &refusal.to_string(),
            &[("client_id", &id)],
        );
        refusal_fault(refusal)
    }
}

fn refusal_fault(refusal: GrantRefusal) -> Fault {
    oauth_fault(refusal.code(), refusal.description())
}

fn reads(records: Vec<Find>) -> Reads {
    Reads {
        records,
        ..Reads::default()
    }
}
