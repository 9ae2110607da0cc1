//! Questions to a server that may answer wrongly: a bad answer is a finding, not a panic.

use serde_json::Value;

use crate::harness::Server;
use crate::http::{Connection, Request, Response};

/// What was found, or what is wrong.
pub type Verdict<T> = Result<T, String>;

/// A connection to a server, with its key.
pub struct Ask<'a> {
    server: &'a Server,
    connection: Option<Connection>,
}

impl<'a> Ask<'a> {
    pub fn new(server: &'a Server) -> Self {
        Self {
            server,
            connection: None,
        }
    }

    pub fn send(&mut self, request: Request) -> Verdict<Response> {
        let request = self.server.with_key(request);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.server.address).map_err(|error| error.to_string())?,
        };
        let answer = connection
            .send(&request)
            .map_err(|error| format!("no answer: {error}; its log: {}", self.server.log()))?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// The body of an answer that must be a success.
    pub fn bytes(&mut self, target: &str) -> Verdict<Vec<u8>> {
        let answer = self.send(Request::get(target))?;
        if answer.status != 200 {
            return Err(format!("GET {target}: {answer:?}"));
        }
        Ok(answer.body)
    }

    pub fn get(&mut self, target: &str) -> Verdict<Value> {
        let body = self.bytes(target)?;
        serde_json::from_slice(&body).map_err(|error| format!("GET {target}: {error}"))
    }

    pub fn post(&mut self, target: &str, input: &Value) -> Verdict<(u16, Value)> {
        let answer = self.send(Request::post(target, input.to_string()))?;
        let body = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("POST {target}: {error}: {answer:?}"))?;
        Ok((answer.status, body))
    }
}
