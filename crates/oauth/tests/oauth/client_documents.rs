//! Clients that are described by a document, which is at a server that lies.

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use asyncgate_core::identity::{
    IdentityLink, Role,
    oauth::{MAX_DOCUMENT_BYTES, Reach},
};
use asyncgate_engine::Remote;
use asyncgate_oauth::Lookup;
use axum::{
    Router,
    body::Body,
    http::{StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};

use super::{
    browser::Answer,
    id_provider::IdProvider,
    keyring::read,
    world::{PASSWORD, REDIRECT, Setup, World, authorize, local, log_in, sent_to_client},
};

/// How a server answers to a path.
type Behaviour = Arc<dyn Fn(&str) -> Response + Send + Sync>;

/// A server with documents.
struct Host {
    address: String,
    behaviour: Arc<Mutex<Behaviour>>,
    hits: Arc<AtomicUsize>,
}

impl Host {
    /// A server whose documents are good at first.
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let base = address.clone();
        let good: Behaviour = Arc::new(move |path| {
            let document = good(&format!("{base}{path}"));
            document.to_string().into_response()
        });
        let host = Self {
            address,
            behaviour: Arc::new(Mutex::new(good)),
            hits: Arc::default(),
        };
        let (behaviour, hits) = (Arc::clone(&host.behaviour), Arc::clone(&host.hits));
        let serve = move |uri: Uri| {
            hits.fetch_add(1, Relaxed);
            let answer = behaviour.lock().unwrap()(uri.path());
            std::future::ready(answer)
        };
        let router = Router::new().fallback(serve);
        tokio::spawn(async move { axum::serve(listener, router).await });
        host
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    fn behave(&self, behaviour: impl Fn(&str) -> Response + Send + Sync + 'static) {
        *self.behaviour.lock().unwrap() = Arc::new(behaviour);
    }

    fn say(&self, document: &Value) {
        let text = document.to_string();
        self.behave(move |_| text.clone().into_response());
    }

    fn hits(&self) -> usize {
        self.hits.load(Relaxed)
    }
}

fn good(url: &str) -> Value {
    json!({
        "client_id": url,
        "client_name": "A <Document>",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "tasks:read tasks:write admin:write platform:admin",
        "software_id": "ignored",
    })
}

/// What requests name the client by.
fn named(url: &str) -> Value {
    json!({ "client_id": url })
}

async fn ask(world: &World, url: &str) -> Answer {
    world.browser().get(&authorize(&named(url), &[])).await
}

/// Asserts that a request got no further than this server. Returns what is told.
#[track_caller]
fn stays_here(answer: &Answer) -> String {
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(answer.header("location"), "");
    answer.json()["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_document_makes_a_client_that_acts_for_no_admin() {
    let (world, host) = (World::new().await, Host::start().await);
    let root = IdentityLink {
        role: Role::Admin,
        ..local("root")
    };
    world.let_in(root).await;
    let url = host.url("/client.json");
    let client = named(&url);
    let wants_more = authorize(&client, &[("scope", "admin:write")]);
    let refused = world.browser().get(&wants_more).await;
    assert_eq!(sent_to_client(&refused)["error"], "invalid_scope");
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[("scope", "")])).await;
    assert!(page.body.contains("A &lt;Document&gt;"), "{page:?}");
    let answer = log_in(&mut browser, &page, "root", PASSWORD).await;
    let code = sent_to_client(&answer)["code"].clone();
    let tokens = world.exchange(&client, &code, &[]).await.json();
    assert_eq!(tokens["scope"], "tasks:read tasks:write");
    let claims = read(tokens["access_token"].as_str().unwrap(), world.now()).unwrap();
    assert_eq!(claims.client_id.as_deref(), Some(url.as_str()));
    let token = tokens["refresh_token"].as_str().unwrap();
    let secret = [("client_secret", "s")];
    let refused = world.refresh(&client, token, &secret).await;
    assert_eq!(refused.error(), "invalid_client", "it has no secret");
    let again = world.refresh(&client, token, &[]).await;
    assert_eq!(again.status, 200, "{again:?}");
    let listed = world.admin("list_oauth_clients", json!({})).await.unwrap();
    let shown = &listed["clients"][0];
    assert_eq!(
        (&shown["document"], &shown["dynamic"]),
        (&json!(url), &json!(true))
    );
    let other = named(&host.url("/another.json"));
    let refused = world.refresh(&other, token, &[]).await;
    assert_eq!(refused.error(), "invalid_client");
    // Its record has an id, by which nobody passes the document by.
    let by_id = json!({ "client_id": shown["client_id"] });
    let by_id = world.browser().get(&authorize(&by_id, &[])).await;
    assert_eq!(stays_here(&by_id), "client_id names no client");
    assert_eq!(host.hits(), 1);
}

