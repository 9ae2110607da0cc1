//! The first use of a key. It is the only one that pays for the slow hash, which guards stored keys.

use std::time::Instant;

use anyhow::{Context, Result};

use super::admin::Admin;
use crate::bench::Bench;
use crate::bench::caller::Caller;
use crate::bench::histogram::Histogram;
use crate::bench::load::http::Head;
use crate::bench::report::{Figure, Section};

const KEYS: usize = 50;
const QUICK_KEYS: usize = 10;

pub fn run(bench: &Bench) -> Result<Section> {
    let keys = if bench.quick { QUICK_KEYS } else { KEYS };
    let server = bench.server()?;
    let mut admin = Admin::connect(&server)?;
    let (mut first, mut second) = (Histogram::default(), Histogram::default());
    for _ in 0..keys {
        let key = admin.key(None)?;
        let head = Head::new(&server.addr.to_string(), &key);
        let mut caller = Caller::connect(server.addr)?;
        for times in [&mut first, &mut second] {
            let began = Instant::now();
            caller.send(&head.get("/v1/whoami"))?;
            caller.answer(200).context("the use of a key")?;
            times.record(began.elapsed());
        }
    }
    let figures = vec![
        Figure::latency("first use of a key, p50", first.quantile(0.5)),
        Figure::latency("first use of a key, max", first.max()).at_most(150.0),
        Figure::latency("second use of a key, p50", second.quantile(0.5)),
    ];
    let how = format!(
        "{keys} keys, each made and then used twice for `GET /v1/whoami`, one after the other. The first use of a key proves \
         it by Argon2id with the default cost (64 MiB); from then on a digest is compared."
    );
    Ok(Section {
        id: "first-use",
        how,
        figures,
    })
}
