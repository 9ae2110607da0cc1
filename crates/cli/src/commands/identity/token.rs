//! `asyncgate token`: the key that signs access tokens.

use clap::{Args, Subcommand};

use crate::{remote::Common, show::fields};

/// The subcommands of `asyncgate token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Sign access tokens with a new key; those of the old one stay valid (platform admin).
    #[command(after_help = "\
If security.jwt.private_key_path names the key, replace that file and send the server SIGHUP instead.

Example:
  asyncgate token rotate-key")]
    RotateKey(RotateKey),
}

#[derive(Debug, Args)]
pub struct RotateKey {
    #[command(flatten)]
    common: Common,
}

impl Token {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::RotateKey(args) => args.run().await,
        }
    }
}

impl RotateKey {
    async fn run(self) -> anyhow::Result<()> {
        let rotated = self.common.client()?.rotate_token_key().await?;
        self.common.show(&rotated, || {
            fields([
                ("key id", Some(rotated.kid.clone())),
                ("replaces", rotated.replaces.clone()),
                ("old tokens until", rotated.old_accepted_until.clone()),
            ])
        })
    }
}
