//! Clients of OAuth: programs that ask people for tokens. Admins look after them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Access, Code, Effect, Method, Scope, bounds, forms, operation::operation};

operation!(
    /// Registers a client of OAuth.
    Identity, CreateOauthClient: CreateOauthClientInput => CreatedOauthClient,
    name: "create_oauth_client",
    method: Method::Post,
    path: "/admin/oauth/clients",
    access: Access::Needs(&[Scope::AdminWrite, Scope::PlatformAdmin]),
    effect: Effect::Add,
    creates: true,
    summary: "Register a program that asks people for tokens (admin).",
    doc: "The program sends people to /oauth/authorize with its client_id. Codes go to its redirect URIs and nowhere \
          else. A confidential client has a secret, which is shown only in this answer.",
    refusals: &[Code::NotFound],
);

/// A client to register.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateOauthClientInput {
    /// A name for people.
    #[schemars(length(min = 1, max = bounds::MAX_NAME_BYTES), regex(pattern = forms::VISIBLE))]
    pub client_name: String,
    /// The addresses to which codes may be sent: https, or http on loopback, without a fragment. They are compared
    /// byte for byte.
    #[schemars(
        length(min = 1, max = bounds::MAX_REDIRECT_URIS),
        inner(length(max = bounds::MAX_REDIRECT_URI_BYTES), regex(pattern = forms::REDIRECT_URI))
    )]
    pub redirect_uris: Vec<String>,
    /// The scopes that it may ask for.
    #[schemars(length(min = 1))]
    pub scopes: Vec<Scope>,
    /// The tenant whose people it serves. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// True if it can keep a secret, as a program on a server can. Default: false.
    #[serde(default)]
    pub confidential: bool,
}

/// A client of OAuth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OauthClient")]
pub struct OauthClientRecord {
    /// Its id.
    pub client_id: String,
    /// Its name.
    pub client_name: String,
    /// The tenant whose people it serves.
    pub tenant_id: String,
    /// The addresses to which codes may be sent.
    pub redirect_uris: Vec<String>,
    /// The scopes that it may ask for.
    pub scopes: Vec<Scope>,
    /// True if it has a secret.
    pub confidential: bool,
    /// True if it registered itself or a document describes it.
    pub dynamic: bool,
    /// The time at which it was registered.
    pub created_at: String,
    /// The time from which on it is forgotten unless it is used; null if an admin registered it.
    pub expires_at: Option<String>,
    /// The address of the document that describes it, by which it calls itself; absent if it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
}

/// A client that was just registered.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedOauthClient {
    /// Its id.
    pub client_id: String,
    /// Its secret. It is shown only here, and only confidential clients have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// Its name.
    pub client_name: String,
    /// The tenant whose people it serves.
    pub tenant_id: String,
    /// The addresses to which codes may be sent.
    pub redirect_uris: Vec<String>,
    /// The scopes that it may ask for.
    pub scopes: Vec<Scope>,
    /// True if it has a secret.
    pub confidential: bool,
    /// The time at which it was registered.
    pub created_at: String,
}

impl fmt::Debug for CreatedOauthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret stays out.
        f.debug_struct("CreatedOauthClient")
            .field("client_id", &self.client_id)
            .field("client_name", &self.client_name)
            .finish_non_exhaustive()
    }
}

operation!(
    /// Lists the clients of a tenant.
    Identity, ListOauthClients: ListOauthClientsInput => ListOauthClientsOutput,
    name: "list_oauth_clients",
    method: Method::Get,
    path: "/admin/oauth/clients",
    access: Access::Needs(&[Scope::AdminRead, Scope::PlatformAdmin]),
    effect: Effect::Read,
    summary: "List the programs that may ask people for tokens (admin).",
    doc: "Lists the clients of a tenant in the order in which they were registered, those that registered \
          themselves too.",
    refusals: &[Code::NotFound],
);

/// A page of clients.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListOauthClientsInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(extend("format" = "uuid"))]
    pub cursor: Option<String>,
}

/// Clients of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListOauthClientsOutput {
    /// The clients, the first that was registered first.
    pub clients: Vec<OauthClientRecord>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

operation!(
    /// Reads one client.
    Identity, GetOauthClient: OauthClientInput => OauthClientRecord,
    name: "get_oauth_client",
    method: Method::Get,
    path: "/admin/oauth/clients/{client_id}",
    access: Access::Needs(&[Scope::AdminRead, Scope::PlatformAdmin]),
    effect: Effect::Read,
    summary: "Read one program that may ask people for tokens (admin).",
    doc: "Its name, redirect URIs and scopes; never its secret.",
    refusals: &[Code::NotFound],
);

operation!(
    /// Removes a client.
    Identity, RemoveOauthClient: OauthClientInput => RemovedOauthClient,
    name: "remove_oauth_client",
    method: Method::Delete,
    path: "/admin/oauth/clients/{client_id}",
    access: Access::Needs(&[Scope::AdminWrite, Scope::PlatformAdmin]),
    effect: Effect::End,
    summary: "Remove a program that may ask people for tokens (admin).",
    doc: "It gets no more tokens, and those that it has end: at once on this server, within 30 seconds on others.",
    refusals: &[Code::NotFound],
);

/// One client.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OauthClientInput {
    /// Its id.
    #[schemars(extend("format" = "uuid"))]
    pub client_id: String,
    /// The tenant. Default: the caller's own; for a platform admin any.
    #[serde(default)]
    pub tenant_id: Option<String>,
}

/// A client that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedOauthClient {
    /// Its id.
    pub client_id: String,
    /// The number of logins whose tokens ended with it.
    pub tokens_revoked: u64,
}
