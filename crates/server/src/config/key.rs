//! What a setting is: its name, where else it may be named, its default, and the rule its value obeys.
//!
//! Every value starts as text, wherever it came from, and passes its key's one [`Rule`]. So a flag,
//! an environment variable and a file refuse the same things with the same words.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::Error;
use super::backend::{self, Backend};
use super::quantity::{duration, show_duration, show_size, size};
use super::source::Given;

/// One line of the table of settings.
#[derive(Debug)]
pub struct Key {
    /// The name in files and in `--set`; a dot stands for a table.
    pub name: &'static str,
    /// Another name in files and in `--set`, from another specification.
    pub alias: Option<&'static str>,
    /// Further environment variables that name it, from its specification; the first that is set counts.
    pub more_env: &'static [&'static str],
    /// An environment variable that still works and warns.
    pub old_env: Option<&'static str>,
    /// A flag of its own on the command line, without the dashes.
    pub flag: Option<&'static str>,
    /// The value when nobody gave one, as text; empty means not set.
    pub default: &'static str,
    /// What a value must be.
    pub rule: Rule,
    /// When a changed value takes effect.
    pub reload: Reload,
    /// One line for people.
    pub doc: &'static str,
}

impl Key {
    /// The environment variable that sets it.
    pub fn env(&self) -> String {
        format!("ASYNCGATE_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// Every environment variable that sets it; the first that is set counts.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        let more = self.more_env.iter().chain(&self.old_env);
        std::iter::once(self.env()).chain(more.map(|name| (*name).to_owned()))
    }

    /// The names that files and `--set` may use.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }

    /// Turns a text that somebody gave into a value, or says what is wrong with it.
    pub fn check(&'static self, given: &Given) -> Result<Value, Error> {
        self.rule
            .check(&given.text)
            .map_err(|refused| Error::Value {
                key: self.name,
                shown: if self.hides(&given.text) {
                    "(secret)".to_owned()
                } else {
                    format!("{:?}", given.text)
                },
                source_of: given.source.clone(),
                problem: (self.rule == Rule::Backend)
                    .then(|| Backend::flaw(&given.text))
                    .flatten()
                    .unwrap_or_else(|| refused.to_string()),
            })
    }

    /// True when this text must not be shown, nor be given where others can read it.
    pub fn hides(&self, text: &str) -> bool {
        // What stands before an @ is a password.
        self.is_secret() || (self.rule == Rule::Backend && text.contains('@'))
    }

    /// True when the value must never be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.rule, Rule::Secret | Rule::SecretTable)
    }
}

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// At SIGHUP.
    Live,
    /// At the next start.
    Restart,
}

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A whole number between two bounds, both included.
    Integer { min: i64, max: i64 },
    /// A time with a unit, between two bounds in milliseconds, both included.
    Duration { min_ms: u64, max_ms: u64 },
    /// A number of bytes, between two bounds, both included.
    Size { min: u64, max: u64 },
    /// A number of days, or `never`.
    Days,
    /// `true` or `false`.
    Switch,
    /// One of the listed words.
    OneOf(&'static [&'static str]),
    /// A short name of visible ASCII characters.
    Name,
    /// An address and a port.
    Address,
    /// A path.
    Path,
    /// A level, or directives such as `info,asyncgate_engine=debug`.
    LogFilter,
    /// Web origins (`scheme://host[:port]`), separated by commas.
    Origins,
    /// User ids, separated by commas.
    Uids,
    /// `prefix=class` pairs, separated by commas; a table in a file.
    Classes,
    /// `name=weight` pairs, separated by commas; a table in a file.
    Weights,
    /// Public keys of 32 bytes in hexadecimal digits, separated by commas.
    Keys,
    /// A table of any size: JSON in text, a table in a file.
    Table,
    /// Who decides about admission.
    Backend,
    /// A table or a list of tables that holds secrets, written as a [`Rule::Table`] and never shown.
    SecretTable,
    /// A credential; visible ASCII, since it travels in a header.
    Secret,
    /// What the other rule allows, or nothing.
    Optional(&'static Rule),
}

