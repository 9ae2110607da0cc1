//! Counts by tenant of something whose bound tenants share.

use std::collections::BTreeMap;

use asyncgate_core::mailbox::Share;

/// A count for each tenant that has any. `K` names a tenant.
#[derive(Debug)]
pub struct Shares<K> {
    tenants: BTreeMap<K, u64>,
    total: u64,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            total: 0,
        }
    }
}

impl<K: Copy + Ord> Shares<K> {
    /// Counts `more` for a tenant.
    pub fn add(&mut self, tenant: K, more: u64) {
        if more > 0 {
            *self.tenants.entry(tenant).or_default() += more;
            self.total += more;
        }
    }

    /// Counts one less for a tenant.
    pub fn take_one(&mut self, tenant: K) {
        if let Some(count) = self.tenants.get_mut(&tenant) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.tenants.remove(&tenant);
            }
        }
    }

    /// Returns the part of the whole that a tenant has.
    pub fn share(&self, tenant: K) -> Share {
        Share {
            total: self.total,
            own: self.tenants.get(&tenant).copied().unwrap_or_default(),
            tenants: self.tenants.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tenants_that_have_some_are_counted() {
        let mut shares = Shares::default();
        shares.add('a', 2);
        shares.add('b', 0);
        shares.take_one('b');
        let told = |share: Share| (share.total, share.own, share.tenants);
        assert_eq!(told(shares.share('b')), (2, 0, 1));
        shares.add('b', 1);
        assert_eq!(told(shares.share('b')), (3, 1, 2));
        shares.take_one('a');
        shares.take_one('a');
        assert_eq!(told(shares.share('a')), (1, 0, 1));
    }
}
