//! Programs that tests start: on ports of their own, ended or held up as a fault would do it.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// The time that anything may take that must happen sooner or later.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The first of the ports that the system gives to no connection of its own accord. There are twice as many of them.
const FIRST: u16 = 10_000;

/// Returns a port that was free a moment ago, and so was the one ten thousand further, for programs that want two. Nobody
/// else in this process gets it, and no connection takes it by chance.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Another process begins with another port.
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
    /// Starts a program.
    pub fn start(command: &mut Command) -> Self {
        Self::try_start(command).unwrap()
    }

    /// Starts a program. Returns `None` if it is not installed.
    pub fn try_start(command: &mut Command) -> Option<Self> {
        command.spawn().ok().map(Self)
    }

    /// Pauses the program, without closing anything.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets the program go on.
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
        // The program may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits until a condition holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let hold = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, hold).await.is_ok(), "{what}");
}
