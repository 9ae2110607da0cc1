//! What happens in the run whose secrets are looked for: good and bad uses of every secret that there is.

use std::process::Command;

use asyncgate_credentials::macaroon::Macaroon;
use asyncgate_grpc::pb;
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};

use crate::calls::text;
use crate::grpc::{client, with_bearer};
use crate::harness::{Launch, Server, eventually, lines, run};
use crate::http::{Connection, Request};
use crate::ingress;
use crate::mcp::{Era, carry_to, message};
use crate::oauth;
use crate::secrets_search::{Place, Secrets};

pub const SHARED_KEY: &str = "shared-key-that-nobody-may-see";
pub const HOOK_SECRET: &str = "hook-secret-of-the-environment";
pub const FILED_SECRET: &str = "hook-secret-written-into-the-file";
pub const NEXT_SECRET: &str = "hook-secret-after-the-reload";
pub const BILL_SECRET: &str = "secret-that-signs-the-bills";
pub const BILL_TOKEN: &str = "token-in-the-address-of-the-bills";
pub const BILL_QUERY: &str = "query-in-the-address-of-the-bills";
pub const REDIS_PASSWORD: &str = "password-of-redis-in-its-address";
pub const PROVIDER_SECRET: &str = "secret-for-the-provider-of-people";
pub const SEED: &str = "6b1f0e5d9c3a47b28f1e0d9c8b7a69584736251403f2e1d0cfbeadbccbdae9f8";

/// A run, and what it has seen so far.
pub struct Story {
    pub server: Server,
    pub secrets: Secrets,
    /// What commands said.
    pub said: String,
}

impl Story {
    pub fn begin(launch: &Launch) -> Self {
        let mut secrets = Secrets::default();
        for (name, secret, place) in [
            ("shared key", SHARED_KEY, Place::Nowhere),
            ("hook secret", HOOK_SECRET, Place::Nowhere),
            ("filed hook secret", FILED_SECRET, Place::Nowhere),
            ("next hook secret", NEXT_SECRET, Place::File("s.toml")),
            ("bill secret", BILL_SECRET, Place::Nowhere),
            ("bill token", BILL_TOKEN, Place::File("s.toml")),
            ("bill query", BILL_QUERY, Place::File("s.toml")),
            ("redis password", REDIS_PASSWORD, Place::Nowhere),
            ("provider secret", PROVIDER_SECRET, Place::Nowhere),
            ("seed", SEED, Place::Nowhere),
        ] {
            secrets.add(name, secret, place);
        }
        let said = String::new();
        let server = launch.start();
        Self {
            server,
            secrets,
            said,
        }
    }

    /// Notes a secret that nobody may hold, and gives it back.
    #[track_caller]
    fn secret(&mut self, name: &str, secret: &Value) -> String {
        let secret = text(secret);
        self.secrets.add(name, &secret, Place::Nowhere);
        secret
    }

    /// Notes some content, and gives it back.
    fn content(&mut self, name: &str) -> String {
        let content = format!("what the {name} says is nobody's business");
        self.secrets.add(name, &content, Place::Database);
        content
    }

    /// Content that is refused, so that nobody keeps it.
    fn refused_content(&mut self, name: &str) -> String {
        let content = format!("what the {name} says is refused");
        self.secrets.add(name, &content, Place::Nowhere);
        content
    }

    /// Shows a credential in every way, right and wrong, to every protocol. Returns whether it is let in.
    pub async fn show(&self, credential: &str) -> bool {
        let bearing = |request: Request| self.server.send_bare(&request.bearer(credential)).status;
        let status = bearing(Request::get("/v1/whoami"));
        let era = Era::Stateless;
        let tool = message(
            era,
            1,
            "tools/call",
            json!({"name": "asyncgate_whoami", "arguments": {}}),
        );
        let statuses = [
            bearing(carry_to("/mcp", era, &tool)),
            bearing(Request::get("/v1/tasks?limit=1")),
        ];
        assert_eq!(
            statuses.map(|one| one == 401),
            [status == 401; 2],
            "{statuses:?}"
        );
        let peek = pb::PeekRequest {
            topic: "t".to_owned(),
            ..pb::PeekRequest::default()
        };
        // An agent may not look; whoever is nobody is told something else.
        let peeked = client(&self.server)
            .peek(with_bearer(peek, credential))
            .await;
        let nobody = peeked.is_err_and(|refused| refused.code() == tonic::Code::Unauthenticated);
        assert_eq!(nobody, status == 401);
        let basic = BASE64_STANDARD.encode(format!("user:{credential}"));
        for misplaced in [
            Request::get(&format!("/v1/whoami?access_token={credential}")),
            Request::get("/v1/whoami").header("Authorization", &format!("Basic {basic}")),
            Request::get("/v1/whoami").header("Authorization", credential),
            Request::get("/v1/whoami").header("X-Api-Key", credential),
            Request::get("/v1/whoami").header("Cookie", &format!("key={credential}")),
        ] {
            assert_ne!(self.server.send_bare(&misplaced).status, 200);
        }
        status == 200
    }

