//! The flags that set settings, made from the table of settings.
//!
//! Their values are parsed with those of all other sources, so that the same mistake gets the same
//! answer wherever it was made.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use crate::config::{CONFIG_ENV, Flag, Inputs, is_switch, keys};

/// The flags that the short help shows.
const COMMON: [&str; 7] = [
    "bind",
    "data-dir",
    "store",
    "log-level",
    "log-format",
    "metrics",
    "profile",
];

/// The flags that were given.
#[derive(Debug, Default)]
pub struct SettingsArgs {
    config: Option<PathBuf>,
    /// A later flag wins over an earlier one.
    flags: Vec<Flag>,
}

impl Args for SettingsArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(format!(
                "Read settings from a file that ends in .toml, .yaml, .yml or .json [env: {CONFIG_ENV}]"
            ));
        let set = Arg::new("set")
            .long("set")
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .value_parser(parse_pair)
            .help("Set any setting by its name; may be repeated. See `asyncgate config show`");
        let named = keys().filter_map(|key| {
            let flag = key.flag?;
            let default = if key.default.is_empty() {
                String::new()
            } else {
                format!(" [default: {}]", key.default)
            };
            let doc = key.doc.trim_end_matches('.');
            let arg = Arg::new(flag)
                .long(flag)
                .help(format!("{doc}{default}"))
                .hide_short_help(!COMMON.contains(&flag));
            Some(if is_switch(key) {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_name("true|false")
            } else {
                arg.value_name("VALUE")
            })
        });
        command.arg(config).args(named).arg(set)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let set = matches
            .get_many::<(String, String)>("set")
            .into_iter()
            .flatten()
            .map(|(name, text)| Flag {
                flag: "--set".to_owned(),
                name: name.clone(),
                text: text.clone(),
            });
        // A flag of its own is more specific than `--set`, so it comes later and wins.
        let named = keys().filter_map(|key| {
            let flag = key.flag?;
            Some(Flag {
                flag: format!("--{flag}"),
                name: key.name.to_owned(),
                text: matches.get_one::<String>(flag)?.clone(),
            })
        });
        Ok(Self {
            config: matches.get_one::<PathBuf>("config").cloned(),
            flags: set.chain(named).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must have the form KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

impl SettingsArgs {
    /// Returns the value of one setting if no other one was given, else the flag that gave another.
    pub fn only(&self, name: &str) -> Result<Option<&str>, &str> {
        if self.config.is_some() {
            return Err("--config");
        }
        match self.flags.iter().find(|flag| flag.name != name) {
            Some(other) => Err(&other.flag),
            None => Ok(self.flags.last().map(|flag| flag.text.as_str())),
        }
    }

    /// Returns the sources that settings are to be read from.
    pub fn inputs(self, env: impl IntoIterator<Item = (OsString, OsString)>) -> Inputs {
        let env: Vec<(OsString, OsString)> = env.into_iter().collect();
        // An empty variable counts as not set, as it does for every setting.
        let from_env = env
            .iter()
            .find(|(name, value)| name == CONFIG_ENV && !value.is_empty())
            .map(|(_, value)| PathBuf::from(value));
        Inputs {
            flags: self.flags,
            file: self.config.or(from_env),
            env,
        }
    }
}
