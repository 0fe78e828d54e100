//! Latencies in buckets whose width is a fixed share of the value: 64 to every power of two.

/// Buckets for each power of two, as a power of two; the error of a percentile is below 1.6 %.
const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// Counts of values.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, largest: 0 }
    }
}

impl Histogram {
    /// Count a value.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.largest = self.largest.max(value);
    }

    /// Add the counts of another.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest value.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The value that `share` (0 to 1) of all values do not exceed; 0 when there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(index).min(self.largest);
            }
        }
        self.largest
    }
}

/// Index of the bucket of a value. Values below `SUB` have one each.
fn bucket(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    ((u64::from(shift) << SUB_BITS) + (value >> shift)) as usize
}

/// Largest value in a bucket.
fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * SUB {
        return index;
    }
    let shift = (index >> SUB_BITS) - 1;
    let base = (index - (shift << SUB_BITS)) << shift;
    base + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..10_000).chain([1 << 20, (1 << 40) + 12345, u64::MAX]) {
            let index = bucket(value);
            assert!(index < BUCKETS);
            assert!(upper_end(index) >= value);
            assert!(index == 0 || upper_end(index - 1) < value);
        }
    }

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        (1..=1000).for_each(|v| histogram.record(v * 1000));
        let mut other = Histogram::default();
        other.record(5_000_000);
        histogram.merge(&other);
        assert_eq!(histogram.total(), 1001);
        let close = |got: u64, want: u64| got >= want && got <= want + want / 60;
        assert!(close(histogram.quantile(0.5), 501_000));
        assert!(close(histogram.quantile(0.99), 991_000));
        assert_eq!(histogram.quantile(1.0), 5_000_000);
    }
}
