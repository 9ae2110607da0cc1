//! `asyncgate completions`: a script that completes this command line.

use clap::Args;
use clap_complete::Shell;

use crate::output;

/// The arguments of `asyncgate completions`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  asyncgate completions bash > /etc/bash_completion.d/asyncgate")]
pub struct Completions {
    /// bash, zsh, fish, elvish or powershell.
    shell: Shell,
}

impl Completions {
    pub fn run(self, mut command: clap::Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "asyncgate", &mut script);
        Ok(output::say(String::from_utf8_lossy(&script).trim_end())?)
    }
}
