//! A connection with its settings, and the small dictionaries to which rows refer.

use std::{path::Path, sync::Arc};

use asyncgate_core::TenantId;
use foldhash::HashMap;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Result, config::DbConfig};

use crate::rows::checksum::damaged;

/// A connection, and the names that it has met. A number never changes its meaning, so a name that is known stays true.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) conn: Connection,
    tenants: HashMap<TenantId, i64>,
    instances: HashMap<i64, Arc<str>>,
    topics: HashMap<i64, Arc<str>>,
}

/// The most names of topics that a connection keeps.
const MAX_TOPICS: usize = 10_000;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Write,
    Read,
}

impl Db {
    pub(crate) fn open(path: &Path, purpose: Use) -> Result<Self> {
        let flags = match purpose {
            Use::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
            Use::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
        let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        // Without this, SQLite plans a statement again whenever a bound value changes, which costs as much as running
        // it.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.set_prepared_statement_cache_capacity(128);
        conn.busy_timeout(std::time::Duration::from_secs(5))?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        let cache_kib = match purpose {
            Use::Write => 48 * 1024,
            Use::Read => 8 * 1024,
        };
        conn.pragma_update(None, "cache_size", -cache_kib)?;
        if purpose == Use::Write {
            conn.pragma_update(None, "journal_mode", "WAL")?;
            conn.pragma_update(None, "synchronous", "FULL")?;
            // The writer checkpoints after it has answered, not inside a commit.
            conn.pragma_update(None, "wal_autocheckpoint", 0)?;
            // Pages must not reach the log before their commit: the one before it may not be on disk yet.
            conn.pragma_update(None, "cache_spill", false)?;
        }
        #[cfg(test)]
        let conn = crate::plans::recorded(conn)?;
        Ok(Self {
            conn,
            tenants: HashMap::default(),
            instances: HashMap::default(),
            topics: HashMap::default(),
        })
    }

    /// Returns the number of a tenant, if it has rows.
    pub(crate) fn tenant(&mut self, id: TenantId) -> Result<Option<i64>> {
        if let Some(tenant) = self.tenants.get(&id) {
            return Ok(Some(*tenant));
        }
        let found = self
            .conn
            .prepare_cached("SELECT tenant FROM tenant WHERE tenant_id = ?1")?
            .query_row([id.as_bytes()], |row| row.get(0))
            .optional()?;
        if let Some(tenant) = found {
            self.tenants.insert(id, tenant);
        }
        Ok(found)
    }

    /// Returns the name of an instance.
    pub(crate) fn instance(&mut self, instance: i64) -> Result<Arc<str>> {
        if let Some(name) = self.instances.get(&instance) {
            return Ok(Arc::clone(name));
        }
        let name: Option<String> = self
            .conn
            .prepare_cached("SELECT name FROM instance WHERE instance = ?1")?
            .query_row([instance], |row| row.get(0))
            .optional()?;
        let name = name.ok_or_else(|| damaged("the row names an instance that is not there"))?;
        let name: Arc<str> = name.into();
        self.instances.insert(instance, Arc::clone(&name));
        Ok(name)
    }

    /// Returns the number of an instance, which is written if it is new. It is for the writer only.
    pub(crate) fn intern_instance(&mut self, name: &Arc<str>) -> Result<i64> {
        let known = self.instances.iter().find(|(_, known)| *known == name);
        if let Some((instance, _)) = known {
            return Ok(*instance);
        }
        self.conn.execute(
            "INSERT INTO instance (name) VALUES (?1) ON CONFLICT DO NOTHING",
            [name],
        )?;
        let instance = self.conn.query_row(
            "SELECT instance FROM instance WHERE name = ?1",
            [name],
            |row| row.get(0),
        )?;
        self.instances.insert(instance, Arc::clone(name));
        Ok(instance)
    }

    /// Returns the name of a topic.
    pub(crate) fn topic(&mut self, topic: i64) -> Result<Arc<str>> {
        if let Some(name) = self.topics.get(&topic) {
            return Ok(Arc::clone(name));
        }
        let name: Option<String> = self
            .conn
            .prepare_cached("SELECT name FROM topic WHERE topic = ?1")?
            .query_row([topic], |row| row.get(0))
            .optional()?;
        let name = name.ok_or_else(|| damaged("the topic of a message is not there"))?;
        // There may be any number of topics; forgetting all of them now and then is simpler than keeping an order.
        if self.topics.len() >= MAX_TOPICS {
            self.topics.clear();
        }
        let name: Arc<str> = name.into();
        self.topics.insert(topic, Arc::clone(&name));
        Ok(name)
    }

    /// Runs a query that sees one committed state, however many statements it has.
    pub(crate) fn snapshot<T>(&mut self, query: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK")?;
        }
        self.conn.prepare_cached("BEGIN")?.execute([])?;
        let answer = query(self);
        // Nothing was written, so a failure loses nothing: the next query ends what is still open.
        let _ = self.conn.execute_batch("COMMIT");
        answer
    }

    /// Forgets what was learned inside a transaction that was rolled back.
    pub(crate) fn forget(&mut self) {
        self.tenants.clear();
        self.instances.clear();
        self.topics.clear();
    }
}
