//! The definition of the command line, with its help. `main` runs the commands.

use asyncgate_cli::{Completions, Demo, EXIT_CODES, RemoteCommand, Verify};
use clap::{Args, Parser, Subcommand};

pub use crate::flags::SettingsArgs;

/// AsyncGate: durable tasks, messages and receipts between agents, services and workers.
#[derive(Debug, Parser)]
#[command(name = "asyncgate", version, after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  asyncgate                                     serve on 127.0.0.1:8080, with SQLite in ./data
  asyncgate serve --bind 127.0.0.1:0            pick a free port and print it
  asyncgate serve --config asyncgate.toml       settings from a file (.toml, .yaml or .json)
  ASYNCGATE_API_KEY=... asyncgate serve         one shared key; without it the first start makes a key
  ALLOW_INSECURE_DEV=true asyncgate serve --store memory
                                                try it out: no key, nothing kept
  asyncgate mcp                                 speak MCP on stdin and stdout
  asyncgate config show                         every setting, its value and where it came from
  asyncgate demo                                see it at work

With a server running, and its key in ASYNCGATE_API_KEY:
  asyncgate task create echo --payload '{\"to\":\"world\"}' --as alice
  asyncgate worker --id w1
  asyncgate task list
  asyncgate mail send jobs 'paint the fence'
  asyncgate mail recv jobs --wait 30
  asyncgate verify
";

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve REST and MCP over HTTP (this is what happens without a command).
    #[command(after_help = SERVE_HELP)]
    Serve(SettingsArgs),
    /// Speak MCP on stdin and stdout, on the same data directory; logs go to stderr.
    #[command(after_help = MCP_HELP)]
    Mcp(SettingsArgs),
    #[command(flatten)]
    Remote(RemoteCommand),
    /// Check that a ledger is whole, and tell a task's story.
    Verify(Verify),
    /// See a worker die in the middle of a task, and nothing lost. Takes about ten seconds.
    Demo(Demo),
    /// Print a script that completes this command line.
    Completions(Completions),
    /// Look at the settings without starting anything.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the OpenAPI description of the REST interface.
    #[command(hide = true)]
    Openapi,
    /// Print the list of MCP tools.
    #[command(hide = true)]
    McpTools,
}

const SERVE_HELP: &str = "\
When it is ready, it prints one line to stdout: listening on http://ADDRESS
SIGTERM and SIGINT let requests in flight finish, release those that wait, and exit with 0.
SIGHUP reads the settings again and applies those that need no restart.

Examples:
  asyncgate serve --data-dir /var/lib/asyncgate --bind 0.0.0.0:8080
  asyncgate serve --store memory --log-level debug
  asyncgate serve --set default_lease_ttl_seconds=120 --set receipts.locatability=strict
";

const MCP_HELP: &str = "\
One process at a time can use a data directory: stop `asyncgate serve` first, or let the client
use http://ADDRESS/mcp of the running server.

Example, for the configuration of an MCP client:
  { \"command\": \"asyncgate\", \"args\": [\"mcp\", \"--data-dir\", \"/var/lib/asyncgate\"] }
";

/// The subcommands of `asyncgate config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the settings; say what is wrong and exit with 2 if something is.
    Check(SettingsArgs),
    /// Print every setting in force and where it came from; secrets are not shown.
    Show(ShowArgs),
    /// Print the reference of all settings as Markdown.
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print JSON, with the meaning and the rule of each setting.
    #[arg(long)]
    pub json: bool,
}

impl Cli {
    /// Returns the command; without one, the program serves.
    pub fn into_command(self) -> Command {
        self.command
            .unwrap_or_else(|| Command::Serve(SettingsArgs::default()))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::config::{CONFIG_ENV, Effective};

    fn parse(args: &[&str]) -> Command {
        Cli::try_parse_from(std::iter::once(&"asyncgate").chain(args))
            .unwrap()
            .into_command()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_argument_serves() {
        assert!(matches!(parse(&[]), Command::Serve(_)));
    }

    #[test]
    fn named_flags_and_set_reach_their_keys() {
        let args = [
            "serve",
            "--bind",
            "127.0.0.1:1",
            "--data-dir",
            "d",
            "--store",
            "memory",
            "--log-level",
            "debug",
            "--log-format",
            "json",
            "--shards",
            "9",
            "--tls=false",
            "--set",
            "default_priority=5",
            "--set",
            "bind=127.0.0.1:2",
        ];
        let Command::Serve(args) = parse(&args) else {
            panic!("not serve")
        };
        let effective = Effective::read(&args.inputs([])).unwrap();
        let expected = [
            ("bind", "127.0.0.1:1", "flag --bind"),
            ("data_dir", "d", "flag --data-dir"),
            ("store", "memory", "flag --store"),
            ("log.level", "debug", "flag --log-level"),
            ("log.format", "json", "flag --log-format"),
            ("mailbox.ready_shards", "9", "flag --shards"),
            ("tls.enabled", "false", "flag --tls"),
            ("default_priority", "5", "flag --set"),
        ];
        for (name, value, source) in expected {
            let entry = effective.entries.get(name).unwrap();
            assert_eq!(
                (
                    entry.value.to_string().as_str(),
                    entry.source.to_string().as_str()
                ),
                (value, source)
            );
        }
    }

    #[test]
    fn the_file_comes_from_its_flag_or_from_the_environment() {
        let file = |args: &[&str], value: &str| {
            let Command::Serve(args) = parse(args) else {
                panic!("not serve")
            };
            args.inputs([(CONFIG_ENV.into(), value.into())]).file
        };
        assert_eq!(file(&[], ""), None);
        assert_eq!(file(&[], "e.toml"), Some("e.toml".into()));
        let flagged = file(&["serve", "--config", "f.toml"], "e.toml");
        assert_eq!(flagged, Some("f.toml".into()));
    }

    #[test]
    fn a_switch_needs_no_value() {
        let Command::Serve(args) = parse(&["serve", "--amnesia", "--profile", "macronode"]) else {
            panic!("not serve")
        };
        let effective = Effective::read(&args.inputs([])).unwrap();
        let entry = effective.entries.get("amnesia.enabled").unwrap();
        assert_eq!(entry.value.to_string(), "true");
    }

    #[test]
    fn a_pair_needs_its_equals_sign() {
        assert!(Cli::try_parse_from(["asyncgate", "serve", "--set", "bind"]).is_err());
    }
}
