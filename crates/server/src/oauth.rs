//! The routes of OAuth, put together from the settings.

use std::sync::Arc;

use asyncgate_core::identity::oauth::{Lifetimes, Reach};
use asyncgate_engine::Engine;
use asyncgate_engine::oauth::{Oauth, OauthSettings};
use asyncgate_oauth::{DocumentOptions, Facade, Lookup, Options, OwnAddress};

use crate::config::Settings;

const DAY_MS: i64 = 86_400_000;

/// Returns the facade. It answers to nobody if the settings do not want it.
pub fn facade(settings: &Settings, engine: &Arc<Engine>) -> Facade {
    let oauth = Oauth::new(engine.clone(), for_engine(settings));
    Facade::new(oauth, options(settings))
}

/// Puts other settings in force.
pub fn reload(facade: &Facade, settings: &Settings) {
    facade.reload(for_engine(settings), options(settings));
}

fn for_engine(settings: &Settings) -> OauthSettings {
    let oauth = &settings.oauth;
    OauthSettings {
        issuer: settings.jwt_issuer.clone(),
        audience: settings.jwt_audience.clone(),
        lifetimes: Lifetimes {
            access_ms: i64::from(oauth.access_token_ttl_days) * DAY_MS,
            refresh_ms: i64::from(oauth.refresh_token_ttl_days) * DAY_MS,
        },
        local_login: oauth.local_login,
        dynamic_registration: oauth.dynamic_registration,
        client_documents: oauth.client_documents,
        registration_tenant: oauth.registration_tenant.clone(),
    }
}

fn options(settings: &Settings) -> Options {
    Options {
        enabled: settings.oauth.enabled,
        own: OwnAddress {
            public_url: settings.public_url.clone(),
            secure: settings.tls.is_some(),
            listener: settings.bind.to_string(),
        },
        providers: settings.oauth.providers.clone(),
        documents: DocumentOptions {
            reach: match settings.allow_insecure_dev {
                true => Reach::PublicAndOwnMachine,
                false => Reach::Public,
            },
            lookup: Lookup::default(),
        },
    }
}
