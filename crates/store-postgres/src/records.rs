//! The plane of identity in the owner's memory, which holds all records and the ends of audit logs. Entries are asked for.

use asyncgate_core::{
    Link, TenantId, Timestamp,
    identity::{
        Changes, Find, Record, RecordKey,
        audit::{Entry, Log, Place},
    },
};
use asyncgate_store::{
    Answer, Error, Records, Rows,
    identity::{AuditFilter, AuditPage, Identity, Reads, RecordFilter, Snapshot},
};
use tokio_postgres::{Client, Row, types::Type};

use crate::{
    PostgresStore,
    memory::{Memory, Stop},
    pack::{self, damaged},
    readers::ReadError,
    recent::Wanted,
    session::Statement,
    shards,
    table::{Order, Stored, Table, Tenant},
};

/// The number in the place of a tenant's, for rows that belong to the server.
pub(crate) const SERVER: i64 = 0;

impl Rows<Records> for Memory {
    fn load(&mut self, _: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot, Stop> {
        self.out.look(shards::SERVER);
        let mut snapshot = self.records.load(reads, now);
        if let Some(oldest) = reads.oldest {
            let log = log_key(oldest.tenant);
            // What the open batch has appended or forgotten is known once it is written.
            let is_known = !self.out.has(Table::AuditLog, SERVER, &log);
            let asked = self.recent.oldest.get(&(oldest.tenant, oldest.limit));
            let asked = asked.filter(|_| is_known);
            snapshot.oldest = asked.ok_or(Stop::Missing)?.clone();
        }
        Ok(snapshot)
    }

    fn apply(&mut self, _: TenantId, changes: &Changes) -> Result<(), Stop> {
        self.out.change(shards::SERVER);
        // A record whose text cannot be made is a defect of its decision; nothing is changed then.
        let put = changes.put.iter();
        let texts: Vec<(RecordKey, String)> = put
            .map(|record| Ok((record.key(), record.to_text()?)))
            .collect::<Result<_, serde_json::Error>>()
            .map_err(|error| Error::Corrupt(error.to_string()))?;
        for key in &changes.removed {
            self.out.remove(Table::Record, SERVER, record_key(*key));
        }
        for (key, text) in texts {
            let body = text.into_bytes();
            self.out.put(Table::Record, SERVER, record_key(key), body);
        }
        self.records.apply_records(changes);
        for draft in &changes.audit {
            let log = self.logs.entry(draft.tenant).or_default();
            let entry = log.append(draft);
            let key = entry_key(draft.tenant, entry.seq);
            self.out.put(Table::Audit, SERVER, key, pack_entry(&entry));
        }
        if let Some(cut) = &changes.cut {
            self.logs.entry(cut.tenant).or_default().cut = cut.through;
            let (first, last) = (
                entry_key(cut.tenant, 0),
                entry_key(cut.tenant, cut.through.seq),
            );
            self.out.cut(Table::Audit, SERVER, first, last);
        }
        let logs = changes.audit.iter().map(|draft| draft.tenant);
        for tenant in logs.chain(changes.cut.map(|cut| cut.tenant)) {
            let log = self.logs.get(&tenant).copied().unwrap_or_default();
            let (key, body) = (log_key(tenant), pack_log(&log));
            self.out.put(Table::AuditLog, SERVER, key, body);
        }
        self.send(&changes.outbox);
        Ok(())
    }
}

impl Memory {
    /// Takes back all records and the ends of audit logs.
    pub(crate) fn restore_records(&mut self, records: &[Row], logs: &[Row]) -> Result<(), Error> {
        for row in records {
            let stored = Stored::of(row);
            let text =
                String::from_utf8(stored.body).map_err(|_| damaged("a record is no text"))?;
            let record = Record::from_text(&text).map_err(|error| damaged(&error.to_string()))?;
            self.records.restore(&record);
        }
        for row in logs {
            let stored = Stored::of(row);
            let log = unpack_log(&stored.body)?;
            self.logs.insert(log_of(&stored.key)?, log);
        }
        Ok(())
    }

    /// Adds to `wanted` what a job declares and memory does not have.
    pub(crate) fn want_records(&self, reads: &Reads, wanted: &mut Wanted) {
        if let Some(oldest) = reads.oldest {
            let asked = (oldest.tenant, oldest.limit);
            if !self.recent.oldest.contains_key(&asked) {
                wanted.oldest.insert(asked);
            }
        }
    }
}

/// Returns the question for the oldest entries of a log.
pub(crate) fn oldest_entries(tenant: Option<TenantId>, limit: usize) -> Statement {
    let range = (entry_key(tenant, 0), entry_key(tenant, u64::MAX));
    Table::Audit.range(Tenant::Number(SERVER), range, Order::Up, limit)
}

async fn audit(client: &Client, filter: &AuditFilter) -> Result<AuditPage, ReadError> {
    const STEP: usize = 500;
    let (mut page, mut looked_at) = (AuditPage::default(), 0);
    let mut before = filter.before.unwrap_or(u64::MAX);
    loop {
        let range = (
            entry_key(filter.tenant, 0),
            entry_key(filter.tenant, before),
        );
        let statement = Table::Audit.range(Tenant::Number(SERVER), range, Order::Down, STEP);
        let rows = statement.run(client).await?;
        for row in &rows {
            let entry = unpack_entry(row)?;
            before = entry.seq;
            if filter.matches(&entry) {
                if page.entries.len() == filter.limit {
                    page.next = page.entries.last().map(|entry| entry.seq);
                    return Ok(page);
                }
                page.entries.push(entry);
            }
            looked_at += 1;
            if looked_at == filter.looks_at() {
                page.next = Some(before);
                return Ok(page);
            }
        }
        if rows.len() < STEP {
            return Ok(page);
        }
    }
}

async fn logs_from_before(
    client: &Client,
    time: Timestamp,
    limit: usize,
) -> Result<Vec<Option<TenantId>>, ReadError> {
    let sql = "SELECT l.key FROM audit_log l CROSS JOIN LATERAL (
                   SELECT a.body FROM audit a WHERE a.tenant = l.tenant
                       AND a.key > l.key || '\\x0000000000000000'::bytea
                       AND a.key <= l.key || '\\xffffffffffffffff'::bytea ORDER BY a.key LIMIT 1) AS first
               WHERE substr(first.body, 1, 8) < $1 LIMIT $2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let statement = Statement::new(sql)
        .with(sorted(time).to_vec(), Type::BYTEA)
        .with(limit, Type::INT8);
    let rows = statement.run(client).await?;
    let logs = rows.iter().map(|row| log_of(row.get(0)));
    Ok(logs.collect::<Result<_, _>>()?)
}

