//! URLs: patterns for them, and the rules for URLs that are safe to fetch.
//!
//! Programs differ in how they read odd URLs, and attackers use that to get a URL past a check. So only
//! URLs that all programs read alike are read here: ASCII, a plain host, no user, no `.` or `..` in the
//! path. Others have no answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Doubt, pattern};

/// The parts of a URL that constraints use.
struct Url {
    scheme: String,
    host: Host,
    port: Option<u16>,
    path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Address(IpAddr::V4(address)) => address.to_string(),
            Self::Address(IpAddr::V6(address)) => format!("[{address}]"),
        }
    }
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        let readable = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
        if !text.bytes().all(readable) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let scheme = scheme_name(scheme)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (host, port) = authority_parts(authority)?;
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let dots = |part: &str| {
            matches!(
                part.to_ascii_lowercase().replace("%2e", ".").as_str(),
                "." | ".."
            )
        };
        // Some programs resolve dots before a request and some do not.
        if path.split('/').any(dots) {
            return None;
        }
        Some(Self {
            port: port.or_else(|| default_port(&scheme)),
            scheme,
            host,
            path: if path.is_empty() { "/" } else { path }.to_owned(),
        })
    }
}

fn scheme_name(text: &str) -> Option<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let starts = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    (starts && text.bytes().all(good)).then(|| text.to_ascii_lowercase())
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        "ftp" => Some(21),
        _ => None,
    }
}

fn authority_parts(authority: &str) -> Option<(Host, Option<u16>)> {
    let split = match authority.rfind(']') {
        // A user and its `@` end up in the host, where they are refused.
        Some(end) => authority.split_at(end + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match split.1 {
        "" => None,
        digits => Some(port_number(digits.strip_prefix(':')?)?),
    };
    Some((host(split.0)?, port))
}

fn port_number(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port > 0)
}

fn host(text: &str) -> Option<Host> {
    if let Some(inner) = text.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(Host::Address(IpAddr::V6(address)));
    }
    let name = domain_name(text)?;
    // Some programs read a name that ends in a number as an address, in several notations. Only the
    // plain notation is accepted here.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()) {
        let address: Ipv4Addr = name.parse().ok()?;
        return Some(Host::Address(IpAddr::V4(address)));
    }
    Some(Host::Name(name))
}

/// Returns a name in lower case, without a final dot.
fn domain_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let label = |label: &str| !label.is_empty() && label.bytes().all(good);
    name.split('.').all(label).then_some(name)
}

/// Returns true if a host matches a pattern: a name, or `*.` and a name for it and all names below it.
fn host_matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(suffix) => {
            let below = host.strip_suffix(suffix);
            below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
        None => pattern == host,
    }
}

/// Returns true if every host that matches `child` matches `parent`.
fn host_covers(parent: &str, child: &str) -> bool {
    match child.strip_prefix("*.") {
        Some(suffix) => parent.starts_with("*.") && host_matches(parent, suffix),
        None => host_matches(parent, child),
    }
}

/// Reads a pattern of a host: a readable host, or `*.` and a name.
fn host_pattern(text: &str) -> Option<String> {
    match text.strip_prefix("*.") {
        Some(suffix) => Some(format!("*.{}", domain_name(suffix)?)),
        None => Some(host(text)?.text()),
    }
}

/// A pattern for URLs: `https://*.example.com/api/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlPattern {
    /// The scheme; `None` for any.
    scheme: Option<String>,
    host: String,
    port: Option<u16>,
    /// The path; `None` for any.
    path: Option<String>,
}

impl UrlPattern {
    /// Reads a pattern. Returns `None` for one that programs may read differently.
    pub fn parse(text: &str) -> Option<Self> {
        let readable = |byte: u8| byte.is_ascii_graphic() && !b"\\@?#%".contains(&byte);
        if !text.bytes().all(readable) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => (host, Some(port_number(port)?)),
            _ => (authority, None),
        };
        let scheme = match scheme {
            "*" => None,
            name => Some(scheme_name(name)?),
        };
        if path.contains("**")
            || path.contains('[')
            || path.split('/').any(|p| p == "." || p == "..")
        {
            return None;
        }
        Some(Self {
            scheme,
            host: host_pattern(host)?,
            port,
            path: Some(path)
                .filter(|path| !matches!(*path, "" | "/"))
                .map(str::to_owned),
        })
    }

    pub fn matches(&self, text: &str) -> Result<bool, Doubt> {
        let url = Url::parse(text).ok_or(Doubt::Unreadable)?;
        let path = match self.path.as_deref() {
            None | Some("/*") => true,
            Some(path) => pattern::matches(path, &url.path)?,
        };
        Ok(path
            && self
                .scheme
                .as_ref()
                .is_none_or(|scheme| *scheme == url.scheme)
            && host_matches(&self.host, &url.host.text())
            && self.port.is_none_or(|port| Some(port) == url.port))
    }

    /// Returns true if every URL that matches `child` matches this pattern.
    pub fn covers(&self, child: &Self) -> bool {
        let path = match (self.path.as_deref(), child.path.as_deref()) {
            (None | Some("/*"), _) => true,
            (Some(parent), Some(child)) => pattern::covers(parent, child),
            (Some(_), None) => false,
        };
        path && (self.scheme.is_none() || self.scheme == child.scheme)
            && host_covers(&self.host, &child.host)
            && (self.port.is_none() || self.port == child.port)
    }
}

