//! Admission on a store that keeps few limits in memory.

use std::{path::Path, sync::Arc, time::Duration};

use asyncgate_store::Store;
use asyncgate_store_sqlite::{HotLimits, Options, SqliteStore};
use proptest::prelude::*;

use crate::{
    admission::{compare, step},
    config,
};

/// Opens a store with room for a few limits: most are read, written and read again.
fn open_with_little_room(path: &Path) -> Arc<dyn Store> {
    let options = Options {
        readers: 1,
        hot_limits: HotLimits {
            max_cells: 3,
            write_after: Duration::from_millis(1),
            ..HotLimits::default()
        },
        ..Options::default()
    };
    Arc::new(SqliteStore::open(path, &options).unwrap())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sqlite_with_little_room_decides_as_memory_does(steps in prop::collection::vec(step(), 1..100)) {
        compare(open_with_little_room, steps);
    }
}
