//! Admission on DynamoDB: a [`Host`] whose rows many instances share.
//!
//! The rule of `core` decides in this process, from assumed rows, and DynamoDB writes the decision on the
//! condition that the rows are so; otherwise the rule decides again. A new nonce and a single counter are one
//! request. Several rows are written in one transaction or not at all.
//!
//! DynamoDB has no clock that a condition could use, so the callers' clocks count. Each row holds the time until
//! which it matters; DynamoDB removes it some time later, by its attribute `ttl`.

mod address;
mod admit;
mod batch;
mod client;
mod credentials;
mod refusal;
mod revocations;
mod row_locks;
mod rows;
mod sign;
mod table;
mod transaction;

pub use address::{Address, BadAddress};

use std::{sync::Arc, time::Duration};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Revocation, Subject, Verdicts},
};
use asyncgate_store::admission::{Backend, Host, Reply};
use serde_json::json;

use crate::{
    batch::Batches,
    client::Client,
    credentials::Credentials,
    row_locks::RowLocks,
    rows::{PARTITION, SORT},
    table::Table,
};

/// The environment variable that names the region when the address does not.
const REGION: &str = "AWS_REGION";

/// DynamoDB as a host.
#[derive(Debug)]
pub struct DynamoHost(Arc<Shared>);

/// The parts of a host that its callers share.
#[derive(Debug)]
struct Shared {
    table: Table,
    row_locks: RowLocks,
    batches: Batches,
}

/// A flaw in the setup that keeps a host from being made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSetup {
    /// No region.
    #[error("no region: put ?region=name behind the table's name, or set {REGION}")]
    Region,
    /// No credentials.
    #[error(
        "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN)"
    )]
    Credentials,
    /// Credentials that cannot be sent.
    #[error("{0} holds characters that cannot be part of it, such as spaces or a line's end")]
    Characters(&'static str),
    /// TLS cannot be used.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

impl DynamoHost {
    /// Makes a host for an address, with credentials from the environment and the wall clock for signatures.
    /// It connects with the first question, within a runtime of tokio.
    pub fn new(
        address: &Address,
        env: impl Fn(&str) -> Option<String>,
        wall: fn() -> Timestamp,
    ) -> Result<Self, BadSetup> {
        Self::make(address, env, wall, client::PATIENCE)
    }

    /// Makes a host that waits for an answer as long as it takes, within reason: a busy machine makes emulators slow.
    #[cfg(feature = "emulated")]
    pub fn emulated(
        address: &Address,
        env: impl Fn(&str) -> Option<String>,
        wall: fn() -> Timestamp,
    ) -> Result<Self, BadSetup> {
        Self::make(address, env, wall, Duration::from_secs(120))
    }

    fn make(
        address: &Address,
        env: impl Fn(&str) -> Option<String>,
        wall: fn() -> Timestamp,
        patience: Duration,
    ) -> Result<Self, BadSetup> {
        let region = match &address.region {
            Some(region) => region.clone(),
            None => {
                let region = env(REGION).ok_or(BadSetup::Region)?;
                address::region(&region).map_err(|_| BadSetup::Characters(REGION))?
            }
        };
        let endpoint = match &address.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => address::endpoint(&format!("https://dynamodb.{region}.amazonaws.com"))
                .map_err(|_| BadSetup::Characters(REGION))?,
        };
        let credentials = Credentials::from(&env)?;
        Ok(Self(Arc::new(Shared {
            table: Table {
                name: address.table.clone(),
                client: Client::new(endpoint, region, credentials, wall, patience)?,
            },
            row_locks: RowLocks::default(),
            batches: Batches::default(),
        })))
    }
}

impl Host for DynamoHost {
    fn backend(&self) -> Backend {
        "dynamodb"
    }

    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        Reply::later(admit::admit(&self.0, tenant, now, asks))
    }

    fn revoked(
        &self,
        tenant: TenantId,
        subjects: Vec<Subject>,
    ) -> Reply<'_, Vec<Option<Revocation>>> {
        if subjects.is_empty() {
            return Reply::now(Vec::new());
        }
        Reply::later(async move { revocations::look_up(&self.0.table, tenant, &subjects).await })
    }

    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)> {
        Reply::later(revocations::revoke(&self.0.table, tenant, revocation))
    }

    fn unrevoke(&self, tenant: TenantId, _: Timestamp, subject: Subject) -> Reply<'_, bool> {
        Reply::later(revocations::unrevoke(&self.0.table, tenant, subject))
    }

    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>> {
        Reply::later(revocations::list(&self.0.table, tenant, after, limit))
    }

    /// Reads a row that never exists, which tests the table, its key and the credentials.
    fn ping(&self) -> Reply<'_, ()> {
        Reply::later(async {
            let key = json!({ PARTITION: { "S": "ping" }, SORT: { "S": "row" } });
            let input = json!({ "Key": key, "ConsistentRead": true });
            self.0.table.call("GetItem", input).await?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str, pairs: &[(&str, &str)]) -> Result<DynamoHost, BadSetup> {
        let env = |name: &str| {
            let found = pairs.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        DynamoHost::new(&address.parse().unwrap(), env, Timestamp::default)
    }

    #[test]
    fn a_flaw_in_the_setup_is_named() {
        let key = [
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", "s3cret"),
        ];
        let with = |region: &'static str| [key[0], key[1], (REGION, region)];
        let local = "dynamodb://gate?endpoint=http://127.0.0.1:1";
        assert_eq!(host(local, &key).unwrap_err(), BadSetup::Region);
        assert_eq!(
            host(local, &with("e/vil")).unwrap_err(),
            BadSetup::Characters(REGION)
        );
        let region = "dynamodb://gate?region=eu-west-1&endpoint=http://127.0.0.1:1";
        assert_eq!(host(region, &[]).unwrap_err(), BadSetup::Credentials);
        for ready in [host(region, &key), host(local, &with("eu-west-1"))] {
            let shown = format!("{:?}", ready.unwrap());
            assert!(
                shown.contains("gate") && !shown.contains("s3cret"),
                "{shown}"
            );
        }
    }
}
