//! `asyncgate macaroon`: macaroons, made by the server and read without it.

use anyhow::Context as _;
use asyncgate_client::api::{CreateMacaroonInput, MacaroonInput};
use asyncgate_credentials::{Caveat, macaroon};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::{Rights, Within, seconds};
use crate::{
    exit::Exit,
    output,
    remote::Common,
    show::{Style, fields, paint, show, table},
};

/// The subcommands of `asyncgate macaroon`.
#[derive(Debug, Subcommand)]
pub enum Macaroon {
    /// Mint a macaroon; it is shown once (admin).
    #[command(after_help = "\
Examples:
  asyncgate macaroon create --role agent --principal alice --caveat 'op = send' --caveat 'topic = user:42:*'
  asyncgate macaroon create --role worker --caveat 'quota ops = 100' --expires-in 1h -q")]
    Create(Create),
    /// End a macaroon and all that were derived from it (admin).
    #[command(after_help = "Example:\n  asyncgate macaroon revoke 019a2f6e-...")]
    Revoke(Revoke),
    /// Show what is in a macaroon, without a server. Says nothing about whether it is genuine.
    #[command(after_help = "\
Examples:
  asyncgate macaroon inspect AgEJYXN5bmNnYXRl...
  asyncgate macaroon inspect - < macaroon.txt")]
    Inspect(Inspect),
}

#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    rights: Rights,
    #[command(flatten)]
    within: Within,
    /// A condition, such as 'op = send,recv'; all must hold.
    #[arg(long = "caveat", value_name = "CAVEAT")]
    caveats: Vec<String>,
    /// How long it works: seconds, or like 12h or 30d.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    expires_in: u64,
    /// Print only the macaroon.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Revoke {
    /// The macaroon's id.
    #[arg(value_name = "MACAROON_ID")]
    id: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Inspect {
    /// The macaroon; - reads it from stdin.
    macaroon: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Macaroon {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
            Self::Inspect(args) => args.run(),
        }
    }
}

impl Create {
    async fn run(self) -> anyhow::Result<()> {
        if self.rights.scopes.is_some() {
            let message = "a macaroon is narrowed by --caveat 'scope = ...', not by --scopes";
            return Err(Exit::usage(message).into());
        }
        let client = self.common.client()?;
        let input = CreateMacaroonInput {
            tenant_id: self.within.id(&client).await?,
            principal: self.rights.principal(),
            role: Some(self.rights.role),
            caveats: self.caveats,
            expires_in_secs: Some(self.expires_in),
        };
        let made = client.create_macaroon(&input).await?;
        if self.quiet {
            return Ok(output::say(&made.macaroon.0)?);
        }
        self.common.show(&made, || {
            let shown = fields([
                ("macaroon", Some(made.macaroon.0.clone())),
                ("macaroon id", Some(made.macaroon_id.clone())),
                ("caveats", Some(made.caveats.join("; "))),
                ("ends", Some(made.expires_at.clone())),
            ]);
            format!("{shown}\n\nKeep the macaroon now: it is not shown again.")
        })
    }
}

impl Revoke {
    async fn run(self) -> anyhow::Result<()> {
        let input = MacaroonInput {
            macaroon_id: self.id,
            tenant_id: None,
        };
        let answer = self.common.client()?.revoke_macaroon(&input).await?;
        self.common
            .show(&answer, || format!("revoked at {}", answer.revoked_at))
    }
}

/// What is in a macaroon.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Contents {
    location: Option<String>,
    identifier: String,
    caveats: Vec<Condition>,
}

/// A caveat, and whether a server would understand it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Condition {
    caveat: String,
    understood: bool,
    third_party: bool,
}

impl Inspect {
    fn run(self) -> anyhow::Result<()> {
        let text = match self.macaroon.as_str() {
            "-" => std::io::read_to_string(std::io::stdin()).context("cannot read stdin")?,
            text => text.to_owned(),
        };
        let contents = Contents::read(text.trim())?;
        show(self.json, &contents, || contents.text())
    }
}

impl Contents {
    fn read(text: &str) -> anyhow::Result<Self> {
        let macaroon = macaroon::Macaroon::decode(text);
        let macaroon = macaroon.map_err(|error| Exit::usage(error.to_string()))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let caveats = macaroon.caveats().iter().map(|raw| Condition {
            caveat: said(&raw.identifier),
            understood: Caveat::read(raw).is_understood(),
            third_party: raw.third_party.is_some(),
        });
        Ok(Self {
            location: macaroon.location().map(said),
            identifier: said(macaroon.identifier()),
            caveats: caveats.collect(),
        })
    }

    fn text(&self) -> String {
        let head = fields([
            ("identifier", Some(self.identifier.clone())),
            ("location", self.location.clone()),
        ]);
        let rows = self.caveats.iter().map(|condition| {
            let note = match (condition.third_party, condition.understood) {
                (true, _) => "of a third party: refused",
                (false, false) => "not understood: refused",
                (false, true) => "",
            };
            [condition.caveat.clone(), note.to_owned()]
        });
        let caveats = table(["CAVEAT", ""], rows.collect());
        let note = paint(Style::Dim, "Only a server can say whether it is genuine.");
        format!("{head}\n\n{caveats}\n\n{note}")
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_credentials::macaroon::{RootKey, mint};

    use super::*;

    #[test]
    fn a_macaroon_shows_its_caveats_and_those_that_nobody_understands() {
        let caveats = ["op = send", "colour = blue"].map(str::to_owned);
        let minted = mint(&RootKey::derive(b"a secret"), "an-id", &caveats).unwrap();
        let contents = Contents::read(&minted.encode()).unwrap();
        assert_eq!(contents.identifier, "an-id");
        assert_eq!(contents.location.as_deref(), Some("asyncgate"));
        let understood: Vec<bool> = contents.caveats.iter().map(|it| it.understood).collect();
        assert_eq!(understood, [true, false]);
        assert!(contents.text().contains("not understood"));
        assert!(Contents::read("aga_no_macaroon").is_err());
    }
}
