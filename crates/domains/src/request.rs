//! The bodies of requests, read as the deployed signers read them.
//!
//! Extra fields are ignored, and of two equal fields the last counts, as in JavaScript. A body is refused
//! if a field is missing or of another type, or if a number is no integer from 0 to 2^53 - 1.

use asyncgate_core::json::has_unfit_number;
use serde_json::Value;

use crate::delay;

/// The bound below which JavaScript holds integers exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The kinds of requests about a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Uses an attempt: `/domain/sign`.
    Sign,
    /// Reads the state: `/domain/quotaStatus`.
    QuotaStatus,
    /// Ends the domain for ever: `/domain/disable`.
    Disable,
}

impl Kind {
    /// Returns the content of the field `type`, which is also the name of its EIP-712 type.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Sign => "DomainRestrictedSignatureRequest",
            Self::QuotaStatus => "DomainQuotaStatusRequest",
            Self::Disable => "DisableDomainRequest",
        }
    }
}

/// A value that may be undefined. It has a value in both cases, and hashes cover it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Optional<T> {
    /// True if the value counts.
    pub defined: bool,
    /// The value; usually zero or empty if undefined.
    pub value: T,
}

impl<T: Default> Optional<T> {
    /// Builds a defined value.
    pub const fn some(value: T) -> Self {
        let defined = true;
        Self { defined, value }
    }

    /// Builds an undefined value.
    pub fn none() -> Self {
        Self {
            defined: false,
            value: T::default(),
        }
    }

    /// Returns the value, if it is defined.
    pub const fn get(&self) -> Option<&T> {
        if self.defined {
            Some(&self.value)
        } else {
            None
        }
    }
}

/// A stage in the form of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Seconds from the timer to the first attempt of each batch.
    pub delay: u64,
    /// True if an attempt sets the timer to its own time; true if undefined.
    pub reset_timer: Optional<bool>,
    /// Attempts without a delay between them; 1 if undefined.
    pub batch_size: Optional<u64>,
    /// The number of batches; 1 if undefined.
    pub repetitions: Optional<u64>,
}

impl Stage {
    /// Returns the stage with its defaults filled in.
    pub fn resolved(&self) -> delay::Stage {
        delay::Stage {
            delay: self.delay,
            reset_timer: self.reset_timer.get().copied().unwrap_or(true),
            batch_size: self.batch_size.get().copied().unwrap_or(1),
            repetitions: self.repetitions.get().copied().unwrap_or(1),
        }
    }
}

/// A domain: its limit, its owner's address, and a salt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The name of this type of domain.
    pub name: String,
    /// The version of this type of domain.
    pub version: String,
    /// The limit.
    pub stages: Vec<Stage>,
    /// The address whose signature requests need, as it was written.
    pub address: Optional<String>,
    /// Separates domains that are otherwise equal.
    pub salt: Optional<String>,
}

/// The part of a request beside the domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The signature over the request without this field.
    pub signature: Optional<String>,
    /// A number not below the domain's counter, so that a request is served once.
    pub nonce: Optional<u64>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The kind of request.
    pub kind: Kind,
    /// The domain.
    pub domain: Domain,
    /// The signature and the nonce.
    pub options: Options,
    /// The client's name for its session.
    pub session_id: Optional<String>,
    /// The message to evaluate; empty unless the kind is `Sign`.
    pub blinded_message: String,
}

impl Request {
    /// Reads a body. `None` if it is no request of this kind about a domain of this name.
    pub fn parse(kind: Kind, name: &str, body: &[u8]) -> Option<Self> {
        let body = std::str::from_utf8(body).ok()?;
        if has_unfit_number(body) {
            return None;
        }
        let body: Value = serde_json::from_str(body).ok()?;
        if text(&body, "type")? != kind.tag() {
            return None;
        }
        let options = body.get("options")?;
        Some(Self {
            kind,
            domain: domain(name, body.get("domain")?)?,
            options: Options {
                signature: optional(options, "signature", as_text)?,
                nonce: optional(options, "nonce", as_integer)?,
            },
            session_id: optional(&body, "sessionID", as_text)?,
            blinded_message: match kind {
                Kind::Sign => text(&body, "blindedMessage")?,
                Kind::QuotaStatus | Kind::Disable => String::new(),
            },
        })
    }
}

fn domain(known: &str, domain: &Value) -> Option<Domain> {
    let name = text(domain, "name")?;
    let version = text(domain, "version")?;
    // A domain of another type has other rules, even if its fields happen to fit.
    if name != known || version != "1" {
        return None;
    }
    let stages = domain.get("stages")?.as_array()?;
    Some(Domain {
        name,
        version,
        stages: stages.iter().map(stage).collect::<Option<_>>()?,
        address: optional(domain, "address", as_text)?,
        salt: optional(domain, "salt", as_text)?,
    })
}

fn stage(stage: &Value) -> Option<Stage> {
    Some(Stage {
        delay: as_integer(stage.get("delay")?)?,
        reset_timer: optional(stage, "resetTimer", Value::as_bool)?,
        batch_size: optional(stage, "batchSize", as_integer)?,
        repetitions: optional(stage, "repetitions", as_integer)?,
    })
}

fn optional<T>(of: &Value, name: &str, value: impl Fn(&Value) -> Option<T>) -> Option<Optional<T>> {
    let optional = of.get(name)?;
    Some(Optional {
        defined: optional.get("defined")?.as_bool()?,
        value: value(optional.get("value")?)?,
    })
}

fn text(of: &Value, name: &str) -> Option<String> {
    as_text(of.get(name)?)
}

fn as_text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Reads an integer in any notation: `1`, `1.0` and `1e0` are one number to JavaScript.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number was found to be an integer in the range"
)]
fn as_integer(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    let exact = number.fract() == 0.0 && (0.0..EXACT).contains(&number);
    exact.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_are_those_that_javascript_holds_exactly() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("1.0", Some(1)),
            ("1e3", Some(1_000)),
            ("9007199254740991", Some(9_007_199_254_740_991)),
            ("9007199254740992", None),
            ("18446744073709551616", None),
            ("1e999", None),
            ("-1", None),
            ("0.5", None),
            ("\"1\"", None),
            ("null", None),
            ("true", None),
        ] {
            let value: Option<Value> = serde_json::from_str(text).ok();
            let read = value.as_ref().and_then(as_integer);
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn a_list_is_no_object() {
        let list = json!([true, 5]);
        assert_eq!(optional(&json!({"nonce": list}), "nonce", as_integer), None);
    }
}
