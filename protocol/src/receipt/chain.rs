//! Whether receipts follow each other: numbers without gaps, and each the digest of the one before.

use std::collections::{HashMap, HashSet};

use super::ReceiptEntry;
use super::jws::SignedReceipt;
use crate::canonical::Sha256Digest;
use crate::ids::RunId;

/// What is wrong between receipts. Numbers are `device_seq`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenChain {
    /// Some are missing.
    #[error("receipts {from} to {to} are missing: ask for them, or for the whole chain (`deskgate audit export`)")]
    Gap {
        /// The first that is missing.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The same receipt again.
    #[error("receipt {0} stands here twice: remove the repetition")]
    Repeated(u64),
    /// It stands after a later one.
    #[error("receipt {seq} stands after receipt {after}: put them into the order of `device_seq`")]
    Order {
        /// Its number.
        seq: u64,
        /// The number before it.
        after: u64,
    },
    /// The device signed two different receipts with one number.
    #[error(
        "there are two different receipts with the number {0}: the device's database was put back to an earlier state, \
         or its key is used twice. Ask the device's owner"
    )]
    Forked(u64),
    /// It follows another receipt than the one before it.
    #[error(
        "receipt {0} does not follow the one before it: one of the two is not of this chain. Ask the owner for both"
    )]
    Link(u64),
    /// An attempt of a run has two outcomes.
    #[error(
        "receipt {seq} is a second outcome of attempt {attempt} of {run_id}: ask the device's owner which one holds"
    )]
    SecondOutcome {
        /// Its number.
        seq: u64,
        /// The run.
        run_id: RunId,
        /// The attempt.
        attempt: u32,
    },
}

/// Checks receipts one after the other. Their signatures and keys are checked before.
#[derive(Debug)]
pub struct ChainCheck {
    gaps_allowed: bool,
    last: Option<(u64, Sha256Digest)>,
    seen: HashMap<u64, Sha256Digest>,
    ended: HashSet<(RunId, u32)>,
}

impl ChainCheck {
    /// For a whole chain, from any receipt on.
    pub fn whole() -> Self {
        Self { gaps_allowed: false, last: None, seen: HashMap::new(), ended: HashSet::new() }
    }

    /// For some receipts of a chain, in any order: only what contradicts is found.
    pub fn some() -> Self {
        Self { gaps_allowed: true, ..Self::whole() }
    }

    /// The violations of the next receipt.
    pub fn next(&mut self, signed: &SignedReceipt) -> Vec<BrokenChain> {
        let (seq, mut found) = (signed.receipt.device_seq, Vec::new());
        match self.seen.insert(seq, signed.sha256) {
            Some(same) if same == signed.sha256 => return vec![BrokenChain::Repeated(seq)],
            Some(_) => return vec![BrokenChain::Forked(seq)],
            None => {}
        }
        let before = seq.checked_sub(1).and_then(|before| self.seen.get(&before));
        if before.is_some_and(|before| signed.receipt.prev != Some(*before)) {
            found.push(BrokenChain::Link(seq));
        }
        match self.last {
            Some((last, _)) if self.gaps_allowed || last.checked_add(1) == Some(seq) => {}
            Some((last, _)) if seq < last => found.push(BrokenChain::Order { seq, after: last }),
            Some((last, _)) => found.push(BrokenChain::Gap { from: last + 1, to: seq - 1 }),
            None => {}
        }
        if (seq == 1) != signed.receipt.prev.is_none() && !found.contains(&BrokenChain::Link(seq)) {
            found.push(BrokenChain::Link(seq));
        }
        self.last = Some((seq, signed.sha256));
        let (run_id, attempt) = (signed.receipt.run.run_id, signed.receipt.run.attempt);
        if matches!(signed.receipt.entry, ReceiptEntry::Outcome(_)) && !self.ended.insert((run_id, attempt)) {
            found.push(BrokenChain::SecondOutcome { seq, run_id, attempt });
        }
        found
    }
}
