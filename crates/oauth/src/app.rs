//! The routes, and what they share.

use std::sync::{Arc, PoisonError, RwLock};

use asyncgate_api::Code;
use asyncgate_core::identity::oauth::{AuthorizationRequest, ErrorCode};
use asyncgate_edge::{answer, correlate, request_context, response};
use asyncgate_engine::{
    Fault, UserAgent,
    oauth::{Oauth, OauthSettings},
};
use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, Response, StatusCode, header, request::Parts},
    routing::{get, post},
};
use futures_util::future::BoxFuture;

use crate::{
    OwnAddress, authorize, callback,
    client_document::{DocumentOptions, Documents},
    consent, documents, login,
    provider::{ProviderSettings, Providers},
    register, token,
};

const AUTHORIZE: &str = "/oauth/authorize";
const CALLBACK: &str = "/oauth/callback/{provider}";
const LOGIN: &str = "/oauth/login";
const CONSENT: &str = "/oauth/consent";
const TOKEN: &str = "/oauth/token";
const REVOKE: &str = "/oauth/revoke";
const REGISTER: &str = "/oauth/register";
const JWKS: &str = "/oauth/jwks";
const WELL_KNOWN_JWKS: &str = "/.well-known/jwks.json";
const SERVER_METADATA: &str = "/.well-known/oauth-authorization-server";
const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";
const MCP_METADATA: &str = "/.well-known/oauth-protected-resource/mcp";

/// Every route.
pub const PATHS: [&str; 12] = [
    AUTHORIZE,
    CALLBACK,
    LOGIN,
    CONSENT,
    TOKEN,
    REVOKE,
    REGISTER,
    JWKS,
    WELL_KNOWN_JWKS,
    SERVER_METADATA,
    RESOURCE_METADATA,
    MCP_METADATA,
];

/// The settings of the facade.
#[derive(Debug, Clone)]
pub struct Options {
    /// True if the routes are served. The others answer as if there were none.
    pub enabled: bool,
    /// The address of this server.
    pub own: OwnAddress,
    /// The providers of identities.
    pub providers: Vec<ProviderSettings>,
    /// Where documents about clients may be. A reload does not change it.
    pub documents: DocumentOptions,
}

/// What the routes share while a request is answered.
pub(crate) struct App {
    pub(crate) oauth: Oauth,
    pub(crate) own: OwnAddress,
    pub(crate) providers: Providers,
    pub(crate) documents: Arc<Documents>,
    enabled: bool,
}

/// The routes of OAuth, whose settings can change while they are served.
#[derive(Clone)]
pub struct Facade(Arc<RwLock<Arc<App>>>);

impl std::fmt::Debug for Facade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Facade").field(&self.app().oauth).finish()
    }
}

impl Facade {
    /// Puts the routes together.
    pub fn new(oauth: Oauth, options: Options) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(App {
            oauth,
            own: options.own,
            providers: Providers::new(options.providers),
            documents: Arc::new(Documents::new(options.documents)),
            enabled: options.enabled,
        }))))
    }

    /// Puts other settings in force for requests that begin after this. A login under way goes on by the new ones.
    pub fn reload(&self, settings: OauthSettings, options: Options) {
        let mut app = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *app = Arc::new(App {
            oauth: app.oauth.with_settings(settings),
            own: options.own,
            providers: app.providers.with_settings(options.providers),
            documents: Arc::clone(&app.documents),
            enabled: options.enabled,
        });
    }

    /// Returns the routes.
    pub fn router(&self) -> Router {
        Router::new()
            .route(AUTHORIZE, get(serve(self, authorize::authorize)))
            .route(CALLBACK, get(serve(self, callback::callback)))
            .route(LOGIN, post(serve(self, login::log_in)))
            .route(CONSENT, post(serve(self, consent::consent)))
            .route(TOKEN, post(serve(self, token::token)))
            .route(REVOKE, post(serve(self, token::revoke)))
            .route(REGISTER, post(serve(self, register::register)))
            .route(JWKS, get(serve(self, documents::keys)))
            .route(WELL_KNOWN_JWKS, get(serve(self, documents::keys)))
            .route(SERVER_METADATA, get(serve(self, documents::server)))
            .route(RESOURCE_METADATA, get(serve(self, documents::resource)))
            .route(MCP_METADATA, get(serve(self, documents::mcp_resource)))
    }

    fn app(&self) -> Arc<App> {
        let app = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&app)
    }
}

