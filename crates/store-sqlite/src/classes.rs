//! The classes that have, or recently had, ready tasks.
//!
//! A class row exists so that `ready` rows can name it by a number. The classes that may have ready tasks are kept in
//! memory: one is added when a task becomes ready, and dropped when a look finds its queue empty. Rows of classes that stay
//! empty are deleted once there are many of them.

use std::collections::HashMap;

use asyncgate_core::{Class, Reach};
use rusqlite::{Result, params};

use crate::{codec::Key, db::Db};

/// The most classes without ready tasks that are kept for the next task of theirs.
const MAX_IDLE: usize = 4_096;

/// The classes of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    tenants: HashMap<i64, HashMap<Class, Entry>>,
    /// The number of classes that are not live.
    idle: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    class: i64,
    /// True if there may be ready tasks.
    live: bool,
}

impl Classes {
    /// Loads every class of the file. Each counts as live until a look shows otherwise.
    pub(crate) fn load(db: &Db) -> Result<Self> {
        let mut classes = Self::default();
        let mut rows = db
            .conn
            .prepare("SELECT class, tenant, type, capabilities FROM class")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (class, tenant): (i64, i64) = (row.get(0)?, row.get(1)?);
            let capabilities: String = row.get(3)?;
            let name = Class {
                task_type: row.get(2)?,
                capabilities: serde_json::from_str(&capabilities).unwrap_or_default(),
            };
            let entry = Entry { class, live: true };
            classes
                .tenants
                .entry(tenant)
                .or_default()
                .insert(name, entry);
        }
        Ok(classes)
    }

    /// Returns the number of a class that is about to get a ready task. A new class is given one.
    pub(crate) fn enter(&mut self, db: &Db, tenant: i64, class: Class) -> Result<i64> {
        if let Some(entry) = self.tenants.entry(tenant).or_default().get_mut(&class) {
            self.idle -= usize::from(!entry.live);
            entry.live = true;
            return Ok(entry.class);
        }
        if self.idle >= MAX_IDLE {
            self.drop_idle(db)?;
        }
        let capabilities = serde_json::to_string(&class.capabilities).unwrap_or_default();
        db.conn
            .prepare_cached("INSERT INTO class (tenant, type, capabilities) VALUES (?1, ?2, ?3)")?
            .execute(params![tenant, class.task_type, capabilities])?;
        let number = db.conn.last_insert_rowid();
        let entry = Entry {
            class: number,
            live: true,
        };
        self.tenants.entry(tenant).or_default().insert(class, entry);
        Ok(number)
    }

    /// Returns the number of a class, if it is known.
    pub(crate) fn number(&self, tenant: i64, class: &Class) -> Option<i64> {
        let entry = self.tenants.get(&tenant)?.get(class)?;
        Some(entry.class)
    }

    /// Returns the first `limit` ready tasks that the worker can serve, by priority, then age: the heads of its classes,
    /// merged.
    pub(crate) fn claimable(
        &mut self,
        db: &Db,
        tenant: i64,
        reach: &Reach,
        limit: usize,
    ) -> Result<Vec<Key>> {
        let mut heads: Vec<(i64, i64)> = Vec::new();
        let Some(classes) = self.tenants.get_mut(&tenant) else {
            return Ok(Vec::new());
        };
        let mut select = db.conn.prepare_cached(
            "SELECT rank, task FROM ready WHERE class = ?1 ORDER BY rank, task LIMIT ?2",
        )?;
        for (class, entry) in classes.iter_mut() {
            if !entry.live || !reach.serves(class) {
                continue;
            }
            let found = heads.len();
            let mut rows = select.query(params![entry.class, limit as i64])?;
            while let Some(row) = rows.next()? {
                heads.push((row.get(0)?, row.get(1)?));
            }
            // An empty answer means an empty queue only if something was asked for.
            if heads.len() == found && limit > 0 {
                entry.live = false;
                self.idle += 1;
            }
        }
        heads.sort_unstable();
        heads.truncate(limit);
        Ok(heads.into_iter().map(|(_, task)| Key(task)).collect())
    }

    fn drop_idle(&mut self, db: &Db) -> Result<()> {
        let mut delete = db
            .conn
            .prepare_cached("DELETE FROM class WHERE class = ?1")?;
        for classes in self.tenants.values_mut() {
            for entry in classes.values().filter(|entry| !entry.live) {
                delete.execute([entry.class])?;
            }
            classes.retain(|_, entry| entry.live);
        }
        self.idle = 0;
        Ok(())
    }
}
