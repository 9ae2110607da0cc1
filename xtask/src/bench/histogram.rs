//! Latencies in buckets of at most 1.6 % width: recording is two shifts and an add, so that measuring
//! costs the measured machine nothing.

use std::time::Duration;

/// Sub-buckets of each power of two.
const BITS: u32 = 6;
const SUB: usize = 1 << BITS;

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; SUB * (65 - BITS as usize)],
            total: 0,
            max: Duration::ZERO,
        }
    }
}

impl Histogram {
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(latency);
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> Duration {
        self.max
    }

    /// Returns the latency that the given share of the samples (0 to 1) does not exceed; zero when empty.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(highest(index)).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(nanos: u64) -> usize {
    let magnitude = (64 - nanos.leading_zeros()).saturating_sub(BITS + 1);
    // Below 2^(BITS+1) a bucket is one nanosecond; above, the top BITS+1 bits pick it.
    (magnitude as usize) * SUB + (nanos >> magnitude) as usize
}

/// Returns the largest value that falls into a bucket.
fn highest(index: usize) -> u64 {
    if index < 2 * SUB {
        return index as u64;
    }
    let magnitude = (index / SUB - 1) as u32;
    let top = (index - magnitude as usize * SUB) as u64;
    ((top + 1) << magnitude).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_within_the_promised_width() {
        for nanos in (0..200).chain([
            1_000,
            12_345,
            999_999,
            123_456_789,
            u64::from(u32::MAX),
            1 << 50,
            u64::MAX,
        ]) {
            let top = highest(bucket(nanos));
            assert!(top >= nanos, "{nanos} in a bucket up to {top}");
            assert!(
                (top - nanos) as f64 <= nanos as f64 / SUB as f64,
                "{nanos} reported as {top}"
            );
        }
    }

    #[test]
    fn buckets_do_not_overlap() {
        for index in 1..SUB * 20 {
            assert_eq!(bucket(highest(index)), index);
            assert_eq!(bucket(highest(index - 1) + 1), index);
        }
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        let near = |share, micros: f64| {
            let found = histogram.quantile(share).as_secs_f64() * 1e6;
            assert!(
                (found - micros).abs() <= micros * 0.017,
                "{share}: {found} is not {micros}"
            );
        };
        near(0.5, 500.0);
        near(0.99, 990.0);
        near(1.0, 1000.0);
        assert_eq!(histogram.max(), Duration::from_micros(1000));
        assert_eq!(histogram.count(), 1000);
    }

    #[test]
    fn merging_is_recording_together() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.record(Duration::from_millis(1));
        b.record(Duration::from_millis(9));
        a.merge(&b);
        assert_eq!((a.count(), a.max()), (2, Duration::from_millis(9)));
    }

    #[test]
    fn an_empty_one_answers_zero() {
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
    }
}
