//! Lines that come from stdin or a file, as they come.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
};

use anyhow::Context as _;
use tokio::sync::mpsc;

/// The largest number of lines in a batch.
pub const MAX_BATCH: usize = 1_000;
/// The size at which a batch takes no further line.
const BATCH_BYTES: usize = 2 << 20;

/// A line and its number, counted from 1.
pub type Line = (usize, Vec<u8>);

/// Lines in batches of as many as have come.
pub struct Lines {
    lines: mpsc::Receiver<io::Result<Line>>,
    ready: std::vec::IntoIter<io::Result<Line>>,
}

impl Lines {
    /// Reads stdin.
    pub fn of_stdin() -> Self {
        Self::read(|| BufReader::new(io::stdin()))
    }

    /// Reads a file, or stdin if the name is `-`.
    pub fn of(path: &str) -> anyhow::Result<Self> {
        if path == "-" {
            return Ok(Self::of_stdin());
        }
        let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
        Ok(Self::read(move || BufReader::new(file)))
    }

    /// Reads on a thread of its own: a blocking read of stdin would hold up the runtime at its end.
    fn read<R: BufRead>(open: impl FnOnce() -> R + Send + 'static) -> Self {
        let (line, lines) = mpsc::channel(MAX_BATCH);
        std::thread::spawn(move || {
            for (number, read) in (1..).zip(open().split(b'\n')) {
                let read = read.map(|mut text| {
                    if text.ends_with(b"\r") {
                        text.pop();
                    }
                    (number, text)
                });
                if line.blocking_send(read).is_err() {
                    return;
                }
            }
        });
        let ready = Vec::new().into_iter();
        Self { lines, ready }
    }

    /// Returns the next batch. It is empty at the end.
    pub async fn next_batch(&mut self) -> io::Result<Vec<Line>> {
        if self.ready.as_slice().is_empty() {
            let mut ready = Vec::new();
            self.lines.recv_many(&mut ready, MAX_BATCH).await;
            self.ready = ready.into_iter();
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(line) = self.ready.next()
        {
            let line = line?;
            bytes += line.1.len();
            batch.push(line);
        }
        Ok(batch)
    }
}
