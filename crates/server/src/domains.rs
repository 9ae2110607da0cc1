//! The settings of domains, from the operator's to the engine's.

use asyncgate_domains::{Evaluator, Limiter, Rules};
use asyncgate_engine::Domains;

use crate::config;

/// Returns the part of the settings that the engine answers requests about domains by.
pub fn for_domains(settings: &config::Domains) -> Domains {
    let evaluator: Box<dyn Evaluator> = match &settings.evaluator {
        Some(evaluator) => Box::new(evaluator.clone()),
        None => Box::new(Limiter),
    };
    Domains {
        rules: Rules {
            compat: settings.compat,
            evaluator,
            version: env!("CARGO_PKG_VERSION"),
        },
        enabled: settings.enabled,
        client_policy: settings.client_policy.clone(),
    }
}