/// A request whose body is still to come, with what is known about it.
pub(crate) struct Asked {
    pub(crate) parts: Parts,
    /// The address of this server, as the sender knows it.
    pub(crate) base: String,
}

/// Makes a route of a function that answers requests.
fn serve<F, W>(
    facade: &Facade,
    work: F,
) -> impl Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Clone + Send + Sync + 'static
where
    F: Fn(Arc<App>, Asked, Body) -> W + Copy + Send + Sync + 'static,
    W: Future<Output = Result<Response<Body>, Fault>> + Send + 'static,
{
    let facade = facade.clone();
    move |request| {
        let app = facade.app();
        Box::pin(async move {
            let corr_id = correlate(request.headers(), || app.oauth.engine().corr_id());
            let agent = UserAgent::new(request_context(request.headers()).user_agent);
            let work = async move {
                if !app.enabled {
                    return Err(no_route());
                }
                let (parts, body) = request.into_parts();
                let asked = Asked {
                    base: app.own.of(&parts.uri, &parts.headers),
                    parts,
                };
                work(app, asked, body).await
            };
            let mut response = agent.scope(answer(&corr_id, work)).await;
            if response.headers().contains_key(header::WWW_AUTHENTICATE) {
                // Clients show themselves here, not callers with a token.
                let basic = HeaderValue::from_static("Basic realm=\"asyncgate\"");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, basic);
            }
            response
        })
    }
}

/// Makes the fault of a route that the settings do not want.
pub(crate) fn no_route() -> Fault {
    Fault::new(Code::NotFound, "no such route")
}

/// Sends the browser on with a GET.
pub(crate) fn go_to(status: StatusCode, address: &str) -> Result<Response<Body>, Fault> {
    let location = HeaderValue::from_str(address)
        .map_err(|_| Fault::new(Code::Internal, "the address cannot be written"))?;
    let mut response = response(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Returns the client's address with an answer for it.
pub(crate) fn client_address(
    base: &str,
    request: &AuthorizationRequest,
    answer: &[(&str, &str)],
) -> String {
    address_of(
        base,
        &request.redirect_uri,
        request.state.as_deref(),
        answer,
    )
}

/// Returns the client's address with an error for it.
pub(crate) fn error_address(
    base: &str,
    redirect_uri: &str,
    state: Option<&str>,
    code: ErrorCode,
    description: &str,
) -> String {
    let answer = [("error", code.as_str()), ("error_description", description)];
    address_of(base, redirect_uri, state, &answer)
}

fn address_of(
    base: &str,
    redirect_uri: &str,
    state: Option<&str>,
    answer: &[(&str, &str)],
) -> String {
    let mut pairs = answer.to_vec();
    pairs.extend(state.map(|state| ("state", state)));
    // The client knows by it whose answer this is (RFC 9207).
    pairs.push(("iss", base));
    with_query(redirect_uri, &pairs)
}

/// Adds parameters to an address that has no fragment.
pub(crate) fn with_query(address: &str, pairs: &[(&str, &str)]) -> String {
    let query = serde_urlencoded::to_string(pairs).unwrap_or_default();
    let joint = match address.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    format!("{address}{joint}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_join_those_that_are_there() {
        for (address, expected) in [
            (
                "https://a.example/cb",
                "https://a.example/cb?x=1+%26&y=%C3%A9",
            ),
            (
                "https://a.example/cb?",
                "https://a.example/cb?x=1+%26&y=%C3%A9",
            ),
            (
                "https://a.example/cb?k=v",
                "https://a.example/cb?k=v&x=1+%26&y=%C3%A9",
            ),
        ] {
            let joined = with_query(address, &[("x", "1 &"), ("y", "\u{e9}")]);
            assert_eq!(joined, expected);
        }
    }
}
