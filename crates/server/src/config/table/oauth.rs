//! Settings of OAuth: how long tokens live, where people log in, and who may register.

use super::super::key::Key;
use super::super::rule::Rule;
use super::super::table_value::Kind;
use super::{integer, live};

pub(super) static KEYS: &[Key] = &[
    live(
        "security.jwt.access_token_ttl_days",
        "30",
        integer(5, 90),
        "The days for which an access token is valid.",
    ),
    live(
        "security.jwt.refresh_token_ttl_days",
        "90",
        integer(1, 3_650),
        "The days for which a refresh token is valid; each use gives a new one.",
    ),
    live(
        "security.oauth.enabled",
        "true",
        Rule::Switch,
        "Serves /oauth and the documents under /.well-known, by which programs get access tokens for people.",
    ),
    live(
        "security.oauth.providers",
        "",
        Rule::Table(Kind::Providers),
        "The OpenID Connect providers at which people log in, each with name, discovery_url, client_id, client_secret and scopes; with one provider people are sent straight there, with several they choose.",
    ),
    live(
        "security.oauth.local_login",
        "true",
        Rule::Switch,
        "Lets people of the provider local log in with the password that an admin gave them; beside a single provider only if the request says provider=local.",
    ),
    live(
        "security.oauth.dynamic_registration",
        "true",
        Rule::Switch,
        "Lets clients register themselves at /oauth/register, as those of MCP do; they never act for an admin, and are forgotten if nobody uses them.",
    ),
    live(
        "security.oauth.client_metadata_documents",
        "true",
        Rule::Switch,
        "Takes the https address of a client metadata document for a client_id: the server fetches the document, from the public internet only; such clients are treated like those that register themselves.",
    ),
    live(
        "security.oauth.registration_tenant",
        "default",
        Rule::Name,
        "The tenant, by name or id, whose people may use clients that registered themselves or that a document describes.",
    ),
];
