//! Maps that hash alike in every run. The standard maps have a random salt, which would make runs differ,
//! and protect against attackers, which costs more here than the rest of a lookup.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;
pub type Set<K> = HashSet<K, BuildHasherDefault<Mixer>>;

/// Mixes words by multiplication, for keys that nobody chose in order to collide.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    /// Returns the hash, rotated: multiplication mixes the high bits best, but maps use the low ones first.
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
