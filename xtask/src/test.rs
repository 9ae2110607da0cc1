//! `cargo xtask test`: prepares everything that the tests need, then runs all of them with `cargo test`.
//!
//! The tests of the PostgreSQL store and of admission on Redis and on DynamoDB start their own servers and emulators, those
//! of MCP the official client, those of OAuth the client and the suite of others, those of OpenAPI generators of clients,
//! and those of macaroons another implementation; their programs are installed here. Without these programs the tests
//! say so and pass, so that plain `cargo test` works everywhere.

use anyhow::Result;
use clap::Args;

use crate::process;
use crate::services::{Postgres, authlib, clients, conformance, dynamodb, mcp, pymacaroons, redis};

#[derive(Debug, Args)]
pub struct Options {
    /// Passed on to `cargo test --workspace`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    redis::install()?;
    Postgres::install()?;
    let emulators = dynamodb::install()?;
    let generators = clients::install()?;
    process::run(
        process::cargo()
            .envs(emulators)
            .envs(generators)
            .envs(mcp::install())
            .envs(authlib::install())
            .envs(conformance::install())
            .envs(pymacaroons::install())
            // One failing file does not hide what the others would tell.
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(&options.args),
    )
}
