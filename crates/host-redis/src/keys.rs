//! The keys of rows.
//!
//! All keys of a tenant have the same hash tag, so that a cluster keeps them on one server and one script can
//! use any of them together.

use asyncgate_core::{TenantId, admission::Name, hex};

/// Makes keys with a prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) const fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// Returns the hash tag, the text between the braces of a key.
    pub(crate) fn tag(tenant: TenantId) -> String {
        hex::encode(tenant.as_bytes())
    }

    /// Returns `asyncgate:{tenant}:nonce:name` or `asyncgate:{tenant}:rl:name`.
    pub(crate) fn row(&self, tenant: TenantId, word: &str, name: Name) -> String {
        let mut key = self.of(tenant, word);
        key.push(':');
        hex::append(&mut key, &name.to_bytes());
        key
    }

    /// Returns a key that exists once for each tenant.
    pub(crate) fn of(&self, tenant: TenantId, word: &str) -> String {
        let mut key = String::with_capacity(self.prefix.len() + word.len() + 70);
        key.push_str(&self.prefix);
        key.push_str(":{");
        hex::append(&mut key, tenant.as_bytes());
        key.push_str("}:");
        key.push_str(word);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_carry_the_tenants_tag() {
        let keys = Keys::new("asyncgate".to_owned());
        let tenant = TenantId::from_bytes([0xab; 16]);
        let name = Name::from_bytes([0x0f; 16]);
        let (tag, name_hex) = ("ab".repeat(16), "0f".repeat(16));
        assert_eq!(Keys::tag(tenant), tag);
        assert_eq!(
            keys.row(tenant, "nonce", name),
            format!("asyncgate:{{{tag}}}:nonce:{name_hex}")
        );
    }
}
