//! `asyncgate key`: API keys, one by one and all at once.

use asyncgate_client::api::{
    CreateKeyInput, KeptKey, KeyInput, KeyRecord, ListKeys, ListKeysInput, PrincipalName,
    RevokeAllInput, RotateAllInput, RotateKeyInput,
};
use clap::{Args, Subcommand};

use super::{Rights, Within, or_dash, principal_name, scopes, seconds};
use crate::{
    listing::{Paging, Quiet},
    output,
    remote::Common,
    show::{fields, table, who},
};

/// The subcommands of `asyncgate key`.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make a key; it is shown once (admin).
    #[command(after_help = "\
Examples:
  asyncgate key create --role worker
  asyncgate key create --role agent --principal alice --label laptop --expires-in 30d
  export ASYNCGATE_API_KEY=$(asyncgate key create --role worker --principal worker/w1 -q)")]
    Create(Create),
    /// List keys, those that have ended too (admin).
    #[command(after_help = "Example:\n  asyncgate key list --all")]
    List(List),
    /// Replace a key by a new one; both work for a while (admin).
    #[command(after_help = "\
Examples:
  asyncgate key rotate 019a2f6e-...                   the old one works for a day more
  asyncgate key rotate 019a2f6e-... --overlap 0       the old one ends now")]
    Rotate(Rotate),
    /// End a key (admin).
    #[command(after_help = "Example:\n  asyncgate key revoke 019a2f6e-...")]
    Revoke(Revoke),
    /// End all keys, macaroons and tokens of a tenant or a principal at once (admin).
    #[command(after_help = "\
For when credentials were stolen. The key that you use is kept, and so is the last one of a platform admin.

Examples:
  asyncgate key revoke-all --principal agent/alice
  asyncgate key revoke-all --tenant acme")]
    RevokeAll(RevokeAll),
    /// Give all keys of a tenant or a principal an end, so that others must be made by then (admin).
    #[command(after_help = "\
Examples:
  asyncgate key rotate-all --overlap 2h
  asyncgate key rotate-all --tenant acme --principal service/billing")]
    RotateAll(RotateAll),
}

#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    rights: Rights,
    #[command(flatten)]
    within: Within,
    /// A word by which you will know it.
    #[arg(long)]
    label: Option<String>,
    /// How long it works: seconds, or like 12h or 30d [default: without end].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    expires_in: Option<u64>,
    /// Print only the key.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
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
pub struct Rotate {
    /// The key's id, as `asyncgate key list` prints it.
    #[arg(value_name = "KEY_ID")]
    id: String,
    /// How long both work: seconds, or like 12h or 30d.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    overlap: u64,
    /// Print only the new key.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Revoke {
    /// The key's id, as `asyncgate key list` prints it.
    #[arg(value_name = "KEY_ID")]
    id: String,
    #[command(flatten)]
    common: Common,
}

/// The credentials that an incident is about. One of the two must be named, so that nobody ends everything by
/// a slip.
#[derive(Debug, Args)]
struct Whose {
    #[command(flatten)]
    within: Within,
    /// Only those of this principal: ID or KIND/ID.
    #[arg(long, value_name = "PRINCIPAL", value_parser = principal_name)]
    principal: Option<PrincipalName>,
}

#[derive(Debug, Args)]
pub struct RevokeAll {
    #[command(flatten)]
    whose: Whose,
    /// All of your own tenant.
    #[arg(long, required_unless_present_any = ["tenant", "principal"], conflicts_with_all = ["tenant", "principal"])]
    own_tenant: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct RotateAll {
    #[command(flatten)]
    whose: Whose,
    /// How long they still work: seconds, or like 12h or 30d.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    overlap: u64,
    #[command(flatten)]
    common: Common,
}

impl Key {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Rotate(args) => args.run().await,
            Self::Revoke(args) => args.run().await,
            Self::RevokeAll(args) => args.run().await,
            Self::RotateAll(args) => args.run().await,
        }
    }
}