/// The rules for URLs that are safe to fetch: not those that lead into one's own network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "as the protocol has them")]
pub(crate) struct UrlSafe {
    pub schemes: Vec<String>,
    pub allow_domains: Option<Vec<String>>,
    pub deny_domains: Vec<String>,
    pub allow_ports: Option<Vec<u16>>,
    pub block_private: bool,
    pub block_loopback: bool,
    pub block_metadata: bool,
    pub block_reserved: bool,
    pub block_internal_tlds: bool,
}

const METADATA_NAMES: [&str; 2] = ["metadata.google.internal", "metadata.goog"];
const INTERNAL: [&str; 8] = [
    "internal",
    "local",
    "localhost",
    "lan",
    "corp",
    "home",
    "svc",
    "default",
];

/// The purpose of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Public,
    Private,
    Loopback,
    Metadata,
    Reserved,
}

impl UrlSafe {
    /// Returns true if all programs read the patterns of hosts alike.
    pub fn is_readable(&self) -> bool {
        let mut patterns = self
            .allow_domains
            .iter()
            .flatten()
            .chain(&self.deny_domains);
        patterns.all(|pattern| host_pattern(pattern).is_some_and(|read| read == *pattern))
    }

    pub fn allow(&self, text: &str) -> Result<bool, Doubt> {
        let url = Url::parse(text).ok_or(Doubt::Unreadable)?;
        let among = |patterns: &[String]| {
            let host = url.host.text();
            patterns.iter().any(|pattern| host_matches(pattern, &host))
        };
        let port = |ports: &[u16]| url.port.is_some_and(|port| ports.contains(&port));
        Ok(self.schemes.contains(&url.scheme)
            && self.allow_ports.as_deref().is_none_or(port)
            && !self.blocks(&url.host)
            && self.allow_domains.as_deref().is_none_or(among)
            && !among(&self.deny_domains))
    }

    fn blocks(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => {
                let last = name.rsplit('.').next().unwrap_or_default();
                let local = matches!(name.as_str(), "localhost" | "localhost.localdomain");
                self.block_loopback && (local || last == "localhost")
                    || self.block_metadata && METADATA_NAMES.contains(&name.as_str())
                    || self.block_internal_tlds && INTERNAL.contains(&last)
            }
            Host::Address(address) => match place(*address) {
                Place::Public => false,
                Place::Private => self.block_private,
                Place::Loopback => self.block_loopback,
                Place::Metadata => self.block_metadata,
                Place::Reserved => self.block_reserved,
            },
        }
    }

    /// Returns true if every URL that `child` allows is allowed by these rules.
    pub fn covers(&self, child: &Self) -> bool {
        let flags = |rules: &Self| {
            [
                rules.block_private,
                rules.block_loopback,
                rules.block_metadata,
                rules.block_reserved,
                rules.block_internal_tlds,
            ]
        };
        // A child may block more than its parent, never less.
        let blocks = flags(self)
            .into_iter()
            .zip(flags(child))
            .all(|(own, its)| its || !own);
        let ports = self.allow_ports.as_ref().is_none_or(|own| {
            let its = child.allow_ports.as_ref();
            its.is_some_and(|its| its.iter().all(|port| own.contains(port)))
        });
        let allowed = self.allow_domains.as_ref().is_none_or(|own| {
            let its = child.allow_domains.as_ref();
            its.is_some_and(|its| its.iter().all(|c| own.iter().any(|p| host_covers(p, c))))
        });
        let kept = |own: &String| child.deny_domains.iter().any(|its| host_covers(its, own));
        blocks
            && ports
            && allowed
            && self.deny_domains.iter().all(kept)
            && child
                .schemes
                .iter()
                .all(|scheme| self.schemes.contains(scheme))
    }
}

fn place(address: IpAddr) -> Place {
    match address {
        IpAddr::V4(address) => place_v4(address),
        IpAddr::V6(address) => place_v6(address),
    }
}

fn place_v4(address: Ipv4Addr) -> Place {
    match address.octets() {
        [169, 254, 169, 254] | [100, 100, 100, 200] => Place::Metadata,
        [127, ..] => Place::Loopback,
        [10, ..]
        | [172, 16..=31, ..]
        | [192, 168, ..]
        | [100, 64..=127, ..]
        | [198, 18..=19, ..]
        | [169, 254, ..] => Place::Private,
        [0 | 224..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Place::Reserved,
        _ => Place::Public,
    }
}

/// Returns the purpose of an IPv6 address. Only the range that is assigned for the Internet is public. An
/// address that contains an IPv4 address has the purpose of that one.
fn place_v6(address: Ipv6Addr) -> Place {
    let carried =
        |high: u16, low: u16| place_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Place::Loopback,
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] => Place::Metadata,
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            carried(high, low)
        }
        [0x2002, high, low, ..] => carried(high, low),
        [0xfc00..=0xfdff | 0xfe80..=0xfeff, ..] => Place::Private,
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, ..] => Place::Reserved,
        [0x2000..=0x3fff, ..] => Place::Public,
        _ => Place::Reserved,
    }
}
