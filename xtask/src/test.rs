//! `cargo xtask test`: prepares what the tests need, then runs all of them with plain `cargo test`.
//!
//! The tests of admission on Redis start their own servers, whose program is installed here. Without it
//! they say so and pass, so that plain `cargo test` works everywhere.

use anyhow::Result;
use clap::Args;

use crate::process;
use crate::services::redis;

#[derive(Debug, Args)]
pub struct Options {
    /// Passed on to `cargo test --workspace`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    redis::install()?;
    process::run(
        process::cargo()
            .args(["test", "--workspace"])
            .args(&options.args),
    )
}
