//! Replacing any one byte of a receipt's line is noticed, unless the line still means the same.

use std::sync::LazyLock;

use asyncgate_core::json::canonical;
use asyncgate_ledger::{Expectations, verify_export};
use proptest::prelude::*;

use crate::world::eventful;

static EXPORT: LazyLock<Vec<u8>> = LazyLock::new(|| eventful().export().into_bytes());

/// Returns the beginnings and ends of the lines of receipts.
static RECEIPTS: LazyLock<(usize, usize)> = LazyLock::new(|| {
    let ends: Vec<usize> = EXPORT
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at)
        .collect();
    (ends[0] + 1, ends[ends.len() - 2])
});

fn check(at: usize, byte: u8) {
    let mut bytes = EXPORT.clone();
    if bytes[at] == byte {
        return;
    }
    bytes[at] = byte;
    if verify_export(bytes.as_slice(), Expectations::default()).is_err() {
        return;
    }
    let (before, after) = (line(&EXPORT, at), line(&bytes, at));
    assert_eq!(canonical(&before), canonical(&after), "{before}\n{after}");
}

fn line(bytes: &[u8], at: usize) -> String {
    let begin = bytes[..at]
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |n| n + 1);
    let end = bytes[at..]
        .iter()
        .position(|b| *b == b'\n')
        .map_or(bytes.len(), |n| at + n);
    String::from_utf8(bytes[begin..end].to_vec()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_byte_replaced_is_noticed(at in RECEIPTS.0..RECEIPTS.1, byte: u8) {
        check(at, byte);
    }

    #[test]
    fn any_bit_flipped_is_noticed(at in RECEIPTS.0..RECEIPTS.1, bit in 0_u32..8) {
        check(at, EXPORT[at] ^ (1 << bit));
    }

    /// Texts that are nearly exports are refused without a panic.
    #[test]
    fn no_input_panics(cut in 0..RECEIPTS.1, garbage: Vec<u8>) {
        let mut bytes = EXPORT[..cut].to_vec();
        bytes.extend_from_slice(&garbage);
        bytes.extend_from_slice(&EXPORT[cut..]);
        let _ = verify_export(bytes.as_slice(), Expectations::default());
    }
}

/// Only white space may differ.
#[test]
fn white_space_between_values_means_nothing() {
    let text = String::from_utf8(EXPORT.clone()).unwrap();
    let spaced = text
        .replace("\"seq\":", " \"seq\" :\t")
        .replace('\n', " \r\n");
    verify_export(spaced.as_bytes(), Expectations::default()).unwrap();
}
