//! Reads lines of a bounded length from a stream.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

/// Reads lines. A read that is dropped half-way loses nothing: the bytes that it took are kept here.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    too_long: bool,
}

/// A line as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Vec<u8>),
    /// A line that was longer than allowed and was skipped.
    TooLong,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(reader: R, longest: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, reader),
            line: Vec::new(),
            longest,
            too_long: false,
        }
    }

    /// Returns the next line without its line break, or nothing at the end of the stream.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                let unfinished = self.too_long || !self.line.is_empty();
                return Ok(unfinished.then(|| self.take()));
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let (taken, used) = end.map_or((available.len(), available.len()), |at| (at, at + 1));
            if self.line.len() + taken > self.longest {
                // The rest of the line is read and dropped, so that the next one is found.
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(&available[..taken]);
            }
            std::pin::Pin::new(&mut self.reader).consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) {
            return Line::TooLong;
        }
        Line::Whole(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8], longest: usize) -> Vec<Line> {
        let mut lines = LineReader::new(input, longest);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        found
    }

    #[tokio::test]
    async fn lines_end_with_a_break_or_with_the_stream() {
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(
            all(b"a\n\nbc", 9).await,
            [whole("a"), whole(""), whole("bc")]
        );
        assert_eq!(all(b"", 9).await, []);
    }

    #[tokio::test]
    async fn a_line_past_the_limit_is_skipped_and_the_next_is_read() {
        let mut input = vec![b'x'; 200_000];
        input.extend_from_slice(b"\nok\n");
        let found = all(&input, 1000).await;
        assert_eq!(found, [Line::TooLong, Line::Whole(b"ok".to_vec())]);
        assert_eq!(
            all(b"abc\nabcd", 3).await,
            [Line::Whole(b"abc".to_vec()), Line::TooLong]
        );
    }
}
