//! A small blocking HTTP/1.1 client that can say anything, right or wrong.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::contract;

/// Longer than any call of a test may take; a server that hangs fails the test, not the run.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request being put together.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    None,
    Sized(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
}

impl Request {
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Body::None,
        }
    }

    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", target)
            .header("Content-Type", "application/json")
            .body(body)
    }

    /// A body whose length is not told beforehand.
    pub fn chunked(target: &str, chunks: &[&[u8]]) -> Self {
        let mut request = Self::new("POST", target).header("Content-Type", "application/json");
        request.body = Body::Chunked(chunks.iter().map(|chunk| chunk.to_vec()).collect());
        request
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn bearer(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Body::Sized(body.into());
        self
    }

    /// The head as it goes over the wire, the empty line included.
    pub fn head(&self, address: SocketAddr) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        let named = |(name, _): &(String, String)| name.eq_ignore_ascii_case("host");
        if !self.headers.iter().any(named) {
            head.push_str(&format!("Host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.body {
            Body::None if self.method == "GET" => {}
            Body::None => head.push_str("Content-Length: 0\r\n"),
            Body::Sized(body) => head.push_str(&format!("Content-Length: {}\r\n", body.len())),
            Body::Chunked(_) => head.push_str("Transfer-Encoding: chunked\r\n"),
        }
        head.push_str("\r\n");
        head
    }

    /// The body as it goes over the wire.
    pub fn encoded_body(&self) -> Vec<u8> {
        match &self.body {
            Body::None => Vec::new(),
            Body::Sized(body) => body.clone(),
            Body::Chunked(chunks) => {
                let mut encoded = Vec::new();
                for chunk in chunks {
                    encoded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    encoded.extend_from_slice(chunk);
                    encoded.extend_from_slice(b"\r\n");
                }
                encoded.extend_from_slice(b"0\r\n\r\n");
                encoded
            }
        }
    }
}

/// What came back.
#[derive(Clone)]
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The one value of a header; fails if it came twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} came twice: {self:?}");
        Some(&value.1)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("an answer is UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON: {error}: {self:?}"))
    }

    /// The body, if the status is the expected one.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// Checks that this is an error with this status and code, in the one error body.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body["code"], code, "{self:?}");
        assert_eq!(body["error"], code.to_ascii_lowercase(), "{self:?}");
        let message = body["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "no message: {self:?}");
        let corr_id = self.header("X-Corr-Id").expect("X-Corr-Id");
        assert_eq!(body["corr_id"], corr_id, "{self:?}");
        assert_eq!(
            self.header("Content-Type"),
            Some("application/json"),
            "{self:?}"
        );
        body
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.body);
        let shown: String = text.chars().take(2_000).collect();
        writeln!(f, "status {}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "{shown}")
    }
}

/// A connection that is kept alive between requests.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            address,
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and reads its answer.
    pub fn send(&mut self, request: &Request) -> io::Result<Response> {
        let mut bytes = request.head(self.address).into_bytes();
        bytes.extend_from_slice(&request.encoded_body());
        let answer = self.exchange(&bytes)?;
        contract::hold(&request.method, &request.target, &answer);
        Ok(answer)
    }

    /// Sends bytes and reads an answer. A server may answer, and hang up, before it has read all.
    pub fn exchange(&mut self, bytes: &[u8]) -> io::Result<Response> {
        let sent = self.write(bytes);
        let answer = self.read();
        match (sent, answer) {
            (_, Ok(answer)) => Ok(answer),
            (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
        }
    }

    /// Sends bytes and leaves the answer for [`read`](Self::read).
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one answer, passing over interim ones.
    pub fn read(&mut self) -> io::Result<Response> {
        loop {
            let response = self.read_one()?;
            if response.status >= 200 {
                return Ok(response);
            }
        }
    }

    /// Reads one answer, which may be an interim one.
    pub fn read_one(&mut self) -> io::Result<Response> {
        let mut response = self.read_head()?;
        if response.status >= 200 && response.status != 204 {
            response.body = self.read_body(&response)?;
        }
        Ok(response)
    }

    /// Reads the head of an answer and leaves its body, which may never end.
    pub fn read_head(&mut self) -> io::Result<Response> {
        let status_line = self.line()?;
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| invalid(&format!("status line {status_line:?}")))?;
        let mut response = Response {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid(&line))?;
            let header = (name.trim().to_owned(), value.trim().to_owned());
            response.headers.push(header);
        }
        Ok(response)
    }

    fn read_body(&mut self, response: &Response) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if response.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&self.line()?, 16)
                    .map_err(|error| invalid(&error.to_string()))?;
                let start = body.len();
                body.resize(start + size, 0);
                self.stream.read_exact(&mut body[start..])?;
                self.line()?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        match response.header("Content-Length") {
            Some(length) => {
                let length = length.parse().map_err(|_| invalid("Content-Length"))?;
                body.resize(length, 0);
                self.stream.read_exact(&mut body)?;
            }
            None => {
                self.stream.read_to_end(&mut body)?;
            }
        }
        Ok(body)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
