//! SIGHUP: reads the settings again from the same sources and applies what needs no restart.
//!
//! A mistake in the file never harms a running server: it is logged, and everything stays as it was.

use crate::config::{Effective, Inputs, Settings, changes};
use crate::telemetry::Logs;

/// The settings that the process runs with, and their sources.
#[derive(Debug)]
pub struct Running {
    inputs: Inputs,
    effective: Effective,
    logs: Logs,
}

impl Running {
    pub fn new(inputs: Inputs, effective: Effective, logs: Logs) -> Self {
        Self {
            inputs,
            effective,
            logs,
        }
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.effective.settings
    }

    /// Logs that there is no config file: an operator may have expected one to be read.
    pub fn announce(&self) {
        if self.inputs.file.is_none() {
            tracing::info!("no config file: flags, environment and defaults are in force");
        }
    }

    /// Reads the settings again, and calls `apply` if something changed that needs no restart.
    pub fn reload(&mut self, apply: impl FnOnce(&Settings)) {
        if let Err(error) = self.read_again(apply) {
            tracing::error!(event = "config.reload", %error, "the settings stay as they were");
        }
    }

    fn read_again(&mut self, apply: impl FnOnce(&Settings)) -> anyhow::Result<()> {
        let fresh = Effective::read(&self.inputs)?;
        // Everything is checked before anything is applied.
        let next = self.effective.adopt_live(&fresh)?;
        let changes = changes(&self.effective, &fresh);
        let is_live = changes.iter().any(|change| change.live);
        if is_live {
            self.logs.set(&next.settings)?;
            self.effective = next;
            apply(&self.effective.settings);
        }
        // The log comes last, so that each line is true when it is written.
        for warning in &fresh.warnings {
            tracing::warn!(event = "config.reload", "{warning}");
        }
        for change in &changes {
            let (key, old, new) = (change.key, &change.from, &change.to);
            if change.live {
                tracing::info!(event = "config.reload", key, old, new, "setting changed");
            } else {
                tracing::warn!(
                    event = "config.reload",
                    key,
                    old,
                    new,
                    "setting changed; it takes effect at the next start"
                );
            }
        }
        if !is_live {
            tracing::info!(
                event = "config.reload",
                "the settings were read again; nothing to apply"
            );
        }
        Ok(())
    }
}
