//! Paths that must lie under a root, compared by their spelling: the disk is not read.

use crate::value::Value;

/// A root, and the rules for paths under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subpath {
    root: String,
    case_sensitive: bool,
    allow_equal: bool,
}

impl Subpath {
    /// Builds the constraint; `None` if the root is not absolute.
    pub fn new(root: &str, case_sensitive: bool, allow_equal: bool) -> Option<Self> {
        let root = spelling(root, case_sensitive)?;
        Some(Self {
            root,
            case_sensitive,
            allow_equal,
        })
    }

    /// Returns true for a path under the root, or a list of only such paths.
    pub fn allows(&self, value: &Value) -> bool {
        let contained = |value: &Value| value.as_text().is_some_and(|path| self.contains(path));
        match value.as_list() {
            Some(list) => !list.is_empty() && list.iter().all(contained),
            None => contained(value),
        }
    }

    fn contains(&self, path: &str) -> bool {
        spelling(path, self.case_sensitive).is_some_and(|path| self.holds(&path))
    }

    fn holds(&self, path: &str) -> bool {
        let under = path.strip_prefix(self.root.trim_end_matches('/'));
        // The slash matters: `/database` is not under `/data`.
        let under = under.is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'));
        under || self.allow_equal && path == self.root
    }

    /// Returns true if every path under `child` is under this root too.
    pub fn covers(&self, child: &Self) -> bool {
        let same_case = self.case_sensitive == child.case_sensitive || child.case_sensitive;
        let equal = self.allow_equal || !child.allow_equal || child.root != self.root;
        let under = Self {
            allow_equal: true,
            ..self.clone()
        };
        same_case && equal && under.contains(&child.root)
    }
}

/// Returns the one spelling of a path: absolute, without `.`, `..` or empty parts, with `/` between them.
/// `None` if it is not absolute or contains a zero byte.
fn spelling(path: &str, case_sensitive: bool) -> Option<String> {
    if path.contains('\0') {
        return None;
    }
    let (prefix, rest) = match path.as_bytes() {
        [b'/', ..] => path.split_at(1),
        [drive, b':', b'/' | b'\\', ..] if drive.is_ascii_alphabetic() => path.split_at(3),
        _ => return None,
    };
    let mut parts = Vec::new();
    // A backslash separates parts too: on Windows it does, and elsewhere this is only stricter.
    for part in rest.split(['/', '\\']) {
        match part {
            "" | "." => {}
            // Above the root there is nothing, as in a file system.
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let spelling = format!("{}{}", prefix.replace('\\', "/"), parts.join("/"));
    Some(if case_sensitive {
        spelling
    } else {
        spelling.to_lowercase()
    })
}
