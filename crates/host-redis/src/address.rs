//! The address of Redis, as settings write it.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

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
/// With `rediss` in the place of `redis`, every connection uses TLS, those to sentinels too.
///
/// User and password are percent-encoded. Options follow a `?` and are joined by `&`:
///
/// - `prefix=name` puts another word than `asyncgate` before every key.
/// - `ca=path` trusts the certificates in this PEM file, and not those of the platform.
/// - `cert=path&key=path` shows this certificate chain to the server. Paths are percent-encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) place: Place,
    pub(crate) login: Option<Login>,
    pub(crate) database: u32,
    pub(crate) prefix: String,
    /// None is a connection without TLS.
    pub(crate) tls: Option<TlsFiles>,
}

/// The files of TLS that an address names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The trusted roots; those of the platform if there is none.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) client: Option<ClientFiles>,
}

/// The client's certificate, for servers that ask for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFiles {
    /// The chain, the client's own certificate first.
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Single(Node),
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

/// The arguments of AUTH.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

/// Shows neither user nor password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

impl Address {
    /// Makes the relative paths of its files relative to a directory.
    pub fn relative_to(&mut self, dir: &Path) {
        let Some(files) = &mut self.tls else {
            return;
        };
        let client = files.client.iter_mut();
        let client = client.flat_map(|client| [&mut client.cert, &mut client.key]);
        for path in files.ca.iter_mut().chain(client) {
            *path = dir.join(&*path);
        }
    }
}

/// Leaves the password out, so that it can be logged.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes the address without user, password and options.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[Node]| {
            let nodes: Vec<String> = nodes.iter().map(Node::to_string).collect();
            nodes.join(",")
        };
        f.write_str(if self.tls.is_some() {
            "rediss"
        } else {
            "redis"
        })?;
        match &self.place {
            Place::Single(node) => write!(f, "://{node}/{}", self.database),
            Place::Sentinels { sentinels, master } => {
                let sentinels = list(sentinels);
                write!(f, "+sentinel://{sentinels}/{master}/{}", self.database)
            }
            Place::Cluster(nodes) => write!(f, "+cluster://{}", list(nodes)),
        }
    }
}

/// A flaw of an address. The address itself is never repeated, because it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// Another scheme.
    #[error(
        "must begin with redis://, redis+sentinel:// or redis+cluster://, or for TLS with rediss"
    )]
    Scheme,
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
    #[error("the options are prefix, ca, cert and key, each once, joined by &")]
    Option,
    /// An option of TLS without TLS.
    #[error("ca, cert and key are for TLS: begin with rediss")]
    Plain,
    /// Half of a client's certificate.
    #[error("cert and key belong together: a certificate chain and its private key")]
    Certificate,
    /// A path.
    #[error("ca, cert and key must be paths, percent-encoded")]
    Path,
    /// The prefix.
    #[error("prefix must be 1 to {MAX_PREFIX_BYTES} letters, digits, `-`, `_`, `.` or `:`")]
    Prefix,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (scheme, rest) = text.split_once("://").ok_or(BadAddress::Scheme)?;
        let (scheme, topology) = match scheme.split_once('+') {
            Some((scheme, topology)) => (scheme, Some(topology)),
            None => (scheme, None),
        };
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(BadAddress::Scheme),
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login_of(login)?), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (place, database) = match topology {
            None => {
                let mut nodes = nodes_of(hosts, PORT)?;
                match (nodes.pop(), nodes.is_empty()) {
                    (Some(node), true) => (Place::Single(node), path),
                    _ => return Err(BadAddress::Hosts),
                }
            }
            Some("sentinel") => {
                let sentinels = nodes_of(hosts, SENTINEL_PORT)?;
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(BadAddress::Master);
                }
                let master = master.to_owned();
                (Place::Sentinels { sentinels, master }, database)
            }
            Some("cluster") if !path.is_empty() => return Err(BadAddress::ClusterDatabase),
            Some("cluster") => (Place::Cluster(nodes_of(hosts, PORT)?), ""),
            Some(_) => return Err(BadAddress::Scheme),
        };
        let options = Options::read(options)?;
        Ok(Self {
            place,
            login,
            database: match database {
                "" => 0,
                number => number.parse().map_err(|_| BadAddress::Database)?,
            },
            tls: options.tls_files(tls)?,
            prefix: prefix_of(options.prefix)?,
        })
    }
}

