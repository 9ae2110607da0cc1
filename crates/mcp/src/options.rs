//! The settings of this facade.

use crate::{names::ToolNames, toolsets::Toolsets};

/// Settings of the MCP facade.
#[derive(Debug, Clone)]
pub struct Options {
    /// Browser origins (`https://console.example.com`) that may call, besides those on loopback.
    /// `null` stands for pages without an origin of their own.
    pub allowed_origins: Vec<String>,
    /// The most bytes that a tool's arguments may have.
    pub max_input_bytes: usize,
    /// The realm that a 401 names.
    pub realm: String,
    /// The form in which lists show the names of tools.
    pub tool_names: ToolNames,
    /// The toolsets that clients are shown that do not choose. Without it, a worker is shown the tools
    /// of workers, and everybody else those of agents.
    pub toolsets: Option<Toolsets>,
}

impl Options {
    /// Returns the most bytes of an HTTP body or a line: the arguments, and room for the JSON-RPC around
    /// them.
    pub(crate) const fn max_message_bytes(max_input_bytes: usize) -> usize {
        max_input_bytes.saturating_add(64 * 1024)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allowed_origins: Vec::new(),
            max_input_bytes: 1024 * 1024,
            realm: "asyncgate".to_owned(),
            tool_names: ToolNames::default(),
            toolsets: None,
        }
    }
}
