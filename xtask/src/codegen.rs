//! `cargo xtask codegen`: writes the files that are generated from the server's registry and the proto
//! files. They are committed so that a change of the wire shows in review. CI runs `--check`.

use std::fs;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process;

#[derive(Debug, Args)]
pub struct Options {
    /// Change nothing; fail if a committed file is not what is generated
    #[arg(long)]
    check: bool,
}

struct Document {
    /// The package whose program prints it, and the arguments of that program.
    package: &'static str,
    subcommand: &'static [&'static str],
    path: &'static str,
    /// The text above the printed one.
    heading: &'static str,
}

const SERVER: &str = "asyncgate-server";

const DOCUMENTS: [Document; 5] = [
    Document {
        package: SERVER,
        subcommand: &["openapi"],
        path: "docs/openapi.json",
        heading: "",
    },
    Document {
        package: SERVER,
        subcommand: &["mcp-tools"],
        path: "docs/mcp-tools.json",
        heading: "",
    },
    Document {
        package: SERVER,
        subcommand: &["config", "reference"],
        path: "docs/SETTINGS.md",
        heading: "# Settings\n\nFlags win over the environment, the environment over the file, the file over defaults.\n\n",
    },
    Document {
        package: "asyncgate-protogen",
        subcommand: &["mailbox"],
        path: "crates/grpc/src/generated.rs",
        heading: "",
    },
    Document {
        package: "asyncgate-protogen",
        subcommand: &["envoy"],
        path: "crates/grpc/src/generated_envoy.rs",
        heading: "",
    },
];

pub fn run(options: &Options) -> Result<()> {
    let mut stale = Vec::new();
    for document in &DOCUMENTS {
        let generated = generate(document)?;
        let path = process::root().join(document.path);
        let committed = fs::read_to_string(&path).unwrap_or_default();
        match first_difference(&committed, &generated) {
            None => println!("{} is up to date", document.path),
            Some(difference) if options.check => {
                stale.push(format!("{}: {difference}", document.path))
            }
            Some(_) => {
                fs::write(&path, &generated)
                    .with_context(|| format!("cannot write {}", document.path))?;
                println!("{} written", document.path);
            }
        }
    }
    if !stale.is_empty() {
        bail!(
            "generated files are stale; run `cargo xtask codegen` and commit\n{}",
            stale.join("\n")
        );
    }
    Ok(())
}

fn generate(document: &Document) -> Result<String> {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", document.package, "--"]);
    command.args(document.subcommand);
    let text = process::output(&mut command)?;
    if text.trim().is_empty() {
        bail!(
            "`{} {}` printed nothing",
            document.package,
            document.subcommand.join(" ")
        );
    }
    Ok(format!("{}{}\n", document.heading, text.trim_end()))
}

/// Returns the first line that differs, for readers of CI's log.
fn first_difference(committed: &str, generated: &str) -> Option<String> {
    if committed == generated {
        return None;
    }
    let (mut old, mut new) = (committed.lines(), generated.lines());
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let shown = |line: Option<&str>| line.map_or("<end of file>".to_owned(), clipped);
                return Some(format!(
                    "line {number}\n  committed: {}\n  generated: {}",
                    shown(a),
                    shown(b)
                ));
            }
        }
    }
    Some("line endings at the end of the file differ".to_owned())
}

fn clipped(line: &str) -> String {
    line.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_its_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let hint = first_difference("a\nb\n", "a\nc\n").unwrap();
        assert!(
            hint.contains("line 2")
                && hint.contains("committed: b")
                && hint.contains("generated: c"),
            "{hint}"
        );
    }

    #[test]
    fn a_missing_file_and_a_missing_newline_are_differences() {
        assert!(
            first_difference("", "{}\n")
                .unwrap()
                .contains("<end of file>")
        );
        assert!(first_difference("{}", "{}\n").is_some());
    }
}
