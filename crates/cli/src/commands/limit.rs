//! `asyncgate limit`: asks limits from the command line.

use asyncgate_client::api::{CheckLimitsInput, CheckLimitsOutput, Flag, PolicyRecord};
use clap::{Args, Subcommand};

use crate::{exit::Exit, remote::Common, show::table};

/// The subcommands of `asyncgate limit`.
#[derive(Debug, Subcommand)]
pub enum Limit {
    /// Ask whether a limit allows something, and charge it.
    #[command(after_help = "\
Exits with 8 when the limit says no.

Example:
  asyncgate limit check client 10.0.0.1 --cost 5 && deploy")]
    Check(Check),
    /// Say what a limit would answer, and charge nothing.
    #[command(after_help = "Example:\n  asyncgate limit peek client 10.0.0.1")]
    Peek(Check),
    /// List the policies.
    #[command(after_help = "Example:\n  asyncgate limit policies")]
    Policies(Policies),
}

#[derive(Debug, Args)]
pub struct Check {
    /// The policy's name.
    policy: String,
    /// Whose limit it is.
    #[arg(value_name = "KEY")]
    of: String,
    /// How much is wanted; negative gives back.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    cost: i64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Policies {
    #[command(flatten)]
    common: Common,
}

impl Limit {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Check(args) => args.run(false).await,
            Self::Peek(args) => args.run(true).await,
            Self::Policies(args) => args.run().await,
        }
    }
}

impl Check {
    async fn run(self, peek: bool) -> anyhow::Result<()> {
        let input = CheckLimitsInput {
            policy: Some(self.policy),
            key: Some(self.of),
            cost: Some(self.cost),
            peek: peek.then_some(Flag(true)),
            ..CheckLimitsInput::default()
        };
        let answer = self.common.client()?.check_limits(&input).await?;
        self.common.show(&answer, || line(&answer))?;
        match answer.allowed || peek {
            true => Ok(()),
            false => Err(Exit::denied("the limit says no").into()),
        }
    }
}

/// Formats an answer: `allowed, 99 of 100 left` or `refused, again in 6 s`.
fn line(answer: &CheckLimitsOutput) -> String {
    let (limit, left) = (
        answer.limit.unwrap_or_default(),
        answer.remaining.unwrap_or_default(),
    );
    let tier = answer.tier.as_ref();
    let tier = tier.map_or_else(String::new, |tier| format!(" ({tier})"));
    match (answer.allowed, answer.retry_after_secs.flatten()) {
        (true, _) => format!("allowed, {left} of {limit} left{tier}"),
        (false, Some(wait)) => format!("refused, again in {wait} s{tier}"),
        (false, None) => format!("refused, for good{tier}"),
    }
}

impl Policies {
    async fn run(self) -> anyhow::Result<()> {
        let policies = self.common.client()?.policies().await?.policies;
        self.common.show(&policies, || {
            let number = |number: Option<u64>| {
                number.map_or_else(|| "-".to_owned(), |number| number.to_string())
            };
            let row = |policy: &PolicyRecord| {
                [
                    policy.policy.clone(),
                    policy.kind.clone(),
                    number(policy.limit),
                    number(policy.window_secs),
                    if policy.shadow { "yes" } else { "no" }.to_owned(),
                ]
            };
            let header = ["POLICY", "KIND", "LIMIT", "SECONDS", "SHADOW"];
            table(header, policies.iter().map(row).collect())
        })
    }
}
