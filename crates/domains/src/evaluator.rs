//! Evaluators: an attempt buys the evaluation of a blinded message, or only the right to go on.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    answer::Problem,
    hash::Hash,
    poprf::{Element, SecretKey, element},
};

/// A key with which messages are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its number. The highest is the newest.
    pub version: u64,
    /// Its public half.
    pub public: [u8; 32],
}

/// Evaluates blinded messages. A message that it `accepts` can be evaluated with every key that it has.
pub trait Evaluator: fmt::Debug + Send + Sync {
    /// Returns its name in the settings.
    fn name(&self) -> &'static str;

    /// Returns its keys, by version.
    fn keys(&self) -> Vec<Key>;

    /// Returns the key version for a request that asks for `asked`, or for no particular one. `None` if no
    /// key is needed.
    fn pick(&self, asked: Option<u64>) -> Result<Option<u64>, Problem>;

    /// Returns true if the text is a blinded message.
    fn accepts(&self, message: &str) -> bool;

    /// Evaluates a message for a domain. `None` if this evaluator returns no evaluations.
    fn evaluate(
        &self,
        key: Option<u64>,
        domain: &Hash,
        message: &str,
    ) -> Result<Option<String>, Problem>;
}

/// Evaluates nothing: the domain only limits.
#[derive(Debug, Clone, Copy)]
pub struct Limiter;

impl Evaluator for Limiter {
    fn name(&self) -> &'static str {
        "none"
    }

    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    fn pick(&self, asked: Option<u64>) -> Result<Option<u64>, Problem> {
        Ok(asked)
    }

    fn accepts(&self, message: &str) -> bool {
        !message.is_empty()
    }

    fn evaluate(&self, _: Option<u64>, _: &Hash, _: &str) -> Result<Option<String>, Problem> {
        Ok(None)
    }
}

/// RFC 9497 POPRF with ristretto255-SHA512. The domain's hash is the public input.
#[derive(Debug, Clone)]
pub struct Poprf {
    keys: Vec<(u64, SecretKey)>,
}

impl Poprf {
    /// Builds an evaluator with these keys by version. `None` without keys, or with two of one version.
    pub fn new(mut keys: Vec<(u64, SecretKey)>) -> Option<Self> {
        // The newest key is the last one, which serves requests that ask for none.
        keys.sort_by_key(|(version, _)| *version);
        let twice = keys.windows(2).any(|pair| pair[0].0 == pair[1].0);
        (!keys.is_empty() && !twice).then_some(Self { keys })
    }

    fn key(&self, version: u64) -> Option<&SecretKey> {
        let mut keys = self.keys.iter();
        keys.find(|(known, _)| *known == version)
            .map(|(_, key)| key)
    }
}

impl Evaluator for Poprf {
    fn name(&self) -> &'static str {
        "poprf-ristretto255"
    }

    fn keys(&self) -> Vec<Key> {
        let keys = self.keys.iter().map(|(version, key)| Key {
            version: *version,
            public: key.public(),
        });
        keys.collect()
    }

    fn pick(&self, asked: Option<u64>) -> Result<Option<u64>, Problem> {
        match asked {
            None => Ok(self.keys.last().map(|(version, _)| *version)),
            Some(version) => self
                .key(version)
                .map(|_| Some(version))
                .ok_or(Problem::InvalidKeyVersion),
        }
    }

    fn accepts(&self, message: &str) -> bool {
        decode(message).is_some_and(|bytes| element(&bytes).is_some())
    }

    fn evaluate(
        &self,
        key: Option<u64>,
        domain: &Hash,
        message: &str,
    ) -> Result<Option<String>, Problem> {
        let key = key
            .and_then(|version| self.key(version))
            .ok_or(Problem::Unknown)?;
        let blinded = decode(message).ok_or(Problem::Unknown)?;
        let evaluation = key.evaluate(domain, &blinded).ok_or(Problem::Unknown)?;
        Ok(Some(STANDARD.encode(evaluation)))
    }
}

fn decode(message: &str) -> Option<Element> {
    STANDARD.decode(message).ok()?.try_into().ok()
}