#[tokio::test]
async fn a_person_agrees_before_a_provider_is_asked() {
    let (provider, host) = (IdProvider::start().await, Host::start().await);
    let world = World::with(Setup {
        providers: vec![provider.settings("acme")],
        ..Setup::default()
    });
    let page = ask(&world, &host.url("/client.json")).await;
    assert_eq!(page.status, 200, "nobody is sent on");
    assert!(page.body.contains("Do you know this program?"), "{page:?}");
    assert!(page.body.contains(&host.address), "{page:?}");
    assert_eq!(provider.behaviour.lock().unwrap().reads, [0, 0, 0]);
}

#[tokio::test]
async fn what_a_document_must_not_say_is_told_on_the_spot() {
    let (world, host) = (World::new().await, Host::start().await);
    let url = host.url("/client.json");
    for (name, value, told) in [
        ("client_id", json!(host.url("/other.json")), "client_id"),
        ("client_id", json!(format!("{url}/")), "client_id"),
        ("client_id", json!(url.to_uppercase()), "client_id"),
        ("client_id", Value::Null, "client_id"),
        ("client_id", json!([url]), "JSON"),
        ("client_secret", json!("s"), "secret"),
        ("client_secret_expires_at", json!(0), "secret"),
        (
            "token_endpoint_auth_method",
            json!("client_secret_basic"),
            "secret",
        ),
        (
            "token_endpoint_auth_method",
            json!("private_key_jwt"),
            "secret",
        ),
        ("redirect_uris", json!([]), "redirect"),
        ("redirect_uris", json!(["http://a.example/"]), "redirect"),
        ("redirect_uris", json!(["myapp://cb"]), "redirect"),
        ("redirect_uris", json!("x"), "JSON"),
        ("client_name", json!("a\u{0}b"), "client_name"),
        ("scope", json!("admin:write"), "scope"),
        ("grant_types", json!(["implicit"]), "grant_types"),
        ("response_types", json!(["token"]), "response_types"),
    ] {
        let mut document = good(&url);
        document[name] = value.clone();
        host.say(&document);
        // What was remembered of the last one is forgotten, and so is the limit.
        world.clock.advance(301_000);
        let said = stays_here(&ask(&world, &url).await);
        assert!(said.contains(told), "{name}={value}: {said}");
    }
    let listed = world.admin("list_oauth_clients", json!({})).await.unwrap();
    assert_eq!(listed["clients"], json!([]), "nothing is kept");
}

#[tokio::test]
async fn a_server_that_lies_is_not_believed_and_not_followed() {
    let (world, host) = (World::new().await, Host::start().await);
    let elsewhere = Host::start().await;
    let url = host.url("/client.json");
    let document = good(&url).to_string();
    elsewhere.say(&good(&url));
    let target = elsewhere.url("/client.json");
    let answers: Vec<Box<dyn Fn() -> Response + Send + Sync>> = vec![
        Box::new(move || {
            let location = [(header::LOCATION, target.clone())];
            (StatusCode::FOUND, location).into_response()
        }),
        Box::new(|| (StatusCode::NOT_FOUND, "{}").into_response()),
        Box::new({
            let document = document.clone();
            move || (StatusCode::CREATED, document.clone()).into_response()
        }),
        Box::new(|| "<html>".into_response()),
        Box::new(|| "[]".into_response()),
        Box::new(|| "".into_response()),
        Box::new({
            let document = document.clone();
            move || format!("{document}{document}").into_response()
        }),
        Box::new({
            let document = document.clone();
            move || padded(&document, MAX_DOCUMENT_BYTES + 1).into_response()
        }),
        Box::new({
            // Without a length, and without an end.
            move || {
                let spaces = std::iter::repeat_with(|| Ok::<_, io::Error>(" ".repeat(1_000)));
                let body = futures_util::stream::iter(spaces);
                Response::new(Body::from_stream(body))
            }
        }),
    ];
    for (n, answer) in answers.into_iter().enumerate() {
        host.behave(move |_| answer());
        world.clock.advance(301_000);
        let hits = host.hits();
        stays_here(&ask(&world, &url).await);
        assert_eq!(host.hits(), hits + 1, "{n}");
    }
    assert_eq!(elsewhere.hits(), 0);
    host.behave(move |_| padded(&document, MAX_DOCUMENT_BYTES).into_response());
    world.clock.advance(301_000);
    assert_eq!(ask(&world, &url).await.status, 200);
}

