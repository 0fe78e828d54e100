//! Random numbers that are the same for the same seed: splitmix64, which needs no dependency and is good
//! enough for throwing dice.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 when there is none. The bias of the remainder does not matter here.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_with_the_seed_and_stays_in_bounds() {
        let (mut one, mut two, mut other) = (Chance::new(1), Chance::new(1), Chance::new(2));
        let numbers: Vec<_> = (0..100).map(|_| one.below(10)).collect();
        assert_eq!(numbers, (0..100).map(|_| two.below(10)).collect::<Vec<_>>());
        assert_ne!(numbers, (0..100).map(|_| other.below(10)).collect::<Vec<_>>());
        assert!((0..10).all(|n| numbers.contains(&n)));
        assert_eq!(one.below(0), 0);
    }
}