/// The options of an address as they are written, each at most once.
#[derive(Default)]
struct Options<'a> {
    prefix: Option<&'a str>,
    ca: Option<&'a str>,
    cert: Option<&'a str>,
    key: Option<&'a str>,
}

impl<'a> Options<'a> {
    fn read(text: &'a str) -> Result<Self, BadAddress> {
        let mut options = Self::default();
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(BadAddress::Option)?;
            let place = match name {
                "prefix" => &mut options.prefix,
                "ca" => &mut options.ca,
                "cert" => &mut options.cert,
                "key" => &mut options.key,
                _ => return Err(BadAddress::Option),
            };
            if place.replace(value).is_some() {
                return Err(BadAddress::Option);
            }
        }
        Ok(options)
    }

    fn tls_files(&self, tls: bool) -> Result<Option<TlsFiles>, BadAddress> {
        let client = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some(ClientFiles {
                cert: path_of(cert)?,
                key: path_of(key)?,
            }),
            (None, None) => None,
            _ => return Err(BadAddress::Certificate),
        };
        let ca = self.ca.map(path_of).transpose()?;
        match tls {
            true => Ok(Some(TlsFiles { ca, client })),
            false if ca.is_some() || client.is_some() => Err(BadAddress::Plain),
            false => Ok(None),
        }
    }
}

fn path_of(text: &str) -> Result<PathBuf, BadAddress> {
    let path = percent_decode_str(text).decode_utf8();
    let path = path.map_err(|_| BadAddress::Path)?;
    match path.is_empty() || path.contains('\0') {
        true => Err(BadAddress::Path),
        false => Ok(PathBuf::from(&*path)),
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
    /// Parses `host`, `host:port`, `[v6]` or `[v6]:port`.
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

fn prefix_of(option: Option<&str>) -> Result<String, BadAddress> {
    let prefix = option.unwrap_or(PREFIX);
    // Braces are not allowed, because they would begin another hash tag.
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
            ("rediss://u:p@h/2?ca=/a.pem", "rediss://h:6379/2"),
            (
                "rediss+sentinel://a,b:2/main",
                "rediss+sentinel://a:26379,b:2/main/0",
            ),
            ("rediss+cluster://a", "rediss+cluster://a:6379"),
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
    fn options_are_read() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        assert_eq!(address("redis://h").tls, None);
        assert_eq!(address("rediss://h").tls, Some(TlsFiles::default()));
        let all = address("rediss://h?key=k%26%3F.pem&ca=/a/b@c.pem&prefix=p&cert=c.pem");
        let client = ClientFiles {
            cert: "c.pem".into(),
            key: "k&?.pem".into(),
        };
        let files = TlsFiles {
            ca: Some("/a/b@c.pem".into()),
            client: Some(client),
        };
        assert_eq!((all.prefix.as_str(), all.tls), ("p", Some(files)));
    }

    #[test]
    fn other_addresses_are_refused_without_repeating_the_password() {
        for (text, flaw) in [
            ("localhost:6379", BadAddress::Scheme),
            ("http://h", BadAddress::Scheme),
            ("redis+tls://h", BadAddress::Scheme),
            ("redis+://h", BadAddress::Scheme),
            ("http+sentinel://h/main", BadAddress::Scheme),
            ("rediss://a,b", BadAddress::Hosts),
            ("rediss+sentinel://h", BadAddress::Master),
            ("rediss+cluster://h/0", BadAddress::ClusterDatabase),
            ("redis://h?ca=/a.pem", BadAddress::Plain),
            ("redis://h?cert=/a.pem&key=/b.pem", BadAddress::Plain),
            ("rediss://h?cert=/a.pem", BadAddress::Certificate),
            ("rediss://h?key=/a.pem", BadAddress::Certificate),
            ("rediss://h?ca=", BadAddress::Path),
            ("rediss://h?ca=%ff", BadAddress::Path),
            ("rediss://h?ca=a%00", BadAddress::Path),
            ("rediss://h?ca=a&ca=b", BadAddress::Option),
            ("rediss://h?insecure=true", BadAddress::Option),
            ("rediss://h?ca", BadAddress::Option),
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
