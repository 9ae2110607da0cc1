//! Redis, whether it is one server or many.

use asyncgate_core::TenantId;
use asyncgate_store::Error;
use bytes::Bytes;

use crate::{
    address::{Address, Place},
    cluster::{Cluster, slot},
    dial::{Dialer, Target},
    keys::Keys,
    link::Link,
    resp::{Args, Value},
    script::Script,
    tls::{BadSetup, Tls},
};

#[derive(Debug)]
pub(crate) enum Server {
    One(Link),
    Cluster(Cluster),
}

impl Server {
    pub(crate) fn new(address: Address) -> Result<Self, BadSetup> {
        let tls = address.tls.as_ref().map(Tls::new).transpose()?;
        let (login, database) = (address.login, address.database);
        let target = match address.place {
            Place::Cluster(seeds) => return Ok(Self::Cluster(Cluster::new(seeds, login, tls))),
            Place::One(node) => Target::Node(node),
            Place::Sentinels { sentinels, master } => Target::Master {
                sentinels,
                name: master,
            },
        };
        Ok(Self::One(Link::new(Dialer {
            target,
            login,
            database,
            tls,
        })))
    }

    /// Whether tenants are in different places, each of which may be gone while the others are not.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Runs a script where the tenant's keys are.
    pub(crate) async fn run(
        &self,
        script: &Script,
        tenant: TenantId,
        args: &Args,
    ) -> Result<Value, Error> {
        let answer = self.send(tenant, args.after(&script.head())).await?;
        let forgotten = matches!(&answer, Value::Error(text) if text.starts_with("NOSCRIPT"));
        let answer = match forgotten {
            true => self.send(tenant, args.after(&script.whole())).await?,
            false => answer,
        };
        accepted(answer)
    }

    /// Asks where the tenant's keys are.
    pub(crate) async fn ask(&self, tenant: TenantId, args: &Args) -> Result<Value, Error> {
        accepted(self.send(tenant, args.request()).await?)
    }

    pub(crate) async fn ping(&self) -> Result<(), Error> {
        match self {
            Self::One(link) => {
                let ping = Args::of([b"PING"]).request();
                accepted(link.send(ping.into(), 1).await?).map(drop)
            }
            Self::Cluster(cluster) => cluster.ping().await,
        }
    }

    async fn send(&self, tenant: TenantId, request: Vec<u8>) -> Result<Value, Error> {
        let request = Bytes::from(request);
        match self {
            Self::One(link) => link.send(request, 1).await,
            Self::Cluster(cluster) => {
                cluster
                    .send(slot(Keys::tag(tenant).as_bytes()), request)
                    .await
            }
        }
    }
}

/// An answer that is not a refusal. What was refused was not done.
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
