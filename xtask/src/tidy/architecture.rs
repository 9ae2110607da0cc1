//! Dependencies are declared in one place and each has a written reason: versions live in
//! `[workspace.dependencies]`, and ARCHITECTURE.md names every one of them in backticks.

use anyhow::{Context, Result};

use super::direction::Package;

pub fn complaints(manifest: &str, packages: &[Package], document: &str) -> Result<Vec<String>> {
    let declared = external_dependencies(manifest)?;
    let mut found: Vec<String> = declared
        .iter()
        .filter(|name| !document.contains(&format!("`{name}`")))
        .map(|name| {
            format!(
                "ARCHITECTURE.md does not name the dependency `{name}`; give its reason in one line"
            )
        })
        .collect();
    for package in packages {
        for dependency in package
            .dependencies
            .iter()
            .filter(|d| d.external && !declared.contains(&d.name))
        {
            found.push(format!(
                "{} depends on {}, which is not in [workspace.dependencies]",
                package.name, dependency.name
            ));
        }
    }
    Ok(found)
}

/// Returns the names under `[workspace.dependencies]` that come from a registry.
fn external_dependencies(manifest: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse().context("Cargo.toml is not TOML")?;
    let table = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(toml::Value::as_table)
        .context("Cargo.toml has no [workspace.dependencies]")?;
    Ok(table
        .iter()
        .filter(|(_, value)| value.get("path").is_none())
        .map(|(name, _)| name.clone())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::direction::Dependency;
    use super::*;

    const MANIFEST: &str = "[workspace.dependencies]\nours = { path = \"crates/ours\" }\nserde = \"1\"\ntokio = { version = \"1\" }\n";

    fn user_of(name: &str) -> Vec<Package> {
        let dependency = Dependency {
            name: name.to_owned(),
            normal: false,
            external: true,
        };
        vec![Package {
            name: "a".to_owned(),
            dependencies: vec![dependency],
        }]
    }

    #[test]
    fn every_external_dependency_must_be_named_in_backticks() {
        assert!(
            complaints(MANIFEST, &[], "- `serde`: bytes\n- `tokio`: runtime")
                .unwrap()
                .is_empty()
        );
        let found = complaints(MANIFEST, &[], "- `serde`: bytes; tokio without ticks").unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`tokio`"));
    }

    #[test]
    fn a_version_outside_the_workspace_table_is_found() {
        let document = "`serde` `tokio`";
        assert!(
            complaints(MANIFEST, &user_of("serde"), document)
                .unwrap()
                .is_empty()
        );
        let found = complaints(MANIFEST, &user_of("rand"), document).unwrap();
        assert!(found[0].contains("a depends on rand"), "{found:?}");
    }

    #[test]
    fn a_manifest_without_the_table_is_an_error() {
        assert!(complaints("[package]\nname = \"x\"\n", &[], "").is_err());
    }
}
