//! The addresses to which codes are sent.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The most bytes of an address.
const MAX_BYTES: usize = 2_048;

/// The reason why an address cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRedirect {
    /// It is too long.
    #[error("a redirect URI has more than {MAX_BYTES} bytes")]
    TooLong,
    /// It has characters that do not belong into an address.
    #[error("a redirect URI has a character that is not allowed")]
    Character,
    /// Whatever stands behind `#` never reaches a server.
    #[error("a redirect URI must not have a fragment")]
    Fragment,
    /// Its scheme sends codes in clear text, or to whatever program claims the scheme.
    #[error("a redirect URI must begin with https://, or with http:// on a loopback host")]
    Scheme,
    /// It has no host, or one that browsers read in more than one way.
    #[error("the host of a redirect URI is not plain")]
    Host,
}

/// Refuses an address to which no code may be sent.
pub fn check_redirect(uri: &str) -> Result<(), BadRedirect> {
    if uri.len() > MAX_BYTES {
        return Err(BadRedirect::TooLong);
    }
    if uri.contains('#') {
        return Err(BadRedirect::Fragment);
    }
    if !uri.bytes().all(is_plain) {
        return Err(BadRedirect::Character);
    }
    let host = host(uri)?;
    if uri.starts_with("http://") && !is_loopback_host(host) {
        return Err(BadRedirect::Scheme);
    }
    Ok(())
}

/// Returns true if the address is on the machine of the person, so that nobody else can receive what is sent there.
pub fn is_loopback(uri: &str) -> bool {
    host(uri).is_ok_and(is_loopback_host)
}

/// Returns the scheme, host and port of an address that was accepted.
pub fn origin(uri: &str) -> &str {
    let after_scheme = uri.find("://").map_or(0, |at| at + 3);
    let path = uri[after_scheme..].find(['/', '?']);
    let end = path.map_or(uri.len(), |at| after_scheme + at);
    &uri[..end]
}

/// Returns true for the characters of RFC 3986. Browsers and servers disagree about all others, such as the backslash.
pub(super) const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'$'..=b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' | b'_' | b'~'
        )
}

fn host(uri: &str) -> Result<&str, BadRedirect> {
    let rest = uri.strip_prefix("https://");
    let rest = rest.or_else(|| uri.strip_prefix("http://"));
    let rest = rest.ok_or(BadRedirect::Scheme)?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (address, port) = bracketed.split_once(']').ok_or(BadRedirect::Host)?;
            address.parse::<Ipv6Addr>().map_err(|_| BadRedirect::Host)?;
            (address, port)
        }
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            let (name, port) = authority.split_at(end);
            // A name before `@` looks like the host to people, but is not.
            let is_named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
            if name.is_empty() || !name.bytes().all(is_named) {
                return Err(BadRedirect::Host);
            }
            (name, port)
        }
    };
    if !is_port(port) {
        return Err(BadRedirect::Host);
    }
    Ok(host)
}

/// Returns true for nothing, or for a colon and a port.
fn is_port(port: &str) -> bool {
    let Some(digits) = port.strip_prefix(':') else {
        return port.is_empty();
    };
    let is_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
    is_digits && digits.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_loopback_host(host: &str) -> bool {
    host == "localhost"
        || host.parse().is_ok_and(|host: Ipv4Addr| host.is_loopback())
        || host.parse().is_ok_and(|host: Ipv6Addr| host.is_loopback())
}
