//! The commands about who may do what.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::cli::{Scene, ends, lines};
use crate::harness::{Ended, run};

impl Scene {
    /// Runs a command with another key than that of the scene.
    #[track_caller]
    fn run_with(&self, key: &str, line: &str) -> Ended {
        let mut command = self.command(line);
        command.env("ASYNCGATE_API_KEY", key);
        run(command)
    }

    #[track_caller]
    fn says_with(&self, key: &str, line: &str) -> Value {
        let ended = self.run_with(key, &format!("{line} --json"));
        assert!(ended.status.success(), "{line}: {ended:?}");
        serde_json::from_str(&ended.stdout).unwrap()
    }
}

fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

/// A command that was not understood says so in the words of its parser.
#[track_caller]
fn misused(ended: &Ended, words: &str) {
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
}

#[test]
fn a_key_is_made_used_replaced_and_ended() {
    let scene = Scene::set();
    let key = scene.says("key create --role worker --principal worker/w1 --label laptop -q");
    assert!(key.starts_with("aga_") && key.len() >= 44, "{key}");
    let me = scene.says_with(&key, "whoami");
    assert_eq!(me["principal"], json!({"kind": "worker", "id": "w1"}));
    assert_eq!(
        (&me["role"], &me["credential"]),
        (&json!("worker"), &json!("api_key"))
    );
    ends(&scene.run_with(&key, "task create echo"), 3, "FORBIDDEN");
    ends(&scene.run_with(&key, "key list"), 3, "FORBIDDEN");

    let listed = scene.says_json("key list");
    let of_worker = |key: &&Value| key["principal"]["id"] == "w1";
    let listed = listed
        .as_array()
        .unwrap()
        .iter()
        .find(of_worker)
        .unwrap()
        .clone();
    assert_eq!(listed["label"], "laptop");
    let id = text(&listed["key_id"]);
    let rotated = scene.says_json(&format!("key rotate {id} --overlap 1h"));
    assert_eq!(rotated["replaces"], *id);
    let new = text(&rotated["key"]);
    for key in [&key, new] {
        assert_eq!(scene.says_with(key, "whoami")["principal"]["id"], "w1");
    }
    let table = lines(&scene.says("key list"));
    assert_eq!(table[0], "KEY ACTS AS ROLE LABEL LAST USED ENDS");
    assert!(
        table.iter().any(|line| line.ends_with("TIME (replaced)")),
        "{table:?}"
    );
    let new_id = text(&rotated["key_id"]);
    scene.says(&format!("key revoke {new_id}"));
    ends(&scene.run_with(new, "whoami"), 3, "UNAUTHORIZED");
    ends(
        &scene.run("key revoke 01920000-0000-7000-8000-000000000000"),
        4,
        "NOT_FOUND",
    );
    misused(&scene.run("key create --role boss"), "boss");
    misused(
        &scene.run("key create --role agent --scopes tasks:all"),
        "tasks:all",
    );
}

#[test]
fn a_tenant_is_made_bounded_suspended_and_resumed() {
    let scene = Scene::set();
    let made = scene.says_json("tenant create acme --tier paid --quota active_tasks=5");
    assert_eq!(
        (&made["tier"], &made["quotas"]["active_tasks"]),
        (&json!("paid"), &json!(5))
    );
    scene.ends("tenant create acme", 3, "CONFLICT");
    misused(&scene.run("tenant create b --quota tasks=5"), "tasks");
    let table = lines(&scene.says("tenant list"));
    assert_eq!(table[0], "TENANT NAME TIER STANDING CREATED");
    assert_eq!(table[2], "ID acme paid active TIME");
    let key = scene.says("key create --tenant acme --role admin --principal human/ada -q");
    let me = scene.says_with(&key, "whoami");
    assert_eq!(me["tenant_id"], made["tenant_id"]);
    // An admin of a tenant sees its own and no other.
    assert_eq!(
        scene.says_with(&key, &format!("tenant show {}", text(&made["tenant_id"])))["name"],
        "acme"
    );
    ends(&scene.run_with(&key, "tenant list"), 3, "FORBIDDEN");
    ends(&scene.run_with(&key, "tenant create mine"), 3, "FORBIDDEN");
    let others = scene.run_with(
        &key,
        "key list --tenant 00000000-0000-7000-8000-000000000001",
    );
    ends(&others, 3, "FORBIDDEN");

    let changed = scene.says_json("tenant change acme --tier free --quota active_tasks=tier");
    assert_eq!(
        (&changed["tier"], &changed["quotas"]["active_tasks"]),
        (&json!("free"), &json!(-1))
    );
    assert_eq!(scene.says_json("tenant suspend acme")["suspended"], true);
    ends(&scene.run_with(&key, "whoami"), 3, "TENANT_SUSPENDED");
    assert!(scene.says("tenant show acme").contains("suspended"));
    scene.says("tenant resume acme");
    scene.says_with(&key, "whoami");
    scene.ends("tenant suspend default", 3, "CONFLICT");
    scene.ends("tenant show nobody", 4, "nobody");
}

