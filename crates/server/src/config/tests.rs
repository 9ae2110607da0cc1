//! Precedence, refusals and reloads, over the whole way from the four places to the values in force.

use std::io::Write as _;

use tempfile::NamedTempFile;

use super::source::Source;
use super::*;

/// The settings with these values, by the names of keys.
pub fn settings(pairs: &[(&str, &str)]) -> Settings {
    read(pairs).unwrap().settings
}

/// The refusal of these values.
pub fn refused(pairs: &[(&str, &str)]) -> String {
    read(pairs).unwrap_err().to_string()
}

fn read(pairs: &[(&str, &str)]) -> Result<Effective, Error> {
    // By the environment, since a secret is refused on the command line.
    let variable = |(name, text): &(&str, &str)| {
        let key = super::table::find(name).unwrap();
        (key.env().into(), text.into())
    };
    let inputs = Inputs {
        env: pairs.iter().map(variable).collect(),
        ..Inputs::default()
    };
    Effective::read(&inputs)
}

/// A file with the given ending, deleted with the value.
pub(super) fn file(ending: &str, content: &str) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

fn flag(name: &str, text: &str) -> Flag {
    Flag {
        flag: "--set".to_owned(),
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

/// Inputs from `--set` pairs, environment pairs and a file.
pub(super) fn inputs(
    flags: &[(&str, &str)],
    env: &[(&str, &str)],
    file: Option<&NamedTempFile>,
) -> Inputs {
    Inputs {
        flags: flags.iter().map(|(name, text)| flag(name, text)).collect(),
        env: env
            .iter()
            .map(|(name, text)| (name.into(), text.into()))
            .collect(),
        file: file.map(|file| file.path().to_owned()),
    }
}

pub(super) fn value(effective: &Effective, name: &'static str) -> (String, Source) {
    let entry = effective.entries.get(name).unwrap();
    (entry.value.to_string(), entry.source.clone())
}

pub(super) fn refusal(inputs: &Inputs) -> String {
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
            Source::Flag("--set".to_owned()),
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
                .entries
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
        let rule = super::table::find(low).unwrap().rule;
        let unit = if matches!(rule, super::rule::Rule::Duration { .. }) {
            "s"
        } else if matches!(rule, super::rule::Rule::Size { .. }) {
            "KiB"
        } else {
            ""
        };
        let [less, more] = [6, 7].map(|number| format!("{number}{unit}"));
        let message = refusal(&inputs(&[(low, &more), (high, &less)], &[], None));
        assert!(message.contains(low) && message.contains(high), "{message}");
        // Other rules may have something against it, but not this one.
        if let Err(error) = Effective::read(&inputs(&[(low, &more), (high, &more)], &[], None)) {
            let message = error.to_string();
            assert!(
                !(message.contains(low) && message.contains(high)),
                "{message}"
            );
        }
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
    let running = Effective::read(&inputs(&[], &[], None)).unwrap();
    let file = file(".toml", "max_list_limit = 100\nbind = '127.0.0.1:9'\n");
    let fresh = Effective::read(&inputs(&[], &[], Some(&file))).unwrap();
    let running = running.adopt_live(&fresh).unwrap();
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
    assert_eq!(listed.len(), effective.entries.iter().count());
    assert_eq!(text.lines().count(), listed.len());
    let reference = reference();
    let rows = reference.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(rows.count(), listed.len());
}

#[test]
fn the_product_wins_over_the_specification_and_an_old_name_warns() {
    let ours = ("ASYNCGATE_MAILBOX_READY_SHARDS", "3");
    let theirs = ("SVCMBX_SHARDS", "4");
    let old = ("MAILBOX_SHARDS", "5");
    for (env, shards) in [
        (&[ours, theirs, old][..], "3"),
        (&[theirs, old], "4"),
        (&[old], "5"),
        (&[theirs], "4"),
    ] {
        let effective = Effective::read(&inputs(&[], env, None)).unwrap();
        assert_eq!(value(&effective, "mailbox.ready_shards").0, shards);
        let warning = "MAILBOX_SHARDS is deprecated; use SVCMBX_SHARDS";
        assert_eq!(
            effective.warnings.contains(&warning.to_owned()),
            env.contains(&old)
        );
    }
    let effective = Effective::read(&inputs(&[], &[("VISIBILITY_DEFAULT", "9s")], None)).unwrap();
    assert_eq!(value(&effective, "mailbox.default_visibility").0, "9s");
    assert!(effective.warnings[0].contains("SVCMBX_VISIBILITY_DEFAULT"));
    let message = refusal(&inputs(&[], &[ours, ("SVCMBX_SHARDS", "none")], None));
    assert!(message.contains("mailbox.ready_shards"), "{message}");
    let effective = Effective::read(&inputs(&[], &[("SVCMBX_SHARD", "1")], None)).unwrap();
    assert!(effective.warnings[0].contains("did you mean SVCMBX_SHARDS?"));
}

/// The example file of the mailbox's specification, with every table that it has.
const SPECIFIED: &str = r#"
bind_addr     = "0.0.0.0:8080"
metrics_addr  = "127.0.0.1:9102"
max_conns     = 2048
read_timeout  = "5s"
write_timeout = "5s"
idle_timeout  = "60s"
[log]
format = "json"
level  = "info"
[tls]
enabled   = false
[limits]
max_body_bytes       = "1MiB"
decompress_ratio_cap = 10
[uds]
path = "/run/svc-mailbox.sock"
allow_uids = [1000, 1001]
[auth]
[mailbox]
profile            = "macronode"
ready_shards       = 16
shard_capacity     = 4096
global_inflight    = 8192
visibility_ms_min  = "250ms"
default_visibility = "5s"
max_messages       = 32
max_bytes          = "512KiB"
t_replay           = "300s"
cap_cache_ttl      = "30s"
backoff_base       = "200ms"
backoff_max        = "60s"
max_attempts       = 5
topic_classes      = { "user:" = "user_inbox", "sys:" = "system" }
weights            = { "user:" = 10, "00000000-0000-7000-8000-000000000001" = 3 }
[retention]
ready_seconds   = "7d"
inflight_factor = 10
dlq_seconds     = "14d"
[amnesia]
enabled = false
[pq]
mode = "off"
"#;

#[test]
fn the_file_of_the_specification_can_be_used_as_it_stands() {
    let file = file(".toml", SPECIFIED);
    let effective = Effective::read(&inputs(&[], &[], Some(&file))).unwrap();
    let settings = effective.settings;
    assert_eq!(settings.bind.to_string(), "0.0.0.0:8080");
    assert_eq!(settings.max_connections, 2_048);
    assert_eq!(settings.uds_allow_uids, [1_000, 1_001]);
    let policy = asyncgate_core::mailbox::Policy {
        shards: 16,
        topic_capacity: 4_096,
        ..Default::default()
    };
    assert_eq!(settings.mailbox, policy, "its defaults are the rules' own");
    for (topic, class) in [("user:1:inbox", "user_inbox"), ("sys:1", "system")] {
        assert_eq!(settings.topic_classes.first(topic), Some(class));
    }
    assert_eq!(settings.topic_classes.first("jobs"), None);
    assert_eq!(settings.weights.topics, [("user:".to_owned(), 10)]);
    assert_eq!(settings.weights.tenants.len(), 1);
}

#[test]
fn what_the_specification_forbids_stops_the_start() {
    let cases = [
        ("bind_addr", "nowhere", "bind"),
        ("metrics_addr", "nowhere", "metrics_addr"),
        ("max_conns", "0", "http.max_connections"),
        ("limits.max_body_bytes", "1023B", "limits.max_body_bytes"),
        (
            "limits.decompress_ratio_cap",
            "0",
            "limits.decompress_ratio_cap",
        ),
        ("tls.enabled", "true", "tls.enabled"),
        ("mailbox.ready_shards", "0", "mailbox.ready_shards"),
        ("mailbox.shard_capacity", "0", "mailbox.topic_capacity"),
        ("mailbox.global_inflight", "0", "mailbox.global_inflight"),
        (
            "mailbox.visibility_ms_min",
            "0ms",
            "mailbox.visibility_ms_min",
        ),
        (
            "mailbox.default_visibility",
            "249ms",
            "mailbox.default_visibility",
        ),
        ("mailbox.max_messages", "0", "mailbox.max_messages"),
        ("mailbox.max_messages", "257", "mailbox.max_messages"),
        ("mailbox.max_bytes", "1025KiB", "mailbox.max_bytes"),
        ("mailbox.t_replay", "9s", "mailbox.t_replay"),
        ("mailbox.backoff_max", "199ms", "mailbox.backoff_max"),
        ("mailbox.max_attempts", "0", "mailbox.max_attempts"),
        ("mailbox.profile", "nanonode", "mailbox.profile"),
        ("pq.mode", "on", "pq.mode"),
        ("retention.ready_seconds", "7", "retention.ready_seconds"),
        ("mailbox.weights", "a=0", "mailbox.weights"),
    ];
    for (name, text, key) in cases {
        let message = refusal(&inputs(&[(name, text)], &[], None));
        assert!(
            message.contains(key) && !message.contains('\n'),
            "{message}"
        );
    }
    let file = file(".toml", "max_conns = 5\n[http]\nmax_connections = 6\n");
    let message = refusal(&inputs(&[], &[], Some(&file)));
    assert!(message.contains("set twice"), "{message}");
}

#[test]
fn a_micronode_and_amnesia_keep_nothing_and_refuse_to_be_told_where() {
    for forgetful in [
        ("mailbox.profile", "micronode"),
        ("amnesia.enabled", "true"),
    ] {
        let effective = Effective::read(&inputs(&[forgetful], &[], None)).unwrap();
        let (store, source) = value(&effective, "store");
        assert_eq!(store, "memory");
        assert!(source.to_string().contains(forgetful.0), "{source}");
        let warned = effective
            .warnings
            .iter()
            .any(|warning| warning.contains("ephemeral"));
        assert_eq!(warned, forgetful.0 == "amnesia.enabled");
        for told in [("store", "sqlite"), ("data_dir", "./data")] {
            let message = refusal(&inputs(&[forgetful, told], &[], None));
            assert!(
                message.contains(forgetful.0) && message.contains(told.0),
                "{message}"
            );
        }
        assert!(Effective::read(&inputs(&[forgetful, ("store", "memory")], &[], None)).is_ok());
        let again = effective.adopt_live(&effective).unwrap();
        assert_eq!(value(&again, "store").0, "memory");
    }
}

/// Tables of every kind, each naming something in another.
const TABLES: &str = r#"
[limits.policies.slow]
kind = "token_bucket"
capacity = 1
refill_per_minute = 1
[limits.tiers]
trusted = ["ann"]
[limits.gate]
tenant = "slow"
[limits.envoy.edge]
remote_address = "slow"
[ingress.hooks]
secrets = ["hunter2"]
policy = "slow"
[domains]
client_policy = "slow"
"#;

#[test]
fn each_table_is_parsed_once_at_a_start_and_once_at_a_reload() {
    let file = file(".toml", TABLES);
    let inputs = inputs(&[], &[], Some(&file));
    let parsed = || super::table_value::PARSED.take();
    parsed();
    let running = Effective::read(&inputs).unwrap();
    assert_eq!(parsed(), 5);
    assert!(
        running
            .settings
            .limits
            .resolve("slow", Default::default())
            .is_ok()
    );
    let fresh = Effective::read(&inputs).unwrap();
    let next = running.adopt_live(&fresh).unwrap();
    assert_eq!(changes(&running, &next), []);
    assert!(next.settings.ingress.contains_key("hooks"));
    assert_eq!(parsed(), 5);
}

#[test]
fn what_a_table_or_a_setting_names_must_exist() {
    let (named, missing) = ("\"slow\"", "\"nope\"");
    for (line, key, problem) in [
        (
            "tenant = ",
            "limits.gate",
            "is wrong: tenant: there is no policy named nope",
        ),
        (
            "remote_address = ",
            "limits.envoy",
            "edge: remote_address: there is no policy",
        ),
        (
            "\npolicy = ",
            "ingress = (set)",
            "is wrong: hooks: there is no policy named nope",
        ),
        (
            "client_policy = ",
            "domains.client_policy",
            "names no policy",
        ),
    ] {
        let text = TABLES.replace(&format!("{line}{named}"), &format!("{line}{missing}"));
        let message = refusal(&inputs(&[], &[], Some(&file(".toml", &text))));
        assert!(
            message.starts_with(key) && message.contains(problem),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn paths_in_a_file_are_relative_to_it_and_others_to_the_working_directory() {
    let content = r#"
        data_dir = "state"
        [tls]
        cert_path = "tls/cert.pem"
        key_path = "/etc/key.pem"
        [uds]
        path = "./here.sock"
        [admission]
        backend = "rediss://h?ca=ca.pem&cert=c.pem&key=/k.pem"
    "#;
    let file = file(".toml", content);
    let dir = file.path().parent().unwrap();
    let read = |flags: &[(&str, &str)], env: &[(&str, &str)]| {
        Effective::read(&inputs(flags, env, Some(&file))).unwrap()
    };
    let effective = read(&[], &[]);
    let settings = &effective.settings;
    assert_eq!(settings.data_dir, dir.join("state"));
    assert_eq!(settings.uds_path, Some(dir.join("./here.sock")));
    for (name, path) in [
        ("tls.cert_path", dir.join("tls/cert.pem")),
        ("tls.key_path", "/etc/key.pem".into()),
    ] {
        assert_eq!(value(&effective, name).0, path.display().to_string());
    }
    let address = |text: &str| Backend::parse(text).unwrap();
    let ca = dir.join("ca.pem").display().to_string();
    let cert = dir.join("c.pem").display().to_string();
    let expected = address(&format!("rediss://h?ca={ca}&cert={cert}&key=/k.pem"));
    assert_eq!(settings.admission_backend, expected);

    let elsewhere = ("ASYNCGATE_DATA_DIR", "there");
    assert_eq!(
        read(&[], &[elsewhere]).settings.data_dir,
        PathBuf::from("there")
    );
    let flagged = read(&[("data_dir", "flagged")], &[elsewhere]);
    assert_eq!(flagged.settings.data_dir, PathBuf::from("flagged"));
    // The default is no word of the file.
    let bare = Effective::read(&Inputs::default()).unwrap();
    assert_eq!(bare.settings.data_dir, PathBuf::from("./data"));
}
