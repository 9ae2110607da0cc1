//! Clients without a credential: they are told apart by where they call from.

use asyncgate_api::{CheckLimits, CheckLimitsInput, Flag};
use asyncgate_core::{Principal, admission::OWN_TENANT};

use crate::{Caller, Engine, Execute as _, Fault, Remote, Role};

/// What a client is called that has no address, which only tests are.
const UNKNOWN: &str = "unknown";

impl Remote {
    /// What limits call a client by: its address, without the port that changes with every connection.
    pub fn client() -> String {
        match Self::current() {
            Some(Self::Network(address)) => address.ip().to_canonical().to_string(),
            Some(local @ Self::Local { .. }) => local.to_string(),
            None => UNKNOWN.to_owned(),
        }
    }
}

impl Engine {
    /// Charges a request to its client's address by a policy.
    pub async fn check_client(&self, policy: &str) -> Result<(), Fault> {
        let caller = Caller {
            tenant: OWN_TENANT,
            principal: Principal::system(),
            role: Role::Admin,
        };
        let input = CheckLimitsInput {
            policy: Some(policy.to_owned()),
            key: Some(Remote::client()),
            enforce: Some(Flag(true)),
            ..CheckLimitsInput::default()
        };
        CheckLimits::execute(self, &caller, input).await.map(drop)
    }
}
