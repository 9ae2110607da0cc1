//! Verifying the chains of messages: each shard links the hashes of the messages sent to it.
//!
//! Messages are forgotten after their acknowledgement, in any order, so a chain has gaps. Every
//! message that is still stored must match its own hashes, the link of the message before it if that
//! is stored too, and the head.

use std::collections::BTreeMap;

use asyncgate_core::{
    Link,
    mailbox::{ChainHead, Kind, Message},
};

/// Checks messages in the order in which they were sent.
#[derive(Debug, Default)]
pub struct ChainVerifier {
    last: BTreeMap<u16, ChainHead>,
    messages: u64,
}

/// Chains that hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct ChainReport {
    /// The number of verified messages.
    pub messages: u64,
    /// The number of shards that have a chain.
    pub shards: usize,
}

/// The first message that does not match.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard}, message {seq}: {message}")]
pub struct BrokenChain {
    /// The shard.
    pub shard: u16,
    /// The place in its chain.
    pub seq: u64,
    /// The defect.
    pub message: String,
}

impl ChainVerifier {
    /// Checks the next message.
    pub fn push(&mut self, message: &Message) -> Result<(), BrokenChain> {
        let broken = |what: String| BrokenChain {
            shard: message.shard,
            seq: message.chain_seq,
            message: format!("{what} (msg_id {})", message.id),
        };
        // A message that is gone has lost its content, so its hashes can no longer be compared.
        let gone = message.standing().kind == Kind::Gone;
        if let Some(flaw) = message.flaw().filter(|_| !gone) {
            return Err(broken(format!("its {} does not agree", flaw.as_str())));
        }
        let start = ChainHead {
            seq: 0,
            link: Link::START,
        };
        let last = self.last.get(&message.shard).copied().unwrap_or(start);
        if message.chain_seq <= last.seq {
            return Err(broken(format!("it stands behind message {}", last.seq)));
        }
        // Behind a gap the link before is unknown, and the message's own word for it must do.
        if message.chain_seq == last.seq + 1 && message.prev != last.link {
            return Err(broken(
                "it does not follow the message before it".to_owned(),
            ));
        }
        self.last.insert(message.shard, message.chain_head());
        self.messages += 1;
        Ok(())
    }

    /// Checks that the chains end where the heads say.
    pub fn finish(self, heads: &BTreeMap<u16, ChainHead>) -> Result<ChainReport, BrokenChain> {
        for (shard, last) in &self.last {
            let head = heads.get(shard).copied().unwrap_or_default();
            // The last messages of a shard may have been forgotten; then the head is ahead of what is left.
            let agrees = last.seq < head.seq || *last == head;
            if !agrees {
                return Err(BrokenChain {
                    shard: *shard,
                    seq: last.seq,
                    message: format!("the head of the chain says {} and another link", head.seq),
                });
            }
        }
        Ok(ChainReport {
            messages: self.messages,
            shards: heads.len(),
        })
    }
}
