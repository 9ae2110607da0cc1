//! Cutting a file into blocks of whole lines.

use std::io::{BufRead, Read};

use crate::{Break, Failure, Header, Kind, export, time};

/// The longest line that is read. Receipts are far smaller; the bound keeps a file that is no export
/// from filling the memory in search of a line's end.
pub const MAX_LINE_BYTES: usize = 1 << 20;

const BLOCK_BYTES: u64 = 1 << 18;

/// Reads a file in blocks that end where a line ends.
#[derive(Debug)]
pub(crate) struct Blocks<R> {
    source: R,
    rest: Vec<u8>,
}

impl<R: Read> Blocks<R> {
    pub(crate) const fn new(source: R) -> Self {
        Self {
            source,
            rest: Vec::new(),
        }
    }

    /// Returns the next whole lines, or nothing at the end. Only the file's last line may lack its end.
    /// An error is about the line after the returned ones; only the caller knows its number.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut block = std::mem::take(&mut self.rest);
        loop {
            // Bytes kept from the last call have no line end, so only the new ones are searched.
            let searched = block.len();
            // Reserved at once, so that reading does not grow the vector in small steps.
            block.reserve(BLOCK_BYTES as usize);
            let read = (&mut self.source)
                .take(BLOCK_BYTES)
                .read_to_end(&mut block)?;
            if read == 0 {
                return Ok(Some(block).filter(|block| !block.is_empty()));
            }
            if let Some(end) = block[searched..].iter().rposition(|byte| *byte == b'\n') {
                self.rest = block.split_off(searched + end + 1);
                return Ok(Some(block));
            }
            if block.len() > MAX_LINE_BYTES {
                let message = format!("the line is longer than {MAX_LINE_BYTES} bytes");
                return Err(Break::new(Kind::Garbled, message).into());
            }
        }
    }
}

/// Returns the lines of a block, with their ends.
pub(crate) fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = block;
    std::iter::from_fn(move || {
        // Reading from memory cannot fail, and `skip_until` searches many bytes at a time.
        let length = { rest }.skip_until(b'\n').ok().filter(|n| *n > 0)?;
        let (line, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(line)
    })
}

/// Returns the last line of a block, with its end.
pub(crate) fn last_line(block: &[u8]) -> &[u8] {
    block
        .split_inclusive(|byte| *byte == b'\n')
        .next_back()
        .unwrap_or_default()
}

/// Reads the header off the first block, and returns it with the rest of the block.
pub(crate) fn header<R: Read>(blocks: &mut Blocks<R>) -> Result<(Header, Vec<u8>), Failure> {
    let refused = |kind, message: String| Failure::from(Break::new(kind, message).on_line(1));
    let first = match blocks.next() {
        Ok(Some(block)) => block,
        Ok(None) => return Err(refused(Kind::Truncated, "the file is empty".to_owned())),
        Err(Failure::Broken(_)) => {
            let message = "this is no export: its first line is no header".to_owned();
            return Err(refused(Kind::NotAnExport, message));
        }
        Err(failure) => return Err(failure),
    };
    let line = lines(&first).next().unwrap_or_default();
    let rest = first.get(line.len()..).unwrap_or_default().to_vec();
    let refuse = || {
        let message = format!(
            "this is no export: the first line must be a header with \"format\":\"{}\"",
            export::FORMAT
        );
        refused(Kind::NotAnExport, message)
    };
    // Format and version come first: a header of another version may have other fields, and the
    // message must name the version and not a missing field.
    let (format, version) = format_of(line).ok_or_else(refuse)?;
    if format != export::FORMAT {
        return Err(refuse());
    }
    if version != u64::from(export::VERSION) {
        let message = format!(
            "the export has version {version}, but this program reads version {}",
            export::VERSION
        );
        return Err(refused(Kind::UnknownVersion, message));
    }
    let header: Header = serde_json::from_slice(line).map_err(|error| {
        let message = format!("the header is not that of version 1: {}", reason(&error));
        refused(Kind::NotAnExport, message)
    })?;
    if time::parse(&header.exported_at).is_none() {
        let message = "the header's exported_at is no time".to_owned();
        return Err(refused(Kind::NotAnExport, message));
    }
    Ok((header, rest))
}

/// Returns the format and version that a header of any version claims.
fn format_of(line: &[u8]) -> Option<(String, u64)> {
    let header: serde_json::Value = serde_json::from_slice(line).ok()?;
    let format = header.get("format")?.as_str()?.to_owned();
    Some((format, header.get("version")?.as_u64()?))
}

/// Returns the message of a parser error without the parser's own line number, which is always 1.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = match text.rsplit_once(" at line 1 column ") {
        Some((reason, column)) => format!("{reason} (column {column})"),
        None => text,
    };
    text.escape_debug().to_string().replace("\\\"", "\"")
}
