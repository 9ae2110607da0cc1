//! The conformance suite that every host passes.

use std::sync::Arc;

use asyncgate_store::{admission::Host, conformance::exercise_host};

use crate::emulators::{Emulator, Kind, host};

/// An upper bound for the cases of the suite: each has a table of its own.
const CASES: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn moto_conforms() {
    let Some(emulator) = Emulator::start(Kind::Moto).await else {
        return;
    };
    let mut tables = Vec::new();
    for _ in 0..CASES {
        tables.push(emulator.table().await);
    }
    let tables = std::sync::Mutex::new(tables);
    exercise_host(|| {
        let table = tables.lock().unwrap().pop().unwrap();
        Arc::new(host(emulator.port, &table)) as Arc<dyn Host>
    })
    .await;
}
