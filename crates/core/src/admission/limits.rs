//! The limits that an operator has set up: policies by name, and clients by tier.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Bucket, MILLIONTHS, Rule, Scope, descriptors::Descriptors};
use crate::Timestamp;

const MAX_POLICY_BYTES: usize = 64;

/// What is wrong with a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Something must not be zero.
    #[error("{fields} must be more than 0")]
    Zero {
        /// What.
        fields: &'static str,
    },
    /// A bucket whose rate and capacity have too many digits together.
    #[error("capacity and refill_per_minute have too many digits together: round one of them")]
    TooFine,
    /// A window that is too long.
    #[error("window_secs must be 1 to {max}")]
    WindowLength {
        /// The longest.
        max: u64,
    },
    /// No stages, or too many.
    #[error("stages must have 1 to {max} entries")]
    Stages {
        /// The most.
        max: usize,
    },
    /// A stage that cannot be.
    #[error(
        "stage {index}: batchSize and repetitions must be at least 1, and all numbers below 2^53"
    )]
    Stage {
        /// Which, from 0.
        index: usize,
    },
    /// A name that cannot be used.
    #[error("the name of a policy must have 1 to 64 letters, digits, '_', '-', '.' or '/'")]
    PolicyName,
    /// A tier that names no bucket.
    #[error("{tier}: there is no token_bucket named {named}")]
    NoBucket {
        /// The tier.
        tier: &'static str,
        /// What it names.
        named: String,
    },
    /// A client of two tiers.
    #[error("{client} is listed in two tiers")]
    TwoTiers {
        /// Which client.
        client: String,
    },
    /// A policy that is not there.
    #[error("there is no policy named {named}")]
    NoPolicy {
        /// What is named.
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

/// How a client is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Tier {
    /// As everyone.
    #[default]
    Standard,
    /// Better.
    Trusted,
    /// With large bursts.
    Batch,
    /// Worse.
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

    /// The tier with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == name)
    }
}

/// A client whose tier somebody set while the server ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTier {
    /// Which client.
    pub client: String,
    /// Its tier.
    pub tier: Tier,
    /// Why, if it was said.
    pub reason: Option<String>,
    /// Until when; after it the settings count again.
    pub until: Option<Timestamp>,
}

impl ClientTier {
    /// Whether it counts at a time.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// A policy that takes the bucket of its key's tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiered(pub [Arc<str>; Tier::ALL.len()]);

impl Default for Tiered {
    fn default() -> Self {
        Self(Tier::ALL.map(|tier| tier.as_str().into()))
    }
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// A rule.
    Rule {
        /// The rule.
        rule: Rule,
        /// Whether it is only tried out: counted, but nobody is refused.
        shadow: bool,
    },
    /// A bucket for each tier.
    Tiered {
        /// The buckets.
        tiered: Tiered,
        /// Whether it is only tried out.
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

/// No policy has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such policy")]
pub struct UnknownPolicy;

/// The rule that a policy comes to for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The name of the rule, which its rows are found by.
    pub policy: Arc<str>,
    /// The rule.
    pub rule: Rule,
    /// Whether it is only tried out.
    pub shadow: bool,
    /// The key's tier, if the policy asks for it.
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
    /// The built-in policies and these, which may stand in for them, with the clients of each tier.
    /// Everything that is wrong is told, with the name of the policy that it is about.
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
            let before = limits.tiers.insert(client.clone(), tier);
            if before.is_some_and(|before| before != tier) {
                flaws.push((String::new(), Flaw::TwoTiers { client }));
            }
        }
        for (name, policy) in &limits.policies {
            let missing = limits.missing(policy);
            flaws.extend(missing.map(|flaw| (name.to_string(), flaw)));
        }
        match flaws.is_empty() {
            true => Ok(limits),
            false => Err(flaws),
        }
    }

    /// The buckets that a tiered policy names and that are not there.
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

    /// The policies by name.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Policy)> {
        let policies = self.policies.iter();
        policies.map(|(name, policy)| (name.as_ref(), policy))
    }

    /// The policy of a name, with the name as it is kept.
    pub(super) fn policy(&self, name: &str) -> Option<(&Arc<str>, &Policy)> {
        self.policies.get_key_value(name)
    }

    /// Whether a policy asks for the key's tier.
    pub fn is_tiered(&self, policy: &str) -> bool {
        matches!(self.policies.get(policy), Some(Policy::Tiered { .. }))
    }

    /// The tier that the settings give a client.
    pub fn tier(&self, client: &str) -> Tier {
        self.tiers.get(client).copied().unwrap_or_default()
    }

    /// The clients that the settings list.
    pub fn clients(&self) -> impl Iterator<Item = (&str, Tier)> {
        let tiers = self.tiers.iter();
        tiers.map(|(client, tier)| (client.as_str(), *tier))
    }

    /// The rule of a policy for a key of some tier.
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

/// The tiers' buckets, and the policy that chooses among them.
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
    policies
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    (1..=MAX_POLICY_BYTES).contains(&text.len()) && text.bytes().all(fits)
}