impl Create {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = CreateKeyInput {
            tenant_id: self.within.id(&client).await?,
            principal: self.rights.principal(),
            role: self.rights.role,
            scopes: self.rights.scopes,
            expires_at: None,
            expires_in_secs: self.expires_in,
            label: self.label,
        };
        let made = client.create_key(&input).await?;
        if self.quiet {
            return Ok(output::say(&made.key.0)?);
        }
        self.common.show(&made, || {
            let shown = fields([
                ("key", Some(made.key.0.clone())),
                ("key id", Some(made.key_id.clone())),
                ("acts as", Some(who(&made.principal))),
                ("role", Some(made.role.clone())),
                ("scopes", Some(scopes(&made.scopes))),
                ("label", made.label.clone()),
                ("ends", made.expires_at.clone()),
            ]);
            format!("{shown}\n{SHOWN_ONCE}")
        })
    }
}

/// The warning behind a new key.
const SHOWN_ONCE: &str = "\nKeep the key now: it is not shown again.";

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let tenant_id = self.within.id(&client).await?;
        let pages = self.paging.gather(async |cursor, limit| {
            let input = ListKeysInput {
                tenant_id: tenant_id.clone(),
                limit: Some(limit),
                cursor,
            };
            let page = client.call::<ListKeys>(&input).await?;
            Ok((page.keys, page.next_cursor))
        });
        let id = |key: &KeyRecord| key.key_id.clone();
        let listed = pages.await?;
        listed.show_or_ids(&self.common, self.quiet, id, |keys| {
            let header = ["KEY", "ACTS AS", "ROLE", "LABEL", "LAST USED", "ENDS"];
            table(header, keys.iter().map(row).collect())
        })
    }
}

fn row(key: &KeyRecord) -> [String; 6] {
    let end = match (&key.revoked_at, &key.replaced_by) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(_)) => format!("{} (replaced)", or_dash(key.expires_at.as_ref())),
        (None, None) => or_dash(key.expires_at.as_ref()),
    };
    [
        key.key_id.clone(),
        who(&key.principal),
        key.role.clone(),
        or_dash(key.label.as_ref()),
        or_dash(key.last_used_at.as_ref()),
        end,
    ]
}

impl Rotate {
    async fn run(self) -> anyhow::Result<()> {
        let input = RotateKeyInput {
            key_id: self.id,
            tenant_id: None,
            overlap_secs: Some(self.overlap),
        };
        let made = self.common.client()?.rotate_key(&input).await?;
        if self.quiet {
            return Ok(output::say(&made.key.0)?);
        }
        self.common.show(&made, || {
            let shown = fields([
                ("key", Some(made.key.0.clone())),
                ("key id", Some(made.key_id.clone())),
                ("acts as", Some(who(&made.principal))),
                ("ends", made.expires_at.clone()),
                ("old key ends", Some(made.old_expires_at.clone())),
            ]);
            format!("{shown}\n{SHOWN_ONCE}")
        })
    }
}

impl Revoke {
    async fn run(self) -> anyhow::Result<()> {
        let input = KeyInput {
            key_id: self.id,
            tenant_id: None,
        };
        let answer = self.common.client()?.revoke_key(&input).await?;
        self.common
            .show(&answer, || format!("revoked at {}", answer.revoked_at))
    }
}

impl RevokeAll {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = RevokeAllInput {
            tenant_id: self.whose.within.id(&client).await?,
            principal: self.whose.principal,
        };
        let answer = client.revoke_all_credentials(&input).await?;
        self.common.show(&answer, || {
            let ended = format!(
                "revoked: {} keys, {} macaroons, the tokens of {} logins",
                answer.keys, answer.macaroons, answer.tokens
            );
            with_kept(ended, &answer.kept)
        })
    }
}

impl RotateAll {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = RotateAllInput {
            tenant_id: self.whose.within.id(&client).await?,
            principal: self.whose.principal,
            overlap_secs: Some(self.overlap),
        };
        let answer = client.rotate_all_keys(&input).await?;
        self.common.show(&answer, || {
            let ending = format!("{} keys end at {}", answer.keys, answer.expires_at);
            with_kept(ending, &answer.kept)
        })
    }
}

/// Adds a line for each key that was left alone.
fn with_kept(text: String, kept: &[KeptKey]) -> String {
    let lines = kept.iter().map(|key| {
        let why = match key.reason.as_str() {
            "own" => "it is the one that you use",
            "last_platform_admin" => "it is the last one of a platform admin",
            "beyond_your_rights" => "it has rights that you do not have",
            other => other,
        };
        format!("kept {}: {why}", key.key_id)
    });
    [text]
        .into_iter()
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}
