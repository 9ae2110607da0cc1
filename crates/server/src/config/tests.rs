//! Precedence, refusals and reloads, over the whole way from the four places to the values in force.

use std::io::Write as _;

use tempfile::NamedTempFile;

use super::source::Source;
use super::*;

/// A file with the given ending, deleted with the value.
fn file(ending: &str, content: &str) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

fn flag(name: &str, text: &str) -> Flag {
    Flag {
        flag: "--set",
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

/// Inputs from `--set` pairs, environment pairs and a file.
fn inputs(flags: &[(&str, &str)], env: &[(&str, &str)], file: Option<&NamedTempFile>) -> Inputs {
    Inputs {
        flags: flags.iter().map(|(name, text)| flag(name, text)).collect(),
        env: env
            .iter()
            .map(|(name, text)| (name.into(), text.into()))
            .collect(),
        file: file.map(|file| file.path().to_owned()),
    }
}

fn value(effective: &Effective, name: &str) -> (String, Source) {
    let entry = effective.get(name).unwrap();
    (entry.value.to_string(), entry.source.clone())
}

fn refusal(inputs: &Inputs) -> String {
    Effective::read(inputs).unwrap_err().to_string()
}

#[test]
fn each_place_wins_over_the_ones_below_it() {
    let file = file(".toml", "default_priority = 1");
    let prefixed = ("ASYNCGATE_DEFAULT_PRIORITY", "3");
    let bare = ("DEFAULT_PRIORITY", "2");
    let from_file = Source::File(file.path().to_owned());
    let cases: [(Inputs, &str, Source); 5] = [
        (inputs(&[], &[], None), "0", Source::Default),
        (inputs(&[], &[], Some(&file)), "1", from_file),
        (
            inputs(&[], &[bare], Some(&file)),
            "2",
            Source::Env(bare.0.to_owned()),
        ),
        (
            inputs(&[], &[bare, prefixed], Some(&file)),
            "3",
            Source::Env(prefixed.0.to_owned()),
        ),
        (
            inputs(&[("default_priority", "4")], &[bare, prefixed], Some(&file)),
            "4",
            Source::Flag("--set"),
        ),
    ];
    for (inputs, expected, source) in cases {
        let effective = Effective::read(&inputs).unwrap();
        assert_eq!(
            value(&effective, "default_priority"),
            (expected.to_owned(), source)
        );
    }
}

#[test]
fn toml_yaml_and_json_say_the_same() {
    let same = [
        (
            ".toml",
            "bind = '0.0.0.0:1'\n[log]\nlevel = 'debug'\n[mcp]\nallowed_origins = ['https://a.b', 'https://c.d']\n",
        ),
        (
            ".yaml",
            "bind: 0.0.0.0:1\nlog:\n  level: debug\nmcp:\n  allowed_origins: [https://a.b, https://c.d]\n",
        ),
        (
            ".yml",
            "bind: 0.0.0.0:1\nlog: {level: debug}\nmcp: {allowed_origins: 'https://a.b,https://c.d'}\n",
        ),
        (
            ".json",
            r#"{"bind":"0.0.0.0:1","log":{"level":"debug"},"mcp.allowed_origins":["https://a.b","https://c.d"]}"#,
        ),
    ];
    for (ending, content) in same {
        let file = file(ending, content);
        let effective = Effective::read(&inputs(&[], &[], Some(&file))).unwrap();
        assert_eq!(value(&effective, "bind").0, "0.0.0.0:1", "{ending}");
        assert_eq!(value(&effective, "log.level").0, "debug", "{ending}");
        assert_eq!(
            value(&effective, "mcp.allowed_origins").0,
            "https://a.b,https://c.d",
            "{ending}"
        );
    }
}

#[test]
fn an_empty_file_and_an_empty_variable_set_nothing() {
    for ending in [".toml", ".yaml"] {
        let file = file(ending, "# nothing yet\n");
        let effective =
            Effective::read(&inputs(&[], &[("ASYNCGATE_API_KEY", "")], Some(&file))).unwrap();
        assert!(
            effective
                .iter()
                .all(|(_, entry)| entry.source == Source::Default)
        );
    }
}

#[test]
fn a_refusal_is_one_line_with_the_key_and_its_source() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            ".toml",
            "max_list_limit = 0",
            &["max_list_limit", "\"0\"", "an integer from 1 to 1000"],
        ),
        (
            ".toml",
            "max_list_limit = 1.5",
            &["max_list_limit", "\"1.5\""],
        ),
        (
            ".toml",
            "max_list_limit = [1]",
            &["max_list_limit", "an integer"],
        ),
        (
            ".toml",
            "[max_list_limit]\nx = 1",
            &["max_list_limit", "an integer"],
        ),
        (".json", "{\"log\": {\"level\": null}}", &["log.level"]),
        (
            ".toml",
            "[log]\nlevle = 'info'",
            &["log.levle", "did you mean log.level?"],
        ),
        (".toml", "log = 5", &["log", "not a setting"]),
        (".toml", "\"a\\nb\" = 5", &["a b", "not a setting"]),
        (".toml", "x = = 1\n", &["line 1"]),
        (
            ".toml",
            "bind = '0.0.0.0:1'\nbind = '0.0.0.0:2'\n",
            &["line 2", "duplicate"],
        ),
        (".yaml", "bind: [\n", &["line"]),
        (".yaml", "- bind\n", &["must hold a table"]),
        (".json", "{", &["EOF"]),
        (".ini", "bind=1", &["must end in"]),
    ];
    for (ending, content, parts) in cases {
        let file = file(ending, content);
        let message = refusal(&inputs(&[], &[], Some(&file)));
        assert!(!message.contains('\n'), "{message}");
        assert!(
            message.contains(&file.path().display().to_string()),
            "{message}"
        );
        for part in *parts {
            assert!(
                message.contains(part),
                "{content:?} gave {message:?}, without {part:?}"
            );
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let nowhere = Inputs {
        file: Some("/nowhere/asyncgate.toml".into()),
        ..Inputs::default()
    };
    assert!(refusal(&nowhere).starts_with("/nowhere/asyncgate.toml: "));
}

#[test]
fn flags_and_variables_are_refused_by_name_too() {
    let cases: [(Inputs, &[&str]); 4] = [
        (
            inputs(&[("bind", "nowhere")], &[], None),
            &["bind", "flag --set", "IP address"],
        ),
        (
            inputs(&[("bnid", "x")], &[], None),
            &["bnid", "flag --set", "did you mean bind?"],
        ),
        (
            inputs(&[("api_key", "s3cret")], &[], None),
            &["api_key", "ASYNCGATE_API_KEY"],
        ),
        (
            inputs(&[], &[("MAX_LIST_LIMIT", "many")], None),
            &["max_list_limit", "environment MAX_LIST_LIMIT"],
        ),
    ];
    for (inputs, parts) in cases {
        let message = refusal(&inputs);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(!message.contains("s3cret"));
    }
}

#[test]
fn an_overruled_bad_value_is_still_refused() {
    let file = file(".toml", "max_list_limit = 0");
    assert!(
        refusal(&inputs(&[("max_list_limit", "5")], &[], Some(&file))).contains("max_list_limit")
    );
}

#[test]
fn a_bad_secret_is_refused_without_being_shown() {
    let message = refusal(&inputs(&[], &[("ASYNCGATE_API_KEY", "two words")], None));
    assert!(
        message.contains("api_key") && !message.contains("two words"),
        "{message}"
    );
}

#[test]
fn defaults_may_not_exceed_their_maximum() {
    for (low, high) in super::table::ORDERED {
        let message = refusal(&inputs(&[(low, "7"), (high, "6")], &[], None));
        assert!(message.contains(low) && message.contains(high), "{message}");
        assert!(Effective::read(&inputs(&[(low, "7"), (high, "7")], &[], None)).is_ok());
    }
}

#[test]
fn insecure_dev_wants_loopback_and_no_key() {
    let dev = ("ALLOW_INSECURE_DEV", "true");
    assert!(Effective::read(&inputs(&[("bind", "[::1]:0")], &[dev], None)).is_ok());
    let message = refusal(&inputs(&[("bind", "0.0.0.0:80")], &[dev], None));
    assert!(
        message.contains("allow_insecure_dev") && message.contains("0.0.0.0:80"),
        "{message}"
    );
    let message = refusal(&inputs(&[], &[dev, ("ASYNCGATE_API_KEY", "k")], None));
    assert!(
        message.contains("allow_insecure_dev") && message.contains("api_key"),
        "{message}"
    );
}

#[test]
fn unknown_variables_warn() {
    let env = [
        ("ASYNCGATE_BIMD", "x"),
        ("ASYNCGATE_CONFIG", "c.toml"),
        ("OTHER", "x"),
        ("ASYNCGATE_BIND", "127.0.0.1:1"),
    ];
    let effective = Effective::read(&inputs(&[], &env, None)).unwrap();
    assert_eq!(
        effective.warnings,
        ["ASYNCGATE_BIMD is not a setting; did you mean ASYNCGATE_BIND?"]
    );
}

#[test]
fn a_setting_that_nothing_acts_on_yet_warns() {
    for name in super::table::KEPT_FOR_LATER {
        let text = super::table::find(name).unwrap().default;
        let effective = Effective::read(&inputs(&[(name, text)], &[], None)).unwrap();
        assert_eq!(
            effective.warnings,
            [format!("{name} (flag --set) changes nothing yet")]
        );
    }
}

#[test]
fn a_reload_tells_what_it_applies_and_what_must_wait() {
    let old = Effective::read(&inputs(&[], &[], None)).unwrap();
    let file = file(
        ".toml",
        "max_list_limit = 100\nbind = '127.0.0.1:9'\n[log]\nlevel = 'info'\n",
    );
    let new = Effective::read(&inputs(
        &[],
        &[("ASYNCGATE_API_KEY", "s3cret")],
        Some(&file),
    ))
    .unwrap();
    let changes = changes(&old, &new);
    let seen: Vec<(&str, bool)> = changes
        .iter()
        .map(|change| (change.key, change.live))
        .collect();
    assert_eq!(
        seen,
        [
            ("bind", false),
            ("api_key", false),
            ("max_list_limit", true)
        ]
    );
    assert!(!format!("{changes:?}").contains("s3cret"));
}

#[test]
fn a_reload_leaves_alone_what_needs_a_restart_and_keeps_saying_so() {
    let mut running = Effective::read(&inputs(&[], &[], None)).unwrap();
    let file = file(".toml", "max_list_limit = 100\nbind = '127.0.0.1:9'\n");
    let fresh = Effective::read(&inputs(&[], &[], Some(&file))).unwrap();
    running.adopt_live(&fresh);
    assert_eq!(value(&running, "max_list_limit").0, "100");
    assert_eq!(value(&running, "bind").0, "127.0.0.1:8080");
    let left: Vec<&str> = changes(&running, &fresh)
        .iter()
        .map(|change| change.key)
        .collect();
    assert_eq!(left, ["bind"]);
}

#[test]
fn what_is_shown_has_every_key_and_no_secret() {
    let effective = Effective::read(&inputs(
        &[],
        &[("ASYNCGATE_API_KEY", "s3cret-s3cret")],
        None,
    ))
    .unwrap();
    let (text, json) = (show_text(&effective), show_json(&effective));
    assert!(!text.contains("s3cret") && !json.to_string().contains("s3cret"));
    assert!(text.contains("environment ASYNCGATE_API_KEY"));
    let listed = json["settings"].as_array().unwrap();
    assert_eq!(listed.len(), effective.iter().count());
    assert_eq!(text.lines().count(), listed.len());
    assert_eq!(reference().lines().count(), listed.len() + 2);
}
