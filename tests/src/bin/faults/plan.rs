//! The plan of faults, times and durations: decided by the seed before anything starts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::seed::SeededRandom;

/// A kind of fault, by its number in the list of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum FaultKind {
    /// kill -9 of one gateway.
    F1,
    /// A gateway dies at a named point.
    F2,
    /// kill -9 of all gateways.
    F3,
    /// Every gateway is shut down and started again, one after the other.
    F4,
    /// kill -9 of a device's agent.
    F5,
    /// An agent dies at a named point.
    F6,
    /// A gateway is suspended, and goes on as if nothing had happened.
    F7,
    /// An agent is suspended.
    F8,
    /// Database sessions are terminated.
    F9,
    /// kill -9 of PostgreSQL and all its processes.
    F10,
    /// PostgreSQL is suspended: it neither answers nor resets.
    F11,
    /// Another session has locked the runs, or taken every connection of PostgreSQL.
    F12,
    /// Statements and commits fail at random, with the errors of a lost race.
    F13,
    /// The disk under PostgreSQL is full.
    F14,
    /// Every sync of PostgreSQL fails.
    F15,
    /// The disk under a device's home is full.
    F16,
    /// The connection between a device and its gateway silently drops everything.
    F17,
    /// That connection passes in one direction only.
    F18,
    /// That connection is reset.
    F19,
    /// That connection loses packets.
    F20,
    /// That connection is narrow.
    F21,
    /// A gateway's computer has a wrong time.
    F22,
    /// A device's computer has a wrong time.
    F23,
    /// The model answers wrongly or not at all.
    F24,
    /// A remote tool server answers wrongly or not at all.
    F25,
    /// The receiver of callbacks answers wrongly or not at all.
    F26,
    /// One event and one submission arrive at every gateway several times at once.
    F27,
    /// A second agent has the same key.
    F28,
    /// A device, a gateway or the database has another version.
    F29,
    /// A caller is cut off in the middle of its request or of the answer.
    F30,
    /// A key, an application or a device is revoked while it is in use.
    F31,
    /// A gateway is out of file descriptors.
    F32,
    /// All parts are suspended in one order, and resumed in another.
    F33,
    /// Two of the others at once.
    F34,
}

impl FaultKind {
    /// The kinds of a short pass.
    pub(crate) const SHORT_PASS: [Self; 11] = [
        Self::F1,
        Self::F2,
        Self::F5,
        Self::F6,
        Self::F9,
        Self::F10,
        Self::F17,
        Self::F19,
        Self::F24,
        Self::F26,
        Self::F30,
    ];

    /// The kinds in which a program dies at a point, about in proportion to their points.
    pub(crate) const CRASH_POINT_PASS: [Self; 5] = [Self::F2, Self::F2, Self::F2, Self::F6, Self::F6];

    /// Every kind of fault.
    pub(crate) const ALL_KINDS: [Self; 34] = [
        Self::F1,
        Self::F2,
        Self::F3,
        Self::F4,
        Self::F5,
        Self::F6,
        Self::F7,
        Self::F8,
        Self::F9,
        Self::F10,
        Self::F11,
        Self::F12,
        Self::F13,
        Self::F14,
        Self::F15,
        Self::F16,
        Self::F17,
        Self::F18,
        Self::F19,
        Self::F20,
        Self::F21,
        Self::F22,
        Self::F23,
        Self::F24,
        Self::F25,
        Self::F26,
        Self::F27,
        Self::F28,
        Self::F29,
        Self::F30,
        Self::F31,
        Self::F32,
        Self::F33,
        Self::F34,
    ];

