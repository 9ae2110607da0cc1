//! The key exchanges of TLS, measured, and what a client offers of them.

use asyncgate_engine::{CryptoMetrics, CryptoWork, KeyExchange};
use asyncgate_store::Stopwatch;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::server::ClientHello;
use rustls::{CipherSuite, Error, NamedGroup, ProtocolVersion};

/// The cipher suites of TLS 1.3. A client that has none of them does not speak it.
const TLS13: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];

/// The key exchanges that this server knows.
#[derive(Debug, Clone)]
pub struct Exchanges {
    hybrid: &'static Measured,
    classical: [&'static Measured; 3],
    pub metrics: CryptoMetrics,
}

impl Exchanges {
    /// Makes the exchanges. A server calls this once: they live as long as the process, because the library asks for
    /// exchanges that always exist.
    pub fn new(metrics: CryptoMetrics) -> Self {
        let measured = |group, kind| -> &'static Measured {
            let metrics = metrics.clone();
            Box::leak(Box::new(Measured {
                group,
                kind,
                metrics,
            }))
        };
        Self {
            hybrid: measured(kx_group::X25519MLKEM768, KeyExchange::Hybrid),
            classical: [
                measured(kx_group::X25519, KeyExchange::X25519),
                measured(kx_group::SECP256R1, KeyExchange::Secp256r1),
                measured(kx_group::SECP384R1, KeyExchange::Secp384r1),
            ],
            metrics,
        }
    }

    /// Returns the cryptography with the hybrid exchange alone.
    pub fn hybrid(&self) -> CryptoProvider {
        with([self.hybrid])
    }

    /// Returns the cryptography with the classical exchanges.
    pub fn classical(&self) -> CryptoProvider {
        with(self.classical)
    }

    /// Returns the kind of a group, if it is one of these exchanges.
    pub fn kind(&self, group: NamedGroup) -> Option<KeyExchange> {
        let known = [self.hybrid].into_iter().chain(self.classical);
        let mut found = known.filter(|known| known.name() == group);
        found.next().map(|known| known.kind)
    }

    /// Returns what a client offers.
    pub fn offered(&self, hello: &ClientHello<'_>) -> Offer {
        let groups = hello.named_groups().unwrap_or_default();
        let speaks_tls13 = TLS13
            .iter()
            .any(|suite| hello.cipher_suites().contains(suite));
        let kinds = || groups.iter().filter_map(|group| self.kind(*group));
        Offer {
            hybrid: speaks_tls13 && kinds().any(|kind| kind == KeyExchange::Hybrid),
            classical: kinds().find(|kind| *kind != KeyExchange::Hybrid),
        }
    }
}

fn with(exchanges: impl IntoIterator<Item = &'static Measured>) -> CryptoProvider {
    let exchanges = exchanges
        .into_iter()
        .map(|one| one as &dyn SupportedKxGroup);
    CryptoProvider {
        kx_groups: exchanges.collect(),
        ..default_provider()
    }
}

/// The key exchanges that a client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// True if the hybrid one is among them.
    pub hybrid: bool,
    /// The classical one that it likes best.
    pub classical: Option<KeyExchange>,
}

/// An exchange whose work is measured.
#[derive(Debug)]
struct Measured {
    group: &'static dyn SupportedKxGroup,
    kind: KeyExchange,
    metrics: CryptoMetrics,
}

impl SupportedKxGroup for Measured {
    /// Begins an exchange of TLS 1.2. It is not measured: the client answers in the middle of it.
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        self.group.start()
    }

    fn start_and_complete(&self, share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let watch = Stopwatch::start();
        let completed = self.group.start_and_complete(share);
        self.metrics
            .took(CryptoWork::Kex(self.kind), watch.elapsed());
        completed
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.group.name()
    }

    fn fips(&self) -> bool {
        self.group.fips()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        self.group.usable_for_version(version)
    }
}
