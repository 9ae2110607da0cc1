//! The settings that the mailbox's rules read.

/// Limits and defaults of the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The number of shards for new messages.
    pub shards: u16,
    /// The most messages that may wait in one topic of a tenant.
    pub topic_capacity: u32,
    /// The most messages that may be with receivers at once. Tenants share it; see [`Share`](super::Share).
    pub global_inflight: u32,
    /// The most sends that are remembered to recognise repetitions. Tenants share it likewise.
    pub dedup_capacity: u32,
    /// The shortest time a receiver may ask for.
    pub visibility_min_ms: i64,
    /// The time a receiver gets that asks for none.
    pub default_visibility_ms: i64,
    /// The longest time a receiver may ask for.
    pub visibility_max_ms: i64,
    /// The most messages that one call hands over.
    pub max_messages: u16,
    /// The most bytes of content that one call hands over, unless the first message alone has more.
    pub max_bytes: usize,
    /// The time for which a repeated send or acknowledgement is recognised.
    pub t_replay_ms: i64,
    /// The first step of the backoff after a refusal.
    pub backoff_base_ms: i64,
    /// The longest backoff.
    pub backoff_max_ms: i64,
    /// The number of deliveries that a message gets.
    pub max_attempts: u32,
    /// The longest time that a message may wait.
    pub ready_retention_ms: i64,
    /// The longest total time of a delivery with extensions, as a multiple of the visibility it began with.
    pub inflight_factor: u32,
    /// The time for which dead letters are kept.
    pub dlq_retention_ms: i64,
    /// True if an acknowledgement must name its lease.
    pub require_lease: bool,
    /// The largest content.
    pub max_payload_bytes: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            shards: 8,
            topic_capacity: 1_000_000,
            global_inflight: 8_192,
            dedup_capacity: 32_000_000,
            visibility_min_ms: 250,
            default_visibility_ms: 5_000,
            visibility_max_ms: 12 * 3_600_000,
            max_messages: 32,
            max_bytes: 512 << 10,
            t_replay_ms: 300_000,
            backoff_base_ms: 200,
            backoff_max_ms: 60_000,
            max_attempts: 5,
            ready_retention_ms: 7 * 86_400_000,
            inflight_factor: 10,
            dlq_retention_ms: 14 * 86_400_000,
            require_lease: false,
            max_payload_bytes: 1 << 20,
        }
    }
}

impl Policy {
    /// Returns the wait after failed delivery number `attempt`: a random time up to a bound that
    /// doubles each time, so that messages that failed together do not come back together.
    pub fn backoff_ms(&self, attempt: u32, random: u64) -> i64 {
        // A shift by 63 would give a negative number; the bound is reached long before.
        let doubled = 1_i64.checked_shl(attempt.min(62)).unwrap_or(i64::MAX);
        let bound = self
            .backoff_base_ms
            .saturating_mul(doubled)
            .min(self.backoff_max_ms)
            .max(0);
        // Multiplying and shifting maps the 64 random bits evenly onto 0..=bound, without modulo bias.
        let spread = (u128::from(random) * (bound as u128 + 1)) >> 64;
        spread as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound_and_uses_the_whole_range() {
        let policy = Policy::default();
        for (attempt, bound) in [(1, 400), (2, 800), (8, 51_200), (9, 60_000), (200, 60_000)] {
            assert_eq!(policy.backoff_ms(attempt, u64::MAX), bound);
            assert_eq!(policy.backoff_ms(attempt, 0), 0);
            assert_eq!(policy.backoff_ms(attempt, u64::MAX / 2), bound / 2);
        }
    }
}