const NAME_MAX: usize = 128;
const SECRET_MAX: usize = 512;
const DAYS_MAX: u32 = 36_500;
const LABEL_MAX: usize = 32;
const WEIGHT_MAX: u32 = 1_000;

impl Rule {
    /// Turns text into a value, or says what the text should have been.
    ///
    /// The answer in the error is a sentence's end: it follows "must be".
    pub fn check(self, text: &str) -> Result<Value, Refused> {
        self.parse(text).ok_or(Refused(self))
    }

    /// True when a value is a list, which a file may write as one.
    pub fn takes_list(self) -> bool {
        matches!(self, Self::Origins | Self::Uids | Self::Keys)
    }

    /// True when a value is a list of pairs, which a file may write as a table.
    pub fn takes_pairs(self) -> bool {
        matches!(self, Self::Classes | Self::Weights)
    }

    /// True when a value is a table.
    pub fn takes_table(self) -> bool {
        matches!(self, Self::Table | Self::SecretTable)
    }

    fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Integer { min, max } => {
                let number: i64 = text.parse().ok()?;
                (min..=max)
                    .contains(&number)
                    .then_some(Value::Integer(number))
            }
            Self::Duration { min_ms, max_ms } => {
                let bounds = Duration::from_millis(min_ms)..=Duration::from_millis(max_ms);
                let time = duration(text).filter(|time| bounds.contains(time));
                time.map(Value::Duration)
            }
            Self::Size { min, max } => {
                let bytes = size(text).filter(|bytes| (min..=max).contains(bytes));
                bytes.map(Value::Size)
            }
            Self::Days if text == "never" => Some(Value::Days(None)),
            Self::Days => {
                let days: u32 = text.parse().ok()?;
                (1..=DAYS_MAX)
                    .contains(&days)
                    .then_some(Value::Days(Some(days)))
            }
            Self::Switch => match text {
                "true" | "1" => Some(Value::Switch(true)),
                "false" | "0" => Some(Value::Switch(false)),
                _ => None,
            },
            Self::OneOf(words) => words
                .iter()
                .find(|word| **word == text)
                .map(|word| Value::Word(word)),
            Self::Name => {
                (is_visible(text) && text.len() <= NAME_MAX).then(|| Value::Text(text.to_owned()))
            }
            Self::Address => text.parse().ok().map(Value::Address),
            Self::Path => {
                (!text.is_empty() && !text.contains('\0')).then(|| Value::Path(PathBuf::from(text)))
            }
            Self::LogFilter => {
                let known = !text.is_empty()
                    && EnvFilter::try_new(text).is_ok()
                    && text.split(',').all(is_directive);
                known.then(|| Value::Text(text.to_owned()))
            }
            Self::Origins => parse_origins(text).map(Value::List),
            Self::Uids => {
                let uids: Option<Vec<u32>> = items(text).map(|uid| uid.parse().ok()).collect();
                uids.map(Value::Uids)
            }
            Self::Classes => parse_pairs(text, is_label).map(Value::Pairs),
            Self::Weights => {
                let is_weight = |text: &str| {
                    text.parse()
                        .is_ok_and(|weight: u32| (1..=WEIGHT_MAX).contains(&weight))
                };
                parse_pairs(text, is_weight).map(Value::Pairs)
            }
            Self::Keys => {
                let is_key = |key: &str| {
                    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                    key.len() == 64 && key.bytes().all(digit)
                };
                let keys = items(text).map(|key| is_key(key).then(|| key.to_owned()));
                keys.collect::<Option<_>>().map(Value::List)
            }
            Self::Table if text.is_empty() => Some(Value::Text(String::new())),
            Self::Table => {
                let table: serde_json::Value = serde_json::from_str(text).ok()?;
                table.is_object().then(|| Value::Text(table.to_string()))
            }
            Self::Backend => Backend::parse(text).map(Value::Backend),
            Self::SecretTable if text.is_empty() => Some(Value::Secret(None)),
            Self::SecretTable => {
                let table: serde_json::Value = serde_json::from_str(text).ok()?;
                let is_table = table.is_object() || table.is_array();
                is_table.then(|| Value::Secret(Some(Secret(table.to_string()))))
            }
            Self::Optional(_) if text.is_empty() => Some(Value::Unset),
            Self::Optional(rule) => rule.parse(text),
            Self::Secret if text.is_empty() => Some(Value::Secret(None)),
            Self::Secret => {
                let usable = is_visible(text) && text.len() <= SECRET_MAX;
                usable.then(|| Value::Secret(Some(Secret(text.to_owned()))))
            }
        }
    }
}

