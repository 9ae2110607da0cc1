//! Redis: one server or a cluster.

use asyncgate_core::TenantId;
use asyncgate_store::Error;
use bytes::Bytes;

use crate::{
    address::{Address, Place},
    cluster::{Cluster, slot},
    connection::Connection,
    dial::{Dialer, Target},
    keys::Keys,
    resp::{Args, Kind, Value},
    script::Script,
    tls::{BadSetup, Tls},
};

/// The servers that decide.
#[derive(Debug)]
pub(crate) enum Redis {
    /// One server, or the master that sentinels name.
    Single(Connection),
    Cluster(Cluster),
}

impl Redis {
    pub(crate) fn new(address: Address) -> Result<Self, BadSetup> {
        let tls = address.tls.as_ref().map(Tls::new).transpose()?;
        let (login, database) = (address.login, address.database);
        let target = match address.place {
            Place::Cluster(seeds) => return Ok(Self::Cluster(Cluster::new(seeds, login, tls))),
            Place::Single(node) => Target::Node(node),
            Place::Sentinels { sentinels, master } => Target::Master {
                sentinels,
                name: master,
            },
        };
        Ok(Self::Single(Connection::new(Dialer {
            target,
            login,
            database,
            tls,
        })))
    }

    /// Returns true if tenants are on different servers, each of which may fail while the others work.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Runs a script on the server that has the tenant's keys.
    pub(crate) async fn run(
        &self,
        script: &Script,
        tenant: TenantId,
        args: &Args,
    ) -> Result<Value, Error> {
        let by_digest = args.after(&script.by_digest());
        let answer = self.send(tenant, by_digest, script.kind).await?;
        // A server that was restarted has forgotten its scripts. It did nothing, so the request may be repeated.
        let forgotten = matches!(&answer, Value::Error(text) if text.starts_with("NOSCRIPT"));
        let answer = match forgotten {
            true => {
                let by_text = args.after(&script.by_text());
                self.send(tenant, by_text, script.kind).await?
            }
            false => answer,
        };
        accepted(answer)
    }

    /// Sends a request whose answer is a list to the server that has the tenant's keys.
    pub(crate) async fn ask_list(&self, tenant: TenantId, args: &Args) -> Result<Value, Error> {
        accepted(self.send(tenant, args.request(), Kind::List).await?)
    }

    pub(crate) async fn ping(&self) -> Result<(), Error> {
        match self {
            Self::Single(connection) => {
                let ping = Args::of([b"PING"]).request();
                accepted(connection.send(ping.into(), 1, Kind::Bytes).await?).map(drop)
            }
            Self::Cluster(cluster) => cluster.ping().await,
        }
    }

    async fn send(&self, tenant: TenantId, request: Vec<u8>, kind: Kind) -> Result<Value, Error> {
        let request = Bytes::from(request);
        match self {
            Self::Single(connection) => connection.send(request, 1, kind).await,
            Self::Cluster(cluster) => {
                cluster
                    .send(slot(Keys::tag(tenant).as_bytes()), request, kind)
                    .await
            }
        }
    }
}

/// Turns a refusal into an error. A refused request was not done.
pub(crate) fn accepted(answer: Value) -> Result<Value, Error> {
    answer.accepted().map_err(|text| {
        let corrupt = text.contains("CORRUPT");
        let text = format!("Redis: {text}");
        match corrupt {
            true => Error::Corrupt(text),
            false => Error::Unavailable(text),
        }
    })
}
