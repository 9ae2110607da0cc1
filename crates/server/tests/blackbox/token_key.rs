//! The key that signs access tokens is replaced: by one command, or by its file and SIGHUP.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use asyncgate_auth::fakes::SIGNING_KEYS;
use serde_json::{Value, json};

use crate::cli::{Scene, lines};
use crate::harness::{Launch, Server, eventually};
use crate::oauth::{access_token, let_in, public_keys, register, who_am_i};

fn kids(server: &Server) -> Vec<Value> {
    let keys = public_keys(server)["keys"].clone();
    let keys = keys.as_array().unwrap().iter();
    keys.map(|key| key["kid"].clone()).collect()
}

#[test]
fn one_command_rotates_the_key_and_old_tokens_outlive_it_and_the_server() {
    let scene = Scene::set();
    let server = &scene.server;
    let_in(server);
    let client = register(server, false);
    let old = access_token(server, &client);
    let before = kids(server);
    let rotated = scene.says_json("token rotate-key");
    assert_eq!(rotated["replaces"], before[0]);
    assert_ne!(rotated["kid"], before[0]);
    let now = kids(server);
    assert_eq!(now.len(), 2, "{now:?}");
    assert!(now.contains(&rotated["kid"]) && now.contains(&before[0]));
    let new = access_token(server, &client);
    let told = lines(&scene.says("token rotate-key"));
    assert!(told[0].starts_with("key id"), "{told:?}");
    let last = access_token(server, &client);
    let entries = server.get("/v1/admin/audit?tenant_id=none&event=key_rotated");
    let entries = entries.json()["entries"].clone();
    assert_eq!(entries.as_array().unwrap().len(), 2, "{entries}");
    assert_eq!(entries[1]["details"]["kid"], rotated["kid"]);
    assert!(!entries.to_string().contains(&old));
    let server = scene.server.kill().start();
    assert_eq!(kids(&server).len(), 3);
    for token in [&old, &new, &last] {
        assert_eq!(who_am_i(&server, token).status, 200);
    }
}

/// Puts a key where the settings say.
fn put_key(path: &Path, key: &[u8]) {
    let beside = path.with_extension("new");
    fs::write(&beside, key).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(beside, path).unwrap();
}

#[test]
fn a_key_of_the_operator_is_replaced_by_its_file_and_a_hang_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwt.pk8");
    put_key(&path, SIGNING_KEYS[0]);
    let set = format!("security.jwt.private_key_path={}", path.display());
    let server = Launch::new().set(&set).start();
    let_in(&server);
    let client = register(&server, false);
    let old = access_token(&server, &client);
    let refused = server.post("/v1/admin/token-key/rotate", &json!({}));
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (409, &json!("CONFLICT"))
    );
    assert!(refused.text().contains("private_key_path"), "{refused:?}");
    assert_eq!(kids(&server).len(), 1);
    put_key(&path, SIGNING_KEYS[1]);
    server.signal("HUP");
    eventually("both keys are published", || {
        (kids(&server).len() == 2).then_some(())
    });
    let new = access_token(&server, &client);
    let kid = |token: &str| token.split('.').next().unwrap().to_owned();
    assert_ne!(kid(&old), kid(&new));
    put_key(&path, b"no key");
    server.signal("HUP");
    server.logged("the key of access tokens stays as it was");
    put_key(&path, SIGNING_KEYS[1]);
    let server = server.kill().start();
    for token in [&old, &new] {
        assert_eq!(who_am_i(&server, token).status, 200);
    }
}
