//! `asyncgate whoami`: who the server takes the caller for.

use asyncgate_client::api::WhoAmIOutput;
use clap::Args;

use super::scopes;
use crate::{
    remote::Common,
    show::{fields, who},
};

/// The arguments of `asyncgate whoami`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  asyncgate whoami --json | jq -r .tenant_id")]
pub struct WhoAmI {
    #[command(flatten)]
    common: Common,
}

impl WhoAmI {
    pub async fn run(self) -> anyhow::Result<()> {
        let answer = self.common.client()?.whoami().await?;
        self.common.show(&answer, || text(&answer))
    }
}

fn text(answer: &WhoAmIOutput) -> String {
    let caveats = answer.caveats.join("; ");
    fields([
        ("principal", Some(who(&answer.principal))),
        ("tenant", Some(answer.tenant_id.clone())),
        ("role", Some(answer.role.clone())),
        ("scopes", Some(scopes(&answer.scopes))),
        ("credential", Some(answer.credential.clone())),
        ("ends", answer.expires_at.clone()),
        ("caveats", (!caveats.is_empty()).then_some(caveats)),
    ])
}
