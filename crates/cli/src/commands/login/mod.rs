//! `asyncgate login` and `asyncgate logout`: a person enters by the browser, and later commands act as that person.
//!
//! The authorization code comes to a port of this machine (RFC 8252), and only this process can exchange it, because
//! it alone knows the secret whose hash the login began with (RFC 7636).

mod callback;

use std::{
    io::{IsTerminal as _, stderr},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use asyncgate_client::{Client, CodeExchange, Tokens, api::Scope};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use self::callback::Callback;
use super::identity::scope;
use crate::{
    exit::Exit,
    logins::{self, Kept},
    output,
    remote::Common,
    show::who,
};

/// The longest time that a person may take to log in.
const PATIENCE: Duration = Duration::from_secs(600);

/// The arguments of `asyncgate login`.
#[derive(Debug, Args)]
#[command(after_help = "\
The token is kept in a file that only you can read. Commands use it when no key is set.

Examples:
  asyncgate login
  asyncgate login --url https://gate.example.com
  asyncgate login --client 019a2f6e-... --port 8976      registered with http://127.0.0.1:8976/callback")]
pub struct Login {
    /// A client that an admin registered [default: this program registers itself].
    #[arg(long, value_name = "CLIENT_ID", requires = "port")]
    client: Option<String>,
    /// The port of this machine to which the login is sent back [default: a free one].
    #[arg(long)]
    port: Option<u16>,
    /// Ask for these scopes, such as tasks:read,mailbox:send [default: what the client may have].
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', value_parser = scope)]
    scopes: Option<Vec<Scope>>,
    /// Only print the address; do not open a browser.
    #[arg(long)]
    no_browser: bool,
    #[command(flatten)]
    common: Common,
}

/// The arguments of `asyncgate logout`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  asyncgate logout")]
pub struct Logout {
    #[command(flatten)]
    common: Common,
}

/// What a login came to, for programs.
#[derive(Debug, Serialize)]
struct LoggedIn {
    server: String,
    tenant_id: String,
    principal: String,
    role: String,
    scopes: String,
}

impl Login {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client_without_credential()?;
        let kept = match self.renewed(&client).await {
            Some(kept) => kept,
            None => self.enter(&client).await?,
        };
        logins::keep(client.address(), kept.clone())?;
        let entered = Client::new(client.address(), kept.access_token())?;
        let me = entered.whoami().await?;
        let answer = LoggedIn {
            server: client.address().to_owned(),
            principal: who(&me.principal),
            tenant_id: me.tenant_id,
            role: me.role,
            scopes: super::identity::scopes(&me.scopes),
        };
        self.common.show(&answer, || {
            format!("You are {} at {}.", answer.principal, answer.server)
        })
    }

    /// Renews a login that is still known, if nothing else is asked for than what it has.
    async fn renewed(&self, client: &Client) -> Option<Kept> {
        if self.client.is_some() || self.scopes.is_some() {
            return None;
        }
        let kept = logins::find(client.address()).ok()??;
        let tokens = client.refresh(kept.client_id(), kept.refresh_token()?);
        // Whatever the reason is, a new login helps.
        let tokens = tokens.await.ok()?;
        Some(Kept::new(kept.client_id(), tokens))
    }

    /// Leads a person through the browser.
    async fn enter(&self, client: &Client) -> anyhow::Result<Kept> {
        let server = client.login_server().await?;
        let listener = TcpListener::bind(("127.0.0.1", self.port.unwrap_or(0)))
            .await
            .context("cannot listen on this machine for the end of the login")?;
        let redirect_uri = format!("http://{}/callback", listener.local_addr()?);
        let client_id = match (&self.client, &server.registration_endpoint) {
            (Some(client_id), _) => client_id.clone(),
            (None, Some(_)) => {
                let registered = client.register_program("asyncgate command line", &redirect_uri);
                registered.await?
            }
            (None, None) => {
                let message = "programs cannot register themselves at this server: ask an admin for a client and \
                               use --client and --port";
                return Err(Exit::usage(message).into());
            }
        };
        let (verifier, state) = (secret()?, secret()?);
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let mut query = vec![
            ("response_type", "code".to_owned()),
            ("client_id", client_id.clone()),
            ("redirect_uri", redirect_uri.clone()),
            ("state", state.clone()),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256".to_owned()),
        ];
        if let Some(scopes) = &self.scopes {
            query.push(("scope", super::identity::scopes(scopes)));
        }
        let address = with_query(&server.authorization_endpoint, &query);
        output::mutter(&format!("Log in with a browser at:\n  {address}"));
        if !self.no_browser && stderr().is_terminal() {
            open_browser(&address);
        }
        let callback = Callback {
            state,
            issuer: server.issuer,
        };
        let code = tokio::time::timeout(PATIENCE, callback.wait(&listener));
        let code = code.await.context("nobody logged in in time")??;
        let tokens: Tokens = client
            .exchange_code(&CodeExchange {
                client_id: &client_id,
                code: &code,
                redirect_uri: &redirect_uri,
                code_verifier: &verifier,
            })
            .await?;
        Ok(Kept::new(&client_id, tokens))
    }
}

impl Logout {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client_without_credential()?;
        let Some(kept) = logins::take(client.address())? else {
            let answer = serde_json::json!({ "ended": false });
            return self
                .common
                .show(&answer, || "You were not logged in.".to_owned());
        };
        // The file is gone in any case. A server that cannot be reached is worth a word.
        if let Some(refresh_token) = kept.refresh_token() {
            client.end_login(kept.client_id(), refresh_token).await?;
        }
        let answer = serde_json::json!({ "ended": true });
        self.common.show(&answer, || "Logged out.".to_owned())
    }
}

/// Returns 256 random bits as text.
#[expect(
    clippy::disallowed_methods,
    reason = "a login must not be guessed, and takes no part in decisions of the server"
)]
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("this machine has no random source")?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

fn with_query(address: &str, query: &[(&str, String)]) -> String {
    let pairs = query.iter().map(|(name, value)| {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        format!("{name}={value}")
    });
    format!("{address}?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// Opens the person's browser. Where that fails, the person has the address.
fn open_browser(address: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let _ = Command::new(program)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stands_in_the_address() {
        let query = [("a", "b c&d".to_owned()), ("e", "http://f".to_owned())];
        let address = with_query("https://h/x", &query);
        assert_eq!(address, "https://h/x?a=b%20c%26d&e=http%3A%2F%2Ff");
    }

    #[test]
    fn secrets_differ_and_are_long_enough_for_a_verifier() {
        let (one, other) = (secret().unwrap(), secret().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 43);
    }
}
