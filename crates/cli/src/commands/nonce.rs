//! `asyncgate nonce`: uses a nonce from the command line.

use asyncgate_client::api::CheckNoncesInput;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use clap::{Args, Subcommand};

use crate::{exit::Exit, remote::Common};

/// The subcommands of `asyncgate nonce`.
#[derive(Debug, Subcommand)]
pub enum Nonce {
    /// Use a nonce; say whether it is new.
    #[command(after_help = "\
Exits with 8 when the nonce was used before.

Example:
  asyncgate nonce check $(printf webhook | sha256sum | cut -c1-64) delivery-17 --ttl 600")]
    Check(Check),
}

#[derive(Debug, Args)]
pub struct Check {
    /// What the nonce is unique within: 64 hexadecimal digits.
    namespace: String,
    /// The nonce, 1 to 64 bytes.
    nonce: String,
    /// The nonce is given in base64url.
    #[arg(long)]
    base64: bool,
    /// For how many seconds it counts as used.
    #[arg(long, default_value_t = 600)]
    ttl: u64,
    #[command(flatten)]
    common: Common,
}

impl Nonce {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Check(args) => args.run().await,
        }
    }
}

impl Check {
    async fn run(self) -> anyhow::Result<()> {
        let nonce = match self.base64 {
            true => self.nonce,
            false => BASE64_URL_SAFE_NO_PAD.encode(self.nonce),
        };
        let input = CheckNoncesInput {
            namespace: Some(self.namespace),
            nonce: Some(nonce),
            ttl_secs: Some(self.ttl),
            checks: None,
        };
        let answer = self.common.client()?.check_nonces(&input).await?;
        let result = answer.result.clone().unwrap_or_default();
        self.common.show(&answer, || result.clone())?;
        match result.as_str() {
            "accepted" => Ok(()),
            _ => Err(Exit::denied("the nonce was used before").into()),
        }
    }
}
