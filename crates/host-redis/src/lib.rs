//! Admission on Redis: a [`Host`] whose rows many instances share.
//!
//! A question becomes one call of a script, which Redis runs as one atomic step by the server's clock; small
//! questions of many callers share a call. The script decides what to write. The rule of `core` makes the answer
//! from the rows that the script used, so the two cannot disagree unnoticed. Keys have the tenant as their hash
//! tag: all rows of a question are on one server, in a cluster too.
//!
//! Rows expire by themselves when they no longer matter. Redis must not evict them before that
//! (`maxmemory-policy noeviction`). Rows that Redis loses in a crash or a failover are forgotten.

mod address;
mod batch;
mod cluster;
mod connection;
mod dial;
mod encoding;
mod keys;
mod redis;
mod resp;
mod revocations;
mod script;
mod tls;

pub use address::{Address, BadAddress};
pub use tls::BadSetup;

#[cfg(feature = "fuzzing")]
pub use resp::replies_in_parts;

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Revocation, Subject, Verdicts},
};
use asyncgate_store::admission::{Backend, Host, Reply};

use std::sync::Arc;

use crate::{batch::Batcher, keys::Keys, redis::Redis};

/// Redis as a host.
#[derive(Debug)]
pub struct RedisHost {
    redis: Arc<Redis>,
    keys: Keys,
    batcher: Batcher,
    /// True if the callers' clocks count, for tests. In the product the server's clock counts.
    simulated: bool,
}

impl RedisHost {
    /// Makes a host, within a runtime of tokio, and begins to connect. It dials until there is a connection, and
    /// again when one is lost; meanwhile every call fails at once. Reads the files of TLS that the address names,
    /// and fails if one of them cannot be used.
    pub fn new(address: Address) -> Result<Self, BadSetup> {
        let keys = Keys::new(address.prefix.clone());
        let redis = Arc::new(Redis::new(address)?);
        Ok(Self {
            batcher: Batcher::new(Arc::clone(&redis), keys.clone()),
            redis,
            keys,
            simulated: false,
        })
    }

    /// Makes a host that uses its callers' clocks, and whose rows do not expire.
    #[cfg(feature = "simulated")]
    pub fn simulated(address: Address) -> Result<Self, BadSetup> {
        let host = Self::new(address)?;
        Ok(Self {
            simulated: true,
            ..host
        })
    }

    /// Returns the time to use. None stands for the server's clock.
    fn time(&self, now: Timestamp) -> Option<Timestamp> {
        self.simulated.then_some(now)
    }
}

impl Host for RedisHost {
    fn backend(&self) -> Backend {
        "redis"
    }

    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        if batch::can_batch(&asks) && !self.redis.is_cluster() {
            return Reply::later(self.batcher.ask(tenant, self.time(now), asks));
        }
        Reply::later(async move {
            let args = encoding::args(&self.keys, tenant, self.time(now), &asks);
            let answer = self.redis.run(script::for_question(&asks), tenant, &args);
            encoding::verdicts(tenant, &asks, &answer.await?)
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
            let args = revocations::look_up(&self.keys, tenant, &subjects);
            let answer = self.redis.ask_list(tenant, &args).await?;
            revocations::read_looked_up(&subjects, &answer)
        })
    }

    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)> {
        Reply::later(async move {
            let now = self.time(revocation.revoked_at);
            let args = revocations::revoke(&self.keys, tenant, now, &revocation);
            let answer = self.redis.run(&script::REVOKE, tenant, &args);
            revocations::read_revoked(revocation.subject, &answer.await?)
        })
    }

    fn unrevoke(&self, tenant: TenantId, _: Timestamp, subject: Subject) -> Reply<'_, bool> {
        Reply::later(async move {
            let args = revocations::unrevoke(&self.keys, tenant, subject);
            let answer = self.redis.run(&script::UNREVOKE, tenant, &args);
            revocations::read_unrevoked(&answer.await?)
        })
    }

    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>> {
        Reply::later(async move {
            let args = revocations::list(&self.keys, tenant, after, limit);
            let answer = self.redis.run(&script::REVOCATIONS, tenant, &args);
            revocations::read_list(&answer.await?)
        })
    }

    fn ping(&self) -> Reply<'_, ()> {
        Reply::later(self.redis.ping())
    }
}
