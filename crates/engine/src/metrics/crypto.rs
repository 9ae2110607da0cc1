//! Metrics of public-key cryptography, by algorithm: who still depends on what a quantum computer would break, and
//! what the work costs. All labels are fixed and shown from the start, so that a dashboard can be made before a change.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::Histogram,
    },
    registry::Registry,
};

/// The label of a handshake that ended before anything was chosen.
const NONE: &str = "none";

/// The ways in which TLS can agree on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyExchange {
    /// Curve25519.
    X25519,
    /// The curve P-256.
    Secp256r1,
    /// The curve P-384.
    Secp384r1,
    /// ML-KEM alone. It is not offered, so its count stays zero.
    MlKem,
    /// X25519 and ML-KEM-768 together: the key is secret while one of them holds.
    Hybrid,
}

impl KeyExchange {
    const ALL: [Self; 5] = [
        Self::X25519,
        Self::Secp256r1,
        Self::Secp384r1,
        Self::MlKem,
        Self::Hybrid,
    ];

    /// Returns its name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::Secp256r1 => "secp256r1",
            Self::Secp384r1 => "secp384r1",
            Self::MlKem => "ml-kem",
            Self::Hybrid => "hybrid",
        }
    }
}

/// The signatures that stand for rights or for a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// Those of warrants and of ledgers.
    Ed25519,
    /// Those of access tokens.
    Rs256,
    /// Post-quantum ones, which are neither made nor accepted yet.
    MlDsa,
    /// The more cautious kind of those.
    SlhDsa,
}

impl Signature {
    const ALL: [Self; 4] = [Self::Ed25519, Self::Rs256, Self::MlDsa, Self::SlhDsa];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::Rs256 => "rs256",
            Self::MlDsa => "ml-dsa",
            Self::SlhDsa => "slh-dsa",
        }
    }
}

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeResult {
    /// Both sides have a key.
    Ok,
    /// The two sides did not come to terms, or the connection broke.
    Failed,
    /// The client knows only key exchanges that `pq.mode` forbids.
    Refused,
}

impl HandshakeResult {
    const ALL: [Self; 3] = [Self::Ok, Self::Failed, Self::Refused];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// Why a session has a key of classical cryptography although one side would do better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Downgrade {
    /// The client offers no hybrid exchange.
    Client,
    /// The client offers one, and `pq.mode` is off.
    Mode,
}

impl Downgrade {
    const ALL: [Self; 2] = [Self::Client, Self::Mode];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "not_offered",
            Self::Mode => "mode_off",
        }
    }
}

/// Where something classical was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// A handshake.
    Transport,
    /// A token's signature.
    Token,
}

impl Surface {
    const ALL: [Self; 2] = [Self::Transport, Self::Token];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Transport => "transport",
            Self::Token => "token",
        }
    }
}

/// Work with public keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CryptoWork {
    /// The server's part in agreeing on a key.
    Kex(KeyExchange),
    /// Making a signature.
    Sign(Signature),
    /// Verifying signatures.
    Verify(Signature),
}

