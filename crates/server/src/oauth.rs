//! The routes of OAuth, put together from the settings.

use std::sync::Arc;

use asyncgate_core::identity::oauth::Lifetimes;
use asyncgate_engine::Engine;
use asyncgate_engine::oauth::{Oauth, OauthSettings};
use asyncgate_oauth::{Options, OwnAddress};
use axum::Router;

use crate::config::Settings;

const DAY_MS: i64 = 86_400_000;

/// Returns the routes, if the settings want them.
pub fn router(settings: &Settings, engine: &Arc<Engine>) -> Option<Router> {
    let oauth = &settings.oauth;
    if !oauth.enabled {
        return None;
    }
    let for_engine = OauthSettings {
        issuer: settings.jwt_issuer.clone(),
        audience: settings.jwt_audience.clone(),
        lifetimes: Lifetimes {
            access_ms: i64::from(oauth.access_token_ttl_days) * DAY_MS,
            refresh_ms: i64::from(oauth.refresh_token_ttl_days) * DAY_MS,
        },
        local_login: oauth.local_login,
        registration_tenant: oauth.registration_tenant.clone(),
    };
    let options = Options {
        own: OwnAddress {
            public_url: settings.public_url.clone(),
            secure: settings.tls.is_some(),
            listener: settings.bind.to_string(),
        },
        providers: oauth.providers.clone(),
    };
    let oauth = Arc::new(Oauth::new(engine.clone(), for_engine));
    Some(asyncgate_oauth::router(oauth, options))
}
