//! The tables, and the steps that bring older databases up to date.
//!
//! A row's key begins with its tenant's number, whose upper half is the tenant's shard, so that the rows of a shard lie
//! together. What changes often stands in narrow tables whose pages have room for the next version of a row; what
//! never changes stands apart and is only inserted. Hot statements touch rows by key, so dead versions cost them nothing.
//! Texts are kept as bytes: they may hold what a text of PostgreSQL may not, and they sort as bytes.

use asyncgate_store::Error;
use tokio_postgres::types::Type;

use crate::session::{Session, Statement, unavailable};

/// Each step brings a database from the version that is its index to the next.
const MIGRATIONS: &[&str] = &[V1];

/// A table whose rows change often. It is vacuumed early, and its pages keep room for new versions of their rows.
const CHURNS: &str = "(fillfactor = 50, autovacuum_vacuum_threshold = 2000, \
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)";

const META: &str = "
    CREATE TABLE IF NOT EXISTS meta (
        only_row int2 PRIMARY KEY CHECK (only_row = 1), version int4 NOT NULL, shards int4 NOT NULL
    )";

const V1: &str = "
    CREATE TABLE instance (
        instance int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name bytea NOT NULL, beat int8 NOT NULL
    ) WITH CHURNS;
    CREATE TABLE shard (shard int4 PRIMARY KEY, instance int8, epoch int8 NOT NULL) WITH CHURNS;
    CREATE TABLE clock (shard int4 PRIMARY KEY, last_time int8 NOT NULL) WITH CHURNS;

    CREATE TABLE tenant (
        tenant        int8 PRIMARY KEY,
        id            bytea NOT NULL UNIQUE,
        head          int8 NOT NULL,
        link          bytea NOT NULL,
        open          int8 NOT NULL,
        queued        int8 NOT NULL,
        leased        int8 NOT NULL,
        running       int8 NOT NULL,
        succeeded     int8 NOT NULL,
        failed        int8 NOT NULL,
        canceled      int8 NOT NULL,
        tasks_created int8 NOT NULL,
        receipt_bytes int8 NOT NULL,
        lease_balance int8 NOT NULL,
        mail_head     int8 NOT NULL
    ) WITH CHURNS;
    CREATE TABLE task (
        tenant int8, seq int8, id bytea NOT NULL, owner bytea NOT NULL, type bytea NOT NULL, spec bytea NOT NULL,
        PRIMARY KEY (tenant, seq)
    );
    CREATE TABLE task_live (
        tenant int8, seq int8, id bytea NOT NULL, status int2 NOT NULL, priority int4, due int8,
        weight int8 NOT NULL, class bytea NOT NULL, worker bytea, state bytea NOT NULL,
        PRIMARY KEY (tenant, seq)
    ) WITH CHURNS;
    CREATE TABLE task_end (
        tenant int8, seq int8, status int2 NOT NULL, worker bytea, state bytea NOT NULL,
        PRIMARY KEY (tenant, seq)
    );
    CREATE TABLE idempotency (
        tenant int8, owner bytea, key bytea, seq int8 NOT NULL, PRIMARY KEY (tenant, owner, key)
    );
    CREATE TABLE receipt (
        tenant int8, seq int8, type int2 NOT NULL, addressee bytea NOT NULL, task int8,
        link bytea NOT NULL, body bytea NOT NULL,
        PRIMARY KEY (tenant, seq)
    );
    CREATE INDEX receipt_addressee ON receipt (tenant, addressee, seq);
    CREATE INDEX receipt_task ON receipt (tenant, task, seq) WHERE task IS NOT NULL;
    -- An assignment (type 0) has the place of its task, so that it is found without this index.
    CREATE INDEX receipt_type ON receipt (tenant, type, seq) WHERE type > 0;
    CREATE TABLE delivery (tenant int8, seq int8, at int8 NOT NULL, PRIMARY KEY (tenant, seq));
    CREATE TABLE obligation (
        tenant int8, owner bytea, seq int8, PRIMARY KEY (tenant, owner, seq)
    ) WITH CHURNS;

    -- Rows that are found by their whole key and read as a whole.
    CREATE TABLE relationship (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE usage_event (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key));
    CREATE TABLE content (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key));
    CREATE TABLE payload (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key));
    CREATE TABLE message (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE chain (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE record (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE audit (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key));
    CREATE TABLE audit_log (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE dispatch_body (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key));
    CREATE TABLE dispatch (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE cell (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE revocation (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key));
    CREATE TABLE client_tier (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key));
    CREATE TABLE domain (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
    CREATE TABLE counter (tenant int8, key bytea, body bytea NOT NULL, PRIMARY KEY (tenant, key)) WITH CHURNS;
";

/// Brings the database to the newest version. Returns its number of shards, which is fixed by the first who comes.
pub(crate) async fn migrate(session: &Session, shards: u16) -> Result<i32, Error> {
    let outcome = steps(session, shards).await;
    if outcome.is_err() {
        // The error itself is what is told. A connection that is lost has no transaction left.
        let _ = session.client.batch_execute("ROLLBACK").await;
    }
    outcome
}

async fn steps(session: &Session, shards: u16) -> Result<i32, Error> {
    let client = &session.client;
    // Of several programs that start at once, one holds this row and the others wait for it.
    let begin = format!("BEGIN; SET LOCAL client_min_messages = error; {META};");
    client.batch_execute(&begin).await.map_err(unavailable)?;
    let first = "INSERT INTO meta VALUES (1, 0, $1) ON CONFLICT DO NOTHING";
    let first = Statement::new(first).with(i32::from(shards.max(1)), Type::INT4);
    first.run(client).await.map_err(unavailable)?;
    let select = "SELECT version, shards FROM meta FOR UPDATE";
    let row = client.query_typed_one(select, &[]).await;
    let row = row.map_err(unavailable)?;
    let (found, shards): (i32, i32) = (row.get(0), row.get(1));
    let known = MIGRATIONS.len();
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    if found > known {
        return Err(Error::Unavailable(format!(
            "the database has schema version {found}, this program knows {known}: use a newer program"
        )));
    }
    for (version, step) in (1..).zip(MIGRATIONS).skip(found) {
        let step = step.replace("CHURNS", CHURNS);
        client.batch_execute(&step).await.map_err(unavailable)?;
        let set = format!("UPDATE meta SET version = {version}");
        client.batch_execute(&set).await.map_err(unavailable)?;
    }
    let places = "INSERT INTO shard SELECT n, NULL, 0 FROM generate_series(0, $1 - 1) n
                  ON CONFLICT DO NOTHING";
    let places = Statement::new(places).with(shards, Type::INT4);
    places.run(client).await.map_err(unavailable)?;
    client.batch_execute("COMMIT").await.map_err(unavailable)?;
    Ok(shards)
}
