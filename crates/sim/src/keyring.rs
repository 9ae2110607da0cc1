//! The server's real secrets, except that new keys are taken from a stock: a hash is slow on purpose, and would be made
//! on a thread of its own, which no simulation waits for.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use asyncgate_api::Code;
use asyncgate_auth::{MemoryFiles, ServerKeyring, fakes};
use asyncgate_core::{RecordId, identity::RecordKey};
use asyncgate_engine::{
    Caller, Fault, Keyring, MintedKey, MintedMacaroon, NewSecret, NewTokenKey, RetiredTokenKey,
    fakes::FakeClock,
};
use asyncgate_store::memory::MemoryStore;
use futures_util::future::BoxFuture;

use crate::{deed::Place, mutant::Mutant};

/// The number of keys that a world can have.
const STOCK: usize = 160;

/// The keys that nobody has yet. Clones take from the same stock.
#[derive(Debug, Clone, Default)]
pub struct Stock(Arc<AtomicUsize>);

impl Stock {
    /// Takes a key. All worlds have the same ones.
    pub fn take(&self) -> Option<MintedKey> {
        static MINTED: OnceLock<Vec<MintedKey>> = OnceLock::new();
        let minted = MINTED.get_or_init(|| mint().unwrap_or_default());
        minted.get(self.0.fetch_add(1, Ordering::Relaxed)).cloned()
    }
}

fn mint() -> Option<Vec<MintedKey>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
    let keyring = ServerKeyring::open(
        Arc::new(MemoryStore::new()),
        Arc::new(FakeClock::at(0)),
        Arc::new(MemoryFiles::default()),
        fakes::machine(),
        &fakes::settings(),
    );
    let keyring = keyring.ok()?;
    let mint = || runtime.block_on(keyring.api_key()).ok();
    (0..STOCK).map(|_| mint()).collect()
}

/// The secrets of an instance.
pub struct SimKeyring {
    /// The secrets of the instance that is called.
    pub real: Arc<ServerKeyring>,
    /// The keys to give out.
    pub stock: Stock,
    /// The instance.
    pub place: Place,
    /// The planted defect.
    pub mutant: Option<Mutant>,
}

impl Keyring for SimKeyring {
    fn api_key(&self) -> BoxFuture<'_, Result<MintedKey, Fault>> {
        let none = || Fault::new(Code::RateLimit, "the world has no more keys");
        Box::pin(std::future::ready(self.stock.take().ok_or_else(none)))
    }

    fn macaroon(&self, id: RecordId, caveats: &[String]) -> Result<MintedMacaroon, Fault> {
        self.real.macaroon(id, caveats)
    }

    fn secret(&self) -> Result<NewSecret, Fault> {
        self.real.secret()
    }

    fn hash(&self, secret: NewSecret) -> BoxFuture<'_, Result<String, Fault>> {
        self.real.hash(secret)
    }

    fn has_hash(&self, secret: NewSecret, hash: String) -> BoxFuture<'_, Result<bool, Fault>> {
        self.real.has_hash(secret, hash)
    }

    fn sign(&self, claims: &asyncgate_credentials::jwt::Claims) -> Result<String, Fault> {
        self.real.sign(claims)
    }

    fn new_token_key(&self) -> BoxFuture<'_, Result<NewTokenKey, Fault>> {
        self.real.new_token_key()
    }

    fn sign_with(&self, key: NewTokenKey) -> BoxFuture<'_, Result<Option<RetiredTokenKey>, Fault>> {
        self.real.sign_with(key)
    }

    fn read_token(&self, token: &str) -> Option<asyncgate_credentials::jwt::Claims> {
        self.real.read_token(token)
    }

    fn mac(&self, message: &[u8]) -> [u8; 32] {
        self.real.mac(message)
    }

    fn public_keys(&self) -> serde_json::Value {
        self.real.public_keys()
    }

    fn forget(&self, record: RecordKey) {
        let tells = self.mutant.is_none_or(Mutant::tells_of_changes);
        // The instance that is called is told of what happens on it, and of nothing else.
        if self.place == Place::Here && tells {
            self.real.forget(record);
        }
    }

    fn until_ended(&self, caller: &Caller) -> BoxFuture<'static, ()> {
        match self.mutant {
            Some(mutant) => mutant.until_ended(self.real.as_ref(), caller),
            None => self.real.until_ended(caller),
        }
    }
}
