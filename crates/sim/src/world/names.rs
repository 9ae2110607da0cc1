//! Names in inputs: `@t12.0` is the first task in the answer of call 12, `@l` a lease, `@r` a
//! receipt, `@m` a message and `@d` the lease of its delivery; `@x70` is seventy letters, `@a101` a
//! list of as many numbers.

use crate::{hash::Map, model::Gains};

/// An id that nothing has.
const NOBODY: &str = "00000000-0000-7000-8000-000000000000";
const NO_MESSAGE: &str = "00000000000000000000000000";

/// Replaces names by the values that they stand for.
pub fn resolve(template: &str, gains: &Map<u32, Gains>) -> String {
    let mut input = String::with_capacity(template.len() + 40);
    let mut rest = template;
    while let Some((before, name)) = rest.split_once('@') {
        let Some(before) = before.strip_suffix('"') else {
            input.push_str(before);
            input.push('@');
            rest = name;
            continue;
        };
        input.push_str(before);
        let end = name.find('"').unwrap_or(name.len());
        expand(&name[..end], gains, &mut input);
        rest = name.get(end + 1..).unwrap_or_default();
    }
    input.push_str(rest);
    input
}

fn expand(name: &str, gains: &Map<u32, Gains>, input: &mut String) {
    let (kind, number) = name.split_at(1.min(name.len()));
    if kind == "a" {
        let count = number.parse().unwrap_or(0);
        input.push('[');
        input.push_str(&vec!["1"; count].join(","));
        input.push(']');
        return;
    }
    input.push('"');
    if kind == "x" {
        let count = number.parse().unwrap_or(0);
        input.extend(std::iter::repeat_n('x', count));
    } else {
        // Shrinking may have left out the call that named it; then the id of nothing stands in.
        let nothing = if kind == "m" { NO_MESSAGE } else { NOBODY };
        input.push_str(find(kind, number, gains).unwrap_or(nothing));
    }
    input.push('"');
}

fn find<'a>(kind: &str, number: &str, gains: &'a Map<u32, Gains>) -> Option<&'a str> {
    let (label, index) = number.split_once('.')?;
    let gains = gains.get(&label.parse().ok()?)?;
    let list = match kind {
        "t" => &gains.tasks,
        "l" => &gains.leases,
        "r" => &gains.receipts,
        "m" => &gains.messages,
        "d" => &gains.deliveries,
        _ => return None,
    };
    list.get(index.parse::<usize>().ok()?).map(String::as_str)
}
