//! `asyncgate client`: programs that may ask people for tokens.

use asyncgate_client::api::{
    CreateOauthClientInput, ListOauthClients, ListOauthClientsInput, OauthClientInput,
    OauthClientRecord, Scope,
};
use clap::{Args, Subcommand};

use super::{Within, scope, scopes};
use crate::{
    listing::{Paging, Quiet},
    remote::Common,
    show::{fields, table},
};

/// The subcommands of `asyncgate client`.
#[derive(Debug, Subcommand)]
pub enum OauthClient {
    /// Register a program (admin).
    #[command(after_help = "\
Examples:
  asyncgate client create 'My agent' --redirect-uri https://agent.example.com/callback --scopes tasks:read,tasks:write
  asyncgate client create laptops --redirect-uri http://127.0.0.1:8976/callback --scopes admin:read
  asyncgate client create billing --confidential --redirect-uri https://billing.example.com/cb --scopes receipts:read")]
    Create(Create),
    /// List the programs that may ask people for tokens (admin).
    #[command(after_help = "Example:\n  asyncgate client list")]
    List(List),
    /// Remove a program, and end its tokens (admin).
    #[command(after_help = "Example:\n  asyncgate client delete 019a2f6e-...")]
    Delete(Delete),
}

#[derive(Debug, Args)]
pub struct Create {
    /// Its name, which people see when they log in.
    name: String,
    /// An address to which codes may be sent: https, or http on this machine.
    #[arg(long = "redirect-uri", value_name = "URI", required = true)]
    redirect_uris: Vec<String>,
    /// The scopes that it may ask for, such as tasks:read,mailbox:send.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', value_parser = scope, required = true)]
    scopes: Vec<Scope>,
    /// It can keep a secret, as a program on a server can; the secret is shown once.
    #[arg(long)]
    confidential: bool,
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
pub struct Delete {
    /// The client's id, as `asyncgate client list` prints it.
    #[arg(value_name = "CLIENT_ID")]
    id: String,
    #[command(flatten)]
    common: Common,
}

impl OauthClient {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Delete(args) => args.run().await,
        }
    }
}

impl Create {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = CreateOauthClientInput {
            client_name: self.name,
            redirect_uris: self.redirect_uris,
            scopes: self.scopes,
            tenant_id: self.within.id(&client).await?,
            confidential: self.confidential,
        };
        let made = client.create_oauth_client(&input).await?;
        self.common.show(&made, || {
            let shown = fields([
                ("client id", Some(made.client_id.clone())),
                ("secret", made.client_secret.clone()),
                ("name", Some(made.client_name.clone())),
                ("sends to", Some(made.redirect_uris.join(" "))),
                ("scopes", Some(scopes(&made.scopes))),
            ]);
            match &made.client_secret {
                Some(_) => format!("{shown}\n\nKeep the secret now: it is not shown again."),
                None => shown,
            }
        })
    }
}

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let tenant_id = self.within.id(&client).await?;
        let pages = self.paging.gather(async |cursor, limit| {
            let input = ListOauthClientsInput {
                tenant_id: tenant_id.clone(),
                limit: Some(limit),
                cursor,
            };
            let page = client.call::<ListOauthClients>(&input).await?;
            Ok((page.clients, page.next_cursor))
        });
        let id = |found: &OauthClientRecord| found.client_id.clone();
        let listed = pages.await?;
        listed.show_or_ids(&self.common, self.quiet, id, |clients| {
            let row = |found: &OauthClientRecord| {
                let sort = match (found.dynamic, found.confidential) {
                    (true, _) => "registered itself",
                    (false, true) => "confidential",
                    (false, false) => "public",
                };
                [
                    found.client_id.clone(),
                    found.client_name.clone(),
                    sort.to_owned(),
                    scopes(&found.scopes),
                    found.redirect_uris.join(" "),
                ]
            };
            let header = ["CLIENT", "NAME", "SORT", "SCOPES", "SENDS TO"];
            table(header, clients.iter().map(row).collect())
        })
    }
}

impl Delete {
    async fn run(self) -> anyhow::Result<()> {
        let input = OauthClientInput {
            client_id: self.id,
            tenant_id: None,
        };
        let answer = self.common.client()?.remove_oauth_client(&input).await?;
        self.common.show(&answer, || {
            let tokens = answer.tokens_revoked;
            format!("removed; the tokens of {tokens} logins ended")
        })
    }
}
