//! The request of a client that a person be asked for tokens.
//!
//! Invariant: client and redirect URI are checked before anything else. Without them, whoever made the link decides
//! where the browser goes, so such a request is answered on the spot; all later refusals go to the client.

use std::fmt;

use super::{ErrorCode, Refusal, is_challenge, resource};
use crate::{
    RecordId,
    identity::{OauthClient, Scope, Scopes},
};

/// The parameters of a request, as they came.
#[derive(Clone, Default)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Returns the value of a parameter. An empty one counts as absent.
    pub fn get(&self, name: &'static str) -> Result<Option<&str>, Refusal> {
        let mut values = self.0.iter().filter(|(given, _)| given == name);
        let value = values.next().map(|(_, value)| value.as_str());
        // Two readers might take different ones of the two.
        if values.next().is_some() {
            return Err(Refusal::request("a parameter stands there twice"));
        }
        Ok(value.filter(|value| !value.is_empty()))
    }

    /// Returns the value of a parameter that must be there.
    pub fn need(&self, name: &'static str, missing: &'static str) -> Result<&str, Refusal> {
        self.get(name)?.ok_or(Refusal::request(missing))
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be codes, secrets and passwords.
        f.debug_set()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl FromIterator<(String, String)> for Params {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// A request in which nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationRequest {
    /// The client.
    pub client: RecordId,
    /// The address to which the code is sent. The client has registered it.
    pub redirect_uri: String,
    /// Whatever the client wants to have back with the code.
    pub state: Option<String>,
    /// The challenge that the client will answer.
    pub code_challenge: String,
    /// The scopes that it asks for.
    pub scopes: Scopes,
    /// The resource that it asks for.
    pub resource: Option<String>,
}

/// How a client is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientName {
    /// By the id that it was registered with.
    Id(RecordId),
    /// By the address of a document that describes it.
    Document(String),
}

impl ClientName {
    /// Reads a name. Whether there is such a client, or can be one, is not looked at.
    pub fn parse(text: &str) -> Option<Self> {
        match text.starts_with("https://") || text.starts_with("http://") {
            true => Some(Self::Document(text.to_owned())),
            false => text.parse().ok().map(Self::Id),
        }
    }
}

/// Returns the client that a request names.
pub fn client_name(params: &Params) -> Result<ClientName, Refusal> {
    const UNKNOWN: &str = "client_id names no client";
    let name = params.need("client_id", "client_id is missing")?;
    ClientName::parse(name).ok_or(Refusal::request(UNKNOWN))
}

/// Returns the redirect URI of a request, if the client has registered it. It is compared byte for byte.
pub fn redirect_uri<'a>(
    client: Option<&OauthClient>,
    params: &'a Params,
) -> Result<&'a str, Refusal> {
    let client = client.ok_or(Refusal::request("client_id names no client"))?;
    let asked = params.need("redirect_uri", "redirect_uri is missing")?;
    let is_registered = client.redirect_uris.iter().any(|known| known == asked);
    let refusal = Refusal::request("redirect_uri is not one that the client has registered");
    is_registered.then_some(asked).ok_or(refusal)
}

/// Checks a request whose client and redirect URI are known. `own` is the address of this server.
pub fn check(
    client: &OauthClient,
    params: &Params,
    own: &str,
) -> Result<AuthorizationRequest, Refusal> {
    let redirect_uri = redirect_uri(Some(client), params)?;
    let state = params.get("state")?.map(str::to_owned);
    let response_type = params.need("response_type", "response_type is missing")?;
    if response_type != "code" {
        return Err(Refusal::new(
            ErrorCode::UnsupportedResponseType,
            "response_type must be code",
        ));
    }
    let challenge = params.need(
        "code_challenge",
        "code_challenge is missing: PKCE is needed",
    )?;
    // Without a method, the challenge would be the verifier itself.
    if params.get("code_challenge_method")? != Some("S256") {
        return Err(Refusal::request("code_challenge_method must be S256"));
    }
    if !is_challenge(challenge) {
        return Err(Refusal::request(
            "code_challenge must be a SHA-256 in base64url without padding",
        ));
    }
    let resource = resource(own, params.get("resource")?)?;
    Ok(AuthorizationRequest {
        client: client.id,
        redirect_uri: redirect_uri.to_owned(),
        state,
        code_challenge: challenge.to_owned(),
        scopes: scopes(client.scopes, params.get("scope")?)?,
        resource: resource.map(str::to_owned),
    })
}

/// Returns the scopes that are asked for: those that are named, or all that there are.
pub(super) fn scopes(allowed: Scopes, asked: Option<&str>) -> Result<Scopes, Refusal> {
    const NOT_ALLOWED: Refusal = Refusal::new(
        ErrorCode::InvalidScope,
        "scope names something that this client may not ask for",
    );
    let Some(asked) = asked else {
        return Ok(allowed);
    };
    let names = asked.split([' ', ',']).filter(|name| !name.is_empty());
    let scopes = names.map(|name| {
        let scope: Option<Scope> = name.parse().ok();
        scope.filter(|scope| allowed.contains(*scope))
    });
    let scopes: Option<Scopes> = scopes.collect();
    let named = scopes.filter(|scopes| *scopes != Scopes::NONE);
    named.ok_or(NOT_ALLOWED)
}
