//! Admission on Redis: a [`Host`] whose rows many instances share.
//!
//! A question becomes one script, which Redis runs as a whole, by the server's clock; small questions of many
//! callers share one. The script decides
//! what to write; the answer is made by the rule of `core` from the rows that the script went by, so the
//! two cannot disagree unnoticed. Keys carry the tenant as their hash tag: what is asked together is in
//! one place, also in a cluster.
//!
//! Rows expire by themselves when they no longer matter. Redis must not throw them away before that
//! (`maxmemory-policy noeviction`); what it loses in a crash or a failover, it has forgotten.

mod address;
mod asks;
mod cluster;
mod dial;
mod keys;
mod link;
mod registry;
mod resp;
mod script;
mod server;
mod singles;
mod tls;

pub use address::{Address, BadAddress};
pub use tls::BadSetup;

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Revocation, Subject, Verdicts},
};
use asyncgate_store::admission::{Backend, Host, Reply};

use std::sync::Arc;

use crate::{keys::Keys, server::Server, singles::Singles};

/// Redis as a host.
#[derive(Debug)]
pub struct RedisHost {
    server: Arc<Server>,
    keys: Keys,
    singles: Singles,
    /// Whether the callers' clocks count. In the product it is the server's.
    simulated: bool,
}

impl RedisHost {
    /// Begins to connect, within a runtime of tokio. It goes on until there is a connection, and does
    /// so again when one is lost; meanwhile every call fails at once. An error is about files of TLS that
    /// the address names: they are read here, and once.
    pub fn new(address: Address) -> Result<Self, BadSetup> {
        let keys = Keys::new(address.prefix.clone());
        let server = Arc::new(Server::new(address)?);
        Ok(Self {
            singles: Singles::new(Arc::clone(&server), keys.clone()),
            server,
            keys,
            simulated: false,
        })
    }

    /// A host that goes by its callers' clocks, and whose rows stay where they are.
    #[cfg(feature = "simulated")]
    pub fn simulated(address: Address) -> Result<Self, BadSetup> {
        let host = Self::new(address)?;
        Ok(Self {
            simulated: true,
            ..host
        })
    }

    /// The time to go by, unless it is the server's.
    fn time(&self, now: Timestamp) -> Option<Timestamp> {
        self.simulated.then_some(now)
    }
}

impl Host for RedisHost {
    fn backend(&self) -> Backend {
        "redis"
    }

    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        if singles::is_single(&asks) && !self.server.is_cluster() {
            return Reply::later(self.singles.ask(tenant, self.time(now), asks));
        }
        Reply::later(async move {
            let args = asks::args(&self.keys, tenant, self.time(now), &asks);
            let answer = self.server.run(script::of(&asks), tenant, &args);
            asks::verdicts(tenant, &asks, &answer.await?)
        })
    }

    fn revoked(
        &self,
        tenant: TenantId,
        subjects: Vec<Subject>,
    ) -> Reply<'_, Vec<Option<Revocation>>> {
        if subjects.is_empty() {
            return Reply::now(Vec::new());
        }
        Reply::later(async move {
            let args = registry::look_up(&self.keys, tenant, &subjects);
            let answer = self.server.ask(tenant, &args).await?;
            registry::read_looked_up(&subjects, &answer)
        })
    }

    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)> {
        Reply::later(async move {
            let now = self.time(revocation.revoked_at);
            let args = registry::revoke(&self.keys, tenant, now, &revocation);
            let answer = self.server.run(&script::REVOKE, tenant, &args);
            registry::read_revoked(revocation.subject, &answer.await?)
        })
    }

    fn unrevoke(&self, tenant: TenantId, _: Timestamp, subject: Subject) -> Reply<'_, bool> {
        Reply::later(async move {
            let args = registry::unrevoke(&self.keys, tenant, subject);
            let answer = self.server.run(&script::UNREVOKE, tenant, &args);
            registry::read_unrevoked(&answer.await?)
        })
    }

    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>> {
        Reply::later(async move {
            let args = registry::list(&self.keys, tenant, after, limit);
            let answer = self.server.run(&script::REVOCATIONS, tenant, &args);
            registry::read_list(&answer.await?)
        })
    }

    fn ping(&self) -> Reply<'_, ()> {
        Reply::later(self.server.ping())
    }
}
