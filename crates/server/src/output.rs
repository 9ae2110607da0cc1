//! What the command line says to people and scripts. Everything else goes to the log.

use std::io::{self, Write as _, stderr, stdout};

/// Writes to stdout and flushes, so that a script that waits for a line gets it.
///
/// A reader that went away is not an error: `asyncgate config show | head` is legitimate.
pub fn say(text: &str) -> io::Result<()> {
    was_said(text).map(drop)
}

/// As [`say`], and tells whether a reader is left.
pub fn was_said(text: &str) -> io::Result<bool> {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text.as_bytes());
    line.push(b'\n');
    was_written(&line)
}

/// Writes bytes to stdout as they are, and tells whether a reader is left.
pub fn was_written(bytes: &[u8]) -> io::Result<bool> {
    let mut out = stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// Writes over the last line on stderr, which must be a terminal.
pub fn overwrite(line: &str) {
    let mut out = stderr().lock();
    let _ = write!(out, "\r\u{1b}[K{line}").and_then(|()| out.flush());
}

/// Writes a question to stderr and stays on its line.
pub fn ask(question: &str) {
    let mut out = stderr().lock();
    let _ = write!(out, "{question}").and_then(|()| out.flush());
}

/// Writes one line to stderr. If even that fails, nobody is left to be told.
pub fn complain(line: &str) {
    let _ = writeln!(stderr().lock(), "asyncgate: {line}");
}
