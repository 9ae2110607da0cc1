//! The process: an engine and a door, over what is stored.

use std::sync::Arc;

use asyncgate_auth::{Auth, Files, MemoryFiles, ServerKeyring, fakes};
use asyncgate_core::{
    Timestamp,
    identity::{self, Quotas, Record, TenantRecord},
};
use asyncgate_engine::{
    Authenticator, Clock, Durability, Engine, Keyring, Settings, Signer, fakes::FakeClock,
};
use asyncgate_store::{
    Job, Store,
    identity::{Reads, Records},
};

use super::door::{Door, Wallets};
use crate::{
    cast::{TENANTS, tenant_id},
    clock::FakeEntropy,
    deed::Place,
    hash::Set,
    keyring::SimKeyring,
    model::{DEFAULT_LIMIT, MAX_LIMIT},
    mutant::Mutant,
    schedule::Setup,
    store::SimStore,
};

/// The parts of a process.
pub struct Parts<'a> {
    pub setup: &'a Setup,
    pub mutant: Option<Mutant>,
    pub store: &'a Arc<SimStore>,
    pub clock: &'a Arc<FakeClock>,
    pub entropy: &'a Arc<FakeEntropy>,
}

impl Parts<'_> {
    /// Starts a process. Its callers need credentials if they have wallets.
    pub fn start(&self, wallets: Option<Wallets>) -> std::io::Result<(Arc<Engine>, Option<Door>)> {
        match wallets {
            Some(wallets) => self.start_with(wallets),
            None => Ok((engine(self, None), None)),
        }
    }

    fn start_with(&self, wallets: Wallets) -> std::io::Result<(Arc<Engine>, Option<Door>)> {
        let failed = |error: &dyn std::fmt::Display| std::io::Error::other(error.to_string());
        let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(self.clock);
        let store: Arc<dyn Store> = Arc::<SimStore>::clone(self.store);
        let mut settings = fakes::settings();
        let clock = match self.mutant {
            Some(mutant) => {
                settings.proof_ttl = mutant.proof_ttl(settings.proof_ttl);
                mutant.clock(clock)
            }
            None => clock,
        };
        let files: Arc<dyn Files> = Arc::<MemoryFiles>::clone(&wallets.files);
        let (at, machine) = (Arc::clone(&clock), fakes::machine());
        let real = ServerKeyring::open(store, at, files, machine, &settings);
        let real = real.map_err(|error| failed(&error))?;
        let keyring = |place| -> Arc<dyn Keyring> {
            Arc::new(SimKeyring {
                real: Arc::clone(&real),
                stock: wallets.stock.clone(),
                place,
                mutant: self.mutant,
            })
        };
        let engine = engine(self, Some(keyring(Place::Here)));
        let elsewhere = self::engine(self, Some(keyring(Place::Elsewhere)));
        let auth = Auth::new(Arc::clone(&engine), Arc::clone(&real), clock, &settings);
        let auth: Arc<dyn Authenticator> = Arc::new(auth.map_err(|error| failed(&error))?);
        let auth = match self.mutant {
            Some(mutant) => mutant.authenticator(auth),
            None => auth,
        };
        let door = Door {
            wallets,
            auth,
            elsewhere,
            proved: Set::default(),
        };
        Ok((engine, Some(door)))
    }
}

/// Returns the records of all tenants.
pub fn tenants(quotas: Quotas) -> impl Iterator<Item = Record> {
    (0..TENANTS).map(move |number| {
        let id = tenant_id(number);
        Record::Tenant(TenantRecord {
            id,
            name: id.to_string(),
            own_quotas: quotas,
            ..TenantRecord::built_in()
        })
    })
}

/// Writes the records that a world begins with.
pub fn begin_with(store: &dyn Store, changes: identity::Changes) {
    let job = Job::<Records> {
        tenant: tenant_id(0),
        reads: Reads::default(),
        now: Timestamp::default(),
        weight: 0,
        decide: Box::new(move |_, _| Some(changes.clone())),
    };
    // A store in memory has done it when it answers.
    drop(store.transact(job.into()));
}

fn engine(parts: &Parts<'_>, keyring: Option<Arc<dyn Keyring>>) -> Arc<Engine> {
    let settings = Settings {
        policy: Arc::new(parts.setup.policy()),
        durability: Durability::None,
        default_list_limit: DEFAULT_LIMIT,
        max_list_limit: MAX_LIMIT,
        default_bootstrap_items: DEFAULT_LIMIT,
        max_bootstrap_items: MAX_LIMIT,
        ..Settings::default()
    };
    let store: Arc<dyn Store> = Arc::<SimStore>::clone(parts.store);
    let store = match parts.mutant {
        Some(mutant) => mutant.above(store),
        None => store,
    };
    let clock: Arc<dyn Clock> = Arc::<FakeClock>::clone(parts.clock);
    let entropy = Arc::<FakeEntropy>::clone(parts.entropy);
    let engine = Engine::new(store, clock, entropy, settings).with_signer(Arc::new(Stamp));
    Arc::new(match keyring {
        Some(keyring) => engine.with_keyring(keyring),
        None => engine,
    })
}

/// A signer without a key: here it matters when and what is signed, not by whom.
struct Stamp;

impl Signer for Stamp {
    fn public_key(&self) -> [u8; 32] {
        [7; 32]
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        [message.len() as u8; 64]
    }
}
