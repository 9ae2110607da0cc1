//! The settings of a client, and the checks before anything is sent.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Uri, header, uri::Scheme};

use crate::{
    Client, Error, Retry,
    client::Shared,
    connect::{self, Reach},
    pool::Pool,
};

const USER_AGENT: &str = concat!("asyncgate-client/", env!("CARGO_PKG_VERSION"));

/// The settings of a [`Client`]. Made by [`Client::builder`].
#[derive(Clone)]
pub struct ClientBuilder {
    address: String,
    key: Option<String>,
    timeout: Duration,
    retry: Retry,
    generate_keys: bool,
    connect: connect::Options,
}

impl ClientBuilder {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            key: None,
            timeout: Duration::from_secs(30),
            retry: Retry::default(),
            generate_keys: true,
            connect: connect::Options {
                reach: Reach::Anywhere,
                timeout: Duration::from_secs(5),
                secure: false,
                roots: None,
                certificate: None,
            },
        }
    }

    /// Sets the credential: an API key. Without one, only open operations are allowed.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the time for one attempt, including the connection. The time that a call asks the server to
    /// wait (`wait_seconds`) is added. Default 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time for making a connection. Default 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// Sets the bounds for repeated calls.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets whether [`Client::create_task`] adds an idempotency key where there is none, so that it can
    /// safely be sent again. Default true.
    #[must_use]
    pub fn generate_idempotency_keys(mut self, generate: bool) -> Self {
        self.generate_keys = generate;
        self
    }

    /// Trusts these roots (PEM) instead of the platform's, for a server with a certificate of your
    /// own. `SSL_CERT_FILE` replaces the platform's roots too.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn trusted_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connect.roots = Some(pem.into());
        self
    }

    /// Shows this certificate (its chain as PEM, the own one first) and proves to have its key (PEM), for a server that
    /// asks clients for certificates. It does not replace the credential.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.connect.certificate = Some(connect::Certificate {
            chain: chain.into(),
            key: key.into(),
        });
        self
    }

    /// Makes the client. It does not connect yet.
    pub fn build(mut self) -> Result<Client, Error> {
        let server = server(&self.address)?;
        self.connect.secure = server.scheme() == Some(&Scheme::HTTPS);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host(&server)?);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        if let Some(key) = &self.key {
            headers.insert(header::AUTHORIZATION, credential(key)?);
        }
        let connector = connect::connector(&self.connect)?;
        Ok(Client {
            shared: Arc::new(Shared {
                base: self.address.trim_end_matches('/').to_owned(),
                prefix: server.path().trim_end_matches('/').to_owned(),
                headers,
                has_key: self.key.is_some(),
                pool: Pool::new(connector, server),
                timeout: self.timeout,
                generate_keys: self.generate_keys,
            }),
            retry: self.retry,
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn server(address: &str) -> Result<Uri, Error> {
    let wrong = |why: &str| {
        Error::invalid(format!(
            "{address:?} is not a server's address: {why}; write e.g. http://127.0.0.1:8080"
        ))
    };
    let uri: Uri = address.parse().map_err(|_| wrong("it is no URL"))?;
    let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
    let scheme = uri.scheme();
    if scheme == Some(&Scheme::HTTPS) && cfg!(not(feature = "tls")) {
        return Err(wrong("this program was built without TLS"));
    }
    if scheme != Some(&Scheme::HTTP) && scheme != Some(&Scheme::HTTPS) {
        return Err(wrong("it does not begin with http:// or https://"));
    }
    if uri.query().is_some() || authority.as_str().contains('@') {
        return Err(wrong("it must have neither a query nor a user"));
    }
    Ok(uri)
}

/// Returns the `host` header, without the port if it is the default one of the scheme.
fn host(server: &Uri) -> Result<HeaderValue, Error> {
    let usual = if server.scheme() == Some(&Scheme::HTTPS) {
        443
    } else {
        80
    };
    let host = server.host().unwrap_or_default();
    let port = server.port_u16().filter(|port| *port != usual);
    let host = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    HeaderValue::try_from(host).map_err(|_| Error::invalid("the server's name is no name"))
}

/// Returns the `authorization` header, if the key can be sent in one.
fn credential(key: &str) -> Result<HeaderValue, Error> {
    let key = key.trim();
    if key.is_empty() {
        return Err(Error::invalid(
            "the key is empty; give one that the server knows",
        ));
    }
    let wrong = || Error::invalid("the key has characters that no key has; was it copied whole?");
    if key.contains(|char: char| char != ' ' && !char.is_ascii_graphic()) {
        return Err(wrong());
    }
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn an_address_is_checked_before_anything_is_sent() {
        for (address, said) in [
            ("localhost:8080", "does not begin with"),
            ("127.0.0.1:8080", "does not begin with"),
            ("ftp://x", "does not begin with"),
            ("http://", "no URL"),
            ("http://a b", "no URL"),
            ("/v1", "names no host"),
            ("http://u:p@x", "neither a query nor a user"),
            ("http://x/?a=b", "neither a query nor a user"),
        ] {
            let error = Client::new(address, "k").unwrap_err();
            assert!(error.to_string().contains(said), "{address}: {error}");
            assert_eq!(*error.kind(), Kind::Invalid);
        }
        let client = Client::new("http://x:1/prefix/", "k").unwrap();
        assert_eq!(client.address(), "http://x:1/prefix");
    }

    #[test]
    fn a_key_is_checked_and_never_shown() {
        assert!(Client::new("http://x", " ").is_err());
        assert!(Client::new("http://x", "a\nb").is_err());
        let client = Client::new("http://x", "very-secret\n").unwrap();
        assert!(!format!("{client:?}").contains("very-secret"));
        let builder = Client::builder("http://x").key("very-secret");
        assert!(!format!("{builder:?}").contains("very-secret"));
    }
}
