//! Just enough of the protocol of Redis: commands as bytes, and replies cut out by their lengths.

use anyhow::{Context, Result, bail};

use crate::bench::load::http::shown;

/// Appends a command: an array of texts.
pub fn write(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// Returns the number of bytes of the reply at the start of the input, if it is whole.
pub fn length(input: &[u8]) -> Result<Option<usize>> {
    let mut at = 0;
    let mut left = 1;
    while left > 0 {
        let Some(part) = part(input, at)? else {
            return Ok(None);
        };
        left = left - 1 + part.inside;
        at = part.end;
    }
    Ok(Some(at))
}

/// Returns a text of a whole reply by its place among all texts in it; lists within lists are read in order.
pub fn text(reply: &[u8], place: usize) -> Result<Option<&str>> {
    let (mut at, mut seen) = (0, 0);
    while let Some(part) = part(reply, at)? {
        if let Some(text) = part.text {
            if seen == place {
                return Ok(Some(std::str::from_utf8(text)?));
            }
            seen += 1;
        }
        at = part.end;
    }
    Ok(None)
}

/// One line of a reply, with the text that it announces.
struct Part<'a> {
    end: usize,
    text: Option<&'a [u8]>,
    /// The number of replies that follow and belong to this one.
    inside: usize,
}

fn part(input: &[u8], at: usize) -> Result<Option<Part<'_>>> {
    let rest = &input[at..];
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let after = at + end + 2;
    let line = &rest[..end];
    let nothing_inside = |end, text| Part {
        end,
        text,
        inside: 0,
    };
    let part = match line.first() {
        Some(b'+' | b'-' | b':') => nothing_inside(after, None),
        Some(b'$') => match count(line)? {
            None => nothing_inside(after, None),
            Some(size) => {
                let end = after + size + 2;
                if input.len() < end {
                    return Ok(None);
                }
                nothing_inside(end, Some(&input[after..after + size]))
            }
        },
        Some(b'*') => Part {
            end: after,
            text: None,
            inside: count(line)?.unwrap_or(0),
        },
        _ => bail!("not a reply of Redis: {}", shown(line)),
    };
    Ok(Some(part))
}

/// Reads the number of a line; none for -1, which stands for nothing at all.
fn count(line: &[u8]) -> Result<Option<usize>> {
    let text = std::str::from_utf8(&line[1..])?;
    if text == "-1" {
        return Ok(None);
    }
    let count = text.parse();
    Ok(Some(
        count.with_context(|| format!("not a length: {text}"))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &[u8] =
        b"*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n*2\r\n$3\r\n7-0\r\n*2\r\n$4\r\nbody\r\n$6\r\na\r\nb*1\r\n";

    #[test]
    fn a_reply_is_cut_only_when_it_is_whole() {
        let two = [READ, b":1\r\n"].concat();
        for cut in 0..READ.len() {
            assert_eq!(length(&two[..cut]).unwrap(), None, "after {cut} bytes");
        }
        assert_eq!(length(&two).unwrap(), Some(READ.len()));
        assert_eq!(length(&two[READ.len()..]).unwrap(), Some(4));
    }

    #[test]
    fn every_kind_of_reply_has_its_length() {
        let replies = [
            "+OK\r\n",
            "-ERR x\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "$0\r\n\r\n",
        ];
        for reply in replies {
            let more = [reply, ":1\r\n"].concat();
            assert_eq!(
                length(more.as_bytes()).unwrap(),
                Some(reply.len()),
                "{reply}"
            );
        }
        assert!(length(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(length(b"$many\r\n").is_err());
        assert!(length(b"$-7\r\n").is_err());
    }

    #[test]
    fn texts_are_found_by_their_place() {
        let found = |place| text(READ, place).unwrap();
        assert_eq!(
            [found(0), found(1), found(4)],
            [Some("jobs"), Some("7-0"), None]
        );
        assert_eq!(found(3), Some("a\r\nb*1"));
        assert_eq!(text(b"*-1\r\n", 0).unwrap(), None);
    }

    #[test]
    fn a_command_is_an_array_of_texts() {
        let mut out = Vec::new();
        write(&mut out, &["XACK", "jobs"]);
        assert_eq!(out, b"*2\r\n$4\r\nXACK\r\n$4\r\njobs\r\n");
        assert_eq!(length(&out).unwrap(), Some(out.len()));
    }
}
