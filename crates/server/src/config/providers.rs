//! The providers at which people log in, as an operator writes them.

use std::collections::BTreeSet;

use asyncgate_core::identity::manage::people::LOCAL;
use asyncgate_core::identity::oauth::check_redirect;
use asyncgate_engine::NewSecret;
use asyncgate_oauth::ProviderSettings;
use serde::Deserialize;
use serde_json::Value;

/// The longest name of a provider. It stands in addresses and in cookies.
const MAX_NAME_BYTES: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    discovery_url: String,
    client_id: String,
    // Not a string: serde would quote a wrong one in its error, and this is a secret.
    #[serde(default)]
    client_secret: Value,
    #[serde(default = "usual_scopes")]
    scopes: String,
}

fn usual_scopes() -> String {
    "openid email".to_owned()
}

/// Parses the list of providers. An error never quotes the text.
pub fn parse(text: &str) -> Result<Vec<ProviderSettings>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let written: Vec<Written> = serde_json::from_str(text).map_err(|_| {
        "must be a list of tables with name, discovery_url, client_id, client_secret and scopes"
            .to_owned()
    })?;
    let mut names = BTreeSet::new();
    for provider in &written {
        if !names.insert(&provider.name) {
            return Err(format!("{} stands there twice", provider.name));
        }
    }
    drop(names);
    written.into_iter().map(provider).collect()
}

fn provider(written: Written) -> Result<ProviderSettings, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let name = written.name;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
        return Err("a name must have 1 to 64 letters, digits, - and _".to_owned());
    }
    if name == LOCAL {
        return Err("no provider can have the name local".to_owned());
    }
    if check_redirect(&written.discovery_url).is_err() {
        return Err(format!(
            "the discovery_url of {name} must begin with https://, or with http:// on a loopback host"
        ));
    }
    if written.client_id.is_empty() {
        return Err(format!("{name} needs a client_id"));
    }
    let asks = |scope| written.scopes.split(' ').any(|named| named == scope);
    if !asks("openid") {
        return Err(format!("the scopes of {name} must have openid"));
    }
    let client_secret = match written.client_secret {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(NewSecret::new(text)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return Err(format!("the client_secret of {name} must be a text"));
        }
    };
    Ok(ProviderSettings {
        name,
        discovery_url: written.discovery_url,
        client_id: written.client_id,
        client_secret,
        scopes: written.scopes,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        json!({
            "name": "acme",
            "discovery_url": "https://id.example/.well-known/openid-configuration",
            "client_id": "gate",
            "client_secret": "s3cret",
        })
    }

    #[test]
    fn a_provider_is_read() {
        assert!(parse("").unwrap().is_empty());
        assert!(parse("[]").unwrap().is_empty());
        let providers = parse(&json!([good()]).to_string()).unwrap();
        let [acme] = providers.as_slice() else {
            panic!("there is one");
        };
        assert_eq!(
            (acme.name.as_str(), acme.scopes.as_str()),
            ("acme", "openid email")
        );
        let secret = acme.client_secret.as_ref().unwrap();
        assert_eq!(secret.reveal(), "s3cret");
        assert!(!format!("{acme:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_wrong_is_told_without_the_secret() {
        for (name, value) in [
            ("name", json!("")),
            ("name", json!("a/b")),
            ("name", json!("local")),
            ("discovery_url", json!("http://id.example/")),
            ("client_id", json!("")),
            ("client_secret", json!(["s3cret"])),
            ("scopes", json!("email")),
            ("unknown", json!("s3cret")),
        ] {
            let mut wrong = good();
            wrong[name] = value;
            let told = parse(&json!([wrong]).to_string()).unwrap_err();
            assert!(!told.contains("s3cret"), "{told}");
        }
        let twice = parse(&json!([good(), good()]).to_string());
        assert!(twice.unwrap_err().contains("twice"));
        assert!(parse("{}").is_err());
    }
}
