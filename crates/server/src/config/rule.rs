//! Rules: what the text of a setting must be, and the value that it stands for.
//!
//! Every value starts as text, wherever it came from, and passes its setting's one [`Rule`]. So a flag,
//! an environment variable and a file refuse the same mistakes with the same words.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use asyncgate_core::hex;
use asyncgate_engine::Network;
use asyncgate_mcp::Toolsets;
use tracing_subscriber::EnvFilter;

use super::backend::{self, Backend};
use super::quantity::{duration, show_duration, show_size, size};
use super::table_value::{self, Table};
use super::topic_classes;
use super::value::{Secret, Value};

/// The form that the text of a setting must have.
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
    /// The address of a server: `http` or `https`, a host, perhaps a port and a path.
    Url,
    /// A level, or directives such as `info,asyncgate_engine=debug`.
    LogFilter,
    /// Web origins (`scheme://host[:port]`), separated by commas.
    Origins,
    /// User ids, separated by commas.
    Uids,
    /// Toolsets of MCP, separated by commas.
    Toolsets,
    /// Classes of topics with their patterns: a table, or `prefix=class` pairs, separated by commas.
    Classes,
    /// `name=weight` pairs, separated by commas; a table in a file.
    Weights,
    /// Public keys of 32 bytes in hexadecimal digits, separated by commas.
    Keys,
    /// Addresses and networks, separated by commas.
    Networks,
    /// A table of any size: JSON in text, a table in a file.
    Table(table_value::Kind),
    /// The backend that decides about admission.
    Backend,
    /// The address of a receiver, of which only the host is shown.
    Webhook,
    /// A credential; visible ASCII, since it travels in a header.
    Secret,
    /// The form of the other rule, or nothing.
    Optional(&'static Rule),
}

const NAME_MAX: usize = 128;
const SECRET_MAX: usize = 512;
const DAYS_MAX: u32 = 36_500;
const WEIGHT_MAX: u32 = 1_000;

impl Rule {
    /// Parses a text into a value.
    pub fn parse(self, text: &str) -> Result<Value, Refused> {
        let parsed =
            match self {
                Self::Integer { min, max } => {
                    let number = text.parse().ok();
                    let number = number.filter(|number| (min..=max).contains(number));
                    number.map(Value::Integer)
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
                    let days = text.parse().ok();
                    let days = days.filter(|days| (1..=DAYS_MAX).contains(days));
                    days.map(|days| Value::Days(Some(days)))
                }
                Self::Switch => match text {
                    "true" | "1" => Some(Value::Switch(true)),
                    "false" | "0" => Some(Value::Switch(false)),
                    _ => None,
                },
                Self::OneOf(words) => {
                    let word = words.iter().find(|word| **word == text);
                    word.map(|word| Value::Word(word))
                }
                Self::Name => (is_visible(text) && text.len() <= NAME_MAX)
                    .then(|| Value::Text(text.to_owned())),
                Self::Address => text.parse().ok().map(Value::Address),
                Self::Path => (!text.is_empty() && !text.contains('\0'))
                    .then(|| Value::Path(PathBuf::from(text))),
                Self::Url => parse_url(text).map(Value::Text),
                Self::LogFilter => is_log_filter(text).then(|| Value::Text(text.to_owned())),
                Self::Origins => parse_items(text, parse_origin).map(Value::List),
                Self::Uids => parse_items(text, |uid| uid.parse().ok()).map(Value::Uids),
                Self::Toolsets => match Toolsets::parse(text) {
                    Ok(chosen) => Some(chosen.map_or(Value::Unset, Value::Toolsets)),
                    Err(_) => None,
                },
                Self::Classes => topic_classes::parse(text).map(Value::Classes),
                Self::Weights => {
                    let weight = |text: &str| {
                        let weight = text.parse().ok();
                        weight.filter(|weight| (1..=WEIGHT_MAX).contains(weight))
                    };
                    parse_pairs(text, weight).map(Value::Weights)
                }
                Self::Keys => parse_items(text, |key| hex::decode(key)).map(Value::Keys),
                Self::Networks => parse_items(text, Network::parse).map(Value::Networks),
                Self::Table(kind) => match Table::parse(kind, text) {
                    Some(table) => return table.map(Value::Table),
                    None => None,
                },
                Self::Backend => match (Backend::parse(text), Backend::flaw(text)) {
                    (Some(backend), _) => Some(Value::Backend(backend)),
                    (None, Some(flaw)) => return Err(Refused::Address(flaw)),
                    (None, None) => None,
                },
                Self::Webhook => text.parse().ok().map(Value::Webhook),
                Self::Optional(_) if text.is_empty() => Some(Value::Unset),
                Self::Optional(rule) => rule.parse(text).ok(),
                Self::Secret if text.is_empty() => Some(Value::Secret(None)),
                Self::Secret => {
                    let usable = is_visible(text) && text.len() <= SECRET_MAX;
                    usable.then(|| Value::Secret(Some(Secret::new(text))))
                }
            };
        parsed.ok_or(Refused::Form(self))
    }

