//! Constraints from CBOR: `[type, value]`, most values a map with fixed keys.
//!
//! A key that is not known may restrict what is allowed, so it is refused and not skipped.

use super::{
    Constraint, ConstraintSet,
    network::Network,
    path::Subpath,
    range::Range,
    url::{UrlPattern, UrlSafe},
};
use crate::{
    cbor::{Malformed, Reader},
    value::{TEXT, Value},
};

/// The most constraints on one tool, and in one warrant with those inside others.
const CONSTRAINTS: usize = 64;
const TOTAL: usize = 1024;
/// The deepest allowed nesting of constraints.
const DEPTH: usize = 32;

type Result<T> = std::result::Result<T, Malformed>;

/// The number of constraints that a warrant may still have. Comparing two warrants can cost as much as
/// the product of their numbers.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(TOTAL)
    }
}

impl Budget {
    fn spend(&mut self) -> Result<()> {
        self.0 = self
            .0
            .checked_sub(1)
            .ok_or(Malformed("there are too many constraints"))?;
        Ok(())
    }
}

impl ConstraintSet {
    /// Reads `{"constraints": {..}, "allow_unknown": bool}`.
    pub fn read(reader: &mut Reader<'_>, budget: &mut Budget) -> Result<Self> {
        let (mut constraints, mut allow_unknown) = (None, None);
        each_field(reader, |key, reader| match key {
            "constraints" => once(&mut constraints, named(reader, budget)?),
            "allow_unknown" => once(&mut allow_unknown, reader.bool()?),
            _ => Err(UNKNOWN_KEY),
        })?;
        Ok(Self {
            constraints: constraints.ok_or(MISSING)?,
            allow_unknown: allow_unknown.unwrap_or(false),
        })
    }
}

const UNKNOWN_KEY: Malformed = Malformed("a constraint has an unknown key");
const MISSING: Malformed = Malformed("a constraint lacks a key");

fn named(
    reader: &mut Reader<'_>,
    budget: &mut Budget,
) -> Result<std::collections::BTreeMap<String, Constraint>> {
    let count = reader.map()?;
    if count > CONSTRAINTS {
        return Err(Malformed("a tool has too many constraints"));
    }
    let mut named = std::collections::BTreeMap::new();
    for _ in 0..count {
        let name = text(reader)?;
        if named.insert(name, constraint(reader, budget, 0)?).is_some() {
            return Err(Malformed("an argument stands twice"));
        }
    }
    Ok(named)
}

fn constraint(reader: &mut Reader<'_>, budget: &mut Budget, depth: usize) -> Result<Constraint> {
    if depth > DEPTH {
        return Err(Malformed("constraints nest too deep"));
    }
    budget.spend()?;
    reader.tuple(2)?;
    let kind: u8 = reader.small()?;
    let nested = |reader: &mut Reader<'_>, budget: &mut Budget| {
        let count = reader.array()?;
        let parts = (0..count).map(|_| constraint(reader, budget, depth + 1));
        parts.collect::<Result<Vec<_>>>()
    };
    Ok(match kind {
        1 => Constraint::Exact(field(reader, "value", Value::read)?),
        2 => Constraint::Pattern(field(reader, "pattern", text)?),
        3 => Constraint::Range(range(reader)?),
        4 => Constraint::OneOf(field(reader, "values", values)?),
        5 => Constraint::Regex(field(reader, "pattern", text)?),
        7 => Constraint::NotOneOf(field(reader, "excluded", values)?),
        8 => {
            let network = Network::parse(&text(reader)?);
            Constraint::Cidr(network.ok_or(Malformed("a network is not in CIDR notation"))?)
        }
        9 => {
            let pattern = text(reader)?;
            match UrlPattern::parse(&pattern) {
                Some(pattern) => Constraint::UrlPattern(pattern),
                // Unsupported, not malformed: the rest of the chain can still be read, and a call that
                // meets this constraint is refused.
                None => Constraint::Unsupported(kind, pattern.into_bytes()),
            }
        }
        10 => Constraint::Contains(field(reader, "required", values)?),
        11 => Constraint::Subset(field(reader, "allowed", values)?),
        12 => Constraint::All(field(reader, "constraints", |r| nested(r, budget))?),
        13 => Constraint::Any(field(reader, "constraints", |r| nested(r, budget))?),
        14 => {
            let inner = field(reader, "constraint", |r| constraint(r, budget, depth + 1))?;
            Constraint::Not(Box::new(inner))
        }
        16 if reader.null()? => Constraint::Wildcard,
        16 => return Err(Malformed("a wildcard has a value")),
        17 => Constraint::Subpath(subpath(reader)?),
        18 => {
            let whole = reader.clone().skip()?;
            let rules = url_safe(reader)?;
            if rules.is_readable() {
                Constraint::UrlSafe(rules)
            } else {
                Constraint::Unsupported(kind, whole.to_vec())
            }
        }
        128 => shlex(reader)?,
        _ => Constraint::Unsupported(kind, reader.skip()?.to_vec()),
    })
}

/// Calls `read` for each key of a map; `read` must consume the value.
fn each_field<'a>(
    reader: &mut Reader<'a>,
    mut read: impl FnMut(&str, &mut Reader<'a>) -> Result<()>,
) -> Result<()> {
    for _ in 0..reader.map()? {
        let key = reader.text()?;
        read(key, reader)?;
    }
    Ok(())
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed("a key stands twice in a constraint")),
    }
}

