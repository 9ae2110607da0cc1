//! OAuth against the real binary: with Authlib, with the official client of MCP, and over restarts.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Launch, Server, eventually};
use crate::http::{Request, Response};
use crate::reload::serve_json;

pub const NAME: &str = "ada";
pub const PASSWORD: &str = "correct horse battery staple";
pub const REDIRECT: &str = "http://127.0.0.1:33419/callback";
/// The verifier and the challenge of RFC 7636, appendix B.
pub const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// The folder with a client; none, with a word about it, where it is not installed.
pub fn client(variable: &str) -> Option<OsString> {
    let folder = std::env::var_os(variable);
    if folder.is_none() {
        eprintln!("SKIPPED: {variable} is not set; `cargo xtask test` installs it");
    }
    folder
}

#[track_caller]
fn admin(server: &Server, path: &str, body: &Value) -> Value {
    let response = server.post(path, body);
    assert_eq!(response.status, 201, "{response:?}");
    response.json()
}

/// Lets a person in who has a password.
pub fn let_in(server: &Server) {
    let_in_as(server, "agent");
}

pub fn let_in_as(server: &Server, role: &str) {
    let person = json!({
        "provider": "local", "subject": NAME, "password": PASSWORD,
        "principal": {"kind": "human", "id": NAME}, "role": role,
    });
    admin(server, "/v1/admin/identities", &person);
}

pub fn register(server: &Server, confidential: bool) -> Value {
    register_for(server, confidential, &["tasks:read", "tasks:write"])
}

pub fn register_for(server: &Server, confidential: bool, scopes: &[&str]) -> Value {
    register_at(server, REDIRECT, confidential, scopes)
}

pub fn register_at(
    server: &Server,
    redirect_uri: &str,
    confidential: bool,
    scopes: &[&str],
) -> Value {
    let client = json!({
        "client_name": "the test", "redirect_uris": [redirect_uri], "confidential": confidential,
        "scopes": scopes,
    });
    admin(server, "/admin/oauth/clients", &client)
}

