//! The tables, and the steps that bring older files up to date.
//!
//! Rows are found by one integer that packs the tenant and a place in the tenant's ledger
//! ([`Key`](crate::codec::Key)): the tenant stands first in every key, rows of one time lie
//! together, and secondary indexes stay small. Index tables (`ready`, `due`, `obligation`) hold
//! only current rows, so their cost does not grow with history.

use rusqlite::Connection;

/// Each step brings a file from the version that is its index to the next.
pub(crate) const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9];
/// The oldest version that can be read as it stands.
const OLDEST_READABLE: u32 = 3;
/// The first version whose table `message` has the partition keys.
const WITH_PARTITIONS: u32 = 5;
/// The first version whose table `task` has the contract.
const WITH_CONTRACTS: u32 = 6;
/// The first version that has the tables of identity and counts what tenants use.
const WITH_RECORDS: u32 = 8;
/// The first version that has the table of usage events.
const WITH_USAGE_EVENTS: u32 = 9;

const V1: &str = "
    CREATE TABLE tenant (
        tenant    INTEGER PRIMARY KEY,
        tenant_id BLOB NOT NULL UNIQUE,
        head      INTEGER NOT NULL,
        link      BLOB NOT NULL,
        open      INTEGER NOT NULL,
        queued    INTEGER NOT NULL,
        leased    INTEGER NOT NULL,
        running   INTEGER NOT NULL,
        succeeded INTEGER NOT NULL,
        failed    INTEGER NOT NULL,
        canceled  INTEGER NOT NULL
    );
    CREATE TABLE instance (instance INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE clock (only INTEGER PRIMARY KEY CHECK (only = 1), last_time INTEGER NOT NULL);
    INSERT INTO clock VALUES (1, 0);

    CREATE TABLE task (
        task            INTEGER PRIMARY KEY,
        task_id         BLOB NOT NULL,
        state           INTEGER NOT NULL,
        attempt         INTEGER NOT NULL,
        expiries        INTEGER NOT NULL,
        updated_at      INTEGER NOT NULL,
        eligible_at     INTEGER NOT NULL,
        lease_id        BLOB,
        worker          TEXT,
        leased_at       INTEGER,
        lease_until     INTEGER,
        renewals        INTEGER,
        progress        TEXT,
        progress_at     INTEGER,
        ended_at        INTEGER,
        result          TEXT,
        error           TEXT,
        artifacts       TEXT,
        delivery_proof  TEXT,
        end_receipt     BLOB,
        discharged      INTEGER,
        state_sum       INTEGER NOT NULL,
        type            TEXT NOT NULL,
        payload         TEXT,
        payload_pointer TEXT,
        requirements    TEXT,
        priority        INTEGER NOT NULL,
        max_attempts    INTEGER NOT NULL,
        retry_backoff   INTEGER NOT NULL,
        idempotency_key TEXT,
        outcome_kind    TEXT,
        artifact_mime   TEXT,
        owner           TEXT NOT NULL,
        created_at      INTEGER NOT NULL,
        assignment      BLOB NOT NULL,
        instance        INTEGER NOT NULL,
        spec_sum        INTEGER NOT NULL
    );
    -- Payloads that are too large to be rewritten with every change of their task.
    CREATE TABLE large_payload (task INTEGER PRIMARY KEY, payload TEXT NOT NULL);
    CREATE TABLE idempotency (
        tenant INTEGER NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, task INTEGER NOT NULL,
        PRIMARY KEY (tenant, owner, key)
    ) WITHOUT ROWID;

    CREATE TABLE class (
        class INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, type TEXT NOT NULL, capabilities TEXT NOT NULL
    );
    CREATE TABLE ready (
        class INTEGER NOT NULL, rank INTEGER NOT NULL, task INTEGER NOT NULL,
        PRIMARY KEY (class, rank, task)
    ) WITHOUT ROWID;
    CREATE TABLE due (
        at INTEGER NOT NULL, task INTEGER NOT NULL, PRIMARY KEY (at, task)
    ) WITHOUT ROWID;

    CREATE TABLE receipt (
        receipt    INTEGER PRIMARY KEY,
        receipt_id BLOB NOT NULL,
        type       INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        sender     TEXT NOT NULL,
        addressee  TEXT NOT NULL,
        addressee_instance TEXT,
        task       INTEGER,
        task_id    BLOB,
        lease_id   BLOB,
        parents    BLOB,
        body       TEXT NOT NULL,
        instance   INTEGER NOT NULL,
        link       BLOB NOT NULL
    );
    CREATE INDEX receipt_addressee ON receipt (addressee);
    CREATE INDEX receipt_task ON receipt (task) WHERE task IS NOT NULL;
    CREATE INDEX receipt_type ON receipt (type);
    CREATE TABLE delivery (receipt INTEGER PRIMARY KEY, at INTEGER NOT NULL);
    CREATE TABLE obligation (
        owner TEXT NOT NULL, receipt INTEGER NOT NULL, PRIMARY KEY (owner, receipt)
    ) WITHOUT ROWID;
    CREATE TABLE relationship (
        tenant INTEGER NOT NULL, principal TEXT NOT NULL, instance_id TEXT,
        first_seen_at INTEGER NOT NULL, last_seen_at INTEGER NOT NULL, sessions INTEGER NOT NULL,
        PRIMARY KEY (tenant, principal)
    ) WITHOUT ROWID;

    -- Numbers of topics are never given out twice: readers keep names by them.
    CREATE TABLE topic (
        topic   INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant  INTEGER NOT NULL,
        name    TEXT NOT NULL,
        ready   INTEGER NOT NULL DEFAULT 0,
        delayed INTEGER NOT NULL DEFAULT 0,
        leased  INTEGER NOT NULL DEFAULT 0,
        dead    INTEGER NOT NULL DEFAULT 0,
        gone    INTEGER NOT NULL DEFAULT 0,
        UNIQUE (tenant, name)
    );
    CREATE TABLE shard (
        tenant INTEGER NOT NULL, shard INTEGER NOT NULL, seq INTEGER NOT NULL, link BLOB NOT NULL,
        ready INTEGER NOT NULL, delayed INTEGER NOT NULL, leased INTEGER NOT NULL,
        dead INTEGER NOT NULL, gone INTEGER NOT NULL,
        PRIMARY KEY (tenant, shard)
    ) WITHOUT ROWID;
    -- What changes about a message. States: 0 ready, 1 delayed, 2 leased, 3 dead, 4 gone.
    CREATE TABLE message (
        message    INTEGER PRIMARY KEY,
        topic      INTEGER NOT NULL,
        rank       INTEGER NOT NULL,
        state      INTEGER NOT NULL,
        due        INTEGER,
        until      INTEGER,
        attempt    INTEGER NOT NULL,
        lease      BLOB,
        leased_at  INTEGER,
        visibility INTEGER,
        since      INTEGER NOT NULL,
        expires_at INTEGER,
        died_at    INTEGER,
        cause      INTEGER,
        reason     TEXT,
        last_error TEXT
    );
    CREATE INDEX message_ready ON message (topic, rank) WHERE state = 0;
    CREATE INDEX message_delayed ON message (topic, rank) WHERE state = 1;
    CREATE INDEX message_due ON message (due) WHERE due IS NOT NULL;
    CREATE INDEX message_dead ON message (state) WHERE state = 3;
    CREATE INDEX message_dead_topic ON message (topic) WHERE state = 3;
    -- What does not.
    CREATE TABLE content (
        message       INTEGER PRIMARY KEY,
        msg_id        BLOB NOT NULL,
        shard         INTEGER NOT NULL,
        chain_seq     INTEGER NOT NULL,
        sent_at       INTEGER NOT NULL,
        idem_key      TEXT NOT NULL,
        partition_key TEXT,
        attrs         TEXT,
        corr_id       BLOB NOT NULL,
        payload_hash  BLOB NOT NULL,
        hash_chain    BLOB NOT NULL,
        prev          BLOB NOT NULL,
        payload       BLOB NOT NULL
    );
";

/// The tables of admission. Sorts of cells: 1 nonce, 2 window, 3 bucket, 4 delay.
const V2: &str = "
    ALTER TABLE clock ADD COLUMN cells INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE cell (
        tenant INTEGER NOT NULL,
        name   BLOB NOT NULL,
        sort   INTEGER NOT NULL,
        a      INTEGER NOT NULL,
        b      INTEGER NOT NULL,
        c      INTEGER NOT NULL,
        until  INTEGER NOT NULL,
        look   INTEGER,
        PRIMARY KEY (tenant, name)
    ) WITHOUT ROWID;
    CREATE INDEX cell_look ON cell (look) WHERE look IS NOT NULL;
    CREATE TABLE revocation (
        tenant INTEGER NOT NULL, kind INTEGER NOT NULL, hash BLOB NOT NULL,
        reason TEXT, revoked_at INTEGER NOT NULL,
        PRIMARY KEY (tenant, kind, hash)
    ) WITHOUT ROWID;
    CREATE TABLE client_tier (
        tenant INTEGER NOT NULL, client TEXT NOT NULL, tier INTEGER NOT NULL,
        reason TEXT, until INTEGER,
        PRIMARY KEY (tenant, client)
    ) WITHOUT ROWID;
";

/// The state of domains, by their hashes. Domains belong to no tenant.
const V3: &str = "
    CREATE TABLE domain (
        hash BLOB PRIMARY KEY, counter INTEGER NOT NULL, timer INTEGER NOT NULL, disabled INTEGER NOT NULL
    ) WITHOUT ROWID;
";

/// Rows that are written from here on have checksums of another kind. Both kinds are read, so no row
/// is rewritten; the version keeps older programs from taking new rows for damaged ones.
const V4: &str = "";

/// The order of messages by partition key. `blocked` is 0 for the message that has the turn in its
/// partition, 1 for those that wait behind it, and NULL for what stands in no line: messages without a key,
/// dead letters and what is gone. Of messages that were waiting, the oldest of each key keeps its place and the
/// others wait behind it, unless a receiver has one: then all of them do. `content.partition_key` is not
/// read any more.
const V5: &str = "
    ALTER TABLE message ADD COLUMN partition_key TEXT;
    ALTER TABLE message ADD COLUMN blocked INTEGER;
    UPDATE message SET partition_key = c.partition_key FROM content c
        WHERE c.message = message.message AND c.partition_key IS NOT NULL;
    UPDATE message SET blocked = 0 WHERE partition_key IS NOT NULL AND state < 3;
    CREATE INDEX message_partition ON message (topic, partition_key, blocked)
        WHERE blocked IS NOT NULL;
    UPDATE message SET state = 1, blocked = 1, due = expires_at
        WHERE blocked = 0 AND state < 2 AND EXISTS (
            SELECT 1 FROM message o
            WHERE o.topic = message.topic AND o.partition_key = message.partition_key
                AND o.blocked >= 0 AND o.message <> message.message
                AND (o.state = 2 OR o.message < message.message));
    -- Those that were ready have no end of a delay. They count as delayed now.
    UPDATE topic SET ready = ready - moved.count, delayed = delayed + moved.count FROM (
            SELECT topic, count(*) AS count FROM message
            WHERE blocked = 1 AND until IS NULL GROUP BY topic) moved
        WHERE moved.topic = topic.topic;
    UPDATE shard SET ready = ready - moved.count, delayed = delayed + moved.count FROM (
            SELECT m.message >> 44 AS tenant, c.shard AS shard, count(*) AS count
            FROM message m JOIN content c USING (message)
            WHERE m.blocked = 1 AND m.until IS NULL GROUP BY 1, 2) moved
        WHERE moved.tenant = shard.tenant AND moved.shard = shard.shard;
";

/// What few tasks have, in columns that are empty for all others: the owner's contract, and what is left to
/// say of the state. A contract that is too large to be rewritten with every change of its task stands in a
/// table of its own, as a large payload does. Checksums cover these columns only where they are not empty, so
/// those of older rows stay right. `relationship.instances` is empty for those seen last by older programs.
const V6: &str = "
    ALTER TABLE task ADD COLUMN state_more TEXT;
    ALTER TABLE task ADD COLUMN contract TEXT;
    CREATE TABLE large_contract (task INTEGER PRIMARY KEY, contract TEXT NOT NULL);
    ALTER TABLE relationship ADD COLUMN instances TEXT;
";

/// The indexes that lists are answered from (`ranges.rs`).
///
/// A task has the key of its assignment. So the inbox of an owner, cut into assignments (type 0) and the rest, also
/// has its tasks in order; and the assignments of a ledger are found by its tasks, so that the index of
/// types does without them. That saves what the index of task types costs. Most tasks succeed: only those that did not
/// are found by their state. Topics whose messages are all gone stand in no list.
const V7: &str = "
    DROP INDEX receipt_addressee;
    CREATE INDEX receipt_addressee ON receipt (addressee, type = 0);
    DROP INDEX receipt_type;
    CREATE INDEX receipt_type ON receipt (type) WHERE type > 0;
    CREATE INDEX task_type ON task (type);
    CREATE INDEX task_unsuccessful ON task (state) WHERE state > 4;
    CREATE INDEX topic_shown ON topic (tenant, name) WHERE ready + delayed + leased + dead > 0;
";

/// Records of identity, audit logs and the outbox. A log without a tenant is that of the server, number 0. And counts of what
/// tenants use: a receipt counts as its body and 200 bytes; leases that have ended before are not counted.
const V8: &str = "
    ALTER TABLE tenant ADD COLUMN tasks_created INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tenant ADD COLUMN receipt_bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tenant ADD COLUMN lease_balance INTEGER NOT NULL DEFAULT 0;
    UPDATE tenant SET
        tasks_created = queued + leased + running + succeeded + failed + canceled,
        receipt_bytes = (
            SELECT coalesce(sum(200 + length(CAST(r.body AS BLOB))), 0) FROM receipt r
            WHERE r.receipt > tenant.tenant << 44 AND r.receipt < (tenant.tenant + 1) << 44),
        lease_balance = (
            SELECT coalesce(-sum(t.leased_at), 0) FROM task t
            WHERE t.task > tenant.tenant << 44 AND t.task < (tenant.tenant + 1) << 44
                AND t.ended_at IS NULL);
    CREATE TABLE record (
        kind           INTEGER NOT NULL,
        id             BLOB NOT NULL,
        tenant         BLOB NOT NULL,
        name           TEXT,
        principal      TEXT,
        forget_at      INTEGER,
        platform_until INTEGER,
        body           TEXT NOT NULL,
        sum            BLOB NOT NULL,
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX record_name ON record (kind, name) WHERE name IS NOT NULL;
    CREATE INDEX record_tenant ON record (kind, tenant, id);
    CREATE INDEX record_principal ON record (kind, tenant, principal, id)
        WHERE principal IS NOT NULL;
    CREATE INDEX record_forget ON record (forget_at) WHERE forget_at IS NOT NULL;
    CREATE INDEX record_platform ON record (platform_until) WHERE platform_until IS NOT NULL;
    CREATE TABLE audit_log (
        tenant    INTEGER PRIMARY KEY,
        seq       INTEGER NOT NULL,
        link      BLOB NOT NULL,
        at        INTEGER NOT NULL,
        cut_seq   INTEGER NOT NULL,
        cut_link  BLOB NOT NULL,
        cut_at    INTEGER NOT NULL,
        oldest_at INTEGER
    );
    CREATE INDEX audit_log_oldest ON audit_log (oldest_at) WHERE oldest_at IS NOT NULL;
    CREATE TABLE audit (
        audit          INTEGER PRIMARY KEY,
        audit_id       BLOB NOT NULL,
        at             INTEGER NOT NULL,
        event          INTEGER NOT NULL,
        severity       INTEGER NOT NULL,
        principal_kind TEXT,
        principal_id   TEXT,
        ip             TEXT,
        user_agent     TEXT,
        reason         TEXT,
        corr_id        TEXT,
        details        TEXT NOT NULL,
        link           BLOB NOT NULL
    );
    CREATE INDEX audit_event ON audit (event);
    CREATE INDEX audit_principal ON audit (principal_id) WHERE principal_id IS NOT NULL;
    CREATE INDEX audit_severity ON audit (severity) WHERE severity > 0;
    -- Numbers of dispatches are never given out twice: whoever sends one settles it by its number.
    CREATE TABLE outbox (
        dispatch    INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant      BLOB,
        destination TEXT NOT NULL,
        order_key   TEXT,
        body        BLOB NOT NULL,
        created_at  INTEGER NOT NULL,
        attempts    INTEGER NOT NULL,
        last_error  TEXT,
        next_try_at INTEGER,
        died_at     INTEGER,
        turn        INTEGER NOT NULL
    );
    CREATE INDEX outbox_due ON outbox (next_try_at) WHERE turn = 1;
    CREATE INDEX outbox_line ON outbox (destination, order_key)
        WHERE order_key IS NOT NULL AND died_at IS NULL;
    CREATE INDEX outbox_dead ON outbox (dispatch) WHERE died_at IS NOT NULL;
";

/// What tenants used, a row for each time in which one did. The totals are those at the end of that time.
const V9: &str = "
    CREATE TABLE usage_event (
        event               INTEGER PRIMARY KEY,
        event_id            BLOB NOT NULL,
        since               INTEGER,
        until               INTEGER NOT NULL,
        receipt_bytes       INTEGER NOT NULL,
        tasks_created       INTEGER NOT NULL,
        lease_seconds       INTEGER NOT NULL,
        byte_seconds        INTEGER NOT NULL,
        api_calls           INTEGER NOT NULL,
        total_tasks_created INTEGER NOT NULL,
        total_lease_seconds INTEGER NOT NULL,
        total_byte_seconds  INTEGER NOT NULL,
        total_api_calls     INTEGER NOT NULL,
        sum                 BLOB NOT NULL
    );
";

/// Shows the tasks of a file that is only read as a newer file has them.
const OLDER_TASKS: &str = "
    CREATE TEMP VIEW task AS
        SELECT t.*, NULL AS state_more, NULL AS contract FROM main.task t;
    CREATE TEMP VIEW relationship AS
        SELECT r.*, NULL AS instances FROM main.relationship r;
";

/// Shows the messages of a file that is only read as a newer file has them. Names find temporary views
/// before tables.
const OLDER_MESSAGES: &str = "
    CREATE TEMP VIEW message AS SELECT m.*, NULL AS blocked,
        (SELECT c.partition_key FROM main.content c WHERE c.message = m.message) AS partition_key
    FROM main.message m;
";

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the file has schema version {found}, this program knows {known}: use a newer program")]
    TooNew { found: u32, known: u32 },
    #[error("the file has schema version {found}, not {known}: let a server bring it up to date")]
    TooOld { found: u32, known: u32 },
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Checks that the file has a version that can be read, and prepares the connection for it, without writing
/// to the file.
pub(crate) fn check(conn: &Connection) -> Result<(), Error> {
    let (found, known) = version(conn)?;
    if found < OLDEST_READABLE {
        return Err(Error::TooOld { found, known });
    }
    if found < WITH_PARTITIONS {
        conn.execute_batch(OLDER_MESSAGES)?;
    }
    if found < WITH_CONTRACTS {
        conn.execute_batch(OLDER_TASKS)?;
    }
    Ok(())
}

/// Returns true if the file has the tables of identity and counts what tenants use.
pub(crate) fn has_records(conn: &Connection) -> rusqlite::Result<bool> {
    let found: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(found >= WITH_RECORDS)
}

/// Returns true if the file has the table of usage events.
pub(crate) fn has_usage_events(conn: &Connection) -> rusqlite::Result<bool> {
    let found: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(found >= WITH_USAGE_EVENTS)
}

/// Brings the file to the newest version, each step in a transaction of its own.
pub(crate) fn migrate(conn: &mut Connection) -> Result<(), Error> {
    let (found, _) = version(conn)?;
    for (version, step) in (1..).zip(MIGRATIONS).skip(found as usize) {
        let tx = conn.transaction()?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", version)?;
        tx.commit()?;
    }
    Ok(())
}

/// Returns the version of the file and the newest one. A file of a newer program is refused.
fn version(conn: &Connection) -> Result<(u32, u32), Error> {
    let found: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = MIGRATIONS.len() as u32;
    if found > known {
        return Err(Error::TooNew { found, known });
    }
    Ok((found, known))
}
