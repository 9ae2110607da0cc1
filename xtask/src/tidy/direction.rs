//! The allowed dependencies between crates. Only normal dependencies count: a test may use any crate.

use anyhow::{Context, Result};
use serde_json::Value;

const PREFIX: &str = "asyncgate-";

/// The crates of the workspace that a crate may depend on.
enum Sees {
    Only(&'static [&'static str]),
    Anything,
}

/// Architecture invariant: core <- store <- backends; {core, store, api, domains} <- engine <- edge <- facades
/// <- server.
const RULES: &[(&str, Sees)] = &[
    ("asyncgate-core", Sees::Only(&[])),
    ("asyncgate-api", Sees::Only(&[])),
    ("asyncgate-store", Sees::Only(&["asyncgate-core"])),
    (
        "asyncgate-store-postgres",
        Sees::Only(&["asyncgate-core", "asyncgate-store"]),
    ),
    (
        "asyncgate-store-sqlite",
        Sees::Only(&["asyncgate-core", "asyncgate-store"]),
    ),
    (
        "asyncgate-admission",
        Sees::Only(&["asyncgate-core", "asyncgate-store"]),
    ),
    (
        "asyncgate-host-dynamodb",
        Sees::Only(&["asyncgate-core", "asyncgate-store"]),
    ),
    (
        "asyncgate-host-redis",
        Sees::Only(&["asyncgate-core", "asyncgate-store"]),
    ),
    (
        "asyncgate-engine",
        Sees::Only(&[
            "asyncgate-admission",
            "asyncgate-api",
            "asyncgate-core",
            "asyncgate-credentials",
            "asyncgate-domains",
            "asyncgate-store",
            "asyncgate-warrants",
        ]),
    ),
    (
        "asyncgate-auth",
        Sees::Only(&[
            "asyncgate-api",
            "asyncgate-core",
            "asyncgate-credentials",
            "asyncgate-engine",
            "asyncgate-store",
        ]),
    ),
    (
        "asyncgate-oauth",
        Sees::Only(&[
            "asyncgate-api",
            "asyncgate-core",
            "asyncgate-credentials",
            "asyncgate-edge",
            "asyncgate-engine",
        ]),
    ),
    (
        "asyncgate-courier",
        Sees::Only(&["asyncgate-core", "asyncgate-engine"]),
    ),
    (
        "asyncgate-edge",
        Sees::Only(&["asyncgate-api", "asyncgate-engine"]),
    ),
    (
        "asyncgate-rest",
        Sees::Only(&["asyncgate-api", "asyncgate-edge", "asyncgate-engine"]),
    ),
    (
        "asyncgate-grpc",
        Sees::Only(&["asyncgate-api", "asyncgate-edge", "asyncgate-engine"]),
    ),
    (
        "asyncgate-mcp",
        Sees::Only(&["asyncgate-api", "asyncgate-edge", "asyncgate-engine"]),
    ),
    (
        "asyncgate-oauth",
        Sees::Only(&[
            "asyncgate-api",
            "asyncgate-core",
            "asyncgate-credentials",
            "asyncgate-edge",
            "asyncgate-engine",
        ]),
    ),
    ("asyncgate-client", Sees::Only(&["asyncgate-api"])),
    (
        "asyncgate-cli",
        Sees::Only(&[
            "asyncgate-client",
            "asyncgate-core",
            "asyncgate-credentials",
            "asyncgate-ledger",
        ]),
    ),
    (
        "asyncgate-ledger",
        Sees::Only(&["asyncgate-api", "asyncgate-core"]),
    ),
    ("asyncgate-credentials", Sees::Only(&["asyncgate-core"])),
    ("asyncgate-domains", Sees::Only(&["asyncgate-core"])),
    ("asyncgate-warrants", Sees::Only(&[])),
    ("asyncgate-protogen", Sees::Only(&[])),
    ("asyncgate-fuzz", Sees::Anything),
    ("asyncgate-server", Sees::Anything),
    (
        "asyncgate-sim",
        Sees::Only(&[
            "asyncgate-api",
            "asyncgate-auth",
            "asyncgate-core",
            "asyncgate-credentials",
            "asyncgate-engine",
            "asyncgate-store",
        ]),
    ),
    ("asyncgate-handshakes", Sees::Only(&[])),
    ("xtask", Sees::Only(&[])),
];

