//! What a setting is: its name, where else it may be named, its default, and the rule its value obeys.
//!
//! Every value starts as text, wherever it came from, and passes its key's one [`Rule`]. So a flag,
//! an environment variable and a file refuse the same things with the same words.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

/// One line of the table of settings.
#[derive(Debug)]
pub struct Key {
    /// The name in files and in `--set`; a dot stands for a table.
    pub name: &'static str,
    /// A second environment variable that names it, without the product's prefix.
    pub bare_env: Option<&'static str>,
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

    /// True when the value must never be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.rule, Rule::Secret)
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
    /// A credential; visible ASCII, since it travels in a header.
    Secret,
}

const NAME_MAX: usize = 128;
const SECRET_MAX: usize = 512;
const DAYS_MAX: u32 = 36_500;

impl Rule {
    /// Turns text into a value, or says what the text should have been.
    ///
    /// The answer in the error is a sentence's end: it follows "must be".
    pub fn check(self, text: &str) -> Result<Value, Refused> {
        self.parse(text).ok_or(Refused(self))
    }

    fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Integer { min, max } => {
                let number: i64 = text.parse().ok()?;
                (min..=max)
                    .contains(&number)
                    .then_some(Value::Integer(number))
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

fn parse_origins(text: &str) -> Option<Vec<String>> {
    text.split(',')
        .map(str::trim)
        .filter(|origin| !origin.is_empty())
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
            Self::Secret => write!(f, "at most {SECRET_MAX} visible ASCII characters without spaces"),
        }
    }
}

/// A value that passed its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Integer(i64),
    Days(Option<u32>),
    Switch(bool),
    Word(&'static str),
    Text(String),
    Address(SocketAddr),
    Path(PathBuf),
    List(Vec<String>),
    Secret(Option<Secret>),
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
            Self::Days(Some(days)) => write!(f, "{days}"),
            Self::Days(None) => f.write_str("never"),
            Self::Switch(on) => write!(f, "{on}"),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
            Self::Address(address) => write!(f, "{address}"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::List(items) => f.write_str(&items.join(",")),
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
        let value = Rule::Secret.check("hunter2-hunter2").unwrap();
        assert!(!format!("{value} {value:?} {value:#?}").contains("hunter2"));
    }
}
