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
mod ledger_key;
mod listen;
mod loopback;
mod memory;
mod node;
mod oauth;
mod ops;
mod progress;
mod readiness;
mod reload;
mod reloadable;
mod secrets;
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
use asyncgate_cli::{Exit, complain, output, signals};
use clap::CommandFactory as _;
use futures_util::future::LocalBoxFuture;

use check_data_dir::check_data_dir;
use cli::{Cli, Command, ConfigCommand, SettingsArgs};
use config::{Effective, Inputs, Settings};
use reload::Running;

/// Requests and transactions make many small, short-lived allocations on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The longest time that threads busy with the disk may delay the exit.
const LAST_WAIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let (command, json) = match Cli::read() {
        Ok(Some(read)) => read,
        Ok(None) => return help(),
        Err(wrong) => return wrong.end(),
    };
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<config::Error>() => {
            complain(&Exit::usage(format!("{error:#}")).into(), json)
        }
        Err(error) => complain(&error, json),
    }
}

/// Prints the help, for those who do not know yet what to ask for.
fn help() -> ExitCode {
    match output::say(Cli::command().render_help().to_string().trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.into(), false),
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => {
            let (settings, running) = start(args)?;
            on_runtime(Box::pin(serve::serve(settings, running)))
        }
        Command::Mcp(args) if args.bridge.is_wanted() => {
            let toolsets = args.settings.only("mcp.toolsets").map_err(|flag| {
                Exit::usage(format!(
                    "{flag} is about a server of its own; with --url only --tools can be given"
                ))
            })?;
            on_runtime(args.bridge.run(toolsets))
        }
        Command::Mcp(args) => {
            let (settings, _) = start(args.settings)?;
            on_runtime(Box::pin(stdio::serve(settings)))
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
    clock::check_wall()?;
    let settings = effective.settings.clone();
    let logs = telemetry::start(&settings)?;
    for warning in &effective.warnings {
        tracing::warn!("{warning}");
    }
    Ok((settings, Running::new(inputs, effective, logs)))
}

/// Runs work to its end. It is boxed: the runtime's code would be compiled once for each kind of work.
fn on_runtime(work: LocalBoxFuture<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_start(listen::read_first_date)
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_WAIT);
    result
}
