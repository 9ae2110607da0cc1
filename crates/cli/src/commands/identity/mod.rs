//! The commands about who may do what: keys, tenants, macaroons, people, the audit log, and the caller itself.

mod audit;
mod exception;
mod key;
mod macaroon;
mod oauth_client;
mod person;
mod tenant;
mod token;
mod usage;
mod whoami;

use asyncgate_client::{
    Client,
    api::{ListTenantsInput, PrincipalKind, PrincipalName, Scope},
};
use asyncgate_core::TenantId;
use clap::Args;
use futures_util::StreamExt as _;

pub use audit::Audit;
pub use key::Key;
pub use macaroon::Macaroon;
pub use oauth_client::OauthClient;
pub use person::Identity;
pub use tenant::Tenant;
pub use token::Token;
pub use usage::Usage;
pub use whoami::WhoAmI;

use crate::{exit::Exit, remote::parse_principal};

/// The argument that names a tenant. Only a platform admin may name another than its own.
#[derive(Debug, Clone, Default, Args)]
pub struct Within {
    /// The tenant, by its name or its id (platform admin) [default: your own].
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl Within {
    /// Returns the id of the tenant, if one is named.
    async fn id(&self, client: &Client) -> anyhow::Result<Option<String>> {
        match &self.tenant {
            Some(tenant) => Ok(Some(tenant_id(client, tenant).await?)),
            None => Ok(None),
        }
    }
}

/// Returns the id of a tenant that is named by its name or its id.
async fn tenant_id(client: &Client, named: &str) -> anyhow::Result<String> {
    if named.parse::<TenantId>().is_ok() {
        return Ok(named.to_owned());
    }
    let mut tenants = client.tenants(ListTenantsInput::default());
    while let Some(tenant) = tenants.next().await {
        let tenant = tenant?;
        if tenant.name == named {
            return Ok(tenant.tenant_id);
        }
    }
    Err(Exit::not_found(format!("no tenant is called {named}")).into())
}

/// The arguments that say what the bearer of a credential may do.
#[derive(Debug, Clone, Args)]
pub struct Rights {
    /// What the bearer is: agent, worker or admin.
    #[arg(long, value_parser = ["agent", "worker", "admin"])]
    role: String,
    /// Whom the bearer acts as: ID or KIND/ID [default: named like the role].
    #[arg(long, value_name = "PRINCIPAL", value_parser = parse_principal)]
    principal: Option<(PrincipalKind, String)>,
    /// Narrow it to these scopes, such as tasks:read,mailbox:send [default: those of the role].
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', value_parser = scope)]
    scopes: Option<Vec<Scope>>,
}

impl Rights {
    fn principal(&self) -> PrincipalName {
        let (kind, id) = self.principal.clone().unwrap_or_else(|| {
            let kind = match self.role.as_str() {
                "worker" => PrincipalKind::Worker,
                "agent" => PrincipalKind::Agent,
                _ => PrincipalKind::Service,
            };
            (kind, self.role.clone())
        });
        PrincipalName { kind, id }
    }
}

/// Reads a scope.
pub fn scope(text: &str) -> Result<Scope, String> {
    let unknown = |_| format!("`{text}` is no scope; they look like tasks:read or mailbox:send");
    serde_json::from_value(text.into()).map_err(unknown)
}

/// Reads a principal for an input.
fn principal_name(text: &str) -> Result<PrincipalName, String> {
    let (kind, id) = parse_principal(text)?;
    Ok(PrincipalName { kind, id })
}

/// Reads a length of time: seconds, or a number with s, m, h or d behind it.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "must be a number of seconds, or like 90s, 15m, 12h or 30d".to_owned();
    let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// Formats scopes with spaces between them.
pub fn scopes(scopes: &[Scope]) -> String {
    let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    names.join(" ")
}

/// Formats a time that may be absent.
fn or_dash(text: Option<&String>) -> String {
    text.map_or_else(|| "-".to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("90", Some(90)),
            ("90s", Some(90)),
            ("15m", Some(900)),
            ("12h", Some(43_200)),
            ("30d", Some(2_592_000)),
            ("", None),
            ("d", None),
            ("1w", None),
            ("1dd", None),
            ("-1", None),
            ("1.5h", None),
            ("99999999999999999999d", None),
            ("9999999999999999999d", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_principal_is_named_like_the_role_unless_it_is_named() {
        let rights = |role: &str, principal: Option<&str>| Rights {
            role: role.to_owned(),
            principal: principal.map(|text| parse_principal(text).unwrap()),
            scopes: None,
        };
        for (role, principal, kind, id) in [
            ("worker", None, PrincipalKind::Worker, "worker"),
            ("agent", None, PrincipalKind::Agent, "agent"),
            ("admin", None, PrincipalKind::Service, "admin"),
            ("worker", Some("worker/w1"), PrincipalKind::Worker, "w1"),
            ("admin", Some("human/ada"), PrincipalKind::Human, "ada"),
        ] {
            let named = rights(role, principal).principal();
            assert_eq!((named.kind, named.id.as_str()), (kind, id));
        }
    }
}
