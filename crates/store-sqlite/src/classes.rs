//! The classes that have, or recently had, ready tasks.
//!
//! A class row exists so that `ready` rows can name it by a number. Which classes have ready tasks, and from where on,
//! is kept in memory. Rows of classes that stay empty are deleted once there are many of them.

use asyncgate_core::{Class, ClassesInUse, Reach, TaskWrite};
use asyncgate_store::classes::{Classes as TenantClasses, LiveClasses, Place, Turnover};
use foldhash::HashMap;
use rusqlite::{OptionalExtension, Result, params};

use crate::{
    codec::{Key, SEQ_BITS},
    db::Db,
    rows::task,
};

/// The most classes without ready tasks that are kept for the next task of theirs.
const MAX_IDLE: usize = 4_096;

/// The classes of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    tenants: HashMap<i64, TenantClasses>,
    /// The number of classes without ready tasks.
    idle: usize,
}

impl Classes {
    /// Loads every class of the file.
    pub(crate) fn load(db: &Db) -> Result<Self> {
        let mut classes = Self::default();
        let mut rows = db
            .conn
            .prepare("SELECT class, tenant, type, capabilities FROM class")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (number, tenant): (i64, i64) = (row.get(0)?, row.get(1)?);
            let capabilities: String = row.get(3)?;
            let class = Class {
                task_type: row.get(2)?,
                capabilities: serde_json::from_str(&capabilities).unwrap_or_default(),
            };
            let known = classes.tenants.entry(tenant).or_default();
            known.insert(class, number);
            match first(db, number)? {
                Some(place) => {
                    known.enter(number, place);
                }
                None => classes.idle += 1,
            }
        }
        Ok(classes)
    }

    /// Returns the number of a class that is about to get a ready task. A new class is given one.
    pub(crate) fn enter(
        &mut self,
        db: &Db,
        tenant: i64,
        class: Class,
        place: Place,
    ) -> Result<i64> {
        if let Some(known) = self.tenants.get_mut(&tenant)
            && let Some(number) = known.number(&class)
        {
            self.idle -= usize::from(known.enter(number, place));
            return Ok(number);
        }
        if self.idle >= MAX_IDLE {
            self.drop_idle(db)?;
        }
        let capabilities = serde_json::to_string(&class.capabilities).unwrap_or_default();
        db.conn
            .prepare_cached("INSERT INTO class (tenant, type, capabilities) VALUES (?1, ?2, ?3)")?
            .execute(params![tenant, class.task_type, capabilities])?;
        let number = db.conn.last_insert_rowid();
        let known = self.tenants.entry(tenant).or_default();
        known.insert(class, number);
        known.enter(number, place);
        Ok(number)
    }

    /// Returns the number of a class, if it is known.
    pub(crate) fn number(&self, tenant: i64, class: &Class) -> Option<i64> {
        self.tenants.get(&tenant)?.number(class)
    }

    /// Returns the first `limit` ready tasks that the worker can serve, by priority, then age.
    pub(crate) fn claimable(
        &mut self,
        db: &Db,
        tenant: i64,
        reach: &Reach,
        limit: usize,
    ) -> Result<Vec<Key>> {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return Ok(Vec::new());
        };
        let mut select = db.conn.prepare_cached(
            "SELECT rank, task FROM ready WHERE class = ?1 AND (rank, task) >= (?2, ?3)
             ORDER BY rank, task LIMIT ?4",
        )?;
        let fetch = |number, from: Place, limit: usize| {
            let rows = select.query_map(params![number, from.0, from.1, limit as i64], read)?;
            rows.collect::<Result<Vec<Place>>>()
        };
        let found = known.first(reach, limit, fetch, |_| self.idle += 1)?;
        Ok(found.into_iter().map(|(_, task)| Key(task)).collect())
    }

    fn drop_idle(&mut self, db: &Db) -> Result<()> {
        let mut delete = db
            .conn
            .prepare_cached("DELETE FROM class WHERE class = ?1")?;
        for known in self.tenants.values_mut() {
            for number in known.drop_idle() {
                delete.execute([number])?;
            }
        }
        self.tenants.retain(|_, known| !known.is_empty());
        self.idle = 0;
        Ok(())
    }
}

fn first(db: &Db, class: i64) -> Result<Option<Place>> {
    db.conn
        .prepare_cached(
            "SELECT rank, task FROM ready WHERE class = ?1 ORDER BY rank, task LIMIT 1",
        )?
        .query_row([class], read)
        .optional()
}

fn read(row: &rusqlite::Row<'_>) -> Result<Place> {
    Ok((row.get(0)?, row.get(1)?))
}

/// The classes of all tenants that have tasks which have not ended. They are counted once, and then kept up.
#[derive(Debug, Default)]
pub(crate) struct Live {
    tenants: HashMap<i64, LiveClasses>,
    /// The effects of the open transaction, which a rollback takes back.
    open: Vec<(i64, Class, Turnover)>,
}

impl Live {
    /// Counts the tasks of the file. Those that have not ended are ready or due.
    pub(crate) fn load(db: &Db) -> Result<Self> {
        let mut live = Self::default();
        let mut ready = db.conn.prepare(
            "SELECT c.tenant, c.type, c.capabilities, count(*)
             FROM ready r JOIN class c ON c.class = r.class GROUP BY r.class",
        )?;
        let mut rows = ready.query([])?;
        while let Some(row) = rows.next()? {
            let capabilities: String = row.get(2)?;
            let class = Class {
                task_type: row.get(1)?,
                capabilities: serde_json::from_str(&capabilities).unwrap_or_default(),
            };
            let tasks: i64 = row.get(3)?;
            let known = live.tenants.entry(row.get(0)?).or_default();
            known.add(class, tasks.unsigned_abs());
        }
        let mut due = db.conn.prepare(
            "SELECT d.task, t.type, t.requirements FROM due d JOIN task t ON t.task = d.task",
        )?;
        let mut rows = due.query([])?;
        while let Some(row) = rows.next()? {
            let tenant = row.get::<_, i64>(0)? >> SEQ_BITS;
            let known = live.tenants.entry(tenant).or_default();
            known.add(task::read_class(row, 1)?, 1);
        }
        Ok(live)
    }

    /// Notes a task that is written.
    pub(crate) fn note(&mut self, tenant: i64, write: &TaskWrite) {
        let turnover = Turnover::of(write);
        if turnover != Turnover::None {
            let class = write.task.class();
            self.turn(tenant, &class, turnover);
            self.open.push((tenant, class, turnover));
        }
    }

    pub(crate) fn of(&self, tenant: i64, classes: &[Class]) -> ClassesInUse {
        let known = self.tenants.get(&tenant);
        known.map(|known| known.load(classes)).unwrap_or_default()
    }

    /// Keeps what the open transaction did, after its commit.
    pub(crate) fn keep(&mut self) {
        self.open.clear();
    }

    pub(crate) fn roll_back(&mut self) {
        // The last is undone first: a class that began and ended in between must be taken away last.
        for (tenant, class, turnover) in std::mem::take(&mut self.open).into_iter().rev() {
            let back = match turnover {
                Turnover::Began => Turnover::Ended,
                Turnover::Ended => Turnover::Began,
                Turnover::None => Turnover::None,
            };
            self.turn(tenant, &class, back);
        }
    }

    fn turn(&mut self, tenant: i64, class: &Class, turnover: Turnover) {
        let known = self.tenants.entry(tenant).or_default();
        match turnover {
            Turnover::Began => known.add(class.clone(), 1),
            Turnover::Ended => known.remove(class),
            Turnover::None => {}
        }
    }
}