    /// Returns true if a file may write the value as a list.
    pub fn takes_list(self) -> bool {
        matches!(
            self,
            Self::Origins | Self::Uids | Self::Toolsets | Self::Keys | Self::Networks
        )
    }

    /// Returns true if the value is a table of its own, which a text writes as JSON.
    pub fn takes_table(self) -> bool {
        matches!(self, Self::Table(_) | Self::Classes)
    }

    /// Returns true if the value is made of pairs, which a file may write as a table.
    pub fn takes_pairs(self) -> bool {
        matches!(self, Self::Weights)
    }
}

/// Returns true for visible ASCII without spaces, at least one character.
fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_log_filter(text: &str) -> bool {
    // `EnvFilter` reads any bare word as a target, so that `log.level = "loud"` would silently mean
    // "everything from the crate `loud`". Here a directive is a level, or `target=level`.
    let is_directive = |text: &str| {
        let level = text.rsplit_once('=').map_or(text, |(_, level)| level);
        matches!(
            level.trim(),
            "off" | "error" | "warn" | "info" | "debug" | "trace"
        )
    };
    !text.is_empty() && EnvFilter::try_new(text).is_ok() && text.split(',').all(is_directive)
}

/// Splits a text at its commas.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn parse_items<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    items(text).map(parse).collect()
}

/// Parses pairs, in the order given; the same name twice is a mistake.
fn parse_pairs<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<(String, T)>> {
    let mut pairs: Vec<(String, T)> = Vec::new();
    for item in items(text) {
        let (name, value) = item.split_once('=')?;
        let name = name.trim();
        let taken = pairs.iter().any(|(other, _)| other == name);
        if taken || !is_visible(name) || name.len() > NAME_MAX {
            return None;
        }
        pairs.push((name.to_owned(), parse(value.trim())?));
    }
    Some(pairs)
}

fn parse_origin(text: &str) -> Option<String> {
    is_origin(text).then(|| text.to_ascii_lowercase())
}

