//! A provider's description of itself (OpenID Connect Discovery).

use asyncgate_core::identity::oauth::check_redirect;
use serde::Deserialize;

use super::Failed;

/// The end of the address of every description.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// What matters of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// The provider's name for itself.
    pub(crate) issuer: String,
    /// Where people log in.
    pub(crate) authorization_endpoint: String,
    /// Where codes are exchanged.
    pub(crate) token_endpoint: String,
    /// Where its keys are.
    pub(crate) jwks_uri: String,
    /// True if it takes this server's secret only in the form.
    pub(crate) secret_in_form: bool,
    /// True if it puts its name on every answer (RFC 9207).
    pub(crate) names_itself: bool,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl Metadata {
    /// Reads the description that was found at an address.
    pub(super) fn read(address: &str, text: &[u8]) -> Result<Self, Failed> {
        let wrong = |problem: &str| Failed::Provider(format!("its description {problem}"));
        let document: Document =
            serde_json::from_slice(text).map_err(|_| wrong("cannot be read"))?;
        // Otherwise one provider could speak for another.
        let place = address.strip_suffix(WELL_KNOWN);
        if place.is_some_and(|place| place != document.issuer.trim_end_matches('/')) {
            return Err(wrong("is that of another issuer"));
        }
        for endpoint in [
            &document.authorization_endpoint,
            &document.token_endpoint,
            &document.jwks_uri,
        ] {
            check_redirect(endpoint).map_err(|_| wrong("has an address that is not https"))?;
        }
        let methods = document.token_endpoint_auth_methods_supported;
        let takes = |name: &str| {
            let methods = methods.as_ref();
            methods.is_some_and(|methods| methods.iter().any(|method| method == name))
        };
        Ok(Self {
            secret_in_form: takes("client_secret_post") && !takes("client_secret_basic"),
            names_itself: document.authorization_response_iss_parameter_supported,
            issuer: document.issuer,
            authorization_endpoint: document.authorization_endpoint,
            token_endpoint: document.token_endpoint,
            jwks_uri: document.jwks_uri,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ADDRESS: &str = "https://id.example/realm/.well-known/openid-configuration";

    fn document() -> Value {
        json!({
            "issuer": "https://id.example/realm",
            "authorization_endpoint": "https://id.example/login",
            "token_endpoint": "https://id.example/token",
            "jwks_uri": "https://id.example/keys",
        })
    }

    fn read(document: &Value) -> Result<Metadata, Failed> {
        Metadata::read(ADDRESS, document.to_string().as_bytes())
    }

    #[test]
    fn a_description_is_read() {
        let metadata = read(&document()).unwrap();
        assert_eq!(metadata.issuer, "https://id.example/realm");
        assert!(!metadata.secret_in_form && !metadata.names_itself);
        let mut document = document();
        document["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
        document["authorization_response_iss_parameter_supported"] = json!(true);
        let metadata = read(&document).unwrap();
        assert!(metadata.secret_in_form && metadata.names_itself);
    }

    #[test]
    fn a_description_speaks_for_its_own_issuer_and_over_tls() {
        for (name, value) in [
            ("issuer", json!("https://id.example")),
            ("issuer", json!("https://evil.example/realm")),
            ("issuer", Value::Null),
            ("token_endpoint", json!("http://id.example/token")),
            ("jwks_uri", json!("file:///etc/passwd")),
            ("authorization_endpoint", json!("javascript:alert(1)")),
        ] {
            let mut document = document();
            document[name] = value;
            assert!(read(&document).is_err(), "{document}");
        }
        assert!(Metadata::read(ADDRESS, b"<html>").is_err());
    }
}