/// Reads a map that has exactly this one field.
fn field<'a, T>(
    reader: &mut Reader<'a>,
    name: &str,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T>,
) -> Result<T> {
    if reader.map()? != 1 || reader.text()? != name {
        return Err(Malformed("a constraint has other keys than it must"));
    }
    read(reader)
}

fn text(reader: &mut Reader<'_>) -> Result<String> {
    let text = reader.text()?;
    if text.len() > TEXT {
        return Err(Malformed("a text is too long"));
    }
    Ok(text.to_owned())
}

fn texts(reader: &mut Reader<'_>) -> Result<Vec<String>> {
    (0..reader.array()?).map(|_| text(reader)).collect()
}

fn values(reader: &mut Reader<'_>) -> Result<Vec<Value>> {
    (0..reader.array()?).map(|_| Value::read(reader)).collect()
}

fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if reader.null()? {
        Ok(None)
    } else {
        read(reader).map(Some)
    }
}

fn bound(reader: &mut Reader<'_>) -> Result<f64> {
    let number = Value::read(reader)?.as_number();
    number.ok_or(Malformed("a bound is no number"))
}

fn range(reader: &mut Reader<'_>) -> Result<Range> {
    let (mut min, mut max, mut min_inclusive, mut max_inclusive) = (None, None, None, None);
    each_field(reader, |key, reader| match key {
        "min" => once(&mut min, optional(reader, bound)?),
        "max" => once(&mut max, optional(reader, bound)?),
        "min_inclusive" => once(&mut min_inclusive, reader.bool()?),
        "max_inclusive" => once(&mut max_inclusive, reader.bool()?),
        _ => Err(UNKNOWN_KEY),
    })?;
    Ok(Range {
        min: min.flatten(),
        max: max.flatten(),
        min_inclusive: min_inclusive.ok_or(MISSING)?,
        max_inclusive: max_inclusive.ok_or(MISSING)?,
    })
}

fn subpath(reader: &mut Reader<'_>) -> Result<Subpath> {
    let (mut root, mut case_sensitive, mut allow_equal) = (None, None, None);
    each_field(reader, |key, reader| match key {
        "root" => once(&mut root, text(reader)?),
        "case_sensitive" => once(&mut case_sensitive, reader.bool()?),
        "allow_equal" => once(&mut allow_equal, reader.bool()?),
        _ => Err(UNKNOWN_KEY),
    })?;
    let root = root.ok_or(MISSING)?;
    let (case_sensitive, allow_equal) =
        (case_sensitive.unwrap_or(true), allow_equal.unwrap_or(true));
    let subpath = Subpath::new(&root, case_sensitive, allow_equal);
    subpath.ok_or(Malformed("the root of a path is not absolute"))
}

fn url_safe(reader: &mut Reader<'_>) -> Result<UrlSafe> {
    let (mut schemes, mut allow_domains, mut deny_domains, mut allow_ports) =
        (None, None, None, None);
    let mut blocks = [None; 5];
    each_field(reader, |key, reader| match key {
        "schemes" => once(&mut schemes, texts(reader)?),
        "allow_domains" => once(&mut allow_domains, optional(reader, texts)?),
        "deny_domains" => once(&mut deny_domains, optional(reader, texts)?),
        "allow_ports" => once(&mut allow_ports, optional(reader, ports)?),
        "block_private" => once(&mut blocks[0], reader.bool()?),
        "block_loopback" => once(&mut blocks[1], reader.bool()?),
        "block_metadata" => once(&mut blocks[2], reader.bool()?),
        "block_reserved" => once(&mut blocks[3], reader.bool()?),
        "block_internal_tlds" => once(&mut blocks[4], reader.bool()?),
        _ => Err(UNKNOWN_KEY),
    })?;
    let lower = |names: Vec<String>| names.iter().map(|n| n.to_ascii_lowercase()).collect();
    let both = || vec!["http".to_owned(), "https".to_owned()];
    Ok(UrlSafe {
        schemes: schemes.map_or_else(both, lower),
        allow_domains: allow_domains.flatten().map(lower),
        deny_domains: deny_domains.flatten().map(lower).unwrap_or_default(),
        allow_ports: allow_ports.flatten(),
        block_private: blocks[0].unwrap_or(true),
        block_loopback: blocks[1].unwrap_or(true),
        block_metadata: blocks[2].unwrap_or(true),
        block_reserved: blocks[3].unwrap_or(true),
        block_internal_tlds: blocks[4].unwrap_or(false),
    })
}

fn ports(reader: &mut Reader<'_>) -> Result<Vec<u16>> {
    (0..reader.array()?).map(|_| reader.small()).collect()
}

/// Reads an extension that each implementation may define in its own way: a value of another form is not
/// malformed, only unknown here.
fn shlex(reader: &mut Reader<'_>) -> Result<Constraint> {
    let whole = reader.skip()?;
    let mut inner = Reader::new(whole);
    Ok(match field(&mut inner, "allow", texts) {
        Ok(allowed) => Constraint::Shlex(allowed),
        Err(_) => Constraint::Unsupported(128, whole.to_vec()),
    })
}
