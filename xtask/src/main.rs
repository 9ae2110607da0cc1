//! The project's own commands, run as `cargo xtask <command>`.
//!
//! They work with the Rust toolchain alone. If a command needs more, such as a database to measure
//! beside, it installs it or asks for it by name.

#![expect(
    clippy::print_stdout,
    reason = "printing is what a command line tool does"
)]
#![expect(
    clippy::print_stderr,
    reason = "progress goes to stderr, results to stdout"
)]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod bench;
mod codegen;
mod fuzz;
mod process;
mod services;
mod sim;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "Test, check, generate and measure AsyncGate"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every test of the workspace
    Test(test::Options),
    /// Check what the compiler does not: crate direction, file sizes, named dependencies, leftovers
    Tidy,
    /// Write docs/openapi.json and docs/mcp-tools.json from the server's own registry
    Codegen(codegen::Options),
    /// Simulate the engine under faults for a while
    Sim(sim::Options),
    /// Throw broken input at everything that reads what strangers send
    Fuzz(fuzz::Options),
    /// Measure the release build
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // The chain of causes in one line. A backtrace of this program would help nobody.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Test(options) => test::run(&options),
        Command::Tidy => tidy::run(),
        Command::Codegen(options) => codegen::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Bench(command) => bench::run(&command),
    }
}
