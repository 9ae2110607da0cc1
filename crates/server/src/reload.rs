//! SIGHUP: the settings are read again from the same places; what needs no restart is applied.
//!
//! A mistake in the file never harms a running server: it is logged, and everything stays as it was.

use crate::config::{Effective, Inputs, Settings, changes};
use crate::telemetry::Level;

/// The settings that a process runs with, and where they came from.
#[derive(Debug)]
pub struct Running {
    inputs: Inputs,
    effective: Effective,
    level: Level,
}

impl Running {
    pub fn new(inputs: Inputs, effective: Effective, level: Level) -> Self {
        Self {
            inputs,
            effective,
            level,
        }
    }

    /// Reads the settings again. Gives back what to run with from now on, if it changed.
    pub fn reload(&mut self) -> Option<Settings> {
        let fresh = match Effective::read(&self.inputs) {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::error!(%error, "the settings stay as they were");
                return None;
            }
        };
        let changes = changes(&self.effective, &fresh);
        for change in &changes {
            let (key, from, to) = (change.key, &change.from, &change.to);
            if change.live {
                tracing::info!(key, from, to, "setting changed");
            } else {
                tracing::warn!(
                    key,
                    from,
                    to,
                    "setting changed; it takes effect at the next start"
                );
            }
        }
        if !changes.iter().any(|change| change.live) {
            tracing::info!("the settings were read again; nothing to apply");
            return None;
        }
        self.effective.adopt_live(&fresh);
        self.apply()
    }

    fn apply(&self) -> Option<Settings> {
        let settings = Settings::new(&self.effective)
            .inspect_err(|error| tracing::error!(%error, "the settings stay as they were"))
            .ok()?;
        if let Err(error) = self.level.set(&settings.log_level) {
            tracing::error!(%error, "the log level stays as it was");
        }
        Some(settings)
    }
}