/// Runs a script. Returns how often it was content.
#[track_caller]
fn run(folder: &OsString, script: &str, args: &[&str], secret: Option<&str>) -> usize {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blackbox");
    let mut command = Command::new("python3");
    command
        .arg(scripts.join(script))
        .args(args)
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PASSWORD", PASSWORD)
        .stdin(Stdio::null());
    if let Some(secret) = secret {
        command.env("CLIENT_SECRET", secret);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    said.matches("good").count()
}

#[test]
fn authlib_gets_refreshes_and_revokes_tokens() {
    let Some(folder) = client("ASYNCGATE_TEST_AUTHLIB") else {
        return;
    };
    let server = Launch::new().start();
    let_in(&server);
    let url = format!("http://{}", server.address);
    for confidential in [false, true] {
        let client = register(&server, confidential);
        let id = client["client_id"].as_str().unwrap();
        let secret = client["client_secret"].as_str();
        assert_eq!(secret.is_some(), confidential);
        let args = [url.as_str(), REDIRECT, id, NAME];
        assert_eq!(run(&folder, "oauth_authlib.py", &args, secret), 1);
    }
}

#[test]
fn the_official_client_of_mcp_registers_itself_and_logs_a_person_in() {
    let Some(folder) = client("ASYNCGATE_TEST_MCP") else {
        return;
    };
    let server = Launch::new().start();
    let_in(&server);
    public_keys(&server);
    let url = format!("http://{}/mcp", server.address);
    assert_eq!(run(&folder, "oauth_mcp.py", &[&url, NAME], None), 3);
}

fn encode(pairs: &[(&str, &str)]) -> String {
    serde_urlencoded::to_string(pairs).unwrap()
}

pub fn form(path: &str, pairs: &[(&str, &str)]) -> Request {
    Request::new("POST", path)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(encode(pairs))
}

/// Begins a login. Returns the page and the cookie that goes with it.
pub fn begin(server: &Server, client: &Value) -> (Response, String) {
    page_at(server, &authorize(client))
}

/// The request that begins a login.
pub fn beginning(client: &Value) -> Request {
    Request::get(&authorize(client))
}

/// Returns the path of a good request.
pub fn authorize(client: &Value) -> String {
    let query = encode(&[
        ("response_type", "code"),
        ("client_id", client["client_id"].as_str().unwrap()),
        ("redirect_uri", REDIRECT),
        ("state", "s"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ]);
    format!("/oauth/authorize?{query}")
}

pub fn page_at(server: &Server, path: &str) -> (Response, String) {
    answered(server.send_bare(&Request::get(path)))
}

fn answered(page: Response) -> (Response, String) {
    assert_eq!(page.status, 200, "{page:?}");
    let cookie = page.header("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    (page, cookie)
}

/// Ends a login with the right password. Returns the code.
pub fn log_in(server: &Server, page: &Response, cookie: &str) -> String {
    let location = log_in_to(server, page, cookie);
    let code = location.strip_prefix(&format!("{REDIRECT}?code=")).unwrap();
    code.split('&').next().unwrap().to_owned()
}

/// The login under way that a page holds.
pub fn login_of(page: &Response) -> &str {
    let start = "name=\"login\" value=\"";
    let rest = page.text().split(start).nth(1).unwrap();
    rest.split('"').next().unwrap()
}

/// Ends a login with the right password. Returns where the browser is sent.
pub fn log_in_to(server: &Server, page: &Response, cookie: &str) -> String {
    let pairs = [
        ("login", login_of(page)),
        ("username", NAME),
        ("password", PASSWORD),
    ];
    let answer = server.send_bare(&form("/oauth/login", &pairs).header("Cookie", cookie));
    assert_eq!(answer.status, 303, "{answer:?}");
    answer.header("location").unwrap().to_owned()
}

pub fn tokens(server: &Server, client: &Value, pairs: &[(&str, &str)]) -> Response {
    let id = [("client_id", client["client_id"].as_str().unwrap())];
    let request = form("/oauth/token", &[&id, pairs].concat());
    // The key that signs tokens is made in the background, and the server says so until then.
    eventually("tokens can be signed", || {
        let answer = server.send_bare(&request);
        (answer.status != 503).then_some(answer)
    })
}

/// Returns the public keys, once there is one.
pub fn public_keys(server: &Server) -> Value {
    eventually("there is a public key", || {
        let keys = server.get("/oauth/jwks").json();
        (keys["keys"] != json!([])).then_some(keys)
    })
}

pub fn exchange(server: &Server, client: &Value, code: &str) -> Response {
    let pairs = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
    ];
    tokens(server, client, &pairs)
}

/// Logs in and returns an access token.
pub fn access_token(server: &Server, client: &Value) -> String {
    let (page, cookie) = begin(server, client);
    let answer = exchange(server, client, &log_in(server, &page, &cookie));
    answer.json()["access_token"].as_str().unwrap().to_owned()
}

pub fn refresh(server: &Server, client: &Value, token: &str) -> Response {
    let pairs = [("grant_type", "refresh_token"), ("refresh_token", token)];
    tokens(server, client, &pairs)
}

pub fn who_am_i(server: &Server, token: &str) -> Response {
    server.send_bare(&Request::get("/v1/whoami").bearer(token))
}

#[test]
fn logins_codes_and_tokens_outlive_the_server() {
    let server = Launch::new().start();
    let_in(&server);
    let client = register(&server, false);
    let keys = public_keys(&server);
    let (page, cookie) = begin(&server, &client);
    let server = server.restart();
    let code = log_in(&server, &page, &cookie);
    let server = server.kill().start();
    let answer = exchange(&server, &client, &code);
    assert_eq!(answer.status, 200, "{answer:?}");
    let first = answer.json();
    let access = first["access_token"].as_str().unwrap();
    let server = server.kill().start();
    assert_eq!(public_keys(&server), keys);
    let caller = who_am_i(&server, access);
    assert_eq!(caller.status, 200, "{caller:?}");
    assert_eq!(caller.json()["credential"], "jwt");
    let old = first["refresh_token"].as_str().unwrap();
    let second = refresh(&server, &client, old).json();
    let server = server.kill().start();
    // A code and a refresh token are known as used, whatever happened since.
    let again = refresh(&server, &client, old);
    assert_eq!(
        (again.status, &again.json()["error"]),
        (400, &json!("invalid_grant"))
    );
    assert_eq!(who_am_i(&server, access).status, 401);
    let newest = second["refresh_token"].as_str().unwrap();
    assert_eq!(refresh(&server, &client, newest).status, 400);
    let server = server.kill().start();
    assert_eq!(who_am_i(&server, access).status, 401);
    assert_eq!(exchange(&server, &client, &code).status, 400);
    let page = server
        .get("/v1/admin/audit?event=token_reuse_detected")
        .json();
    assert_eq!(page["entries"].as_array().unwrap().len(), 1, "{page}");
}

#[test]
fn tokens_end_with_their_client_and_their_person() {
    let server = Launch::new().start();
    let_in(&server);
    let issue = |client: &Value| access_token(&server, client);
    let (one, two) = (register(&server, false), register(&server, false));
    let (first, second) = (issue(&one), issue(&two));
    assert_eq!(who_am_i(&server, &first).status, 200);
    let path = format!(
        "/admin/oauth/clients/{}",
        one["client_id"].as_str().unwrap()
    );
    let removed = server.send(Request::new("DELETE", &path));
    assert_eq!(
        (removed.status, &removed.json()["tokens_revoked"]),
        (200, &json!(1))
    );
    assert_eq!(who_am_i(&server, &first).status, 401);
    assert_eq!(who_am_i(&server, &second).status, 200);
    let people = server.get("/v1/admin/identities").json();
    let id = people["identities"][0]["identity_id"].as_str().unwrap();
    let removed = server.send(Request::new(
        "DELETE",
        &format!("/v1/admin/identities/{id}"),
    ));
    assert_eq!(removed.status, 200, "{removed:?}");
    assert_eq!(who_am_i(&server, &second).status, 401);
}

#[test]
fn oauth_can_be_switched_off() {
    let server = Launch::new().set("security.oauth.enabled=false").start();
    for path in [
        "/oauth/authorize",
        "/oauth/jwks",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let answer = server.send_bare(&Request::get(path));
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[test]
fn a_document_on_this_machine_describes_a_client_only_for_those_who_develop_one() {
    let host = serve_json(|base| {
        json!({
            "client_id": format!("{base}/client.json"), "client_name": "Documented",
            "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none",
        })
    });
    let client = json!({ "client_id": format!("http://{host}/client.json") });
    let ask = |server: &Server| server.send_bare(&Request::get(&authorize(&client)));
    let server = Launch::new().start();
    let metadata = server.get("/.well-known/oauth-authorization-server").json();
    assert_eq!(metadata["client_id_metadata_document_supported"], true);
    let refused = ask(&server);
    assert_eq!(refused.status, 400, "{refused:?}");
    let server = Launch::without_key().set("allow_insecure_dev=true").start();
    let page = ask(&server);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.text().contains("Documented"), "{page:?}");
}
