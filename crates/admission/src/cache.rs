//! Answers that are kept for a while, with a bounded number.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Revocation, Subject},
};

/// The number of answers in a generation. There are two generations.
const GENERATION: usize = 50_000;

/// An answer of the registry about a subject, and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) revocation: Option<Revocation>,
    pub(crate) at: Timestamp,
}

/// The entries used lately. When the younger generation is full, it becomes the older one and the older
/// one is dropped: entries that are asked for stay, and there are never more than two generations.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq, V> Recent<K, V> {
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        // An entry that is asked for moves to the younger generation, which keeps it.
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.put(key, value);
        }
        self.young.get(key)
    }

    pub(crate) fn put(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// The registry's last answers.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    kept: Recent<(TenantId, Subject), Kept>,
    /// The number of revocations made or removed here.
    epoch: u64,
}

impl Cache {
    pub(crate) fn get(&mut self, tenant: TenantId, subject: Subject) -> Option<&Kept> {
        self.kept.get(&(tenant, subject))
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Keeps an answer of the registry, unless something was revoked or unrevoked since the question was
    /// asked: then the answer may be older than that change.
    pub(crate) fn put_of(
        &mut self,
        epoch: u64,
        tenant: TenantId,
        subject: Subject,
        revocation: Option<Revocation>,
        at: Timestamp,
    ) {
        if epoch == self.epoch {
            self.kept.put((tenant, subject), Kept { revocation, at });
        }
    }

    /// Records a revocation made here, which counts at once.
    pub(crate) fn revoke(&mut self, tenant: TenantId, revocation: Revocation, at: Timestamp) {
        self.epoch += 1;
        let place = (tenant, revocation.subject);
        let revocation = Some(revocation);
        self.kept.put(place, Kept { revocation, at });
    }

    /// Records that a revocation was removed here.
    pub(crate) fn remove(&mut self, tenant: TenantId, subject: Subject) {
        self.epoch += 1;
        self.kept.remove(&(tenant, subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);

    fn subject(n: u32) -> Subject {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        Subject::warrant(&id)
    }

    #[test]
    fn it_holds_no_more_than_two_generations_and_what_is_asked_for() {
        let mut cache = Cache::default();
        let now = Timestamp::default();
        for n in 0..200_000 {
            cache.put_of(0, TENANT, subject(n), None, now);
            assert!(cache.get(TENANT, subject(0)).is_some(), "{n}");
        }
        assert!(cache.kept.len() <= 2 * GENERATION);
        assert!(cache.get(TENANT, subject(1)).is_none());
        cache.remove(TENANT, subject(0));
        assert!(cache.get(TENANT, subject(0)).is_none());
    }

    #[test]
    fn an_answer_from_before_a_revocation_does_not_undo_it() {
        let mut cache = Cache::default();
        let now = Timestamp::default();
        let asked = cache.epoch();
        let revocation = Revocation {
            subject: subject(1),
            reason: None,
            revoked_at: now,
        };
        cache.revoke(TENANT, revocation, now);
        cache.put_of(asked, TENANT, subject(1), None, now);
        let kept = cache.get(TENANT, subject(1));
        assert!(kept.is_some_and(|kept| kept.revocation.is_some()));
    }
}
