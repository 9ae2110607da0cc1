//! Limits of clients that show no credential. Their addresses tell them apart.

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
}

impl Engine {
    /// Charges a request to its client by a policy. The server itself asks, because the client is nobody
    /// that the server knows.
    pub(crate) async fn check_client(&self, policy: &str) -> Result<(), Fault> {
        let input = CheckLimitsInput {
            policy: Some(policy.to_owned()),
            key: Some(Remote::client_key()),
            enforce: Some(Flag(true)),
            ..CheckLimitsInput::default()
        };
        let checked = execute::<CheckLimits>(self, &Caller::server(), Ok(input)).await;
        checked.map(drop)
    }
}
