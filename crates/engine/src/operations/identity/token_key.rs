//! The key that signs access tokens is replaced.

use asyncgate_api::{NoInput, RotateTokenKey, RotatedTokenKey};
use asyncgate_core::identity::manage::token_key::rotate;
use asyncgate_store::identity::Reads;

use super::{Execute, Executed};
use crate::{Caller, Engine};

impl Execute for RotateTokenKey {
    async fn execute(engine: &Engine, caller: &Caller, _: NoInput) -> Executed<Self> {
        let keyring = engine.keyring()?;
        let key = keyring.new_token_key().await?;
        let (actor, kid) = (Engine::actor(caller), key.kid.clone());
        // The entry is written before the key signs: whoever goes away in between leaves an entry too many, never a
        // key that no log tells of.
        let told = engine.manage(caller, Reads::default(), move |env, _| {
            rotate(&actor, env, &kid)
        });
        told.await?;
        let kid = key.kid.clone();
        let old = keyring.sign_with(key).await?;
        tracing::info!(
            event = "token_key.rotated",
            kid,
            "access tokens are signed with a new key"
        );
        Ok(RotatedTokenKey {
            kid,
            old_accepted_until: old.as_ref().map(|old| old.accepted_until.to_string()),
            replaces: old.map(|old| old.kid),
        })
    }
}
