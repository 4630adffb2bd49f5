//! The seeds of the fuzz targets, and random mutations of them. Shared by the tests that run mutated seeds:
//! `gateway/tests/api/arbitrary.rs` and `tests/tests/arbitrary`.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestError, TestRunner};

/// The seeds of a target, in the order of their names.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).expect("readable")).collect()
}

/// One mutation of a seed.
#[derive(Clone, Debug)]
enum Bend {
    /// Bytes are inserted.
    Insert(Vec<u8>),
    /// Bytes are removed.
    Lose(usize),
    /// A byte is changed.
    Change(u8),
    /// The rest is replaced by another seed's.
    Splice(Index, Index),
}

impl Bend {
    fn apply(&self, bytes: &mut Vec<u8>, place: Index, seeds: &[Vec<u8>]) {
        let place = place.index(bytes.len() + 1);
        match self {
            Self::Insert(more) => drop(bytes.splice(place..place, more.iter().copied())),
            Self::Lose(count) => drop(bytes.drain(place..bytes.len().min(place + count))),
            Self::Change(other) => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte = *other),
            Self::Splice(seed, from) => {
                let other = seed.get(seeds);
                bytes.truncate(place);
                bytes.extend(&other[from.index(other.len() + 1)..]);
            }
        }
    }
}

fn bends() -> impl Strategy<Value = Vec<(Bend, Index)>> {
    let words = [
        "%00",
        "%ff",
        "=",
        "&",
        ",",
        "\"",
        "{",
        "\\u0000",
        "-1",
        "0",
        "99999999999999999999",
        "\u{1f4a5}",
        "é",
        "null",
        "\n",
        ": ",
        "/../",
        "@",
    ];
    let bend = prop_oneof![
        prop::sample::select(words.to_vec()).prop_map(|word| Bend::Insert(word.into())),
        prop::collection::vec(any::<u8>(), 1..8).prop_map(Bend::Insert),
        (1_usize..12).prop_map(Bend::Lose),
        any::<u8>().prop_map(Bend::Change),
        any::<(Index, Index)>().prop_map(|(seed, from)| Bend::Splice(seed, from)),
    ];
    prop::collection::vec((bend, any::<Index>()), 0..5)
}

/// Runs each seed unchanged, and then this many mutated ones. A failure is reported with its smallest input.
pub(crate) fn throw(target: &str, cases: u32, thrown: impl Fn(&[u8]) -> Result<(), TestCaseError>) {
    let seeds = seeds(target);
    for seed in &seeds {
        thrown(seed).unwrap_or_else(|wrong| panic!("{wrong}, for the seed\n{}", seed.escape_ascii()));
    }
    let bent = |seed: Index, bends: &[(Bend, Index)]| {
        let mut bytes = seed.get(&seeds).clone();
        bends.iter().for_each(|(bend, place)| bend.apply(&mut bytes, *place, &seeds));
        bytes
    };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(any::<Index>(), bends()), |(seed, bends)| thrown(&bent(seed, &bends)));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, (seed, bends))) => panic!("{why}, for\n{}", bent(seed, &bends).escape_ascii()),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
