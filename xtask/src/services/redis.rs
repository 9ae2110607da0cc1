//! Redis, which the tests start for themselves, many at a time.

use std::path::Path;

use anyhow::Result;

use super::apt;

#[derive(Debug)]
pub struct Redis;

impl Redis {
    pub fn install() -> Result<()> {
        apt::ensure("redis-server", || Path::new(BINARY).exists())
    }
}

const BINARY: &str = "/usr/bin/redis-server";