    /// Shows a credential that is good, and another that is nearly it.
    pub async fn show_and_spoil(&mut self, name: &str, credential: &str) {
        assert!(self.show(credential).await, "{name}");
        let wrong = spoilt(credential);
        self.secrets
            .add(&format!("wrong {name}"), &wrong, Place::Nowhere);
        assert!(!self.show(&wrong).await, "{name}");
        for key in [credential, &wrong] {
            self.command(key, "whoami");
            self.command(key, "task list --json");
        }
    }

    /// Runs a command with a key, and keeps what it says.
    fn command(&mut self, key: &str, line: &str) {
        let mut command = self.server.launch().bare_command();
        command
            .args(line.split(' '))
            .env("ASYNCGATE_URL", format!("http://{}", self.server.address))
            .env("ASYNCGATE_API_KEY", key);
        self.keep(command);
    }

    fn keep(&mut self, command: Command) {
        let ended = run(command);
        self.said += &ended.stdout;
        self.said += &ended.stderr;
    }

    fn admin(&self, path: &str, body: &Value) -> Value {
        self.server.post(path, body).expect(201)
    }

    pub async fn keys(&mut self) {
        let wish = json!({"principal": {"kind": "agent", "id": "ann"}, "role": "agent"});
        let made = self.admin("/v1/admin/keys", &wish);
        let key = self.secret("key", &made["key"]);
        // The part after the lookup id is what must be known; the lookup id is public.
        self.secrets
            .add("end of the key", &key[16..], Place::Nowhere);
        let target = format!("/v1/admin/keys/{}", text(&made["key_id"]));
        let rotated = self.admin(&format!("{target}/rotate"), &json!({"overlap_secs": 600}));
        let next = self.secret("rotated key", &rotated["key"]);
        for (name, key) in [("key", &key), ("rotated key", &next)] {
            self.show_and_spoil(name, key).await;
        }
        self.server
            .send(Request::new("DELETE", &target))
            .expect(200);
        assert!(!self.show(&key).await);
    }

    pub async fn macaroons(&mut self) {
        let wish =
            json!({"principal": {"kind": "agent", "id": "ann"}, "caveats": ["quota ops = 50"]});
        let made = self.admin("/v1/admin/macaroons", &wish);
        let macaroon = self.secret("macaroon", &made["macaroon"]);
        let derived = Macaroon::decode(&macaroon).unwrap();
        let derived = derived.attenuate("time < 2199-01-01T00:00:00Z").unwrap();
        let derived = self.secret("derived macaroon", &json!(derived.encode()));
        for (name, macaroon) in [("macaroon", macaroon), ("derived macaroon", derived)] {
            // Its last bytes are the signature: with them, everybody can go on from there.
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(&macaroon).unwrap();
            let signature = &bytes[bytes.len() - 32..];
            self.secrets.add(
                &format!("signature of the {name}"),
                signature,
                Place::Nowhere,
            );
            self.show_and_spoil(name, &macaroon).await;
            self.command(SHARED_KEY, "macaroon inspect not-a-macaroon-at-all");
        }
        let target = format!("/v1/admin/macaroons/{}", text(&made["macaroon_id"]));
        self.server
            .send(Request::new("DELETE", &target))
            .expect(200);
    }

