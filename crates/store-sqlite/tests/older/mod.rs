//! Takes files back to older schema versions, one version at a time.

use rusqlite::Connection;

/// Each step takes a file of the version after it back to this version. What only newer versions know is lost.
const STEPS: [(u32, &str); 4] = [
    (8, "DROP TABLE usage_event;"),
    (
        7,
        "DROP TABLE outbox;
         DROP TABLE audit;
         DROP TABLE audit_log;
         DROP TABLE record;
         ALTER TABLE tenant DROP COLUMN tasks_created;
         ALTER TABLE tenant DROP COLUMN receipt_bytes;
         ALTER TABLE tenant DROP COLUMN lease_balance;",
    ),
    (
        6,
        "DROP INDEX task_type;
         DROP INDEX task_unsuccessful;
         DROP INDEX topic_shown;
         DROP INDEX receipt_addressee;
         CREATE INDEX receipt_addressee ON receipt (addressee);
         DROP INDEX receipt_type;
         CREATE INDEX receipt_type ON receipt (type);",
    ),
    (
        5,
        "ALTER TABLE task DROP COLUMN state_more;
         ALTER TABLE task DROP COLUMN contract;
         DROP TABLE large_contract;
         ALTER TABLE relationship DROP COLUMN instances;",
    ),
];

/// Takes a file of the newest version back to an older one.
pub fn take_back(conn: &Connection, to: u32) {
    for (version, step) in STEPS.into_iter().filter(|(version, _)| *version >= to) {
        conn.execute_batch(step).unwrap();
        conn.pragma_update(None, "user_version", version).unwrap();
    }
}
