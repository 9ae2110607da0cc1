//! Rules on source files: none too long, none with leftovers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The longest allowed file. A longer one holds more than one concept.
const MOST_LINES: usize = 700;

/// The first words of a generated file: nobody writes it, and nobody reads it from end to end.
const GENERATED: &str = "// This file is @generated";

/// Each is spelled in two parts, so that this file does not complain about itself.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it or leave it out"),
    (concat!("unimple", "mented!("), "finish it or leave it out"),
    (
        concat!("#[ig", "nore"),
        "a test that never runs proves nothing",
    ),
];

pub fn complaints(root: &Path) -> Result<Vec<String>> {
    let mut members: Vec<PathBuf> = entries(&root.join("crates"))?;
    members.push(root.join("xtask"));
    let mut found = Vec::new();
    for member in members {
        for folder in ["src", "tests"] {
            for path in rust_files(&member.join(folder))? {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let name = path
                    .strip_prefix(root)
                    .unwrap_or(&path)
                    .display()
                    .to_string();
                if folder == "src" {
                    found.extend(too_long(&name, &text));
                }
                found.extend(leftovers(&name, &text));
            }
        }
    }
    Ok(found)
}

fn too_long(name: &str, text: &str) -> Option<String> {
    if text.starts_with(GENERATED) {
        return None;
    }
    let lines = text.lines().count();
    (lines > MOST_LINES)
        .then(|| format!("{name} has {lines} lines, more than {MOST_LINES}; split it by concept"))
}

fn leftovers(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (pattern, advice) in LEFTOVERS {
            if line.contains(pattern) {
                found.push(format!("{name}:{}: `{pattern}`: {advice}", number + 1));
            }
        }
    }
    found
}

/// Returns all `.rs` files below a folder, in a stable order; a folder that does not exist has none.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if !folder.is_dir() {
        return Ok(files);
    }
    for path in entries(folder)? {
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listing =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = listing
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_allowed_file_passes_and_one_line_more_does_not() {
        assert_eq!(too_long("a.rs", &"x\n".repeat(MOST_LINES)), None);
        assert!(
            too_long("a.rs", &"x\n".repeat(MOST_LINES + 1))
                .unwrap()
                .contains("701 lines")
        );
        let generated = format!("{GENERATED} by x.\n{}", "x\n".repeat(MOST_LINES));
        assert_eq!(too_long("a.rs", &generated), None);
    }

    #[test]
    fn leftovers_are_found_with_their_line() {
        for (pattern, _) in LEFTOVERS {
            let found = leftovers("a.rs", &format!("fn a() {{}}\n    {pattern}\n"));
            assert_eq!(found.len(), 1);
            assert!(found[0].starts_with("a.rs:2: "), "{}", found[0]);
        }
    }

    #[test]
    fn a_comment_may_speak_of_them() {
        let (pattern, _) = LEFTOVERS[0];
        assert!(leftovers("a.rs", &format!("    // never {pattern}\n")).is_empty());
    }

    #[test]
    fn both_folders_of_every_member_are_read() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("crates/a/src/deep/long.rs", &"x\n".repeat(MOST_LINES + 1));
        write("crates/a/tests/long.rs", &"x\n".repeat(MOST_LINES + 1));
        write("crates/b/tests/skipped.rs", concat!("#[ig", "nore]\n"));
        write("xtask/src/main.rs", concat!("to", "do!()\n"));
        let found = complaints(root.path()).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/deep/long.rs"));
        assert!(found[1].starts_with("crates/b/tests/skipped.rs:1"));
        assert!(found[2].starts_with("xtask/src/main.rs:1"));
    }
}