    pub async fn tokens(&mut self) {
        oauth::let_in(&self.server);
        self.secrets
            .add("password", oauth::PASSWORD, Place::Nowhere);
        self.secrets
            .add("verifier", oauth::VERIFIER, Place::Nowhere);
        let made = oauth::register_for(&self.server, true, &["tasks:read"]);
        let client_secret = self.secret("client secret", &made["client_secret"]);
        let (page, cookie) = oauth::begin(&self.server, &made);
        self.secret("cookie", &json!(cookie.split_once('=').unwrap().1));
        let login = oauth::login_of(&page);
        self.secret("login under way", &json!(login));
        let wrong = self.secret("wrong password", &json!("wrong-password-of-somebody"));
        let pairs = [
            ("login", login),
            ("username", oauth::NAME),
            ("password", &wrong),
        ];
        let wrong = oauth::form("/oauth/login", &pairs).header("Cookie", &cookie);
        assert_eq!(self.server.send_bare(&wrong).status, 403);
        let code = oauth::log_in(&self.server, &page, &cookie);
        self.secret("code", &json!(code));
        let exchange = |server: &Server, secret: &str, code: &str, verifier: &str| {
            let pairs = [
                ("grant_type", "authorization_code"),
                ("code", code),
                ("redirect_uri", oauth::REDIRECT),
                ("code_verifier", verifier),
                ("client_secret", secret),
            ];
            oauth::tokens(server, &made, &pairs)
        };
        let refused = [
            exchange(
                &self.server,
                &spoilt(&client_secret),
                &code,
                oauth::VERIFIER,
            ),
            exchange(
                &self.server,
                &client_secret,
                &spoilt(&code),
                oauth::VERIFIER,
            ),
        ];
        assert_eq!(refused.map(|answer| answer.status), [401, 400]);
        let issued = exchange(&self.server, &client_secret, &code, oauth::VERIFIER).expect(200);
        for (name, secret) in [
            ("wrong client secret", spoilt(&client_secret)),
            ("wrong code", spoilt(&code)),
        ] {
            self.secret(name, &json!(secret));
        }
        let access = self.secret("access token", &issued["access_token"]);
        let refresh = self.secret("refresh token", &issued["refresh_token"]);
        let signature = access.rsplit('.').next().unwrap();
        self.secret("signature of the token", &json!(signature));
        self.show_and_spoil("access token", &access).await;
        let renew = |token: &str| {
            let pairs = [
                ("grant_type", "refresh_token"),
                ("refresh_token", token),
                ("client_secret", &client_secret),
            ];
            oauth::tokens(&self.server, &made, &pairs)
        };
        let (wrong, good, again) = (renew(&spoilt(&refresh)), renew(&refresh), renew(&refresh));
        assert_eq!((wrong.status, good.status, again.status), (400, 200, 400));
        self.secret("wrong refresh token", &json!(spoilt(&refresh)));
        self.secret("second access token", &good.json()["access_token"]);
        self.secret("second refresh token", &good.json()["refresh_token"]);
        // A code with a wrong verifier is over, and so is one that is used twice.
        let (page, cookie) = oauth::begin(&self.server, &made);
        let code = oauth::log_in(&self.server, &page, &cookie);
        let verifier = spoilt(oauth::VERIFIER);
        for _ in 0..2 {
            assert_eq!(
                exchange(&self.server, &client_secret, &code, &verifier).status,
                400
            );
        }
        self.secret("second code", &json!(code));
        self.secret("wrong verifier", &json!(verifier));
    }

    /// Gives a person passwords that are none.
    pub fn passwords(&mut self) {
        let number = 8_421_738_209_465_127_u64;
        self.secret("password that is a number", &json!(number.to_string()));
        let listed = self.secret("password in a list", &json!("password-within-a-list"));
        let long = self.secret("password that is too long", &json!("too-long ".repeat(500)));
        for password in [json!(number), json!([listed]), json!(long)] {
            let person = json!({
                "provider": "local", "subject": "bob", "password": password,
                "principal": {"kind": "human", "id": "bob"}, "role": "agent",
            });
            let answer = self.server.post("/v1/admin/identities", &person);
            assert_eq!(answer.status, 400, "{answer:?}");
        }
    }

    /// A person enters from the command line, which keeps the tokens in a file of its own.
    pub fn command_line_login(&mut self) {
        let home = self.server.launch().dir().join("home");
        let mut command = self.server.launch().bare_command();
        command
            .args(["login", "--no-browser", "--url"])
            .arg(format!("http://{}", self.server.address))
            .env("HOME", &home);
        let mut child = command.spawn().unwrap();
        let told = lines(child.stderr.take().unwrap());
        let address = eventually("an address to log in at", || {
            let line = told.try_recv().ok()?;
            self.said += &line;
            line.contains("/oauth/authorize?").then_some(line)
        });
        let path = address
            .trim()
            .strip_prefix(&format!("http://{}", self.server.address));
        let (page, cookie) = oauth::page_at(&self.server, path.unwrap());
        let sent = oauth::log_in_to(&self.server, &page, &cookie);
        let (callback, target) = sent
            .strip_prefix("http://")
            .unwrap()
            .split_once('/')
            .unwrap();
        let code = target
            .split("code=")
            .nth(1)
            .unwrap()
            .split('&')
            .next()
            .unwrap();
        self.secret("code of the command line", &json!(code));
        let mut browser = Connection::open(callback.parse().unwrap()).unwrap();
        browser.send(&Request::get(&format!("/{target}"))).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        self.said += &String::from_utf8(ended.stdout).unwrap();
        self.said += &told.iter().collect::<String>();
        let kept = std::fs::read_to_string(home.join(".config/asyncgate/logins.json")).unwrap();
        let tokens = kept.split('"').filter(|part| part.len() >= 40);
        let tokens: Vec<&str> = tokens.collect();
        assert!(tokens.len() >= 2, "an access and a refresh token");
        for token in tokens {
            let place = Place::File("home/.config/asyncgate/logins.json");
            self.secrets.add("kept token", token, place);
        }
    }

