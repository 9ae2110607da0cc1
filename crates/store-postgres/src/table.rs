//! Tables whose rows are found by their whole key and read as a whole: a tenant's number, a key, and a packed body.

use asyncgate_core::TenantId;
use tokio_postgres::{Row, types::Type};

use crate::session::Statement;

/// Such a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Table {
    Relationship,
    UsageEvent,
    Content,
    Payload,
    Message,
    Chain,
    Record,
    Audit,
    AuditLog,
    DispatchBody,
    Dispatch,
    Cell,
    Revocation,
    ClientTier,
    Domain,
    Counter,
}

impl Table {
    /// Returns its name in the schema.
    const fn name(self) -> &'static str {
        match self {
            Self::Relationship => "relationship",
            Self::UsageEvent => "usage_event",
            Self::Content => "content",
            Self::Payload => "payload",
            Self::Message => "message",
            Self::Chain => "chain",
            Self::Record => "record",
            Self::Audit => "audit",
            Self::AuditLog => "audit_log",
            Self::DispatchBody => "dispatch_body",
            Self::Dispatch => "dispatch",
            Self::Cell => "cell",
            Self::Revocation => "revocation",
            Self::ClientTier => "client_tier",
            Self::Domain => "domain",
            Self::Counter => "counter",
        }
    }

    /// Returns the statement that reads all rows, in the order of their keys.
    pub(crate) fn all(self) -> Statement {
        let name = self.name();
        Statement::new(format!(
            "SELECT tenant, key, body FROM {name} ORDER BY tenant, key"
        ))
    }

    /// Returns the statement that reads rows by their keys.
    pub(crate) fn find(self, tenants: Vec<i64>, keys: Vec<Vec<u8>>) -> Statement {
        let name = self.name();
        Statement::new(format!(
            "SELECT tenant, key, body FROM UNNEST($1::int8[], $2::bytea[]) AS k (tenant, key)
             JOIN {name} USING (tenant, key)"
        ))
        .int8s(tenants)
        .bytes(keys)
    }

    /// Returns the statement that inserts or replaces rows.
    pub(crate) fn put(self, rows: Vec<(i64, Vec<u8>, Vec<u8>)>) -> Statement {
        let name = self.name();
        let (mut tenants, mut keys, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (tenant, key, body) in rows {
            tenants.push(tenant);
            keys.push(key);
            bodies.push(body);
        }
        Statement::new(format!(
            "INSERT INTO {name} (tenant, key, body) SELECT * FROM UNNEST($1::int8[], $2::bytea[], $3::bytea[])
             ON CONFLICT (tenant, key) DO UPDATE SET body = excluded.body"
        ))
        .int8s(tenants)
        .bytes(keys)
        .bytes(bodies)
    }

    /// Returns the statement that removes rows.
    pub(crate) fn remove(self, rows: Vec<(i64, Vec<u8>)>) -> Statement {
        let name = self.name();
        let (tenants, keys) = rows.into_iter().unzip();
        Statement::new(format!(
            "DELETE FROM {name} AS t USING UNNEST($1::int8[], $2::bytea[]) AS k (tenant, key)
             WHERE t.tenant = k.tenant AND t.key = k.key"
        ))
        .int8s(tenants)
        .bytes(keys)
    }
}

impl Table {
    /// Returns the statement that removes all rows behind one key, up to and including another.
    pub(crate) fn cut(self, tenant: i64, behind: Vec<u8>, through: Vec<u8>) -> Statement {
        let name = self.name();
        let sql = format!("DELETE FROM {name} WHERE tenant = $1 AND key > $2 AND key <= $3");
        Statement::new(sql)
            .with(tenant, Type::INT8)
            .with(behind, Type::BYTEA)
            .with(through, Type::BYTEA)
    }

    /// Returns the statement that reads rows behind one key and before another, in the order of their keys or in the
    /// opposite one.
    pub(crate) fn range(
        self,
        tenant: Tenant<'_>,
        (behind, before): (Vec<u8>, Vec<u8>),
        order: Order,
        limit: usize,
    ) -> Statement {
        let name = self.name();
        let order = match order {
            Order::Up => "key",
            Order::Down => "key DESC",
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let tenant_is = match tenant {
            Tenant::Number(_) => "$1",
            Tenant::Id(_) => "(SELECT tenant FROM tenant WHERE id = $1)",
        };
        let statement = Statement::new(format!(
            "SELECT tenant, key, body FROM {name} WHERE tenant = {tenant_is} AND key > $2 AND key < $3
             ORDER BY {order} LIMIT $4"
        ));
        let statement = match tenant {
            Tenant::Number(number) => statement.with(number, Type::INT8),
            Tenant::Id(id) => statement.with(id.as_bytes().to_vec(), Type::BYTEA),
        };
        statement
            .with(behind, Type::BYTEA)
            .with(before, Type::BYTEA)
            .with(limit, Type::INT8)
    }
}

/// A tenant in a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tenant<'a> {
    Number(i64),
    Id(&'a TenantId),
}

/// The order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Up,
    Down,
}

/// A row that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) tenant: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Stored {
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            tenant: row.get(0),
            key: row.get(1),
            body: row.get(2),
        }
    }

    /// Returns the number that the key ends with.
    pub(crate) fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        if let Some(tail) = self.key.last_chunk() {
            bytes = *tail;
        }
        u64::from_be_bytes(bytes)
    }
}

/// Returns the key of a number. Keys sort as their numbers do.
pub(crate) fn number_key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}
