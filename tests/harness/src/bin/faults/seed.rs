//! Random choices from a seed: the same seed, the same choices.

/// A small generator (SplitMix64): not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// A generator for each name, so that its choices do not depend on those of others.
    pub(crate) fn of(seed: u64, name: &str) -> Self {
        // FNV-1a is the same in every build; the standard library's hashes do not promise that.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, hash))
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.any() % (most - least + 1)
    }

    /// Below a bound, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.any() % bound as u64).expect("below a usize")
    }

    /// True with this percentage.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.any() % 100 < share
    }

    /// Shuffles a list.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for place in (1..list.len()).rev() {
            list.swap(place, self.below(place + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_the_same_choices_and_another_name_others() {
        let choices = |seed, name| {
            let mut dice = SeededRandom::of(seed, name);
            (0..8).map(|_| dice.within(3, 40)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7, "a"), choices(7, "a"));
        assert_ne!(choices(7, "a"), choices(7, "b"));
        assert_ne!(choices(7, "a"), choices(8, "a"));
        assert!(choices(7, "a").iter().all(|choice| (3..=40).contains(choice)));
    }
}
