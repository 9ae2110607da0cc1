//! The definition of the command line, with its help. `main` runs the commands.

use std::ffi::OsString;
use std::process::ExitCode;

use asyncgate_cli::{Bridge, Completions, Demo, EXIT_CODES, Exit, RemoteCommand, Verify, complain};
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

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
  asyncgate serve                               serve on 127.0.0.1:8080, with SQLite in ./data
  asyncgate serve --bind 127.0.0.1:0            pick a free port and print it
  asyncgate serve --config asyncgate.toml       settings from a file (.toml, .yaml or .json)
  ASYNCGATE_API_KEY=... asyncgate serve         one shared key; without it the first start makes a key
  ALLOW_INSECURE_DEV=true asyncgate serve --store memory
                                                try it out: no key, nothing kept
  asyncgate mcp                                 speak MCP on stdin and stdout
  asyncgate mcp --url http://127.0.0.1:8080     the same, for a running server
  asyncgate config show                         every setting, its value and where it came from
  asyncgate demo                                see it at work

With a server running, and its key in ASYNCGATE_API_KEY:
  asyncgate status
  asyncgate task create echo --payload '{\"to\":\"world\"}' --as alice
  asyncgate worker --id w1                      built-in handlers; --exec runs a command of yours
  asyncgate task list
  asyncgate mail send jobs 'paint the fence'
  asyncgate mail recv jobs --wait 30
  asyncgate key create --role worker            a key of its own for each worker and agent
  asyncgate verify
";

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve REST, MCP and gRPC over HTTP.
    #[command(after_help = SERVE_HELP)]
    Serve(SettingsArgs),
    /// Speak MCP on stdin and stdout, on a data directory or for a running server; logs go to stderr.
    #[command(after_help = MCP_HELP)]
    Mcp(McpArgs),
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
SIGTERM makes /readyz red and refuses new work for drain_grace, in which work that was handed out can be
settled. Then, and with SIGINT at once, calls that wait are released, requests in flight finish, and the
exit code is 0. A second signal ends it at once.
SIGHUP reads the settings again and applies those that need no restart, and the certificate of TLS.

Examples:
  asyncgate serve --data-dir /var/lib/asyncgate --bind 0.0.0.0:8080
  asyncgate serve --store memory --log-level debug
  asyncgate serve --set default_lease_ttl_seconds=120 --set receipts.locatability=strict
";

const MCP_HELP: &str = "\
One process at a time can use a data directory. Beside a running server, pass messages on to it with
--url, or let the client use http://ADDRESS/mcp itself.

Examples:
  asyncgate mcp --url http://127.0.0.1:8080 --tools agent,worker
  asyncgate mcp --data-dir /var/lib/asyncgate
  in the configuration of an MCP client:
  { \"command\": \"asyncgate\", \"args\": [\"mcp\", \"--url\", \"http://127.0.0.1:8080\"],
    \"env\": { \"ASYNCGATE_API_KEY\": \"...\" } }
  { \"command\": \"asyncgate\", \"args\": [\"mcp\", \"--data-dir\", \"/var/lib/asyncgate\"] }

Toolsets (--tools): agent, worker, mailbox, admission, ops, or all. They decide which tools are listed.
";

/// The arguments of `asyncgate mcp`.
#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(flatten)]
    pub bridge: Bridge,
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// The subcommands of `asyncgate config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the settings; say what is wrong and exit with 2 if something is.
    #[command(after_help = "Example:\n  asyncgate config check --config asyncgate.toml")]
    Check(SettingsArgs),
    /// Print every setting in force and where it came from; secrets are not shown.
    #[command(after_help = "Example:\n  asyncgate config show --config asyncgate.toml --json")]
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
    /// Reads the command line of this process. Returns the command, if there is one, and whether its
    /// answers are wanted as JSON.
    pub fn read() -> Result<Option<(Command, bool)>, Wrong> {
        Self::read_from(std::env::args_os().collect())
    }

    fn read_from(args: Vec<OsString>) -> Result<Option<(Command, bool)>, Wrong> {
        let read = Self::command().try_get_matches_from(&args);
        let read = read.and_then(|matches| {
            let json = wants_json(&matches);
            Ok((Self::from_arg_matches(&matches)?.command, json))
        });
        match read {
            Ok((command, json)) => Ok(command.map(|command| (command, json))),
            Err(error) => Err(Wrong { error, args }),
        }
    }
}

/// Returns true if the command that was named has a flag `--json`, and it was given.
fn wants_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, matches)) => wants_json(matches),
        None => matches!(matches.try_get_one("json"), Ok(Some(true))),
    }
}

