//! The limits that an operator has set up: policies by name, and clients by tier.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Bucket, MILLIONTHS, Rule, Scope, descriptors::Descriptors};
use crate::Timestamp;

const MAX_POLICY_BYTES: usize = 64;

/// The defects that settings of limits can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A number that must not be zero is zero.
    #[error("{fields} must be more than 0")]
    Zero {
        /// The settings in question.
        fields: &'static str,
    },
    /// A bucket whose rate and capacity have too many digits together.
    #[error("capacity and refill_per_minute have too many digits together: round one of them")]
    TooFine,
    /// A window that is too long.
    #[error("window_secs must be 1 to {max}")]
    WindowLength {
        /// The longest allowed window.
        max: u64,
    },
    /// No stages, or too many.
    #[error("stages must have 1 to {max} entries")]
    Stages {
        /// The largest allowed number of stages.
        max: usize,
    },
    /// A stage with impossible numbers.
    #[error(
        "stage {index}: batchSize and repetitions must be at least 1, and all numbers below 2^53"
    )]
    Stage {
        /// The number of the stage, from 0.
        index: usize,
    },
    /// A policy with a name that is not allowed.
    #[error("the name of a policy must have 1 to 64 letters, digits, '_', '-', '.' or '/'")]
    PolicyName,
    /// A tier that names no bucket.
    #[error("{tier}: there is no token_bucket named {named}")]
    NoBucket {
        /// The tier.
        tier: &'static str,
        /// The name in the settings.
        named: String,
    },
    /// A client that is listed in two tiers.
    #[error("{client} is listed in two tiers")]
    TwoTiers {
        /// The client.
        client: String,
    },
    /// A policy that does not exist.
    #[error("there is no policy named {named}")]
    NoPolicy {
        /// The name in the settings.
        named: String,
    },
    /// A policy that cannot limit calls.
    #[error("{named} must be a token_bucket or a fixed_window")]
    NotForCalls {
        /// What is named.
        named: String,
    },
    /// A pattern that cannot be read.
    #[error("a pattern must be keys with a comma between them, each with =VALUE or without")]
    Pattern,
}

/// The treatment of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Tier {
    /// The treatment of every client that is not listed.
    #[default]
    Standard,
    /// More than the standard.
    Trusted,
    /// Large bursts.
    Batch,
    /// Less than the standard.
    Throttled,
}

impl Tier {
    /// Every tier, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Standard, Self::Trusted, Self::Batch, Self::Throttled];

    /// The tier's name in every layer.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Trusted => "trusted",
            Self::Batch => "batch",
            Self::Throttled => "throttled",
        }
    }

    /// Returns the tier with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == name)
    }
}

/// A client whose tier was set while the server ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTier {
    /// The client.
    pub client: String,
    /// Its tier.
    pub tier: Tier,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// The end of the change; from then on the settings count again.
    pub until: Option<Timestamp>,
}

impl ClientTier {
    /// Returns true if it holds at this time.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// The names of the buckets of a tiered policy, one for each tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiered(pub [Arc<str>; Tier::ALL.len()]);

impl Default for Tiered {
    fn default() -> Self {
        Self(Tier::ALL.map(|tier| tier.as_str().into()))
    }
}

/// A policy: the meaning of a name in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// A rule.
    Rule {
        /// The rule.
        rule: Rule,
        /// True if it is only on trial: refusals are counted, but nobody is refused.
        shadow: bool,
    },
    /// A choice among buckets, by the tier of the key.
    Tiered {
        /// The buckets.
        tiered: Tiered,
        /// True if it is only on trial.
        shadow: bool,
    },
}

/// All policies, and the tiers of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    policies: BTreeMap<Arc<str>, Policy>,
    tiers: HashMap<String, Tier>,
    /// The rules that limit calls to the server itself.
    pub(super) calls: Vec<(Scope, Resolved)>,
    pub(super) descriptors: Descriptors,
}

/// The error for a name that no policy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such policy")]
pub struct UnknownPolicy;

/// The rule of a policy for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The name of the rule, by which its rows are found.
    pub policy: Arc<str>,
    /// The rule.
    pub rule: Rule,
    /// True if it is only on trial.
    pub shadow: bool,
    /// The key's tier, if the policy depends on it.
    pub tier: Option<Tier>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            policies: built_in(),
            tiers: HashMap::new(),
            calls: Vec::new(),
            descriptors: Descriptors::default(),
        }
    }
}

