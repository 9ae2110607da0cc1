//! The table of ingresses as an operator writes it.

use std::collections::BTreeMap;

use asyncgate_core::admission::MAX_SECS;
use asyncgate_core::identity::DEFAULT_TENANT;
use asyncgate_core::{Principal, PrincipalKind};
use asyncgate_engine::{Ingress, Ingresses, LimitBy, Provider, Secret};
use serde::Deserialize;
use serde_json::Value;

/// The largest difference of clocks that makes sense: a day.
const MAX_WINDOW_SECS: u64 = 86_400;
const MAX_BODY_BYTES: usize = 64 << 20;
const MAX_NAME: usize = 128;
/// The name of the default tenant, which is also meant when `tenant` is left out.
const DEFAULT: &str = "default";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    provider: Option<String>,
    // Not strings: serde would quote a wrong one in its error, and these are secrets.
    secrets: Value,
    tenant: Option<String>,
    principal: Option<WrittenPrincipal>,
    task_type: Option<String>,
    policy: Option<String>,
    key: Option<String>,
    #[serde(default = "window")]
    timestamp_window_secs: u64,
    nonce_ttl_secs: Option<u64>,
    #[serde(default = "body")]
    max_body_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPrincipal {
    kind: String,
    id: String,
}

const fn window() -> u64 {
    300
}

/// Returns the time for which nonces are remembered if the settings do not tell. Providers send a message
/// again for days, with the same id, when the answer to it was lost.
const fn ttl(provider: Provider) -> u64 {
    match provider {
        Provider::Own => 600,
        Provider::GitHub | Provider::Stripe | Provider::StandardWebhooks => 7 * 86_400,
    }
}

const fn body() -> usize {
    1 << 20
}

/// Parses the table. An error names the ingress and never quotes a secret.
pub fn parse(text: &str) -> Result<Ingresses, String> {
    let written: BTreeMap<String, Value> = match text.is_empty() {
        true => BTreeMap::new(),
        false => serde_json::from_str(text)
            .map_err(|_| "must be tables by the names of ingresses".to_owned())?,
    };
    let ingresses = written.into_iter().map(|(name, written)| {
        let ingress = ingress(&name, written);
        let ingress = ingress.map_err(|wrong| format!("{name}: {wrong}"))?;
        Ok((name, ingress))
    });
    ingresses.collect()
}

fn ingress(name: &str, written: Value) -> Result<Ingress, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(format!(
            "its name must have 1 to {MAX_NAME} letters, digits, and -_."
        ));
    }
    if !written.is_object() {
        return Err("it must be a table".to_owned());
    }
    let written: Written = serde_json::from_value(written).map_err(|error| error.to_string())?;
    let provider = provider(written.provider.as_deref())?;
    let secrets = secrets(provider, &written.secrets)?;
    let tenant = written.tenant.as_deref().unwrap_or(DEFAULT);
    let tenant = match tenant {
        DEFAULT => DEFAULT_TENANT,
        id => id
            .parse()
            .map_err(|_| "tenant must be default or the id of a tenant")?,
    };
    let window = written.timestamp_window_secs;
    let ttl = written.nonce_ttl_secs.unwrap_or_else(|| ttl(provider));
    if window > MAX_WINDOW_SECS {
        return Err(format!(
            "timestamp_window_secs must be at most {MAX_WINDOW_SECS}"
        ));
    }
    // A message that is dated one window ahead stays valid for two windows. Its nonce must be
    // remembered for as long, or the message could be used twice.
    if ttl > MAX_SECS || ttl < (2 * window).max(1) {
        return Err(format!(
            "nonce_ttl_secs must be at least twice timestamp_window_secs, and at most {MAX_SECS}"
        ));
    }
    if !(1..=MAX_BODY_BYTES).contains(&written.max_body_bytes) {
        return Err(format!("max_body_bytes must be 1 to {MAX_BODY_BYTES}"));
    }
    let principal = match written.principal {
        Some(WrittenPrincipal { kind, id }) => Principal::new(kind_of(&kind)?, named("id", id)?),
        None => Principal::new(PrincipalKind::Service, name),
    };
    let task_type = written
        .task_type
        .unwrap_or_else(|| format!("ingress.{name}"));
    Ok(Ingress {
        provider,
        secrets,
        tenant,
        principal,
        task_type: named("task_type", task_type)?,
        policy: written.policy.unwrap_or_else(|| "client".to_owned()),
        key: match written.key.as_deref() {
            None | Some("ip") => LimitBy::Address,
            Some(path) => limit_by(path)?,
        },
        timestamp_window_secs: window,
        nonce_ttl_secs: ttl,
        max_body_bytes: written.max_body_bytes,
    })
}

fn provider(name: Option<&str>) -> Result<Provider, String> {
    let Some(name) = name else {
        return Ok(Provider::Own);
    };
    let found = Provider::ALL
        .into_iter()
        .find(|known| known.as_str() == name);
    found.ok_or_else(|| {
        let known = Provider::ALL.map(Provider::as_str).join(", ");
        format!("provider must be one of {known}")
    })
}