    /// A description for people.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::F1 => "kill -9 of a gateway",
            Self::F2 => "a gateway dies at a point",
            Self::F3 => "kill -9 of all gateways",
            Self::F4 => "rolling restart",
            Self::F5 => "kill -9 of an agent",
            Self::F6 => "an agent dies at a point",
            Self::F7 => "a gateway stands still",
            Self::F8 => "an agent stands still",
            Self::F9 => "database sessions terminated",
            Self::F10 => "kill -9 of PostgreSQL",
            Self::F11 => "PostgreSQL stands still",
            Self::F12 => "locked or full database",
            Self::F13 => "statements lose races",
            Self::F14 => "disk of PostgreSQL full",
            Self::F15 => "PostgreSQL cannot sync",
            Self::F16 => "disk of a device full",
            Self::F17 => "line silently cut",
            Self::F18 => "line cut one way",
            Self::F19 => "line reset",
            Self::F20 => "line loses packets",
            Self::F21 => "line of 64 kbit/s",
            Self::F22 => "wrong clock of a gateway",
            Self::F23 => "wrong clock of a device",
            Self::F24 => "model out of order",
            Self::F25 => "tool server out of order",
            Self::F26 => "receiver out of order",
            Self::F27 => "everything comes repeatedly",
            Self::F28 => "a second agent with the same key",
            Self::F29 => "one half of another version",
            Self::F30 => "caller cut off",
            Self::F31 => "revoked while at work",
            Self::F32 => "no more files",
            Self::F33 => "everything stops, in any order",
            Self::F34 => "two faults at once",
        }
    }

    /// The kinds of which two may be active at the same time.
    pub(crate) const COMBINABLE: [Self; 13] = [
        Self::F1,
        Self::F5,
        Self::F7,
        Self::F8,
        Self::F9,
        Self::F11,
        Self::F18,
        Self::F19,
        Self::F20,
        Self::F24,
        Self::F25,
        Self::F26,
        Self::F30,
    ];

    /// The shortest and longest duration, in milliseconds. Longer than three heartbeats of a second where silence must
    /// be noticed; shorter than an agent's retries of a model call.
    const fn lasts(self) -> (u64, u64) {
        match self {
            Self::F1 | Self::F2 => (200, 2500),
            Self::F5 | Self::F6 => (50, 1500),
            Self::F3 => (100, 1000),
            // Below and above a lease of five seconds.
            Self::F7 | Self::F8 => (1000, 12_000),
            Self::F11 => (3000, 12_000),
            Self::F12 | Self::F13 | Self::F14 | Self::F15 | Self::F16 => (3000, 8000),
            // Mostly longer than a lease of five seconds.
            Self::F22 | Self::F23 => (4000, 9000),
            Self::F17 | Self::F18 => (4500, 8000),
            Self::F20 | Self::F21 => (4000, 9000),
            Self::F24 | Self::F25 => (800, 3500),
            Self::F26 => (500, 3500),
            Self::F28 | Self::F29 | Self::F32 => (2000, 4000),
            Self::F33 => (3000, 7000),
            Self::F34 => (2000, 6000),
            Self::F4 | Self::F9 | Self::F10 | Self::F19 | Self::F27 | Self::F30 | Self::F31 => (0, 0),
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL_KINDS.into_iter().find(|kind| kind.to_string() == name);
        known.ok_or_else(|| format!("{name} is none of {}", Self::ALL_KINDS.map(|kind| kind.to_string()).join(", ")))
    }
}

/// One planned fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedFault {
    /// Its place in the plan.
    pub(crate) number: usize,
    /// Its kind.
    pub(crate) kind: FaultKind,
    /// Milliseconds of quiet before it.
    pub(crate) pause_ms: u64,
    /// Milliseconds that it lasts, where it lasts.
    pub(crate) lasts_ms: u64,
    /// Chooses the replica, device or session; the injection takes the remainder of this number.
    pub(crate) target: u64,
    /// Chooses the variant, in the same way.
    pub(crate) manner: u64,
}

impl PlannedFault {
    /// Two other faults that are injected at once in its place.
    pub(crate) fn split_in_two(&self) -> [Self; 2] {
        let mut dice = SeededRandom::of(self.manner, "two");
        let mut kinds = FaultKind::COMBINABLE.to_vec();
        dice.shuffle(&mut kinds);
        [kinds[0], kinds[1]].map(|kind| {
            let (least, most) = kind.lasts();
            let lasts_ms = dice.within(least, most);
            Self { kind, lasts_ms, pause_ms: dice.within(0, 1500), target: dice.any(), manner: dice.any(), ..*self }
        })
    }
}

/// The whole plan of a pass. All kinds are equally frequent, in an order that the seed decides.
pub(crate) fn plan(seed: u64, kinds: &[FaultKind], faults: usize) -> Vec<PlannedFault> {
    let mut dice = SeededRandom::of(seed, "plan");
    let mut order = Vec::new();
    while order.len() < faults {
        let mut round = kinds.to_vec();
        dice.shuffle(&mut round);
        order.extend(round);
    }
    let planned = |(number, kind): (usize, FaultKind)| {
        let (least, most) = kind.lasts();
        PlannedFault {
            number,
            kind,
            pause_ms: dice.within(300, 2500),
            lasts_ms: dice.within(least, most),
            target: dice.any(),
            manner: dice.any(),
        }
    };
    order.into_iter().take(faults).enumerate().map(planned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_one_plan_in_which_every_kind_comes_equally_often() {
        let made = plan(42, &FaultKind::SHORT_PASS, 66);
        assert_eq!(made, plan(42, &FaultKind::SHORT_PASS, 66));
        assert_ne!(made, plan(43, &FaultKind::SHORT_PASS, 66));
        for kind in FaultKind::SHORT_PASS {
            assert_eq!(made.iter().filter(|planned| planned.kind == kind).count(), 6, "{kind}");
        }
    }

    #[test]
    fn a_kind_that_is_none_is_refused_with_those_that_are() {
        assert_eq!("F17".parse(), Ok(FaultKind::F17));
        assert!("F99".parse::<FaultKind>().unwrap_err().contains("none of F1, F2"));
    }
}