    pub fn content_of_tasks(&mut self) {
        let [payload, result, progress, error] =
            ["payload", "result", "progress", "error"].map(|name| self.content(name));
        let server = &self.server;
        let create = json!({"type": "t", "payload": {"text": payload}});
        server.create(&create);
        server.create(&json!({"type": "t", "payload": [1], "max_attempts": 1}));
        let held = server.claim(&json!({"worker_id": "w", "max_tasks": 2}));
        let more = json!({"progress": {"text": progress}});
        server.under(&held[0], "progress", &more).expect(200);
        server.complete(&held[0], &json!({"text": result}));
        let why = json!({"error": {"text": error}});
        server.under(&held[1], "fail", &why).expect(200);
        let refused = self.refused_content("refused payload");
        for body in [
            format!(r#"{{"type": "t", "payload": {{"text": "{refused}}}}}"#),
            format!(r#"{{"type": "t", "payload": "{refused}", "priority": "high"}}"#),
            format!(r#"{{"type": 7, "payload": "{refused}"}}"#),
            format!(r#"{{"type": "t", "payload": "{refused}" "more": 1}}"#),
        ] {
            let answer = self.server.send(Request::post("/v1/tasks", body));
            assert_eq!(answer.status, 400, "{answer:?}");
        }
    }

    pub async fn content_of_messages(&mut self) {
        let [rest, grpc, nacked] =
            ["message", "message of gRPC", "nack"].map(|name| self.content(name));
        let server = &self.server;
        server.send_message("t", "a", &BASE64_STANDARD.encode(&rest));
        let send = pb::SendRequest {
            topic: "t".into(),
            idem_key: "b".into(),
            payload: grpc.into_bytes().into(),
            ..pb::SendRequest::default()
        };
        client(server)
            .send(with_bearer(send, SHARED_KEY))
            .await
            .unwrap();
        for message in server.receive("t", 60_000) {
            let why = json!({"reason": "E_PARSE", "error": nacked, "delay_ms": 0});
            server.settle("nack", &message, &why).expect(200);
        }
        server.ack(&server.receive_one("t", 60_000));
        let refused = self.refused_content("refused message");
        let bodies = [
            json!({"topic": "t", "idem_key": "c", "payload_b64": refused}),
            json!({"topic": "t", "idem_key": "c", "payload_b64": {"text": refused}}),
            json!({"topic": "t", "idem_key": 3, "payload_text": refused}),
        ];
        for body in bodies {
            self.server.post("/v1/send", &body).refused(400, "E_SCHEMA");
        }
    }

    pub fn hooks(&mut self) {
        let said = self.content("hook");
        for (n, secret, status) in [
            ("a", HOOK_SECRET, 200),
            ("b", FILED_SECRET, 200),
            ("c", "a-secret-that-is-not-ours", 401),
        ] {
            let mut body = ingress::message(n);
            body["said"] = json!(said);
            let hook = ingress::signed_with(secret, "hooks", body.to_string());
            assert_eq!(self.server.send_bare(&hook).status, status);
        }
        self.secret("wrong hook secret", &json!("a-secret-that-is-not-ours"));
    }

    /// Gives the hooks another secret while the server runs.
    pub fn reload(&self, settings: &str) {
        let next = settings.replace(FILED_SECRET, NEXT_SECRET);
        std::fs::write(self.server.launch().dir().join("s.toml"), next).unwrap();
        self.server.signal("HUP");
        self.server.logged("setting changed");
        eventually("the next secret is in force", || {
            let body = ingress::message("after the reload").to_string();
            let hook = ingress::signed_with(NEXT_SECRET, "hooks", body);
            (self.server.send_bare(&hook).status == 200).then_some(())
        });
    }

    /// Asks for everything that operators look at.
    pub fn commands(&mut self) {
        for line in [
            "status",
            "key list",
            "key list --json",
            "client list --json",
            "identity list --json",
            "tenant list --json",
            "audit --json",
            "audit --tenant none",
            "usage --json",
            "revocations",
            "mail topics",
        ] {
            self.command(SHARED_KEY, line);
        }
    }
}

/// Nearly the same: one character in the middle of the last third is another.
fn spoilt(secret: &str) -> String {
    let at = secret.len() - secret.len() / 6;
    let other = if &secret[at..=at] == "A" { "B" } else { "A" };
    format!("{}{other}{}", &secret[..at], &secret[at + 1..])
}
