//! The command line of `asyncgate`: the commands that talk to a running server as a client, or check a
//! ledger without one.
//!
//! Every command prints a table or a few lines for people, and one JSON document with `--json` for
//! programs. A failure is one line on stderr and an exit code of its own. What others wrote reaches a
//! terminal only without the characters that could drive it (`plain.rs`).
//!
//! Invariant: nothing here sees the engine, a facade or a store. The server's binary adds the commands
//! that need those, and passes in the one function that reads a data directory ([`CheckDataDir`]).

mod commands;
mod exit;
mod ids;
mod lines;
mod listing;
mod logins;
pub mod output;
mod plain;
mod remote;
mod show;
pub mod signals;
mod terminal;
mod wall_clock;

pub use commands::{
    Bridge, CheckDataDir, Checks, Completions, Demo, LedgerCheck, RemoteCommand, Verified, Verify,
};
pub use exit::{EXIT_CODES, Exit, complain};
pub use show::Progress;
