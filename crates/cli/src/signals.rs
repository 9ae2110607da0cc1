//! Signals of the operating system to this process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request that a signal makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that the process handles itself. Once this value exists, none of them kills the process.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    interrupted: bool,
}

impl Signals {
    /// Takes over the handling of the signals.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupted: false,
        })
    }

    /// Waits for the next signal. Dropping the future loses none.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => {
                self.interrupted = true;
                Wish::Stop
            }
            _ = self.hang_up.recv() => Wish::Reload,
        }
    }

    /// Returns true if SIGINT has come, which somebody at a terminal sends.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }
}
