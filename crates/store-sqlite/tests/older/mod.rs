//! Takes files back to older schema versions, one version at a time.

use rusqlite::Connection;

/// Takes a file of the newest version back to version 5. What only newer versions know is lost.
pub fn take_back_to_version_5(conn: &Connection) {
    conn.execute_batch(
        "ALTER TABLE task DROP COLUMN state_more;
         ALTER TABLE task DROP COLUMN contract;
         DROP TABLE large_contract;
         ALTER TABLE relationship DROP COLUMN instances;
         PRAGMA user_version = 5;",
    )
    .unwrap();
}