impl Limits {
    /// Combines the built-in policies with these, which may replace them, and with the clients of each
    /// tier. Returns all defects, each with the name of its policy.
    pub fn new(
        policies: impl IntoIterator<Item = (String, Policy)>,
        clients: impl IntoIterator<Item = (Tier, String)>,
    ) -> Result<Self, Vec<(String, Flaw)>> {
        let mut limits = Self::default();
        let mut flaws = Vec::new();
        for (name, policy) in policies {
            if !is_name(&name) {
                flaws.push((name.clone(), Flaw::PolicyName));
            }
            limits.policies.insert(name.into(), policy);
        }
        for (tier, client) in clients {
            // Listing a client twice in one tier is harmless; in two tiers it is a mistake.
            let before = limits.tiers.insert(client.clone(), tier);
            if before.is_some_and(|before| before != tier) {
                flaws.push((String::new(), Flaw::TwoTiers { client }));
            }
        }
        // Checked after all policies are known: a tiered policy may name one that stands after it.
        for (name, policy) in &limits.policies {
            let missing = limits.missing(policy);
            flaws.extend(missing.map(|flaw| (name.to_string(), flaw)));
        }
        match flaws.is_empty() {
            true => Ok(limits),
            false => Err(flaws),
        }
    }

    /// Returns the buckets that a tiered policy names and that do not exist.
    fn missing<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = Flaw> + 'a {
        let named = match policy {
            Policy::Tiered { tiered, .. } => Some(tiered.0.iter().zip(Tier::ALL)),
            Policy::Rule { .. } => None,
        };
        named.into_iter().flatten().filter_map(|(name, tier)| {
            let bucket = |policy: &Policy| {
                matches!(
                    policy,
                    Policy::Rule {
                        rule: Rule::Bucket(_),
                        ..
                    }
                )
            };
            let found = self.policies.get(name).is_some_and(bucket);
            (!found).then(|| Flaw::NoBucket {
                tier: tier.as_str(),
                named: name.to_string(),
            })
        })
    }

    /// Returns the policies by name.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Policy)> {
        let policies = self.policies.iter();
        policies.map(|(name, policy)| (name.as_ref(), policy))
    }

    /// Returns the policy with this name, and the shared copy of the name.
    pub(super) fn policy(&self, name: &str) -> Option<(&Arc<str>, &Policy)> {
        self.policies.get_key_value(name)
    }

    /// Returns true if a policy depends on the key's tier.
    pub fn is_tiered(&self, policy: &str) -> bool {
        matches!(self.policies.get(policy), Some(Policy::Tiered { .. }))
    }

    /// Returns the tier that the settings give a client.
    pub fn tier(&self, client: &str) -> Tier {
        self.tiers.get(client).copied().unwrap_or_default()
    }

    /// Returns the clients that the settings list.
    pub fn clients(&self) -> impl Iterator<Item = (&str, Tier)> {
        let tiers = self.tiers.iter();
        tiers.map(|(client, tier)| (client.as_str(), *tier))
    }

    /// Returns the rule of a policy for a key of some tier.
    pub fn resolve(&self, policy: &str, tier: Tier) -> Result<Resolved, UnknownPolicy> {
        let (name, found) = self.policies.get_key_value(policy).ok_or(UnknownPolicy)?;
        let rule = |name: &Arc<str>, shadow: bool, tier: Option<Tier>| match self.policies.get(name)
        {
            Some(Policy::Rule {
                rule,
                shadow: tried_out,
            }) => Ok(Resolved {
                policy: Arc::clone(name),
                rule: rule.clone(),
                shadow: shadow || *tried_out,
                tier,
            }),
            _ => Err(UnknownPolicy),
        };
        match found {
            Policy::Rule { shadow, .. } => rule(name, *shadow, None),
            Policy::Tiered { tiered, shadow } => {
                rule(&tiered.0[tier as usize], *shadow, Some(tier))
            }
        }
    }
}

/// The name of the built-in policy for clients who ask about domains.
pub const DOMAINS_POLICY: &str = "domains";

/// Returns the tiers' buckets, the policy that chooses among them, and the bucket for clients who ask about domains.
fn built_in() -> BTreeMap<Arc<str>, Policy> {
    const BUCKETS: [(Tier, u64, u64); 4] = [
        (Tier::Standard, 100, 10),
        (Tier::Trusted, 500, 50),
        (Tier::Batch, 1_000, 100),
        (Tier::Throttled, 10, 1),
    ];
    let mut policies = BTreeMap::new();
    for (tier, capacity, per_minute) in BUCKETS {
        let bucket = Bucket::per_minute(capacity, per_minute * MILLIONTHS);
        // These constants always make a bucket; the error case exists only for settings.
        if let Ok(bucket) = bucket {
            let rule = Rule::Bucket(bucket.with_overdraw(true));
            let shadow = false;
            policies.insert(tier.as_str().into(), Policy::Rule { rule, shadow });
        }
    }
    let tiered = Policy::Tiered {
        tiered: Tiered::default(),
        shadow: false,
    };
    policies.insert("client".into(), tiered);
    // Without overdraw, because these clients are strangers: refusing one writes nothing.
    if let Ok(bucket) = Bucket::per_minute(1_000, 100 * MILLIONTHS) {
        let (rule, shadow) = (Rule::Bucket(bucket), false);
        policies.insert(DOMAINS_POLICY.into(), Policy::Rule { rule, shadow });
    }
    policies
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    (1..=MAX_POLICY_BYTES).contains(&text.len()) && text.bytes().all(fits)
}
