//! `cargo xtask test`: prepares what the tests need, then runs all of them with plain `cargo test`.
//!
//! The tests of today need nothing but the toolchain. A suite that needs a database gets it here,
//! from `services`, and its address through the environment.

use anyhow::Result;
use clap::Args;

use crate::process;

#[derive(Debug, Args)]
pub struct Options {
    /// Passed on to `cargo test --workspace`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    process::run(
        process::cargo()
            .args(["test", "--workspace"])
            .args(&options.args),
    )
}
