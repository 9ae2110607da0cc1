//! `GET /oauth/authorize`: a client sends a person here to log in.

use std::sync::Arc;

use asyncgate_core::identity::{
    OauthClient,
    manage::people::LOCAL,
    oauth::{self, AuthorizationRequest, ErrorCode, Params, is_loopback},
};
use asyncgate_engine::Fault;
use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use crate::{
    app::{App, Asked, error_address, go_to, with_query},
    cookie, form,
    page::{self, Choice},
    pending::{Kept, Pending},
};

/// Begins a login.
pub(crate) async fn authorize(
    app: Arc<App>,
    asked: Asked,
    _: Body,
) -> Result<Response<Body>, Fault> {
    let params = form::query(&asked.parts.uri)?;
    let client = app.client(&oauth::client_name(&params)?).await?;
    // Until here the answer stays on this server: whoever made the link may be anybody.
    let redirect_uri = oauth::redirect_uri(client.as_ref(), &params)?;
    let Some(client) = client.as_ref() else {
        return Err(oauth::Refusal::request("client_id names no client").into());
    };
    let state = params.get("state").unwrap_or_default();
    let refuse = |code, description: &str| {
        let address = error_address(&asked.base, redirect_uri, state, code, description);
        go_to(StatusCode::FOUND, &address)
    };
    let request = match oauth::check(client, &params, &asked.base) {
        Ok(request) => request,
        Err(refusal) => return refuse(refusal.code, refusal.description),
    };
    match app.way(&params) {
        Ok(way) => app.lead(way, client, request, &asked, &params).await,
        Err(refusal) => refuse(refusal.code, refusal.description),
    }
}

/// How a person logs in.
enum Way {
    /// With a password that is kept here.
    Local,
    /// At a provider.
    At(String),
    /// As the person chooses.
    Choose,
}

impl App {
    /// Returns how the person of a request logs in: as the request says, or by the only way that there is.
    fn way(&self, params: &Params) -> Result<Way, oauth::Refusal> {
        let local = self.oauth.settings().local_login;
        let mut names = self.providers.names();
        match (params.get("provider")?, names.next(), names.next()) {
            (Some(LOCAL), _, _) if local => Ok(Way::Local),
            (Some(named), _, _) => match self.providers.get(named) {
                Some(_) => Ok(Way::At(named.to_owned())),
                None => Err(oauth::Refusal::request("provider names no provider")),
            },
            (None, Some(only), None) => Ok(Way::At(only.to_owned())),
            (None, Some(_), Some(_)) => Ok(Way::Choose),
            (None, None, _) if local => Ok(Way::Local),
            (None, None, _) => Err(oauth::Refusal::new(
                ErrorCode::ServerError,
                "this server has no way to log in",
            )),
        }
    }

    /// Leads the person to where they log in.
    async fn lead(
        &self,
        way: Way,
        client: &OauthClient,
        request: AuthorizationRequest,
        asked: &Asked,
        params: &Params,
    ) -> Result<Response<Body>, Fault> {
        let needs_consent = needs_consent(client, &request);
        let pending = Pending::begin(&self.oauth, &asked.base, request)?;
        let choices = || self.choices(asked, params);
        match way {
            Way::Local => self.login_page(StatusCode::OK, &pending, client, None),
            Way::At(provider) if needs_consent => {
                let one = |choice: &Choice| choice.provider == provider;
                let choices: Vec<Choice> = choices().into_iter().filter(one).collect();
                self.consent_page(&pending, client, &choices)
            }
            Way::At(provider) => {
                self.send_to_provider(pending, &provider, StatusCode::FOUND)
                    .await
            }
            Way::Choose if needs_consent => self.consent_page(&pending, client, &choices()),
            Way::Choose => Ok(page::choose(&pending, client, &choices())),
        }
    }

    /// Returns the ways to log in, each with the link that goes on with the same request.
    fn choices(&self, asked: &Asked, params: &Params) -> Vec<Choice> {
        let query = asked.parts.uri.query().unwrap_or_default();
        let is_chosen = params.get("provider").is_ok_and(|named| named.is_some());
        let local = self.oauth.settings().local_login && !is_chosen;
        let names = self.providers.names().map(str::to_owned);
        let names = names.chain(local.then(|| LOCAL.to_owned()));
        names
            .map(|provider| Choice {
                link: with_query(&format!("authorize?{query}"), &[("provider", &provider)]),
                provider,
            })
            .collect()
    }

    /// Shows the page on which a person types a password.
    pub(crate) fn login_page(
        &self,
        status: StatusCode,
        pending: &Pending,
        client: &OauthClient,
        trouble: Option<&str>,
    ) -> Result<Response<Body>, Fault> {
        let sealed = pending.seal(&self.oauth, Kept::Form)?;
        let mut page = page::login(status, pending, client, &sealed, trouble);
        let secure = pending.is_secure();
        cookie::set(page.headers_mut(), &pending.id, &pending.id, secure);
        Ok(page)
    }

    fn consent_page(
        &self,
        pending: &Pending,
        client: &OauthClient,
        choices: &[Choice],
    ) -> Result<Response<Body>, Fault> {
        let sealed = pending.seal(&self.oauth, Kept::Form)?;
        let mut page = page::agree(pending, client, &sealed, choices);
        let secure = pending.is_secure();
        cookie::set(page.headers_mut(), &pending.id, &pending.id, secure);
        Ok(page)
    }
}

/// Returns true if a person must agree before a login begins: a provider that knows the person lets them in without a
/// word, and nobody has looked at this client. What is sent to the person's own machine reaches nobody else.
fn needs_consent(client: &OauthClient, request: &AuthorizationRequest) -> bool {
    client.expires_at.is_some() && !is_loopback(&request.redirect_uri)
}