#[test]
fn a_macaroon_is_minted_looked_into_and_ended() {
    let scene = Scene::set();
    let mut mint = scene.command("macaroon create --role agent --principal alice --json");
    mint.args(["--caveat", "op = whoami,create_task", "--expires-in", "1h"]);
    let minted = run(mint);
    let minted: Value = serde_json::from_str(&minted.stdout).unwrap();
    let macaroon = text(&minted["macaroon"]);
    let inside = scene.says_json(&format!("macaroon inspect {macaroon}"));
    assert_eq!(inside["identifier"], minted["identifier"]);
    assert_eq!(inside["caveats"][0]["caveat"], "op = whoami,create_task");
    assert_eq!(inside["caveats"].as_array().unwrap().len(), 2);
    let me = scene.says_with(macaroon, "whoami");
    assert_eq!(
        (&me["credential"], &me["caveats"]),
        (&json!("macaroon"), &minted["caveats"])
    );
    ends(&scene.run_with(macaroon, "task list"), 3, "E_CAP_SCOPE");
    scene.says(&format!("macaroon revoke {}", text(&minted["macaroon_id"])));
    ends(&scene.run_with(macaroon, "whoami"), 3, "E_CAP_AUTH");
    misused(&scene.run("macaroon inspect aga_x"), "not a macaroon");
    let mut unknown = scene.command("macaroon create --role agent");
    unknown.args(["--caveat", "colour = blue"]);
    ends(&run(unknown), 3, "BAD_REQUEST");
}

#[test]
fn a_person_with_a_password_is_added_and_removed() {
    let scene = Scene::set();
    let mut add = scene
        .command("identity add --subject ada --password --role agent --principal human/ada --json");
    let mut child = add.stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"correct horse battery\n")
        .unwrap();
    let added = child.wait_with_output().unwrap();
    let added: Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(
        (&added["provider"], &added["subject"]),
        (&json!("local"), &json!("ada"))
    );
    let table = lines(&scene.says("identity list"));
    assert_eq!(table[0], "IDENTITY PROVIDER PERSON ACTS AS ROLE");
    assert_eq!(table[1], "ID local ada human/ada agent");
    scene.says(&format!("identity remove {}", text(&added["identity_id"])));
    assert_eq!(scene.says_json("identity list"), json!([]));
    misused(
        &scene.run("identity add --subject x --role agent"),
        "--provider",
    );
}

#[test]
fn the_audit_log_tells_it_and_can_be_followed() {
    let scene = Scene::set();
    let mut follow = scene.command("audit --follow --json --event key_created");
    let mut follow = follow.spawn().unwrap();
    let key = scene.says("key create --role worker -q");
    let mut seen = BufReader::new(follow.stdout.take().unwrap()).lines();
    let entry: Value = serde_json::from_str(&seen.next().unwrap().unwrap()).unwrap();
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert_eq!(
        (&entry["event"], &entry["severity"]),
        (&json!("key_created"), &json!("info"))
    );
    assert_eq!(entry["details"]["for"], "worker/worker");
    assert!(!entry.to_string().contains(&key));
    let listed = scene.says_json("audit --event key_created --limit 1");
    assert_eq!(listed[0]["audit_id"], entry["audit_id"]);
    let table = lines(&scene.says("audit --severity info"));
    assert_eq!(table[0], "TIME SEVERITY EVENT WHO FROM WHAT");
    assert!(
        table[1..]
            .iter()
            .any(|line| line.contains("info key_created service/admin")),
        "{table:?}"
    );
    scene.ends("audit --event party", 3, "BAD_REQUEST");
    scene.says("audit --tenant none");
}

#[test]
fn everything_of_a_principal_or_a_tenant_ends_by_one_command() {
    let scene = Scene::set();
    let make = |principal: &str| {
        scene.says(&format!(
            "key create --role agent --principal {principal} -q"
        ))
    };
    let (alice, bob, carol) = (make("alice"), make("bob"), make("carol"));
    misused(&scene.run("key revoke-all"), "--own-tenant");
    let ended = scene.says_json("key revoke-all --principal agent/alice");
    assert_eq!(ended["keys"], 1);
    ends(&scene.run_with(&alice, "whoami"), 3, "UNAUTHORIZED");
    scene.says_with(&bob, "whoami");
    let ended = scene.says_json("key rotate-all --principal bob --overlap 2h");
    assert_eq!(ended["keys"], 1);
    assert_eq!(
        scene.says_with(&bob, "whoami")["expires_at"],
        ended["expires_at"]
    );
    let told = scene.says("key revoke-all --own-tenant");
    assert!(told.starts_with("revoked: 2 keys"), "{told}");
    for key in [&bob, &carol] {
        ends(&scene.run_with(key, "whoami"), 3, "UNAUTHORIZED");
    }
}
