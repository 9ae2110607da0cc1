//! Where Redis is, as settings say it.

use std::{fmt, str::FromStr};

use percent_encoding::percent_decode_str;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const PREFIX: &str = "asyncgate";
const MAX_PREFIX_BYTES: usize = 64;

/// The address of one server, of a master that sentinels watch, or of a cluster:
///
/// - `redis://[[user]:password@]host[:port][/database]`
/// - `redis+sentinel://[[user]:password@]host[:port],.../master[/database]`
/// - `redis+cluster://[[user]:password@]host[:port],...`
///
/// User and password are percent-encoded.
/// `?prefix=name` puts another word than `asyncgate` before every key.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) place: Place,
    pub(crate) login: Option<Login>,
    pub(crate) database: u32,
    pub(crate) prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    One(Node),
    Sentinels {
        sentinels: Vec<Node>,
        master: String,
    },
    Cluster(Vec<Node>),
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What AUTH is told.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// Without the password, so that it can be logged.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As it is written, without user, password and options.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[Node]| {
            let nodes: Vec<String> = nodes.iter().map(Node::to_string).collect();
            nodes.join(",")
        };
        match &self.place {
            Place::One(node) => write!(f, "redis://{node}/{}", self.database),
            Place::Sentinels { sentinels, master } => {
                let sentinels = list(sentinels);
                write!(f, "redis+sentinel://{sentinels}/{master}/{}", self.database)
            }
            Place::Cluster(nodes) => write!(f, "redis+cluster://{}", list(nodes)),
        }
    }
}

/// What is wrong with an address. It is never repeated, because it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// Another scheme.
    #[error("must begin with redis://, redis+sentinel:// or redis+cluster://")]
    Scheme,
    /// TLS.
    #[error("rediss:// is not supported yet; put a TLS proxy such as stunnel beside the server")]
    Tls,
    /// A host or port.
    #[error("what stands between :// and / is not a host with a port, or several")]
    Host,
    /// More than one host.
    #[error("redis:// takes one host; redis+sentinel:// and redis+cluster:// take several")]
    Hosts,
    /// A database.
    #[error("what stands behind the last / is not the number of a database")]
    Database,
    /// A database of a cluster.
    #[error("a cluster has one database only; leave the path out")]
    ClusterDatabase,
    /// No master.
    #[error("redis+sentinel:// needs the master's name as its path: redis+sentinel://host/name")]
    Master,
    /// User or password.
    #[error("before the host must stand user:password@ or :password@, percent-encoded")]
    Login,
    /// An option.
    #[error("the only option is prefix")]
    Option,
    /// The prefix.
    #[error("prefix must be 1 to {MAX_PREFIX_BYTES} letters, digits, `-`, `_`, `.` or `:`")]
    Prefix,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (scheme, rest) = text.split_once("://").ok_or(BadAddress::Scheme)?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login_of(login)?), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (place, database) = match scheme {
            "redis" => {
                let mut nodes = nodes_of(hosts, PORT)?;
                match (nodes.pop(), nodes.is_empty()) {
                    (Some(node), true) => (Place::One(node), path),
                    _ => return Err(BadAddress::Hosts),
                }
            }
            "redis+sentinel" => {
                let sentinels = nodes_of(hosts, SENTINEL_PORT)?;
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(BadAddress::Master);
                }
                let master = master.to_owned();
                (Place::Sentinels { sentinels, master }, database)
            }
            "redis+cluster" if !path.is_empty() => return Err(BadAddress::ClusterDatabase),
            "redis+cluster" => (Place::Cluster(nodes_of(hosts, PORT)?), ""),
            "rediss" => return Err(BadAddress::Tls),
            _ => return Err(BadAddress::Scheme),
        };
        Ok(Self {
            place,
            login,
            database: match database {
                "" => 0,
                number => number.parse().map_err(|_| BadAddress::Database)?,
            },
            prefix: prefix_of(options)?,
        })
    }
}

fn login_of(text: &str) -> Result<Login, BadAddress> {
    let decode = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(Into::into).map_err(|_| BadAddress::Login)
    };
    let (user, password) = text.split_once(':').ok_or(BadAddress::Login)?;
    let user: String = decode(user)?;
    Ok(Login {
        user: Some(user).filter(|user| !user.is_empty()),
        password: decode(password)?,
    })
}

fn nodes_of(hosts: &str, port: u16) -> Result<Vec<Node>, BadAddress> {
    let nodes = hosts.split(',').map(|host| Node::parse(host, port));
    nodes.collect::<Option<_>>().ok_or(BadAddress::Host)
}

impl Node {
    /// From `host`, `host:port`, `[v6]` or `[v6]:port`.
    pub(crate) fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(text) => {
                let (host, rest) = text.split_once(']')?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':')?)),
                }
            }
            None => match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None => default_port,
        };
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

fn prefix_of(options: &str) -> Result<String, BadAddress> {
    let Some(prefix) = options.strip_prefix("prefix=") else {
        return match options {
            "" => Ok(PREFIX.to_owned()),
            _ => Err(BadAddress::Option),
        };
    };
    // A brace would begin another hash tag.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    match (1..=MAX_PREFIX_BYTES).contains(&prefix.len()) && prefix.bytes().all(plain) {
        true => Ok(prefix.to_owned()),
        false => Err(BadAddress::Prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, shown) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://h:1/3?prefix=a:b", "redis://h:1/3"),
            ("redis://u:p%40@[::1]:7", "redis://[::1]:7/0"),
            (
                "redis+sentinel://a,b:2/main",
                "redis+sentinel://a:26379,b:2/main/0",
            ),
            (
                "redis+sentinel://:pw@a/main/4",
                "redis+sentinel://a:26379/main/4",
            ),
            (
                "redis+cluster://a,[::1]:2",
                "redis+cluster://a:6379,[::1]:2",
            ),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
        }
        let address: Address = "redis://u:p%40%3A@h".parse().unwrap();
        let login = address.login.clone().unwrap();
        assert_eq!(
            (login.user.as_deref(), &*login.password),
            (Some("u"), "p@:")
        );
        assert!(!format!("{address:?} {login:?}").contains("p@"));
    }

    #[test]
    fn other_addresses_are_refused_without_repeating_the_password() {
        for (text, flaw) in [
            ("localhost:6379", BadAddress::Scheme),
            ("http://h", BadAddress::Scheme),
            ("rediss://h", BadAddress::Tls),
            ("redis://a,b", BadAddress::Hosts),
            ("redis://:secret@", BadAddress::Host),
            ("redis://h:0", BadAddress::Host),
            ("redis://h:99999", BadAddress::Host),
            ("redis://[::1", BadAddress::Host),
            ("redis://h/one", BadAddress::Database),
            ("redis+cluster://h/0", BadAddress::ClusterDatabase),
            ("redis+sentinel://h", BadAddress::Master),
            ("redis://:%ff@h", BadAddress::Login),
            ("redis://secret@h", BadAddress::Login),
            ("redis://h?db=1", BadAddress::Option),
            ("redis://h?prefix={a}", BadAddress::Prefix),
            ("redis://h?prefix=", BadAddress::Prefix),
            ("redis://:secret?x@h", BadAddress::Host),
            ("redis://h/secret@", BadAddress::Login),
        ] {
            assert_eq!(text.parse::<Address>(), Err(flaw.clone()), "{text}");
            assert!(!flaw.to_string().contains("secret"), "{text}");
        }
    }
}
