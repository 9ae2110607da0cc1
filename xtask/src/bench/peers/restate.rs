//! Restate: each call is a task, which the server hands to a service and answers when it is done.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use crate::bench::caller::Caller;
use crate::bench::load::http::Head;
use crate::bench::load::{Then, Workload};
use crate::bench::workload::expect;

/// Tells the server of a service. It may still be starting.
pub fn register(admin: SocketAddr, service: SocketAddr) -> Result<()> {
    let head = Head::new(&admin.to_string(), "none");
    let body = format!(r#"{{"uri":"http://{service}"}}"#);
    let request = head.post("/deployments", &body);
    let mut tries = 0;
    loop {
        let told = Caller::connect(admin).and_then(|mut caller| {
            caller.send(&request)?;
            caller.answer(201)
        });
        match told {
            Ok(_) => return Ok(()),
            Err(error) if tries == 50 => return Err(error.context("Restate takes no service")),
            Err(_) => tries += 1,
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A workload: each connection calls the service and waits for its answer.
pub struct Calls(Vec<u8>);

impl Calls {
    pub fn new(server: SocketAddr, payload: &str) -> Self {
        let head = Head::new(&server.to_string(), "none");
        Self(head.post("/job/run", payload))
    }
}

impl Workload for Calls {
    fn kinds(&self) -> &'static [&'static str] {
        &["call"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        out.extend_from_slice(&self.0);
        Some(0)
    }

    fn answer(
        &mut self,
        _connection: usize,
        _kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        expect(200, status, body)?;
        Ok(Then::Finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_task_and_a_refusal_an_error() {
        let server = SocketAddr::from(([127, 0, 0, 1], 7));
        let mut calls = Calls::new(server, r#"{"text":"x"}"#);
        let mut out = Vec::new();
        assert_eq!(calls.request(0, &mut out), Some(0));
        assert!(out.starts_with(b"POST /job/run HTTP/1.1\r\nHost: 127.0.0.1:7\r\n"));
        assert!(out.ends_with(b"\r\n\r\n{\"text\":\"x\"}"));
        let done = calls.answer(0, 0, 200, b"\"done\"").unwrap();
        assert_eq!(done, Then::Finished);
        assert!(calls.answer(0, 0, 503, b"").is_err());
    }
}
