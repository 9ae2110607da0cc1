//! The binary `asyncgate`: settings, keys, clock, telemetry and listeners around the engine, and the
//! command line of `asyncgate-cli` beside them.
//!
//! Of the crates that the server is made of, only this one reads the clock, the random source, the
//! environment and the command line.

mod check_data_dir;
mod cli;
mod clock;
mod config;
mod data_dir;
mod domains;
mod events;
mod flags;
mod keys;
mod ledger_key;
mod listen;
mod loopback;
mod node;
mod ops;
mod progress;
mod readiness;
mod reload;
mod reloadable;
mod serve;
mod stdio;
mod supervise;
mod telemetry;
mod tls;
mod traffic;
mod uds;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use asyncgate_cli::{exit_code, output, signals};
use clap::{CommandFactory as _, Parser as _};

use check_data_dir::check_data_dir;
use cli::{Cli, Command, ConfigCommand, SettingsArgs};
use config::{Effective, Inputs, Settings};
use reload::Running;

/// Requests and transactions make many small, short-lived allocations on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code of a mistake in the settings or on the command line; clap uses the same.
const BAD_SETTINGS: u8 = 2;

/// The longest time that threads busy with the disk may delay the exit.
const LAST_WAIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match run(Cli::parse().into_command()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The whole chain of causes on one line: scripts and people both read it.
            output::complain(&format!("{error:#}"));
            if error.is::<config::Error>() {
                ExitCode::from(BAD_SETTINGS)
            } else {
                exit_code(&error).unwrap_or(ExitCode::FAILURE)
            }
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => {
            let (settings, running) = start(args)?;
            on_runtime(serve::serve(settings, running))
        }
        Command::Mcp(args) => {
            let (settings, _) = start(args)?;
            on_runtime(stdio::serve(settings))
        }
        Command::Openapi => print(&asyncgate_rest::openapi()),
        Command::McpTools => print(&asyncgate_mcp::tool_list()),
        Command::Config(command) => show(command),
        Command::Remote(command) => on_runtime(command.run()),
        Command::Verify(command) => on_runtime(command.run(check_data_dir)),
        Command::Demo(command) => on_runtime(command.run()),
        Command::Completions(command) => command.run(Cli::command()),
    }
}

fn print(json: &serde_json::Value) -> anyhow::Result<()> {
    Ok(output::say(&serde_json::to_string_pretty(json)?)?)
}

fn show(command: ConfigCommand) -> anyhow::Result<()> {
    let text = match command {
        ConfigCommand::Check(args) => {
            for warning in read(args)?.1.warnings {
                output::complain(&format!("warning: {warning}"));
            }
            "the settings are good".to_owned()
        }
        ConfigCommand::Show(args) => {
            let (_, effective) = read(args.settings)?;
            if args.json {
                serde_json::to_string_pretty(&config::show_json(&effective))?
            } else {
                config::show_text(&effective)
            }
        }
        ConfigCommand::Reference => config::reference(),
    };
    Ok(output::say(text.trim_end())?)
}

fn read(args: SettingsArgs) -> Result<(Inputs, Effective), config::Error> {
    let inputs = args.inputs(std::env::vars_os());
    let effective = Effective::read(&inputs)?;
    Ok((inputs, effective))
}

/// Reads the settings and starts the log.
fn start(args: SettingsArgs) -> anyhow::Result<(Settings, Running)> {
    let (inputs, effective) = read(args)?;
    let settings = effective.settings.clone();
    let logs = telemetry::start(&settings)?;
    for warning in &effective.warnings {
        tracing::warn!("{warning}");
    }
    Ok((settings, Running::new(inputs, effective, logs)))
}

fn on_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_WAIT);
    result
}
