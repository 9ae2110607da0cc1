//! The crates that can be published: the client, and those of ours that it needs. Everything else is part of
//! the server and stays here.

use anyhow::Result;
use serde_json::Value;

const PUBLISHED: [&str; 2] = ["asyncgate-api", "asyncgate-client"];

/// The texts that a reader of a registry sees.
const SHOWN: [&str; 3] = ["description", "license", "readme"];
/// The lists by which a crate is found in a registry. Registries take up to five entries.
const FOUND_BY: [&str; 2] = ["keywords", "categories"];
/// The files that every package holds.
const FILES: [&str; 4] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"];

/// Checks the members in `cargo metadata --no-deps`.
pub fn complaints(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array();
    packages
        .into_iter()
        .flatten()
        .flat_map(of_package)
        .collect()
}

fn of_package(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    // Cargo writes `publish = false` as an empty list, and says nothing where all is allowed.
    let allowed = package["publish"].is_null();
    match (PUBLISHED.contains(&name), allowed) {
        (false, false) => Vec::new(),
        (false, true) => vec![format!(
            "{name} could be published; add `publish.workspace = true`"
        )],
        (true, false) => vec![format!("{name} cannot be published; remove `publish`")],
        (true, true) => of_published(name, package),
    }
}

fn of_published(name: &str, package: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for field in SHOWN {
        if package[field].as_str().is_none_or(str::is_empty) {
            found.push(format!("{name} is published and has no {field}"));
        }
    }
    for field in FOUND_BY {
        let entries = package[field].as_array().map_or(0, Vec::len);
        if !(1..=5).contains(&entries) {
            found.push(format!("{name} is published and needs one to five {field}"));
        }
    }
    let dependencies = package["dependencies"].as_array();
    let ours = dependencies
        .into_iter()
        .flatten()
        .filter(|d| !d["path"].is_null());
    for dependency in ours {
        let other = dependency["name"].as_str().unwrap_or_default();
        let has_version = dependency["req"] != "*";
        // Cargo leaves out a dependency of tests that has no version.
        let problem = match (dependency["kind"].is_null(), PUBLISHED.contains(&other)) {
            (true, true) if !has_version => "needs a version",
            (true, false) => "is not published",
            (false, false) if has_version => "must not have a version, because it is not published",
            (true, true) | (false, _) => continue,
        };
        found.push(format!(
            "{name} is published, but {other}, which it depends on, {problem}"
        ));
    }
    found
}

/// Checks the files that a package of each published crate would hold. `list` returns them, one in each line.
pub fn file_complaints(list: impl Fn(&str) -> Result<String>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in PUBLISHED {
        let files = list(name)?;
        let missing = FILES
            .iter()
            .filter(|file| !files.lines().any(|line| line == **file));
        found.extend(missing.map(|file| format!("the package of {name} has no {file}")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn api() -> Value {
        json!({
            "name": "asyncgate-api", "publish": null, "description": "d", "license": "MIT",
            "readme": "README.md", "keywords": ["k"], "categories": ["c"],
            "dependencies": [{ "name": "serde", "req": "^1", "kind": null }],
        })
    }

    fn complaints_of(package: Value) -> Vec<String> {
        complaints(&json!({ "packages": [package] }))
    }

    #[test]
    fn only_the_client_and_what_it_needs_are_published() {
        assert_eq!(complaints_of(api()), Vec::<String>::new());
        let inner = |publish: Value| json!({ "name": "asyncgate-core", "publish": publish });
        assert!(complaints_of(inner(json!([]))).is_empty());
        assert!(complaints_of(inner(Value::Null))[0].contains("asyncgate-core could be"));
        let mut hidden = api();
        hidden["publish"] = json!([]);
        assert!(complaints_of(hidden)[0].contains("asyncgate-api cannot be"));
    }

    #[test]
    fn a_published_crate_introduces_itself() {
        for field in SHOWN {
            let mut silent = api();
            silent[field] = Value::Null;
            assert!(complaints_of(silent)[0].contains(field), "{field}");
        }
        for field in FOUND_BY {
            for entries in [json!([]), json!(["1", "2", "3", "4", "5", "6"])] {
                let mut lost = api();
                lost[field] = entries;
                assert!(complaints_of(lost)[0].contains(field), "{field}");
            }
        }
    }

    #[test]
    fn a_published_crate_depends_on_what_others_can_get() {
        for (name, req, kind, fine) in [
            ("asyncgate-client", "^0.1.0", Value::Null, true),
            ("asyncgate-client", "*", Value::Null, false),
            ("asyncgate-core", "^0.1.0", Value::Null, false),
            ("asyncgate-core", "*", json!("dev"), true),
            ("asyncgate-core", "^0.1.0", json!("dev"), false),
        ] {
            let mut package = api();
            package["dependencies"] =
                json!([{ "name": name, "req": req, "kind": kind, "path": "/x" }]);
            let found = complaints_of(package);
            assert_eq!(found.is_empty(), fine, "{name} {req} {kind}: {found:?}");
        }
    }

    #[test]
    fn a_package_holds_its_introduction_and_its_licences() {
        let whole = |_: &str| Ok(FILES.join("\n"));
        assert!(file_complaints(whole).unwrap().is_empty());
        let bare = |_: &str| Ok("src/lib.rs\nsrc/README.md".to_owned());
        let found = file_complaints(bare).unwrap();
        assert_eq!(found.len(), 3 * PUBLISHED.len());
        assert!(
            found[0].contains("asyncgate-api has no README.md"),
            "{found:?}"
        );
    }
}
