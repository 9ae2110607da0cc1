//! The payloads of messages that were sent or read lately.

use std::mem;

use bytes::Bytes;
use foldhash::HashMap;

use crate::ledgers::Key;

/// The memory that a payload takes beside its bytes.
const ENTRY_BYTES: usize = 128;

/// Payloads in two generations, as hot tasks are kept: what is looked for moves to the younger one; when that is full, it
/// becomes the older one, and what stood there is forgotten.
#[derive(Debug)]
pub(crate) struct HotPayloads {
    young: HashMap<Key, Bytes>,
    old: HashMap<Key, Bytes>,
    bytes: usize,
    max_bytes: usize,
}

impl HotPayloads {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            bytes: 0,
            max_bytes,
        }
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<Bytes> {
        if let Some(payload) = self.young.get(&key) {
            return Some(payload.clone());
        }
        let payload = self.old.remove(&key)?;
        self.put(key, payload.clone());
        Some(payload)
    }

    pub(crate) fn put(&mut self, key: Key, payload: Bytes) {
        self.bytes += ENTRY_BYTES + payload.len();
        if let Some(before) = self.young.insert(key, payload) {
            self.bytes -= ENTRY_BYTES + before.len();
        }
        if self.bytes > self.max_bytes / 2 {
            self.old = mem::take(&mut self.young);
            self.bytes = 0;
        }
    }

    pub(crate) fn forget(&mut self, key: Key) {
        if let Some(before) = self.young.remove(&key) {
            self.bytes -= ENTRY_BYTES + before.len();
        }
        self.old.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_stays_and_the_rest_goes() {
        let mut hot = HotPayloads::new(32 << 10);
        for seq in 0..128 {
            hot.put(Key::new(1, seq), Bytes::from(vec![0; 1 << 10]));
            assert!(hot.get(Key::new(1, 0)).is_some(), "after {seq}");
        }
        assert!(hot.get(Key::new(1, 127)).is_some());
        assert!(hot.get(Key::new(1, 40)).is_none(), "nobody looked for it");
        hot.forget(Key::new(1, 127));
        assert!(hot.get(Key::new(1, 127)).is_none());
    }
}
