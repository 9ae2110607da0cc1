//! The commands, one file each.

mod completions;
mod demo;
mod identity;
mod ledger;
mod limit;
mod login;
mod mail;
mod mcp;
mod nonce;
mod obligations;
mod receipts;
mod revoke;
mod status;
mod task;
mod verify;
mod worker;

use clap::Subcommand;
use futures_util::future::LocalBoxFuture;

pub use completions::Completions;
pub use demo::Demo;
pub use mcp::Bridge;
pub use verify::{CheckDataDir, Checks, LedgerCheck, Verified, Verify};

/// The commands that talk to a running server.
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Create, read, list, cancel and wait for tasks.
    #[command(subcommand)]
    Task(task::Task),
    /// Say how the server is: readiness, tasks, topics, the ledger.
    Status(status::Status),
    /// List an inbox, or the receipts of a task, a lease or a type.
    Receipts(receipts::Receipts),
    /// List what a principal is still owed.
    Obligations(obligations::Obligations),
    /// Send, receive and settle messages, and look after topics and dead letters.
    #[command(subcommand)]
    Mail(mail::Mail),
    /// Ask limits: may this happen now?
    #[command(subcommand)]
    Limit(limit::Limit),
    /// Use nonces: was this seen before?
    #[command(subcommand)]
    Nonce(nonce::Nonce),
    /// Revoke a warrant or a key, or take that back.
    #[command(after_help = "\
Examples:
  asyncgate revoke warrant_id tnu_wrt_0190a0b0c0d0e0f00102030405060708 --reason stolen
  asyncgate revoke issuer_key 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
  asyncgate revoke --undo warrant_id HASH")]
    Revoke(revoke::Revoke),
    /// List what is revoked.
    Revocations(revoke::Revocations),
    /// Copy the ledger into a file that can be verified, or read its signed head.
    #[command(subcommand)]
    Ledger(ledger::Ledger),
    /// Do tasks, by a command of your own or by the built-in handlers.
    Worker(worker::Worker),
    /// Enter by the browser; later commands act as you.
    Login(login::Login),
    /// Forget the login, and end its tokens.
    Logout(login::Logout),
    /// Say who the server takes you for.
    Whoami(identity::WhoAmI),
    /// Make, list, replace and end API keys.
    #[command(subcommand)]
    Key(identity::Key),
    /// Replace the key that signs access tokens.
    #[command(subcommand)]
    Token(identity::Token),
    /// Make tenants, change what they may use, and suspend them.
    #[command(subcommand)]
    Tenant(identity::Tenant),
    /// Mint macaroons, end them, and look into them.
    #[command(subcommand)]
    Macaroon(identity::Macaroon),
    /// Say which people may enter, and as whom.
    #[command(subcommand)]
    Identity(identity::Identity),
    /// Register programs that ask people for tokens, and remove them.
    #[command(subcommand)]
    Client(identity::OauthClient),
    /// Say what a tenant uses, and what it may use.
    Usage(identity::Usage),
    /// Read the audit log: who was let in, who was not, who changed what.
    Audit(identity::Audit),
}

/// A command at work. It is boxed here, because the code of a future that is not boxed is compiled where it is
/// awaited: all of this crate would be compiled with the server, which comes last.
pub type Running<'a> = LocalBoxFuture<'a, anyhow::Result<()>>;

impl RemoteCommand {
    /// Runs the command.
    pub fn run(self) -> Running<'static> {
        Box::pin(self.work())
    }

    async fn work(self) -> anyhow::Result<()> {
        match self {
            Self::Task(command) => command.run().await,
            Self::Status(command) => command.run().await,
            Self::Receipts(command) => command.run().await,
            Self::Obligations(command) => command.run().await,
            Self::Mail(command) => command.run().await,
            Self::Limit(command) => command.run().await,
            Self::Nonce(command) => command.run().await,
            Self::Revoke(command) => command.run().await,
            Self::Revocations(command) => command.run().await,
            Self::Ledger(command) => command.run().await,
            Self::Worker(command) => command.run().await,
            Self::Login(command) => command.run().await,
            Self::Logout(command) => command.run().await,
            Self::Whoami(command) => command.run().await,
            Self::Key(command) => command.run().await,
            Self::Token(command) => command.run().await,
            Self::Tenant(command) => command.run().await,
            Self::Macaroon(command) => command.run().await,
            Self::Identity(command) => command.run().await,
            Self::Client(command) => command.run().await,
            Self::Usage(command) => command.run().await,
            Self::Audit(command) => command.run().await,
        }
    }
}
