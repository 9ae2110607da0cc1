//! Says who the caller is.

use asyncgate_api::{WhoAmI, WhoAmIOutput};

use super::{Execute, Executed};
use crate::{Caller, Engine, view};

impl Execute for WhoAmI {
    async fn execute(_: &Engine, caller: &Caller, _: Self::Input) -> Executed<Self> {
        let credential = &caller.credential;
        let caveats = credential.caveats.iter().flat_map(|caveats| &caveats.list);
        Ok(WhoAmIOutput {
            tenant_id: caller.tenant.to_string(),
            principal: view::principal(&caller.principal),
            role: caller.role.as_str().to_owned(),
            scopes: view::scopes(caller.scopes),
            credential: credential.kind.as_str().to_owned(),
            expires_at: credential.expires_at.map(|end| end.to_string()),
            caveats: caveats.map(ToString::to_string).collect(),
        })
    }
}
