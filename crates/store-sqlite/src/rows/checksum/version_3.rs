//! The checksum of schema versions 1 to 3. It is only checked: new checksums are XXH3.
//!
//! Every step can be undone, so that two words which differ lead to sums which differ, and stay so.

use super::{INTEGER, NULL, REAL};

/// Returns the checksum of what a row covers.
pub(super) fn sum(covered: &[u8]) -> i64 {
    let (key, mut values) = split_word(covered);
    let mut sum = Sum(0).with(key);
    while let Some((&kind, behind)) = values.split_first() {
        sum = sum.with(u64::from(kind));
        if kind == NULL {
            values = behind;
            continue;
        }
        let (word, behind) = split_word(behind);
        if kind == INTEGER || kind == REAL {
            sum = sum.with(word);
            values = behind;
        } else {
            let length = usize::try_from(word)
                .unwrap_or(usize::MAX)
                .min(behind.len());
            let (bytes, behind) = behind.split_at(length);
            sum = sum.with_bytes(bytes);
            values = behind;
        }
    }
    sum.0.cast_signed()
}

/// Takes the first eight bytes. There always are as many: [`Checksum`](super::Checksum) put them there.
fn split_word(bytes: &[u8]) -> (u64, &[u8]) {
    let (word, behind) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
    (u64::from_le_bytes(*word), behind)
}

#[derive(Clone, Copy)]
struct Sum(u64);

impl Sum {
    const fn with(self, word: u64) -> Self {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ (mixed >> 32))
    }

    fn with_bytes(self, bytes: &[u8]) -> Self {
        let mut sum = self.with(bytes.len() as u64);
        let (blocks, rest) = bytes.as_chunks::<32>();
        if !blocks.is_empty() {
            let mut lanes = [sum, sum.with(1), sum.with(2), sum.with(3)];
            for block in blocks {
                for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
                    *lane = lane.with(u64::from_le_bytes(*word));
                }
            }
            sum = lanes.iter().fold(sum, |sum, lane| sum.with(lane.0));
        }
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            sum = sum.with(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sum.with(u64::from_le_bytes(last))
    }
}
