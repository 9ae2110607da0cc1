//! Programs that tests start: on ports of their own, ended or held up as a fault would do it.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// How long anything may take that must happen sooner or later.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The system gives ports from here on, twice as many, to no connection of its own accord.
const FIRST: u16 = 10_000;

/// A port that was free a moment ago, and the one ten thousand further too, for programs that want two. Nobody
/// else in this process gets it, and no connection takes it by chance.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Other processes begin elsewhere.
    let begin = std::process::id().wrapping_mul(7_919);
    loop {
        let next = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from(next % u32::from(FIRST)).unwrap();
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free(port) && is_free(port + FIRST) {
            return port;
        }
    }
}

/// A program that runs until it is dropped, which ends it as a crash does.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self::try_start(command).unwrap()
    }

    /// Starts it, unless it is not there.
    pub fn try_start(command: &mut Command) -> Option<Self> {
        command.spawn().ok().map(Self)
    }

    /// Stops it in its tracks, without closing anything.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits until something holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let hold = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, hold).await.is_ok(), "{what}");
}
