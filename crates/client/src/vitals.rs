//! What a server says about itself to operators: its readiness and its metrics. These pages are no
//! operations, and need no credential.

use asyncgate_api::{Plane, Spec};
use serde::{Deserialize, Serialize};

use crate::{Client, Error, Kind};

static READINESS: Spec = Spec {
    name: "readyz",
    path: "/readyz",
    ..Spec::of(Plane::Tasks)
};
static METRICS: Spec = Spec {
    name: "metrics",
    path: "/metrics",
    ..Spec::of(Plane::Tasks)
};

/// Whether a server takes new work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// True if it does.
    pub ready: bool,
    /// The conditions that do not hold.
    pub missing: Vec<String>,
    /// The reason, in words.
    pub reason: Option<String>,
}

impl Client {
    /// Reads whether the server takes new work.
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        #[derive(Deserialize)]
        struct Page {
            status: String,
            #[serde(default)]
            missing: Vec<String>,
            reason: Option<String>,
        }
        let (_, text) = self.page(&READINESS).await?;
        // What is not ready says so with the status of an error, so only the text counts.
        let page: Page = serde_json::from_str(&text).map_err(|_| {
            let message = format!("{} has no /readyz; check the address", self.address());
            Error::new(Kind::Protocol, message)
        })?;
        Ok(Readiness {
            ready: page.status == "ready",
            missing: page.missing,
            reason: page.reason,
        })
    }

    /// Reads the server's metrics in their text format. Returns nothing if they are served elsewhere.
    pub async fn metrics(&self) -> Result<Option<String>, Error> {
        let (status, text) = self.page(&METRICS).await?;
        Ok(status.is_success().then_some(text))
    }
}
