//! Limits of clients that show no credential. Their addresses tell them apart.

use std::net::IpAddr;

use asyncgate_api::{CheckLimits, CheckLimitsInput, Flag};

use crate::{Caller, Engine, Fault, Remote, call::execute};

/// The key of a client that has no address. Only tests have such clients.
const UNKNOWN: &str = "unknown";

impl Remote {
    /// Returns the key by which limits count the client of this request: its address, without the port,
    /// which changes with every connection.
    pub(crate) fn client_key() -> String {
        match Self::current() {
            Some(remote) => remote
                .ip()
                .map_or_else(|| remote.to_string(), |address| address.to_string()),
            None => UNKNOWN.to_owned(),
        }
    }

    /// Returns the key by which limits count a client that shows nothing else: as [`Self::client_key`], but of IPv6
    /// it is the network, because anybody has as many addresses in theirs as they like.
    fn network_key() -> String {
        match Self::current().and_then(Self::network) {
            Some(network @ IpAddr::V6(_)) => format!("{network}/64"),
            Some(IpAddr::V4(_)) | None => Self::client_key(),
        }
    }
}

impl Engine {
    /// Charges a request to its client by a policy. The server itself asks, because the client is nobody
    /// that the server knows.
    pub(crate) async fn check_client(&self, policy: &str) -> Result<(), Fault> {
        let input = CheckLimitsInput {
            policy: Some(policy.to_owned()),
            key: Some(Remote::network_key()),
            enforce: Some(Flag(true)),
            ..CheckLimitsInput::default()
        };
        let checked = execute::<CheckLimits>(self, &Caller::server(), Ok(input)).await;
        checked.map(drop)
    }
}