/// Visible ASCII without spaces, at least one character.
fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// `EnvFilter` reads any bare word as a target, so that `log.level = "loud"` would silently mean
/// "everything from the crate `loud`". A directive here is a level, or `target=level`.
fn is_directive(text: &str) -> bool {
    let level = text.rsplit_once('=').map_or(text, |(_, level)| level);
    matches!(
        level.trim(),
        "off" | "error" | "warn" | "info" | "debug" | "trace"
    )
}

/// What stands between commas.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// Pairs in the order given; the same name twice is a mistake.
fn parse_pairs(text: &str, good: impl Fn(&str) -> bool) -> Option<Vec<(String, String)>> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for item in items(text) {
        let (name, value) = item.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let taken = pairs.iter().any(|(other, _)| other == name);
        if taken || !is_visible(name) || name.len() > NAME_MAX || !good(value) {
            return None;
        }
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Some(pairs)
}

/// A label of a metric: few characters, so that it needs no escape anywhere.
fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.len() <= LABEL_MAX && text.bytes().all(plain)
}

fn parse_origins(text: &str) -> Option<Vec<String>> {
    items(text)
        .map(|origin| is_origin(origin).then(|| origin.to_ascii_lowercase()))
        .collect()
}

/// `null` is what pages without an origin of their own send.
fn is_origin(text: &str) -> bool {
    if text == "null" {
        return true;
    }
    let text = text.strip_suffix('/').unwrap_or(text);
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let plain = |part: &str| is_visible(part) && !part.contains(['/', '?', '#', '@', '*', '\\']);
    !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && plain(host)
}

/// A text that did not pass a rule; it says what would have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(Rule);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {}", self.0)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer { min, max } => write!(f, "an integer from {min} to {max}"),
            Self::Duration { min_ms, max_ms } => write!(
                f,
                "a time from {} to {}, with its unit (ms, s, m, h or d)",
                show_duration(Duration::from_millis(*min_ms)),
                show_duration(Duration::from_millis(*max_ms))
            ),
            Self::Size { min, max } => write!(
                f,
                "a size from {} to {} (B, KiB or MiB)",
                show_size(*min),
                show_size(*max)
            ),
            Self::Days => write!(f, "a number of days from 1 to {DAYS_MAX}, or never"),
            Self::Switch => f.write_str("true or false"),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::Name => write!(f, "1 to {NAME_MAX} visible ASCII characters without spaces"),
            Self::Address => f.write_str("an IP address and a port, such as 127.0.0.1:8080"),
            Self::Path => f.write_str("a path"),
            Self::LogFilter => {
                f.write_str("off, error, warn, info, debug or trace, or directives such as info,asyncgate_engine=debug")
            }
            Self::Origins => f.write_str("origins such as https://app.example.com, separated by commas"),
            Self::Uids => f.write_str("user ids, separated by commas"),
            Self::Classes => write!(
                f,
                "pairs such as user:=user_inbox, separated by commas; a class has up to {LABEL_MAX} of a-z, 0-9 and _"
            ),
            Self::Weights => write!(
                f,
                "pairs such as bulk:=1, separated by commas; a weight is an integer from 1 to {WEIGHT_MAX}"
            ),
            Self::Keys => f.write_str("keys of 64 lower-case hexadecimal digits, separated by commas"),
            Self::Table => f.write_str("a table, or a JSON object"),
            Self::Backend => f.write_str(&backend::forms()),
            Self::SecretTable => f.write_str("a table, a list of tables, or such in JSON; it is never shown"),
            Self::Optional(rule) => write!(f, "{rule}, or empty"),
            Self::Secret => write!(f, "at most {SECRET_MAX} visible ASCII characters without spaces"),
        }
    }
}

