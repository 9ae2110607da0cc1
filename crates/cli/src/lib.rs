//! The command line of `asyncgate`: the commands that talk to a running server as a client, or check a
//! ledger without one.
//!
//! Every command prints a table or a few lines for people, and one JSON document with `--json` for
//! programs. A failure is one line on stderr and an exit code of its own.
//!
//! Invariant: nothing here sees the engine, a facade or a store. The server's binary adds the commands
//! that need those, and passes in the one function that reads a data directory ([`CheckDataDir`]).

mod commands;
mod exit;
pub mod output;
mod remote;
mod show;
pub mod signals;

pub use commands::{
    CheckDataDir, Checks, Completions, Demo, LedgerCheck, RemoteCommand, Verified, Verify,
};
pub use exit::{EXIT_CODES, Exit, exit_code};
pub use show::Progress;
