//! `asyncgate identity`: people who may enter by a provider of identities.

use std::io::{IsTerminal as _, stdin};

use anyhow::Context as _;
use asyncgate_client::api::{
    AddIdentityInput, IdentityInput, IdentityRecord, ListIdentities, ListIdentitiesInput, Secret,
};
use clap::{Args, Subcommand};

use super::{Rights, Within, scopes};
use crate::{
    exit::Exit,
    listing::{Paging, Quiet},
    output,
    remote::Common,
    show::{fields, table, who},
    terminal,
};

/// The provider whose people have their passwords here.
const LOCAL: &str = "local";

/// The subcommands of `asyncgate identity`.
#[derive(Debug, Subcommand)]
pub enum Identity {
    /// Let a person in (admin).
    #[command(after_help = "\
Examples:
  asyncgate identity add --email ada@example.com --provider google --role agent --principal human/ada
  asyncgate identity add --subject ada --password --role admin --principal human/ada
  pass show ada | asyncgate identity add --subject ada --password --role agent --principal human/ada")]
    Add(Add),
    /// List the people who may enter (admin).
    #[command(after_help = "Example:\n  asyncgate identity list")]
    List(List),
    /// Take a person's leave away, and end the person's tokens (admin).
    #[command(after_help = "Example:\n  asyncgate identity remove 019a2f6e-...")]
    Remove(Remove),
}

#[derive(Debug, Args)]
pub struct Add {
    /// The provider's name in the server's settings.
    #[arg(long, required_unless_present = "password")]
    provider: Option<String>,
    /// The provider's own name for the person, or the login name of a person with a password.
    #[arg(long, required_unless_present = "email", conflicts_with = "email")]
    subject: Option<String>,
    /// The person's address, if the provider verifies addresses.
    #[arg(long)]
    email: Option<String>,
    /// Give the person a password here: it is asked for, or read from stdin.
    #[arg(long)]
    password: bool,
    #[command(flatten)]
    rights: Rights,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Remove {
    /// The id, as `asyncgate identity list` prints it.
    #[arg(value_name = "IDENTITY_ID")]
    id: String,
    #[command(flatten)]
    common: Common,
}

impl Identity {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Add(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Remove(args) => args.run().await,
        }
    }
}

impl Add {
    async fn run(self) -> anyhow::Result<()> {
        let provider = self.provider.unwrap_or_else(|| LOCAL.to_owned());
        let client = self.common.client()?;
        let password = match self.password {
            true => Some(Secret(read_password()?)),
            false => None,
        };
        let input = AddIdentityInput {
            tenant_id: self.within.id(&client).await?,
            provider,
            subject: self.subject,
            email: self.email,
            principal: self.rights.principal(),
            role: self.rights.role,
            scopes: self.rights.scopes,
            password,
        };
        let added = client.add_identity(&input).await?;
        self.common.show(&added, || {
            fields([
                ("identity", Some(added.identity_id.clone())),
                ("provider", Some(added.provider.clone())),
                ("person", Some(person(&added))),
                ("acts as", Some(who(&added.principal))),
                ("role", Some(added.role.clone())),
                ("scopes", Some(scopes(&added.scopes))),
            ])
        })
    }
}

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let tenant_id = self.within.id(&client).await?;
        let pages = self.paging.gather(async |cursor, limit| {
            let input = ListIdentitiesInput {
                tenant_id: tenant_id.clone(),
                limit: Some(limit),
                cursor,
            };
            let page = client.call::<ListIdentities>(&input).await?;
            Ok((page.identities, page.next_cursor))
        });
        let id = |found: &IdentityRecord| found.identity_id.clone();
        let listed = pages.await?;
        listed.show_or_ids(&self.common, self.quiet, id, |people| {
            let row = |found: &IdentityRecord| {
                [
                    found.identity_id.clone(),
                    found.provider.clone(),
                    person(found),
                    who(&found.principal),
                    found.role.clone(),
                ]
            };
            let header = ["IDENTITY", "PROVIDER", "PERSON", "ACTS AS", "ROLE"];
            table(header, people.iter().map(row).collect())
        })
    }
}

impl Remove {
    async fn run(self) -> anyhow::Result<()> {
        let input = IdentityInput {
            identity_id: self.id,
            tenant_id: None,
        };
        let answer = self.common.client()?.remove_identity(&input).await?;
        self.common.show(&answer, || {
            let tokens = answer.tokens_revoked;
            format!("removed; the tokens of {tokens} logins ended")
        })
    }
}

/// Returns the provider's name for a person.
fn person(found: &IdentityRecord) -> String {
    let name = found.subject.as_ref().or(found.email.as_ref());
    name.cloned().unwrap_or_default()
}

/// Asks for a password twice on a terminal, without showing it; else reads one line of stdin.
fn read_password() -> anyhow::Result<String> {
    if !stdin().is_terminal() {
        let mut line = String::new();
        stdin().read_line(&mut line).context("cannot read stdin")?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let first = terminal::ask_hidden("Password: ")?;
    let second = terminal::ask_hidden("The same again: ")?;
    match first == second {
        true => Ok(first),
        false => {
            output::mutter("");
            Err(Exit::usage("the two passwords differ").into())
        }
    }
}