fn is_origin(text: &str) -> bool {
    // Browsers send `null` for pages without an origin of their own.
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

/// Reads the address of a server. What follows it begins with a slash, so it does not end with one.
fn parse_url(text: &str) -> Option<String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let (scheme, rest) = text.split_once("://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |part: &str| !part.contains(['?', '#', '@', '*', '\\', '"', '<', '>']);
    let fine = ["http", "https"].contains(&scheme)
        && is_visible(host)
        && plain(host)
        && (path.is_empty() || is_visible(path) && plain(path));
    fine.then(|| text.to_owned())
}

/// The reason why a rule refused a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The text does not have the form of the rule.
    Form(Rule),
    /// The text is an address, but not one that can be used. It says why and repeats nothing of the address.
    Address(String),
    /// The text is a table, but something in it is wrong.
    Content { shown: String, problem: String },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(rule) => write!(f, "must be {rule}"),
            Self::Address(flaw) => write!(f, "is not a usable address: {flaw}"),
            Self::Content { problem, .. } => write!(f, "is wrong: {problem}"),
        }
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
            Self::Url => f.write_str("an address such as https://gate.example.com, without a query"),
            Self::LogFilter => {
                f.write_str("off, error, warn, info, debug or trace, or directives such as info,asyncgate_engine=debug")
            }
            Self::Origins => f.write_str("origins such as https://app.example.com, separated by commas"),
            Self::Uids => f.write_str("user ids, separated by commas"),
            Self::Toolsets => write!(f, "any of {}, separated by commas, or all", Toolsets::ALL),
            Self::Classes => write!(
                f,
                "a table of classes and their patterns such as {{\"inbox\": [\"user:*:inbox\"]}}, or pairs of a prefix and its class such as user:=inbox, separated by commas; a class has up to {} of a-z, 0-9 and _",
                topic_classes::NAME_MAX
            ),
            Self::Weights => write!(
                f,
                "pairs such as bulk:=1, separated by commas; a weight is an integer from 1 to {WEIGHT_MAX}"
            ),
            Self::Keys => f.write_str("keys of 64 lower-case hexadecimal digits, separated by commas"),
            Self::Networks => f.write_str("addresses or networks such as 10.0.0.0/8 or fd00::/8, separated by commas"),
            Self::Table(kind) if kind.is_secret() => f.write_str("a table, a list of tables, or such in JSON; it is never shown"),
            Self::Table(_) => f.write_str("a table, or a JSON object"),
            Self::Backend => f.write_str(&backend::forms()),
            Self::Webhook => f.write_str("an address such as https://billing.example.com/hook, without user, password and fragment"),
            Self::Optional(rule) => write!(f, "{rule}, or empty"),
            Self::Secret => write!(f, "at most {SECRET_MAX} visible ASCII characters without spaces"),
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
            Rule::Toolsets,
            &["", "agent", "worker, ops", "all"],
            &["agents", "agent;ops", "Agent"],
        ),
        (
            Rule::Classes,
            &[
                "",
                "user:=user_inbox",
                "a:=x, b:=y2",
                r#"{"x":["a:*:b","c"]}"#,
            ],
            &[
                "user:",
                "=x",
                "a=",
                "a=X",
                "a=x y",
                "a=x,a=y",
                r#"{"x":"a:*"}"#,
            ],
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
        (
            Rule::Webhook,
            &["http://127.0.0.1:9/x", "https://a.example/?t=1"],
            &["", "a.example", "https://u:p@a.example/", "file:///x"],
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
            Rule::Url,
            &[
                "https://gate.example.com",
                "http://127.0.0.1:8080/",
                "https://example.com/gate",
            ],
            &[
                "",
                "gate.example.com",
                "https://",
                "https:///x",
                "ftp://x",
                "https://x?y",
                "https://x/#y",
                "https://u@x",
                "https://x y",
                "https://\"x",
            ],
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
            Rule::Networks,
            &["", "127.0.0.1", "10.0.0.0/8, fd00::/8", "::1", "0.0.0.0/0"],
            &[
                "10.0.0.0/33",
                "10.0.0",
                "localhost",
                "10.0.0.0/8;::1",
                "::1/x",
                "::/129",
            ],
        ),
        (
            Rule::Table(table_value::Kind::Limits(
                asyncgate_admission::Table::Policies,
            )),
            &["", "{}"],
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
            Rule::Table(table_value::Kind::Ingress),
            &["", "{}"],
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
                assert!(rule.parse(text).is_ok(), "{rule:?} refused {text:?}");
            }
            for text in *bad {
                let refused = rule.parse(text).expect_err(text).to_string();
                let said = ["must be ", "is not a usable address: "];
                assert!(
                    said.iter().any(|start| refused.starts_with(start)),
                    "{rule:?} {text:?} {refused}"
                );
            }
        }
    }

    #[test]
    fn overlong_names_and_secrets_are_refused() {
        assert!(Rule::Name.parse(&"n".repeat(NAME_MAX)).is_ok());
        assert!(Rule::Name.parse(&"n".repeat(NAME_MAX + 1)).is_err());
        assert!(Rule::Secret.parse(&"s".repeat(SECRET_MAX)).is_ok());
        assert!(Rule::Secret.parse(&"s".repeat(SECRET_MAX + 1)).is_err());
    }

    #[test]
    fn a_secret_is_in_no_rendering() {
        for (rule, text) in [
            (Rule::Secret, "hunter2-hunter2"),
            (
                Rule::Table(table_value::Kind::Ingress),
                r#"{"hooks": {"secrets": ["hunter2"]}}"#,
            ),
        ] {
            let value = rule.parse(text).unwrap();
            assert!(!format!("{value} {value:?} {value:#?}").contains("hunter2"));
        }
    }
}
