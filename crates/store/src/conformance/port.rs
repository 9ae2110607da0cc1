//! Ports for programs that tests start.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports that the system gives to no connection of its own accord begin here; there are as many of them, and as
/// many after those.
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
