//! `cargo xtask fuzz`: throws broken input at everything that reads what strangers send, each target for
//! a while in the release build. A finding is shrunk and kept, and the tests replay it.

use anyhow::Result;
use clap::Args;

use crate::process;

#[derive(Debug, Args)]
pub struct Options {
    /// How long to run each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// Begin with this seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(options: &Options) -> Result<()> {
    let mut command = process::cargo();
    command
        .args(["run", "--quiet", "--release", "--package", "asyncgate-fuzz"])
        .arg("--")
        .args(["--seconds", &options.seconds.to_string()])
        .args(["--seed", &options.seed.to_string()])
        .arg("--findings")
        .arg(process::root().join("crates/fuzz/findings"));
    if let Some(target) = &options.target {
        command.args(["--target", target]);
    }
    process::run(&mut command)
}