fn secrets(provider: Provider, written: &Value) -> Result<Vec<Secret>, String> {
    let secret = |secret: &Value| {
        let text = secret.as_str().filter(|text| !text.is_empty())?;
        Some(provider.secret(text))
    };
    let written = written.as_array().filter(|written| !written.is_empty());
    let texts: Option<Vec<_>> = written.and_then(|written| written.iter().map(secret).collect());
    let texts = texts.ok_or("secrets must be a list of at least one text")?;
    let secrets: Option<Vec<Secret>> = texts.into_iter().collect();
    secrets.ok_or_else(|| {
        let name = provider.as_str();
        format!("each of secrets must have the form that {name} gives it: whsec_ and base64")
    })
}

fn limit_by(path: &str) -> Result<LimitBy, String> {
    let names: Vec<String> = path.split('.').map(str::to_owned).collect();
    match names.iter().any(String::is_empty) {
        true => Err("key must be ip or names with dots between them".to_owned()),
        false => Ok(LimitBy::Field(names)),
    }
}

/// Checks a name by the rules for names of tasks and principals.
fn named(field: &str, text: String) -> Result<String, String> {
    let fit = !text.is_empty() && text.len() <= MAX_NAME && !text.contains(char::is_control);
    match fit {
        true => Ok(text),
        false => Err(format!(
            "{field} must have 1 to {MAX_NAME} bytes and no control characters"
        )),
    }
}

fn kind_of(kind: &str) -> Result<PrincipalKind, String> {
    match kind {
        "agent" => Ok(PrincipalKind::Agent),
        "worker" => Ok(PrincipalKind::Worker),
        "service" => Ok(PrincipalKind::Service),
        "human" => Ok(PrincipalKind::Human),
        _ => Err("the kind of principal must be agent, worker, service or human".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_contract() {
        let read = parse(r#"{"hooks": {"secrets": ["a", "b"]}}"#);
        let read = read.unwrap();
        let hooks = &read["hooks"];
        assert_eq!(hooks.secrets.len(), 2);
        assert_eq!(hooks.tenant, DEFAULT_TENANT);
        assert_eq!(
            hooks.principal,
            Principal::new(PrincipalKind::Service, "hooks")
        );
        assert_eq!(
            (hooks.task_type.as_str(), hooks.policy.as_str(), &hooks.key),
            ("ingress.hooks", "client", &LimitBy::Address)
        );
        let numbers = (
            hooks.timestamp_window_secs,
            hooks.nonce_ttl_secs,
            hooks.max_body_bytes,
        );
        assert_eq!(numbers, (300, 600, 1_048_576));
        assert!(parse("").unwrap().is_empty());
        assert_eq!(hooks.provider, Provider::Own);
        for name in ["github", "stripe", "standard-webhooks"] {
            let table = format!(
                r#"{{"x": {{"provider": "{name}", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}}}}"#
            );
            let read = parse(&table).unwrap();
            assert_eq!(read["x"].provider.as_str(), name);
            assert_eq!(read["x"].nonce_ttl_secs, 604_800);
        }
    }

    #[test]
    fn what_is_wrong_is_told_without_the_secret() {
        for (table, told) in [
            (r#"{"x": "hunter2"}"#, "x: it must be a table"),
            (r#"{"x": {}}"#, "x: missing field `secrets`"),
            (r#"{"x": {"secrets": "hunter2"}}"#, "x: secrets must be"),
            (r#"{"x": {"secrets": []}}"#, "x: secrets must be"),
            (r#"{"x": {"secrets": ["hunter2", 7]}}"#, "x: secrets must"),
            (r#"{"x": {"secrets": ["hunter2", ""]}}"#, "x: secrets must"),
            (r#"{"a b": {"secrets": ["hunter2"]}}"#, "a b: its name"),
            (
                r#"{"x": {"secrets": ["hunter2"], "tenant": "other"}}"#,
                "x: tenant",
            ),
            (
                r#"{"x": {"secrets": ["hunter2"], "nonce_ttl_secs": 599}}"#,
                "x: nonce_ttl_secs",
            ),
            (
                r#"{"x": {"secrets": ["hunter2"], "provider": "gitlab"}}"#,
                "x: provider must be one of asyncgate, github, stripe, standard-webhooks",
            ),
            (
                r#"{"x": {"secrets": ["whsec_hunter2!"], "provider": "standard-webhooks"}}"#,
                "x: each of secrets",
            ),
            (
                r#"{"x": {"secrets": ["hunter2"], "max_body_bytes": 0}}"#,
                "x: max_body_bytes",
            ),
            (
                r#"{"x": {"secrets": ["hunter2"], "key": "a..b"}}"#,
                "x: key",
            ),
            (
                r#"{"x": {"secrets": ["hunter2"], "principal": {"kind": "system", "id": "x"}}}"#,
                "x: the kind",
            ),
            (
                r#"{"x": {"secrets": ["hunter2"], "secret": 1}}"#,
                "x: unknown field",
            ),
        ] {
            let wrong = parse(table).unwrap_err();
            assert!(wrong.contains(told), "{told}: {wrong}");
            assert!(!wrong.contains("hunter2"), "{wrong}");
        }
    }
}
