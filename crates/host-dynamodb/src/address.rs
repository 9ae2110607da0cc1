//! The address of a table, as settings write it.

use std::{fmt, str::FromStr};

use http::Uri;

const SCHEME: &str = "dynamodb://";
/// The length of a table's name, as DynamoDB limits it.
const TABLE_BYTES: std::ops::RangeInclusive<usize> = 3..=255;
const MAX_REGION_BYTES: usize = 64;

/// The address of a table: `dynamodb://table[?region=name][&endpoint=url]`.
///
/// The region defaults to that of the environment, the endpoint to AWS's own in the region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) table: String,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<Uri>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.table)?;
        let mut mark = '?';
        if let Some(region) = &self.region {
            write!(f, "{mark}region={region}")?;
            mark = '&';
        }
        match &self.endpoint {
            Some(endpoint) => write!(f, "{mark}endpoint={}", shown(endpoint)),
            None => Ok(()),
        }
    }
}

/// Formats an endpoint as it is written, without a path.
pub(crate) fn shown(endpoint: &Uri) -> String {
    let (scheme, authority) = (endpoint.scheme_str(), endpoint.authority());
    let authority = authority.map_or("", |authority| authority.as_str());
    format!("{}://{authority}", scheme.unwrap_or_default())
}

/// A flaw of an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// Another scheme.
    #[error("must begin with dynamodb://")]
    Scheme,
    /// The table's name.
    #[error("a table's name has 3 to 255 letters, digits, `-`, `_` or `.`")]
    Table,
    /// The region.
    #[error("a region is named by small letters, digits and `-`, such as eu-west-1")]
    Region,
    /// The endpoint. Its text is not repeated, because somebody may have put a password into it.
    #[error("an endpoint is http://host[:port] or https://host[:port], without user and path")]
    Endpoint,
    /// An option.
    #[error("the options are region and endpoint, each once")]
    Option,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let rest = text.strip_prefix(SCHEME).ok_or(BadAddress::Scheme)?;
        let (table, options) = rest.split_once('?').unwrap_or((rest, ""));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !TABLE_BYTES.contains(&table.len()) || !table.bytes().all(plain) {
            return Err(BadAddress::Table);
        }
        let mut address = Self {
            table: table.to_owned(),
            region: None,
            endpoint: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(BadAddress::Option)?;
            match name {
                "region" if address.region.is_none() => address.region = Some(region(value)?),
                "endpoint" if address.endpoint.is_none() => {
                    address.endpoint = Some(endpoint(value)?);
                }
                _ => return Err(BadAddress::Option),
            }
        }
        Ok(address)
    }
}

/// Checks the name of a region, because it becomes part of a host name.
pub(crate) fn region(text: &str) -> Result<String, BadAddress> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match (1..=MAX_REGION_BYTES).contains(&text.len()) && text.bytes().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(BadAddress::Region),
    }
}

pub(crate) fn endpoint(text: &str) -> Result<Uri, BadAddress> {
    let endpoint: Uri = text.parse().map_err(|_| BadAddress::Endpoint)?;
    let known = matches!(endpoint.scheme_str(), Some("http" | "https"));
    let bare = endpoint.path() == "/" && endpoint.query().is_none();
    let host = endpoint
        .authority()
        .is_some_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'));
    match known && bare && host {
        true => Ok(endpoint),
        false => Err(BadAddress::Endpoint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, shown) in [
            ("dynamodb://gate", "dynamodb://gate"),
            ("dynamodb://a.b-c_D?", "dynamodb://a.b-c_D"),
            (
                "dynamodb://gate?region=eu-west-1",
                "dynamodb://gate?region=eu-west-1",
            ),
            (
                "dynamodb://gate?endpoint=http://127.0.0.1:8000/&region=local",
                "dynamodb://gate?region=local&endpoint=http://127.0.0.1:8000",
            ),
            (
                "dynamodb://gate?endpoint=https://[::1]:7",
                "dynamodb://gate?endpoint=https://[::1]:7",
            ),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for (text, flaw) in [
            ("gate", BadAddress::Scheme),
            ("dynamo://gate", BadAddress::Scheme),
            ("dynamodb://", BadAddress::Table),
            ("dynamodb://ab", BadAddress::Table),
            ("dynamodb://gate/x", BadAddress::Table),
            ("dynamodb://key:secret@gate", BadAddress::Table),
            ("dynamodb://gate?region=", BadAddress::Region),
            ("dynamodb://gate?region=a.example/", BadAddress::Region),
            ("dynamodb://gate?region", BadAddress::Option),
            ("dynamodb://gate?prefix=a", BadAddress::Option),
            ("dynamodb://gate?region=a&region=b", BadAddress::Option),
            ("dynamodb://gate?endpoint=host:1", BadAddress::Endpoint),
            ("dynamodb://gate?endpoint=ftp://h", BadAddress::Endpoint),
            ("dynamodb://gate?endpoint=http://h/p", BadAddress::Endpoint),
            (
                "dynamodb://gate?endpoint=http://u:secret@h",
                BadAddress::Endpoint,
            ),
        ] {
            assert_eq!(text.parse::<Address>(), Err(flaw), "{text}");
        }
    }
}