impl CryptoWork {
    const fn labels(self) -> Work {
        let (op, algo) = match self {
            Self::Kex(exchange) => ("kex", exchange.as_str()),
            Self::Sign(signature) => ("sign", signature.as_str()),
            Self::Verify(signature) => ("verify", signature.as_str()),
        };
        Work { op, algo }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    algo: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Work {
    op: &'static str,
    algo: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Downgraded {
    peer: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AtSurface {
    surface: &'static str,
}

#[derive(Debug, Clone)]
struct Latencies;

impl MetricConstructor<Histogram> for Latencies {
    fn new_metric(&self) -> Histogram {
        Histogram::new([
            0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05,
        ])
    }
}

/// The counters of cryptography. Cloning shares them.
#[derive(Debug, Clone)]
pub struct CryptoMetrics {
    handshakes: Family<Ended, Counter>,
    handshake_failures: Counter,
    verified: Family<Ended, Counter>,
    seconds: Family<Work, Histogram, Latencies>,
    downgraded: Family<Downgraded, Counter>,
    refusals: Family<AtSurface, Counter>,
}

impl Default for CryptoMetrics {
    fn default() -> Self {
        let metrics = Self {
            handshakes: Family::default(),
            handshake_failures: Counter::default(),
            verified: Family::default(),
            seconds: Family::new_with_constructor(Latencies),
            downgraded: Family::default(),
            refusals: Family::default(),
        };
        metrics.begin();
        metrics
    }
}

impl CryptoMetrics {
    /// Starts every label at zero.
    fn begin(&self) {
        let exchanges = KeyExchange::ALL.map(KeyExchange::as_str);
        for algo in exchanges.into_iter().chain([NONE]) {
            for result in HandshakeResult::ALL.map(HandshakeResult::as_str) {
                drop(self.handshakes.get_or_create(&Ended { algo, result }));
            }
        }
        for algo in Signature::ALL {
            for ok in [true, false] {
                drop(self.verified.get_or_create(&checked(algo, ok)));
            }
        }
        for work in [
            CryptoWork::Kex(KeyExchange::X25519),
            CryptoWork::Kex(KeyExchange::Hybrid),
            CryptoWork::Sign(Signature::Ed25519),
            CryptoWork::Verify(Signature::Ed25519),
        ] {
            drop(self.seconds.get_or_create(&work.labels()));
        }
        for reason in Downgrade::ALL {
            drop(self.downgraded.get_or_create(&of_client(reason)));
        }
        for surface in Surface::ALL.map(Surface::as_str) {
            drop(self.refusals.get_or_create(&AtSurface { surface }));
        }
    }

    /// Counts a handshake that ended. `by` is how the key was agreed on, or would have been.
    pub fn handshake(&self, by: Option<KeyExchange>, result: HandshakeResult) {
        match result {
            HandshakeResult::Ok => {}
            HandshakeResult::Failed | HandshakeResult::Refused => {
                self.handshake_failures.inc();
            }
        }
        let algo = by.map_or(NONE, KeyExchange::as_str);
        let result = result.as_str();
        self.handshakes.get_or_create(&Ended { algo, result }).inc();
    }

    /// Counts a session that agreed on a classical key.
    pub fn downgraded(&self, reason: Downgrade) {
        self.downgraded.get_or_create(&of_client(reason)).inc();
    }

    /// Counts something that was refused because it is classical.
    pub fn refused(&self, surface: Surface) {
        let surface = surface.as_str();
        self.refusals.get_or_create(&AtSurface { surface }).inc();
    }

    /// Counts a signature that was checked.
    pub fn verified(&self, signature: Signature, ok: bool) {
        self.verified.get_or_create(&checked(signature, ok)).inc();
    }

    /// Notes how long some work took.
    pub fn took(&self, work: CryptoWork, time: Duration) {
        let seconds = self.seconds.get_or_create(&work.labels());
        seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "pq_handshake",
            "TLS handshakes by the way in which the key was agreed on; hybrid is X25519MLKEM768",
            self.handshakes.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or were refused",
            self.handshake_failures.clone(),
        );
        registry.register(
            "pq_signature_verify",
            "Signatures of warrants and tokens that were checked",
            self.verified.clone(),
        );
        registry.register(
            "crypto_latency_seconds",
            "Time of work with public keys: kex is the server's part of the key exchange of TLS 1.3, verify all signatures of a warrant's chain or that of a token",
            self.seconds.clone(),
        );
        registry.register(
            "pq_sessions_downgraded",
            "TLS sessions with a classical key although the server or the client would agree on a hybrid one",
            self.downgraded.clone(),
        );
        registry.register(
            "pq_only_refusals",
            "Handshakes and tokens that pq.mode = only refused",
            self.refusals.clone(),
        );
    }
}

fn checked(signature: Signature, ok: bool) -> Ended {
    Ended {
        algo: signature.as_str(),
        result: if ok { "ok" } else { "failed" },
    }
}

/// Returns the labels of a downgrade. Peers are not named: strangers would choose how many labels there are.
fn of_client(reason: Downgrade) -> Downgraded {
    Downgraded {
        peer: "client",
        reason: reason.as_str(),
    }
}