/// A value that passed its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Integer(i64),
    Duration(Duration),
    Size(u64),
    Days(Option<u32>),
    Switch(bool),
    Word(&'static str),
    Text(String),
    Address(SocketAddr),
    Path(PathBuf),
    List(Vec<String>),
    Uids(Vec<u32>),
    Pairs(Vec<(String, String)>),
    Secret(Option<Secret>),
    Backend(Backend),
    /// Nothing was given, and nothing is needed.
    Unset,
}

impl Value {
    /// The value as a number, where larger is more; to compare it with others of its kind.
    pub fn amount(&self) -> Option<i128> {
        match self {
            Self::Integer(number) => Some(i128::from(*number)),
            Self::Duration(time) => i128::try_from(time.as_millis()).ok(),
            Self::Size(bytes) => Some(i128::from(*bytes)),
            Self::Days(_)
            | Self::Switch(_)
            | Self::Word(_)
            | Self::Text(_)
            | Self::Address(_)
            | Self::Path(_)
            | Self::List(_)
            | Self::Uids(_)
            | Self::Pairs(_)
            | Self::Secret(_)
            | Self::Backend(_)
            | Self::Unset => None,
        }
    }
}

/// A credential that neither `Debug` nor `Display` gives away.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The credential itself; for comparing it, never for showing it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(set)")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Duration(time) => f.write_str(&show_duration(*time)),
            Self::Size(bytes) => f.write_str(&show_size(*bytes)),
            Self::Days(Some(days)) => write!(f, "{days}"),
            Self::Days(None) => f.write_str("never"),
            Self::Switch(on) => write!(f, "{on}"),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
            Self::Address(address) => write!(f, "{address}"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::List(items) => f.write_str(&items.join(",")),
            Self::Uids(uids) => {
                let texts: Vec<String> = uids.iter().map(u32::to_string).collect();
                f.write_str(&texts.join(","))
            }
            Self::Pairs(pairs) => {
                let texts: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
                f.write_str(&texts.join(","))
            }
            Self::Backend(backend) => write!(f, "{backend}"),
            Self::Unset => f.write_str("(not set)"),
            Self::Secret(Some(secret)) => write!(f, "{secret:?}"),
            Self::Secret(None) => f.write_str("(not set)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rule with texts that pass and texts that do not, so that no rule can quietly accept everything.
    const CASES: &[(Rule, &[&str], &[&str])] = &[
        (
            Rule::Integer { min: 1, max: 10 },
            &["1", "10", "7"],
            &[
                "0",
                "11",
                "",
                "x",
                "1.5",
                " 1",
                "1e0",
                "99999999999999999999",
            ],
        ),
        (
            Rule::Integer { min: -5, max: 5 },
            &["-5", "0"],
            &["-6", "--5"],
        ),
        (
            Rule::Duration {
                min_ms: 1,
                max_ms: 60_000,
            },
            &["1ms", "1m", "60s"],
            &["0ms", "60001ms", "5", "", "1h"],
        ),
        (
            Rule::Size {
                min: 1_024,
                max: 1 << 20,
            },
            &["1024", "1KiB", "1MiB"],
            &["1023", "1KB", "2MiB", ""],
        ),
        (
            Rule::Uids,
            &["", "0", "1000, 1001"],
            &["-1", "root", "1;2", "4294967296"],
        ),
        (
            Rule::Classes,
            &["", "user:=user_inbox", "a:=x, b:=y2"],
            &["user:", "=x", "a=", "a=X", "a=x y", "a=x,a=y"],
        ),
        (
            Rule::Weights,
            &["", "bulk:=1", "a=10,b=1000"],
            &["a=0", "a=1001", "a=x", "a"],
        ),
        (Rule::Optional(&Rule::Address), &["", "127.0.0.1:0"], &["x"]),
        (
            Rule::Days,
            &["1", "36500", "never"],
            &["0", "-1", "36501", "Never", "", "1d"],
        ),
        (
            Rule::Switch,
            &["true", "false", "1", "0"],
            &["TRUE", "yes", "", "2", "on"],
        ),
        (
            Rule::OneOf(&["json", "text"]),
            &["json", "text"],
            &["JSON", "", "xml"],
        ),
        (Rule::Name, &["a", "asyncgate-1"], &["", "a b", "a\n", "é"]),
        (
            Rule::Address,
            &["127.0.0.1:0", "[::1]:80", "0.0.0.0:8080"],
            &[
                "localhost:80",
                "127.0.0.1",
                "8080",
                ":80",
                "127.0.0.1:70000",
                "",
            ],
        ),
        (Rule::Path, &["./data", "/x y"], &["", "a\0b"]),
        (
            Rule::LogFilter,
            &[
                "info",
                "off",
                "info,asyncgate_engine=debug",
                "warn,hyper=off",
            ],
            &["", "loud", "info,loud", "x=loud", "="],
        ),
        (
            Rule::Origins,
            &[
                "",
                "https://a.example",
                "https://a.example:8443, http://localhost:3000",
                "vscode-webview://x",
                "null,https://a.example/",
            ],
            &[
                "*",
                "a.example",
                "https://",
                "https://a/b",
                "https://*.example",
                "://x",
                "https://u@h",
            ],
        ),
        (
            Rule::Keys,
            &[
                "",
                "0000000000000000000000000000000000000000000000000000000000000abc",
            ],
            &[
                "abc",
                "0000000000000000000000000000000000000000000000000000000000000ABC",
            ],
        ),
        (
            Rule::Table,
            &["", "{}", r#"{"a": [1]}"#],
            &["[]", "1", "{", "a=b"],
        ),
        (
            Rule::Backend,
            &[
                "store",
                "minimal",
                "redis://localhost",
                "redis://u:p@h:1/2",
                "redis+sentinel://a,b:1/main",
                "redis+cluster://a",
                "rediss://h?ca=/ca.pem",
                "rediss+sentinel://a/main?cert=/c.pem&key=/k.pem",
                "rediss+cluster://a",
                #[cfg(feature = "dynamodb")]
                "dynamodb://gate?region=eu-west-1&endpoint=http://127.0.0.1:8000",
            ],
            &[
                "",
                "Store",
                "redis",
                "redis://",
                "rediss://",
                "rediss://h?cert=/c.pem",
                "redis://h?ca=/ca.pem",
                "redis://h/x",
                "dynamodb://",
                "dynamodb:gate",
                "dynamodb://gate?prefix=a",
            ],
        ),
        (
            Rule::SecretTable,
            &["", "{}", r#"[{"seed": "s"}]"#],
            &["1", "[", "a=b"],
        ),
        (
            Rule::Secret,
            &["", "s", "with-Symbols_!"],
            &["a b", "tab\t", "ü", "line\n"],
        ),
    ];

    #[test]
    fn every_rule_takes_what_it_says_and_refuses_the_rest() {
        for (rule, good, bad) in CASES {
            for text in *good {
                assert!(rule.check(text).is_ok(), "{rule:?} refused {text:?}");
            }
            for text in *bad {
                let refused = rule.check(text).expect_err(text);
                assert!(
                    refused.to_string().starts_with("must be "),
                    "{rule:?} {text:?}"
                );
            }
        }
    }

    #[test]
    fn overlong_names_and_secrets_are_refused() {
        assert!(Rule::Name.check(&"n".repeat(NAME_MAX)).is_ok());
        assert!(Rule::Name.check(&"n".repeat(NAME_MAX + 1)).is_err());
        assert!(Rule::Secret.check(&"s".repeat(SECRET_MAX)).is_ok());
        assert!(Rule::Secret.check(&"s".repeat(SECRET_MAX + 1)).is_err());
    }

    #[test]
    fn a_secret_is_in_no_rendering() {
        for (rule, text) in [
            (Rule::Secret, "hunter2-hunter2"),
            (Rule::SecretTable, r#"{"secret": "hunter2"}"#),
        ] {
            let value = rule.check(text).unwrap();
            assert!(!format!("{value} {value:?} {value:#?}").contains("hunter2"));
        }
    }
}