/// Returns bytes of a time that sort as times do.
const fn sorted(time: Timestamp) -> [u8; 8] {
    (time.as_millis() ^ i64::MIN).to_be_bytes()
}

/// Packs an entry: its time, by which logs are looked for, its link, and what it says.
fn pack_entry(entry: &Entry) -> Vec<u8> {
    let mut body = sorted(entry.said.at).to_vec();
    body.extend_from_slice(entry.link.as_bytes());
    body.extend(pack::pack_draft(&entry.said));
    body
}

pub(crate) fn unpack_entry(row: &Row) -> Result<Entry, Error> {
    let stored = Stored::of(row);
    let cut = || damaged("an entry is cut");
    let said = stored.body.get(8..).ok_or_else(cut)?;
    let (link, said) = said.split_first_chunk().ok_or_else(cut)?;
    Ok(Entry {
        said: pack::unpack_draft(said)?,
        seq: stored.number(),
        link: Link::from_bytes(*link),
    })
}

/// Returns the tenant whose log has a key.
fn log_of(key: &[u8]) -> Result<Option<TenantId>, Error> {
    match key {
        [0] => Ok(None),
        [1, id @ ..] => {
            let id = <[u8; 16]>::try_from(id).map_err(|_| damaged("a log has no tenant"))?;
            Ok(Some(TenantId::from_bytes(id)))
        }
        _ => Err(damaged("a log has no name")),
    }
}

fn record_key(key: RecordKey) -> Vec<u8> {
    let mut bytes = vec![key.kind as u8];
    bytes.extend_from_slice(key.id.as_bytes());
    bytes
}

/// Returns the key of a log: 0 for the server's, otherwise 1 and the tenant's id.
fn log_key(tenant: Option<TenantId>) -> Vec<u8> {
    match tenant {
        None => vec![0],
        Some(tenant) => {
            let mut key = vec![1];
            key.extend_from_slice(tenant.as_bytes());
            key
        }
    }
}

fn entry_key(tenant: Option<TenantId>, seq: u64) -> Vec<u8> {
    let mut key = log_key(tenant);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

fn pack_log(log: &Log) -> Vec<u8> {
    let mut body = Vec::new();
    for place in [&log.head, &log.cut] {
        body.extend_from_slice(&place.seq.to_be_bytes());
        body.extend_from_slice(&place.at.as_millis().to_be_bytes());
        body.extend_from_slice(place.link.as_bytes());
    }
    body
}

fn unpack_log(body: &[u8]) -> Result<Log, Error> {
    let (places, rest) = body.as_chunks::<48>();
    let [head, cut] = places else {
        return Err(damaged("a log has no head"));
    };
    if !rest.is_empty() {
        return Err(damaged("a log has more than two places"));
    }
    Ok(Log {
        head: unpack_place(head)?,
        cut: unpack_place(cut)?,
    })
}

fn unpack_place(bytes: &[u8; 48]) -> Result<Place, Error> {
    let cut = || damaged("a place is cut");
    let (seq, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let (at, link) = rest.split_first_chunk().ok_or_else(cut)?;
    Ok(Place {
        seq: u64::from_be_bytes(*seq),
        at: Timestamp::from_millis(i64::from_be_bytes(*at)),
        link: Link::from_bytes(link.try_into().map_err(|_| cut())?),
    })
}

impl Identity for PostgresStore {
    fn record(&self, find: Find) -> Answer<'_, Option<Record>> {
        self.look(None, move |memory| memory.records.find(&find).cloned())
    }

    fn records(&self, filter: RecordFilter) -> Answer<'_, Vec<Record>> {
        self.look(None, move |memory| memory.records.list(&filter))
    }

    fn audit_log(&self, tenant: Option<TenantId>) -> Answer<'_, Log> {
        self.look(None, move |memory| {
            memory.logs.get(&tenant).copied().unwrap_or_default()
        })
    }

    fn audit(&self, filter: AuditFilter) -> Answer<'_, AuditPage> {
        self.read(move |session| {
            let filter = filter.clone();
            async move { audit(&session.client, &filter).await }
        })
    }

    fn audit_logs_from_before(
        &self,
        time: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<Option<TenantId>>> {
        self.read(
            move |session| async move { logs_from_before(&session.client, time, limit).await },
        )
    }
}
