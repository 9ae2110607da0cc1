//! Just enough HTTP/2 for gRPC calls: headers as indexed fields, a data frame for each message.
//!
//! The answers of one read are followed by one write, as in any client that shares a connection.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

use super::connection::Connection;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const HEAD: usize = 9;
/// The bytes that the server may send before we grant more.
const WINDOW: u32 = 1 << 30;

/// A connection that many callers share.
#[derive(Debug)]
pub struct Channel {
    pub connection: Connection,
    table: VecDeque<(String, String)>,
    fixed: Vec<(String, String)>,
    next_stream: u32,
    /// For each stream, its caller and the answer so far.
    calls: HashMap<u32, (usize, Vec<u8>)>,
    /// Streams that stay open: each message is an answer to the caller that opened it.
    open: HashSet<u32>,
    unread: u32,
}

/// An answer: the caller, and the message; no message if the call failed.
pub type Answer = (usize, Option<Vec<u8>>);

impl Channel {
    pub fn open(addr: SocketAddr, key: &str) -> Result<Self> {
        let fixed = [
            (":authority", addr.to_string()),
            ("content-type", "application/grpc".to_owned()),
            ("te", "trailers".to_owned()),
            ("authorization", format!("Bearer {key}")),
        ];
        let mut channel = Self {
            connection: Connection::open(addr)?,
            table: VecDeque::new(),
            fixed: fixed.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            next_stream: 1,
            calls: HashMap::new(),
            open: HashSet::new(),
            unread: 0,
        };
        channel.connection.out.extend_from_slice(PREFACE);
        channel.frame(SETTINGS, 0, 0, &[]);
        channel.frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
        Ok(channel)
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        self.connection.out.extend_from_slice(&length[1..]);
        self.connection.out.extend_from_slice(&[kind, flags]);
        self.connection.out.extend_from_slice(&stream.to_be_bytes());
        self.connection.out.extend_from_slice(payload);
    }

    /// Adds a call to the output.
    pub fn call(&mut self, caller: usize, path: &str, message: &[u8]) {
        let stream = self.begin(caller, path);
        self.data(stream, END_STREAM, message);
    }

    /// Begins a call that stays open, and returns its stream.
    pub fn begin_stream(&mut self, caller: usize, path: &str) -> u32 {
        let stream = self.begin(caller, path);
        self.open.insert(stream);
        stream
    }

    /// Adds a message of a call that stays open.
    pub fn say(&mut self, stream: u32, message: &[u8]) {
        self.data(stream, 0, message);
    }

    /// Ends the messages of a call.
    pub fn end(&mut self, stream: u32) {
        self.frame(DATA, END_STREAM, stream, &[]);
    }

    fn begin(&mut self, caller: usize, path: &str) -> u32 {
        // `:method: POST` and `:scheme: http` are in the static table of HTTP/2.
        let mut head = vec![0x83, 0x86];
        index(&mut self.table, &mut head, ":path", path);
        for (name, value) in &self.fixed {
            index(&mut self.table, &mut head, name, value);
        }
        let stream = self.next_stream;
        self.next_stream += 2;
        self.calls.insert(stream, (caller, Vec::new()));
        self.frame(HEADERS, END_HEADERS, stream, &head);
        stream
    }

    fn data(&mut self, stream: u32, flags: u8, message: &[u8]) {
        let length = (message.len() as u32 + 5).to_be_bytes();
        self.connection.out.extend_from_slice(&length[1..]);
        self.connection.out.extend_from_slice(&[DATA, flags]);
        self.connection.out.extend_from_slice(&stream.to_be_bytes());
        self.connection.out.push(0);
        self.connection
            .out
            .extend_from_slice(&(message.len() as u32).to_be_bytes());
        self.connection.out.extend_from_slice(message);
    }

    pub fn send(&mut self) -> Result<()> {
        if self.connection.out.is_empty() {
            return Ok(());
        }
        self.connection.send()
    }

    /// Reads the bytes that have arrived and returns the answered calls.
    pub fn receive(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
        self.connection.receive()?;
        let input = self.connection.received().to_vec();
        let mut at = 0;
        while let Some(head) = input[at..].first_chunk::<HEAD>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some(payload) = input[at + HEAD..].get(..length) else {
                break;
            };
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            self.take(head[3], head[4], stream, payload, answers)?;
            at += HEAD + length;
        }
        self.connection.consume(at);
        Ok(())
    }

    fn take(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<()> {
        match kind {
            SETTINGS if flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, payload),
            GOAWAY | RST_STREAM => bail!("the server gave up: frame {kind}, {payload:?}"),
            DATA => {
                self.unread += payload.len() as u32;
                if self.unread > WINDOW / 2 {
                    let read = std::mem::take(&mut self.unread);
                    self.frame(WINDOW_UPDATE, 0, 0, &read.to_be_bytes());
                }
                let call = self.calls.get_mut(&stream);
                let (caller, message) = call.context("data that nobody asked for")?;
                message.extend_from_slice(payload);
                if self.open.contains(&stream) {
                    let caller = *caller;
                    let whole = cut(message, |message| answers.push((caller, Some(message))));
                    message.drain(..whole);
                    let length = payload.len() as u32;
                    self.frame(WINDOW_UPDATE, 0, stream, &length.to_be_bytes());
                }
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            let call = self.calls.remove(&stream);
            let (caller, message) = call.context("an answer that nobody asked for")?;
            // An error has no message: its status is in the headers.
            answers.push((caller, message.get(5..).map(<[u8]>::to_vec)));
        }
        Ok(())
    }
}

/// Returns the complete messages, and the number of bytes they take.
fn cut(mut bytes: &[u8], mut give: impl FnMut(Vec<u8>)) -> usize {
    let mut whole = 0;
    while let Some([_, length @ ..]) = bytes.first_chunk::<5>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some(message) = bytes.get(5..5 + length) else {
            break;
        };
        give(message.to_vec());
        bytes = &bytes[5 + length..];
        whole += 5 + length;
    }
    whole
}

/// Writes a field as an index into the table; its first use adds it to the table.
fn index(table: &mut VecDeque<(String, String)>, out: &mut Vec<u8>, name: &str, value: &str) {
    /// The first index after the static table.
    const FIRST: usize = 62;
    let known = table
        .iter()
        .position(|field| field.0 == name && field.1 == value);
    if let Some(place) = known {
        out.push(0x80 | (FIRST + place) as u8);
        return;
    }
    out.push(0x40);
    for text in [name, value] {
        assert!(text.len() < 127, "a longer text needs a longer length");
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
    }
    table.push_front((name.to_owned(), value.to_owned()));
}
