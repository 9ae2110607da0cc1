//! The door: the real authenticator of the running process, another instance on the same store, and the credentials
//! that the actors have.

use std::sync::Arc;

use asyncgate_auth::MemoryFiles;
use asyncgate_core::{
    RecordId, Timestamp,
    identity::{ApiKey, Record},
};
use asyncgate_engine::{Authenticator, Engine, RequestContext};
use tokio::runtime::Runtime;

use super::World;
use crate::{
    cast::{Actor, tenant_id},
    hash::Set,
    keyring::Stock,
};

/// One call in this many is made by a client that was not given the newest credential yet.
const FORMER_EVERY: u32 = 8;

/// A credential of an actor.
#[derive(Debug, Clone)]
pub struct Credential {
    /// The id of its record.
    pub id: RecordId,
    /// Its text.
    pub secret: Arc<str>,
}

impl Credential {
    /// Returns a request that shows it.
    pub fn request(&self) -> RequestContext<'_> {
        RequestContext {
            credential: Some(&self.secret),
            ..RequestContext::default()
        }
    }
}

/// The credentials of all actors. They outlive the process.
pub struct Wallets {
    /// The keys that nobody has yet.
    pub stock: Stock,
    /// The server's secrets.
    pub files: Arc<MemoryFiles>,
    /// The credentials of each actor, the oldest first.
    pub of_actors: Vec<Vec<Credential>>,
}

impl Wallets {
    /// Gives every actor a credential, and returns their records.
    pub fn new(actors: &[Actor]) -> std::io::Result<(Self, Vec<Record>)> {
        let stock = Stock::default();
        let (mut of_actors, mut records) = (Vec::new(), Vec::new());
        for (n, actor) in actors.iter().enumerate() {
            let minted = stock.take();
            let minted = minted.ok_or_else(|| std::io::Error::other("no key could be made"))?;
            let id =
                RecordId::from_bytes([0, 0, 0, 0, 0, 1, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, n as u8]);
            of_actors.push(vec![Credential {
                id,
                secret: minted.secret.reveal().into(),
            }]);
            records.push(Record::ApiKey(ApiKey {
                id,
                lookup_id: minted.lookup_id,
                tenant: tenant_id(actor.tenant),
                principal: actor.caller.principal.key(),
                role: actor.caller.role,
                scopes: None,
                label: None,
                hash: minted.hash,
                check: Some(minted.check),
                created_at: Timestamp::default(),
                expires_at: None,
                last_used_at: None,
                revoked_at: None,
                replaced_by: None,
            }));
        }
        let files = Arc::new(MemoryFiles::default());
        let wallets = Self {
            stock,
            files,
            of_actors,
        };
        Ok((wallets, records))
    }

    /// Returns the credential that an actor shows with a call.
    fn shown(&self, actor: usize, call: u32) -> Option<&Credential> {
        let mut newest = self.of_actors.get(actor)?.iter().rev();
        let first = newest.next();
        match call.is_multiple_of(FORMER_EVERY) {
            true => newest.next().or(first),
            false => first,
        }
    }

    /// Returns the newest credential of an actor.
    pub fn newest(&self, actor: usize) -> Option<RecordId> {
        self.of_actors.get(actor)?.last().map(|newest| newest.id)
    }
}

/// The door of a process.
pub struct Door {
    /// The credentials of the actors.
    pub wallets: Wallets,
    /// The authenticator.
    pub auth: Arc<dyn Authenticator>,
    /// Another instance on the same store.
    pub elsewhere: Arc<Engine>,
    /// The credentials whose slow hash this process has made.
    pub proved: Set<RecordId>,
}

impl Door {
    /// Has the slow hash of a credential made when it is first shown to this process. Calls are polled by hand and
    /// could not wait for the thread that does it.
    fn prove(&mut self, runtime: &Runtime, credential: &Credential) {
        if self.proved.insert(credential.id) {
            // Whether it is good is checked by the call that follows.
            let _ = runtime.block_on(self.auth.authenticate(&credential.request()));
        }
    }
}

impl World {
    /// Returns the credential that a call shows, and the authenticator that it shows it to.
    pub(super) fn shown(
        &mut self,
        actor: usize,
        call: u32,
    ) -> Option<(Arc<dyn Authenticator>, Credential)> {
        let door = self.door.as_mut()?;
        let credential = door.wallets.shown(actor, call)?.clone();
        door.prove(&self.runtime, &credential);
        Some((Arc::clone(&door.auth), credential))
    }
}
