//! `asyncgate mcp`: serves MCP to one client on stdin and stdout.

use anyhow::Context as _;
use asyncgate_auth::platform_admin;
use asyncgate_engine::CryptoMetrics;

use crate::config::Settings;
use crate::node::{Node, for_mcp};
use crate::signals::{Signals, Wish};

/// Serves until the client closes stdin or a signal asks to stop.
///
/// No credential is asked for: whoever can start the process can read the data directory.
pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    let node = Node::open(&settings, CryptoMetrics::default())?;
    let background = node.background();
    let client = asyncgate_mcp::stdio(
        node.engine.clone(),
        platform_admin(),
        for_mcp(&settings),
        Box::new(tokio::io::stdin()),
        Box::new(tokio::io::stdout()),
    );
    let stop = async { while signals.next().await != Wish::Stop {} };
    let ended = tokio::select! {
        ended = client => ended.context("the client's stream failed"),
        () = stop => Ok(()),
    };
    node.engine.drain();
    background.abort();
    ended
}
