//! The server to talk to and the key to show: from flags, then the environment, then a profile file.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, bail};
use asyncgate_client::{Client, ClientBuilder, api::PrincipalKind};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{exit::Exit, logins, show::show};

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The arguments that name the server and the key.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct Remote {
    /// The server's address [default: http://127.0.0.1:8080].
    #[arg(long, value_name = "URL", env = "ASYNCGATE_URL")]
    url: Option<String>,
    /// The API key. Better in the environment or a profile than on the command line.
    #[arg(
        long,
        value_name = "KEY",
        env = "ASYNCGATE_API_KEY",
        hide_env_values = true
    )]
    key: Option<String>,
    /// A section of the profile file, which has `url` and `key` [default: default].
    #[arg(long, value_name = "NAME", env = "ASYNCGATE_PROFILE")]
    profile: Option<String>,
    #[command(flatten)]
    certificate: Certificate,
}

/// The arguments for servers that ask clients for a certificate.
#[derive(Debug, Clone, Default, Args)]
pub struct Certificate {
    /// The certificate (PEM) to show to a server that asks for one.
    #[arg(
        long,
        value_name = "FILE",
        env = "ASYNCGATE_CLIENT_CERT",
        requires = "client_key"
    )]
    client_cert: Option<PathBuf>,
    /// The private key (PEM) of that certificate.
    #[arg(
        long,
        value_name = "FILE",
        env = "ASYNCGATE_CLIENT_KEY",
        requires = "client_cert"
    )]
    client_key: Option<PathBuf>,
}

impl Certificate {
    /// Gives the certificate to a client, if there is one.
    pub fn give(&self, builder: ClientBuilder) -> anyhow::Result<ClientBuilder> {
        let (Some(certificate), Some(key)) = (&self.client_cert, &self.client_key) else {
            return Ok(builder);
        };
        let read = |path: &PathBuf| {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(builder.certificate(read(certificate)?, read(key)?))
    }
}

/// One section of the profile file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    url: Option<String>,
    key: Option<String>,
}

impl Remote {
    /// Makes a client for the server that the arguments, the environment or the profile name.
    pub fn client(&self) -> anyhow::Result<Client> {
        let profile = self.read_profile()?;
        let client = self.without_credential(profile.url)?;
        let key = self.key.clone().or(profile.key);
        let key = match key {
            Some(key) => Some(key),
            None => logged_in(client.address())?,
        };
        match key {
            Some(key) => Ok(self.builder(client.address())?.key(key).build()?),
            None => Ok(client),
        }
    }

    fn without_credential(&self, of_profile: Option<String>) -> anyhow::Result<Client> {
        let url = self.url.clone().or(of_profile);
        Ok(self
            .builder(url.as_deref().unwrap_or(DEFAULT_URL))?
            .build()?)
    }

    /// Begins a client that shows the certificate of the arguments, if they name one.
    fn builder(&self, url: &str) -> anyhow::Result<ClientBuilder> {
        self.certificate.give(Client::builder(url))
    }

    fn read_profile(&self) -> anyhow::Result<Profile> {
        let name = self.profile.as_deref().unwrap_or("default");
        let path = profile_file();
        let text = match path.as_ref().map(std::fs::read_to_string) {
            Some(Ok(text)) => text,
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context("cannot read the profile file");
            }
            _ if self.profile.is_none() => return Ok(Profile::default()),
            _ => bail!("there is no profile file, so no profile `{name}`"),
        };
        let mut profiles: BTreeMap<String, Profile> =
            toml::from_str(&text).context("the profile file is not well-formed")?;
        match profiles.remove(name) {
            Some(profile) => Ok(profile),
            None if self.profile.is_none() => Ok(Profile::default()),
            None => bail!("the profile file has no section `{name}`"),
        }
    }
}

/// Returns the token of a login at a server, if there is one.
fn logged_in(server: &str) -> anyhow::Result<Option<String>> {
    match logins::find(server)? {
        Some(login) if login.is_current() => Ok(Some(login.access_token().to_owned())),
        Some(_) => {
            let message = format!("your login at {server} has ended: run `asyncgate login` again");
            Err(Exit::refused(message).into())
        }
        None => Ok(None),
    }
}

fn profile_file() -> Option<PathBuf> {
    Some(config_dir()?.join("profiles.toml"))
}

/// Returns `$XDG_CONFIG_HOME/asyncgate`, or the same below `~/.config`.
pub fn config_dir() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(home)?;
    Some(base.join("asyncgate"))
}

/// The arguments that every command to a server has.
#[derive(Debug, Args)]
pub struct Common {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Common {
    /// Makes a client for the server that the arguments name.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.remote.client()
    }

    /// Makes a client for the server that the arguments name, which shows no credential.
    pub fn client_without_credential(&self) -> anyhow::Result<Client> {
        let profile = self.remote.read_profile()?;
        self.remote.without_credential(profile.url)
    }

    /// Prints `value` as JSON or `text` for people, as the arguments ask.
    pub fn show<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        show(self.json, value, text)
    }
}

/// The argument that names the principal to act for. The server checks that the key allows it.
#[derive(Debug, Clone, Default, Args)]
pub struct As {
    /// Act for this principal: ID, or KIND/ID such as service/billing.
    #[arg(long = "as", value_name = "PRINCIPAL", value_parser = parse_principal)]
    principal: Option<(PrincipalKind, String)>,
}

impl As {
    pub fn kind(&self) -> Option<PrincipalKind> {
        self.principal.as_ref().map(|(kind, _)| *kind)
    }

    pub fn id(&self) -> Option<String> {
        self.principal.as_ref().map(|(_, id)| id.clone())
    }
}

/// Reads a principal: ID, or KIND/ID.
pub fn parse_principal(text: &str) -> Result<(PrincipalKind, String), String> {
    let (kind, id) = text.split_once('/').unwrap_or(("agent", text));
    let kind = serde_json::from_value(kind.into())
        .map_err(|_| "the kind must be agent, worker, service, human or system".to_owned())?;
    Ok((kind, id.to_owned()))
}