/// A command line that is not understood, or that asks for help.
#[derive(Debug)]
pub struct Wrong {
    error: clap::Error,
    args: Vec<OsString>,
}

impl Wrong {
    /// Says what is wrong, or the help that was asked for, and returns the exit code.
    pub fn end(self) -> ExitCode {
        // Nothing was understood, so the flag is looked for as a program would have given it.
        let mut flags = self.args.iter().take_while(|arg| *arg != "--");
        if self.error.use_stderr() && flags.any(|arg| arg == "--json") {
            let text = self.error.render().to_string();
            let line = text.lines().next().unwrap_or_default();
            let line = line.strip_prefix("error: ").unwrap_or(line);
            return complain(&Exit::usage(line).into(), true);
        }
        self.error.exit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CONFIG_ENV, Effective};

    fn parse(args: &[&str]) -> Command {
        read(args).expect("a command").0
    }

    fn read(args: &[&str]) -> Option<(Command, bool)> {
        let args = std::iter::once(&"asyncgate").chain(args);
        Cli::read_from(args.map(OsString::from).collect()).unwrap()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every command that the help shows, with its words, from the root on.
    fn each(command: &clap::Command, words: &str, take: &mut impl FnMut(&str, &clap::Command)) {
        for command in command.get_subcommands().filter(|each| !each.is_hide_set()) {
            let words = format!("{words} {}", command.get_name());
            take(&words, command);
            each(command, &words, take);
        }
    }

    /// The words of an example as a shell splits them, up to the first that is not an argument.
    fn words(example: &str) -> Vec<OsString> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for char in example.chars() {
            match char {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(std::mem::take(&mut word)),
                ')' if !quoted => break,
                _ => word.push(char),
            }
        }
        words.push(word);
        let ends = ["|", "&&", "&", ">", "<", "&&", "#"];
        // Behind several spaces stands what the example does.
        let words = words.into_iter().take_while(|word| !word.is_empty());
        let words = words.take_while(|word| !ends.contains(&word.as_str()));
        words.map(OsString::from).collect()
    }

    #[test]
    fn every_command_teaches_by_examples_that_it_understands() {
        let (mut commands, mut examples) = (0, 0);
        each(&Cli::command(), "asyncgate", &mut |words_of, command| {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let own = help.lines().filter_map(|line| {
                let example = line.find("asyncgate ").map(|at| &line[at..]);
                example.filter(|example| example.starts_with(words_of))
            });
            let own: Vec<&str> = own.collect();
            let group = command.has_subcommands();
            assert!(!own.is_empty() || group, "{words_of} has no example");
            // Where an example leaves something out, it cannot be read.
            for example in own.iter().filter(|example| !example.contains("...")) {
                let read = Cli::read_from(words(example));
                assert!(matches!(read, Ok(Some(_))), "{example}: {read:?}");
                examples += 1;
            }
            commands += 1;
        });
        assert!(
            commands > 30 && examples > commands,
            "{commands} {examples}"
        );
    }

    #[test]
    fn no_argument_is_no_command() {
        assert!(read(&[]).is_none());
        assert!(matches!(parse(&["serve"]), Command::Serve(_)));
    }

    #[test]
    fn json_is_wanted_where_its_flag_stands() {
        let json = |line: &str| read(&line.split(' ').collect::<Vec<_>>()).unwrap().1;
        assert!(json("task list --json"));
        assert!(json("mail dlq list --json"));
        assert!(json("config show --json"));
        assert!(!json("task list"));
        assert!(!json("config check"));
        assert!(!json("mail send jobs -- --json"));
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
        assert_eq!(file(&["serve"], ""), None);
        assert_eq!(file(&["serve"], "e.toml"), Some("e.toml".into()));
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
