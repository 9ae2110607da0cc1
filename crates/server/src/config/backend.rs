//! The backend that decides about admission.

use std::fmt;
use std::path::Path;

use asyncgate_host_redis::Address;

/// The form of DynamoDB's address, or the way to a build that has it.
#[cfg(feature = "dynamodb")]
const DYNAMO: &str = "dynamodb://table[?region=name][&endpoint=url]";
#[cfg(not(feature = "dynamodb"))]
const DYNAMO: &str = "dynamodb://table, which this binary cannot do: build it with `cargo build --features dynamodb`";

/// The backend that decides about admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// The store.
    Store,
    /// None: everything is allowed.
    Minimal,
    /// Redis. Its address does not show its password.
    Redis(Address),
    /// DynamoDB.
    #[cfg(feature = "dynamodb")]
    Dynamo(asyncgate_host_dynamodb::Address),
}

/// Describes the forms that the setting can have.
pub fn forms() -> String {
    format!(
        "store, minimal, redis://[[user]:password@]host[:port][/database], \
         redis+sentinel://host[:port],.../master, redis+cluster://host[:port],... or {DYNAMO}; \
         for TLS write rediss in the place of redis, with ?ca=path if the platform does not trust \
         the server's certificate, and &cert=path&key=path if the server asks for one"
    )
}

impl Backend {
    /// Parses one of the [`forms`].
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "store" => Some(Self::Store),
            "minimal" => Some(Self::Minimal),
            #[cfg(feature = "dynamodb")]
            text if text.starts_with("dynamodb:") => text.parse().ok().map(Self::Dynamo),
            text => text.parse().ok().map(Self::Redis),
        }
    }

    /// Makes the relative paths in the address relative to a directory.
    pub fn relative_to(&mut self, dir: &Path) {
        match self {
            Self::Redis(address) => address.relative_to(dir),
            Self::Store | Self::Minimal => {}
            #[cfg(feature = "dynamodb")]
            Self::Dynamo(_) => {}
        }
    }

    /// Returns the reason why an address cannot be used. It repeats nothing of the address.
    pub fn flaw(text: &str) -> Option<String> {
        let (scheme, _) = text.split_once("://")?;
        match scheme {
            #[cfg(feature = "dynamodb")]
            "dynamodb" => {
                let read = text.parse::<asyncgate_host_dynamodb::Address>();
                Some(read.err()?.to_string())
            }
            scheme if scheme.starts_with("redis") => {
                Some(text.parse::<Address>().err()?.to_string())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store => f.write_str("store"),
            Self::Minimal => f.write_str("minimal"),
            Self::Redis(address) => write!(f, "{address}"),
            #[cfg(feature = "dynamodb")]
            Self::Dynamo(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(all(test, not(feature = "dynamodb")))]
mod tests {
    use super::*;

    #[test]
    fn how_to_get_dynamodb_is_said() {
        assert_eq!(Backend::parse("dynamodb://gate"), None);
        assert!(forms().contains("--features dynamodb"));
    }
}