fn padded(document: &str, bytes: usize) -> String {
    format!("{document}{}", " ".repeat(bytes - document.len()))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_its_time_is_given_up() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/client.json", listener.local_addr().unwrap());
    let world = World::new().await;
    // Connections wait in the queue of the socket, and nobody ever answers.
    let asked = timeout(Duration::from_secs(6), ask(&world, &url)).await;
    let said = stays_here(&asked.unwrap());
    assert!(said.contains("cannot be read"), "{said}");
}

/// A look-up that gives these answers in turn, the last one for ever, and counts.
fn lookup(answers: &[&[&str]]) -> (Lookup, Arc<AtomicUsize>) {
    let parse = |answer: &&[&str]| -> Vec<IpAddr> {
        let texts = answer.iter();
        texts.map(|text| text.parse().unwrap()).collect()
    };
    let answers: Vec<Vec<IpAddr>> = answers.iter().map(parse).collect();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let lookup = Lookup::new(move |_| {
        let turn = count.fetch_add(1, Relaxed).min(answers.len() - 1);
        let found = answers[turn].clone();
        Box::pin(async move { Ok(found) })
    });
    (lookup, asked)
}

/// A socket of this machine, and its port.
fn nearby() -> (std::net::TcpListener, u16) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn nobody_came(listener: &std::net::TcpListener) -> bool {
    let come = listener.accept().map_err(|none| none.kind());
    come.err() == Some(io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn a_host_that_leads_into_a_private_network_is_not_called() {
    let (nearby, port) = nearby();
    for answer in [
        &["10.0.0.1"][..],
        &["127.0.0.1"],
        &["169.254.169.254"],
        &["0.0.0.0"],
        &["224.0.0.1"],
        &["::1"],
        &["fe80::1"],
        &["fd00::1"],
        &["::ffff:127.0.0.1"],
        &["127.0.0.1", "93.184.216.34"],
        &["93.184.216.34", "10.0.0.1"],
        &["192.168.1.1", "93.184.216.34"],
        &[],
    ] {
        let (lookup, asked) = lookup(&[answer]);
        let world = World::with(Setup {
            reach: Reach::Public,
            lookup,
            ..Setup::default()
        });
        let url = format!("https://app.example:{port}/client.json");
        let said = stays_here(&ask(&world, &url).await);
        assert!(nobody_came(&nearby), "{answer:?}");
        assert_eq!(
            said, "the document at client_id cannot be read",
            "{answer:?}"
        );
        assert_eq!(asked.load(Relaxed), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_that_is_called() {
    let host = Host::start().await;
    let port = host.address.rsplit(':').next().unwrap();
    let url = format!("http://localhost:{port}/client.json");
    host.say(&good(&url));
    // A second look-up would lead elsewhere.
    let (rebinding, asked) = lookup(&[&["127.0.0.1"], &["10.0.0.1"]]);
    let world = World::with(Setup {
        lookup: rebinding,
        ..Setup::default()
    });
    assert_eq!(ask(&world, &url).await.status, 200);
    assert_eq!((asked.load(Relaxed), host.hits()), (1, 1));
    // An answer with both is no answer, although the first address would do.
    let (mixed, _) = lookup(&[&["127.0.0.1", "93.184.216.34"]]);
    let world = World::with(Setup {
        lookup: mixed,
        ..Setup::default()
    });
    stays_here(&ask(&world, &url).await);
    assert_eq!(host.hits(), 1);
}

#[tokio::test]
async fn an_address_that_nothing_is_fetched_from_is_not_even_looked_up() {
    let host = Host::start().await;
    let (lookup, asked) = lookup(&[&["93.184.216.34"]]);
    let world = World::with(Setup {
        reach: Reach::Public,
        lookup,
        ..Setup::default()
    });
    for url in [
        host.url("/client.json").as_str(),
        "http://app.example/client.json",
        "https://127.0.0.1/client.json",
        "https://[::1]/client.json",
        "https://localhost/client.json",
        "https://10.0.0.1/client.json",
        "https://169.254.169.254/latest/meta-data",
        "https://[fd00:ec2::254]/client.json",
        "https://app.example",
        "https://app.example/a/../client.json",
        "https://app.example/client.json#frag",
        "https://user@app.example/client.json",
    ] {
        stays_here(&ask(&world, url).await);
    }
    assert_eq!((asked.load(Relaxed), host.hits()), (0, 0));
    // These lead to this machine, too.
    let (nearby, port) = nearby();
    for literal in ["0.0.0.0", "[::ffff:127.0.0.1]"] {
        let url = format!("https://{literal}:{port}/client.json");
        stays_here(&ask(&world, &url).await);
        assert!(nobody_came(&nearby), "{literal}");
    }
}

#[tokio::test]
async fn a_document_is_read_again_after_a_while_and_a_bad_one_sooner() {
    let (world, host) = (World::new().await, Host::start().await);
    let url = host.url("/client.json");
    for _ in 0..3 {
        assert_eq!(ask(&world, &url).await.status, 200);
    }
    assert_eq!(host.hits(), 1);
    let mut moved = good(&url);
    moved["redirect_uris"] = json!(["https://client.example/elsewhere"]);
    host.say(&moved);
    world.clock.advance(299_999);
    assert_eq!(ask(&world, &url).await.status, 200);
    world.clock.advance(1);
    let said = stays_here(&ask(&world, &url).await);
    assert!(said.contains("redirect_uri"), "{said}");
    assert_eq!(host.hits(), 2);

    let bad = host.url("/bad.json");
    for (after, hits) in [(0, 3), (0, 3), (29_999, 3), (1, 4)] {
        world.clock.advance(after);
        stays_here(&ask(&world, &bad).await);
        assert_eq!(host.hits(), hits, "{after}");
    }
}

#[tokio::test]
async fn documents_are_fetched_seldom_for_one_address_and_what_is_remembered_is_free() {
    let (world, host) = (World::new().await, Host::start().await);
    let from = async |last: u8, n: usize| {
        let remote = Remote::Network(([192, 0, 2, last], 4_000).into());
        let url = host.url(&format!("/{n}.json"));
        remote.scope(ask(&world, &url)).await
    };
    for n in 0..10 {
        assert_eq!(from(1, n).await.status, 200);
    }
    let refused = from(1, 10).await;
    assert_eq!(refused.status, 429);
    assert_ne!(refused.header("retry-after"), "");
    assert_eq!(from(1, 9).await.status, 200);
    assert_eq!(from(2, 10).await.status, 200);
    assert_eq!(host.hits(), 11);
}

#[tokio::test]
async fn documents_can_be_switched_off_and_their_clients_with_them() {
    let (world, host) = (World::new().await, Host::start().await);
    let client = named(&host.url("/client.json"));
    let tokens = world.tokens(&client).await;
    world.reload(Setup {
        client_documents: false,
        ..Setup::default()
    });
    let url = client["client_id"].as_str().unwrap();
    assert_eq!(
        stays_here(&ask(&world, url).await),
        "client_id names no client"
    );
    let token = tokens["refresh_token"].as_str().unwrap();
    let refused = world.refresh(&client, token, &[]).await;
    assert_eq!(refused.error(), "invalid_client");
    let metadata = world
        .browser()
        .get("/.well-known/oauth-authorization-server")
        .await;
    let supported = &metadata.json()["client_id_metadata_document_supported"];
    assert_eq!(*supported, false);
}
