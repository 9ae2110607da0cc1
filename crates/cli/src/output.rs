//! Output for people and scripts, on stdout and stderr. Everything else goes to the log.

use std::io::{self, Write as _, stderr, stdout};

use crate::plain::plain;

/// Writes to stdout and flushes, so that a script that waits for a line gets it.
///
/// A reader that went away is not an error: `asyncgate config show | head` is legitimate.
pub fn say(text: &str) -> io::Result<()> {
    was_said(text).map(drop)
}

/// Writes as [`say`] does. Returns false if the reader went away.
pub fn was_said(text: &str) -> io::Result<bool> {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text.as_bytes());
    line.push(b'\n');
    was_written(&line)
}

/// Writes bytes to stdout as they are. Returns false if the reader went away.
pub fn was_written(bytes: &[u8]) -> io::Result<bool> {
    let mut out = stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// Replaces the last line on stderr, which must be a terminal.
pub fn overwrite(line: &str) {
    let mut out = stderr().lock();
    let _ = write!(out, "\r\u{1b}[K{line}").and_then(|()| out.flush());
}

/// Writes a question to stderr and leaves the cursor behind it.
pub fn ask(question: &str) {
    let mut out = stderr().lock();
    let _ = write!(out, "{question}").and_then(|()| out.flush());
}

/// Writes one line to stderr for people. It may quote what others wrote.
pub fn complain(line: &str) {
    mutter(&format!("asyncgate: {}", plain(line)));
}

/// Writes one line to stderr as it is. An error is ignored: there is no other place to report it.
pub fn mutter(line: &str) {
    let _ = writeln!(stderr().lock(), "{line}");
}
