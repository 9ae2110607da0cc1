//! Whatever stands behind `Authorization: Bearer`, before anybody knows which kind of credential it is.

use std::sync::{Arc, LazyLock};

use asyncgate_auth::{
    MemoryFiles,
    fakes::{TestAuth, settings},
};
use asyncgate_core::{
    Principal, PrincipalKind, RecordId,
    identity::{DEFAULT_TENANT, Macaroon as Minted, Record, Role},
};
use asyncgate_credentials::{
    jwt::Claims,
    macaroon::{LOCATION, Macaroon},
};
use asyncgate_engine::{
    Authenticator as _, Clock as _, Keyring as _, RequestContext,
    fakes::{FakeClock, START_MS},
};
use tokio::runtime::{Builder, Runtime};

/// An authenticator, and the credentials that it accepts.
struct World {
    auth: TestAuth,
    good: Vec<String>,
}

static WORLD: LazyLock<Option<World>> = LazyLock::new(|| runtime()?.block_on(world()));

thread_local! {
    static RUNTIME: Option<Runtime> = runtime();
}

fn runtime() -> Option<Runtime> {
    Builder::new_current_thread().enable_all().build().ok()
}

async fn world() -> Option<World> {
    let clock = Arc::new(FakeClock::at(START_MS));
    let files = Arc::new(MemoryFiles::default());
    let auth = TestAuth::over(&Arc::default(), &clock, files, &settings());
    let key = auth.auth.begin().await.ok()??;
    let id = RecordId::from_bytes([7; 16]);
    let caveats = ["op = send".to_owned(), "topic = t".to_owned()];
    let minted = auth.keyring.macaroon(id, &caveats).ok()?;
    let principal = Principal::new(PrincipalKind::Agent, "ann").key();
    let record = Record::Macaroon(Minted {
        id,
        tenant: DEFAULT_TENANT,
        principal: principal.clone(),
        role: Role::Agent,
        root_key: minted.root_key.clone(),
        created_at: clock.now(),
        expires_at: clock.now().plus_millis(86_400_000),
        revoked_at: None,
    });
    auth.put(vec![record]).await;
    let second = START_MS / 1_000;
    let token = auth.keyring.sign(&Claims {
        issuer: "asyncgate".to_owned(),
        audience: vec!["asyncgate-api".to_owned()],
        subject: "ann".to_owned(),
        tenant: DEFAULT_TENANT,
        principal,
        role: None,
        scopes: None,
        expires_at: second + 60,
        issued_at: second,
        not_before: None,
        client_id: None,
        token_id: None,
        family: None,
    });
    let good = vec![
        key.reveal().to_owned(),
        minted.secret.reveal().to_owned(),
        token.ok()?,
    ];
    Some(World { auth, good })
}

/// Takes any text as a credential: nobody is let in but by one that was made for it, and a refusal is never a defect
/// of the server.
pub fn bearers(input: &[u8]) {
    let (Ok(text), Some(world)) = (std::str::from_utf8(input), WORLD.as_ref()) else {
        return;
    };
    let request = RequestContext {
        credential: Some(text),
        ..RequestContext::default()
    };
    let checked = world.auth.auth.authenticate(&request);
    let checked = RUNTIME.with(|runtime| runtime.as_ref().map(|it| it.block_on(checked)));
    match checked {
        Some(Ok(_)) => assert!(is_good(world, text), "a forgery: {text}"),
        Some(Err(fault)) => assert!(fault.code.http_status() != 500, "{:?}", fault.cause),
        None => {}
    }
}

/// Returns true for what was made, in any of the ways in which a macaroon can be written.
fn is_good(world: &World, text: &str) -> bool {
    // The location is not signed, and base64 may have padding.
    let plain = |text: &str| Macaroon::decode(text).ok()?.at(LOCATION).ok();
    let same =
        |good: &String| good == text || plain(good).is_some_and(|it| plain(text) == Some(it));
    world.good.iter().any(same)
}

/// Returns one credential of each kind.
pub fn bearer_seeds() -> Vec<Vec<u8>> {
    let good = WORLD.as_ref().map(|world| world.good.as_slice());
    let good = good.unwrap_or_default().iter();
    good.map(|text| text.as_bytes().to_vec()).collect()
}