/// `core` is pure: no runtime, no I/O, no clock, no randomness, not even through a dependency.
const NOT_IN_CORE: &[&str] = &[
    "tokio",
    "mio",
    "axum",
    "hyper",
    "rusqlite",
    "getrandom",
    "rand",
];

/// A workspace member with its direct dependencies.
#[derive(Debug)]
pub struct Package {
    pub name: String,
    pub dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub struct Dependency {
    pub name: String,
    /// Neither a dev- nor a build-dependency.
    pub normal: bool,
    /// Comes from a registry, not from this workspace.
    pub external: bool,
}

/// Reads the members out of `cargo metadata --no-deps`.
pub fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let list = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    list.iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package> {
    let name = value["name"]
        .as_str()
        .context("a package without a name")?
        .to_owned();
    let mut dependencies = Vec::new();
    for dependency in value["dependencies"].as_array().into_iter().flatten() {
        dependencies.push(Dependency {
            name: dependency["name"]
                .as_str()
                .context("a dependency without a name")?
                .to_owned(),
            normal: dependency["kind"].is_null(),
            external: dependency["path"].is_null(),
        });
    }
    Ok(Package { name, dependencies })
}

pub fn complaints(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(of_package).collect()
}

fn of_package(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some((_, sees)) = RULES.iter().find(|(rule, _)| rule == name) else {
        return vec![format!(
            "{name} has no direction rule; add one to xtask/src/tidy/direction.rs"
        )];
    };
    let Sees::Only(allowed) = sees else {
        return Vec::new();
    };
    let seen = package
        .dependencies
        .iter()
        .filter(|d| d.normal && d.name.starts_with(PREFIX));
    seen.filter(|d| !allowed.contains(&d.name.as_str()))
        .map(|d| {
            let may = if allowed.is_empty() {
                "no crate of the workspace".to_owned()
            } else {
                allowed.join(", ")
            };
            format!("{name} must not depend on {}; it may see {may}", d.name)
        })
        .collect()
}

/// Checks the output of `cargo tree --prefix none` for `core`.
pub fn core_complaints(tree: &str) -> Vec<String> {
    let mut found: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .filter(|name| NOT_IN_CORE.contains(name))
        .map(|name| format!("asyncgate-core must stay pure, but it pulls in {name} (`cargo tree -p asyncgate-core -i {name}`)"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, normal: &[&str], dev: &[&str]) -> Package {
        let dependency = |normal| {
            move |name: &&str| Dependency {
                name: (*name).to_owned(),
                normal,
                external: !name.starts_with(PREFIX),
            }
        };
        let dependencies = normal
            .iter()
            .map(dependency(true))
            .chain(dev.iter().map(dependency(false)))
            .collect();
        Package {
            name: name.to_owned(),
            dependencies,
        }
    }

    fn complaints_of(name: &str, normal: &[&str], dev: &[&str]) -> Vec<String> {
        complaints(&[member(name, normal, dev)])
    }

    #[test]
    fn the_intended_direction_passes() {
        for (name, deps) in [
            ("asyncgate-core", &["serde", "blake3"][..]),
            ("asyncgate-store", &["asyncgate-core", "tokio"]),
            (
                "asyncgate-store-sqlite",
                &["asyncgate-core", "asyncgate-store", "rusqlite"],
            ),
            (
                "asyncgate-engine",
                &["asyncgate-api", "asyncgate-core", "asyncgate-store"],
            ),
            (
                "asyncgate-edge",
                &["asyncgate-api", "asyncgate-engine", "axum"],
            ),
            (
                "asyncgate-rest",
                &["asyncgate-api", "asyncgate-edge", "asyncgate-engine"],
            ),
            ("asyncgate-client", &["asyncgate-api", "hyper"]),
            ("asyncgate-ledger", &["asyncgate-api", "asyncgate-core"]),
            (
                "asyncgate-server",
                &["asyncgate-store-sqlite", "asyncgate-mcp", "asyncgate-rest"],
            ),
        ] {
            assert_eq!(
                complaints_of(name, deps, &[]),
                Vec::<String>::new(),
                "{name}"
            );
        }
    }

    #[test]
    fn each_wrong_edge_is_refused() {
        for (name, dep) in [
            ("asyncgate-core", "asyncgate-api"),
            ("asyncgate-api", "asyncgate-core"),
            ("asyncgate-store", "asyncgate-api"),
            ("asyncgate-store-sqlite", "asyncgate-api"),
            ("asyncgate-store-sqlite", "asyncgate-engine"),
            ("asyncgate-engine", "asyncgate-store-sqlite"),
            ("asyncgate-engine", "asyncgate-edge"),
            ("asyncgate-engine", "asyncgate-rest"),
            ("asyncgate-edge", "asyncgate-rest"),
            ("asyncgate-edge", "asyncgate-store"),
            ("asyncgate-rest", "asyncgate-store"),
            ("asyncgate-rest", "asyncgate-core"),
            ("asyncgate-rest", "asyncgate-domains"),
            ("asyncgate-credentials", "asyncgate-engine"),
            ("asyncgate-domains", "asyncgate-engine"),
            ("asyncgate-grpc", "asyncgate-store"),
            ("asyncgate-mcp", "asyncgate-rest"),
            ("asyncgate-sim", "asyncgate-store-sqlite"),
            ("asyncgate-client", "asyncgate-core"),
            ("asyncgate-client", "asyncgate-engine"),
            ("asyncgate-cli", "asyncgate-engine"),
            ("asyncgate-cli", "asyncgate-store-sqlite"),
            ("asyncgate-ledger", "asyncgate-store"),
            ("asyncgate-ledger", "asyncgate-engine"),
            ("xtask", "asyncgate-engine"),
        ] {
            let found = complaints_of(name, &[dep], &[]);
            assert_eq!(found.len(), 1, "{name} -> {dep}");
            assert!(
                found[0].contains(name) && found[0].contains(dep),
                "{}",
                found[0]
            );
        }
    }

    #[test]
    fn a_test_may_look_anywhere() {
        assert!(complaints_of("asyncgate-rest", &[], &["asyncgate-store-sqlite"]).is_empty());
    }

    #[test]
    fn a_crate_without_a_rule_is_noticed() {
        assert!(complaints_of("asyncgate-novel", &[], &[])[0].contains("no direction rule"));
    }

    #[test]
    fn core_stays_pure_through_its_dependencies_too() {
        let pure = "asyncgate-core v0.1.0 (/somewhere)\nuuid v1.1.0\nserde v1.0.0\n";
        assert!(core_complaints(pure).is_empty());
        let found =
            core_complaints("uuid v1.1.0\ngetrandom v0.4.0\ngetrandom v0.4.0 (*)\ntokio v1.0.0\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("getrandom") && found[1].contains("tokio"));
    }

    #[test]
    fn metadata_is_read_with_kinds_and_paths() {
        let metadata = serde_json::json!({"packages": [{"name": "asyncgate-store", "dependencies": [
            {"name": "asyncgate-core", "kind": null, "path": "/x/core"},
            {"name": "proptest", "kind": "dev"},
        ]}]});
        let read = packages(&metadata).unwrap();
        let [core, proptest] = &read[0].dependencies[..] else {
            panic!("two dependencies")
        };
        assert!(core.normal && !core.external);
        assert!(!proptest.normal && proptest.external);
    }
}
