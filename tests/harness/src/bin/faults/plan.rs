//! The plan of faults, times and durations: decided by the seed before anything starts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::seed::SeededRandom;

/// Makes the kinds of faults from the one table of them: number, name, word, what it is, and how long it lasts.
macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $number:literal $name:ident $word:literal $description:literal $lasts:expr;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub(crate) enum FaultKind {
            $($(#[$doc])* #[serde(rename = $number)] $name,)*
        }

        impl FaultKind {
            /// Every kind.
            pub(crate) const ALL_KINDS: [Self; [$($number),*].len()] = [$(Self::$name),*];

            /// Its number in reports and in `KINDS=`.
            pub(crate) const fn number(self) -> &'static str {
                match self {
                    $(Self::$name => $number,)*
                }
            }

            /// Its name on the command line.
            pub(crate) const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// What it is, for people.
            pub(crate) const fn description(self) -> &'static str {
                match self {
                    $(Self::$name => $description,)*
                }
            }

            /// How long it lasts, from and to, in milliseconds. Longer than three heartbeats of a second where silence is
            /// to be noticed; shorter than what an agent's repetitions of a model's call endure.
            const fn lasts(self) -> (u64, u64) {
                match self {
                    $(Self::$name => $lasts,)*
                }
            }
        }
    };
}

fault_kinds! {
    /// Kills one gateway with SIGKILL and starts it again on the same state.
    "F1" KillGateway "kill-gateway" "kill -9 of a gateway" (200, 2500);
    /// Has a gateway die at a named crash point, right before or right after it has written something down.
    "F2" CrashGateway "crash-gateway" "a gateway dies at a point" (200, 2500);
    /// Kills every gateway with SIGKILL and starts them all again.
    "F3" KillAllGateways "kill-all-gateways" "kill -9 of all gateways" (100, 1000);
    /// Stops every gateway in good order and starts it again, one after the other.
    "F4" RollingRestart "rolling-restart" "rolling restart" (0, 0);
    /// Kills a device's agent with SIGKILL and starts it again in the same home.
    "F5" KillAgent "kill-agent" "kill -9 of an agent" (50, 1500);
    /// Has an agent die at a named crash point, right before or right after it has written something down.
    "F6" CrashAgent "crash-agent" "an agent dies at a point" (50, 1500);
    /// Stops a gateway's process with SIGSTOP for a while and lets it continue.
    "F7" FreezeGateway "freeze-gateway" "a gateway stands still" (1000, 12_000);
    /// Stops an agent's process with SIGSTOP for a while and lets it continue.
    "F8" FreezeAgent "freeze-agent" "an agent stands still" (1000, 12_000);
    /// Terminates a share of the gateways' database sessions.
    "F9" TerminateDatabaseSessions "terminate-database-sessions" "database sessions terminated" (0, 0);
    /// Kills PostgreSQL and everything it started with SIGKILL and waits until it answers again.
    "F10" KillDatabase "kill-database" "kill -9 of PostgreSQL" (0, 0);
    /// Stops PostgreSQL's processes, so that it neither answers nor resets, and lets them continue.
    "F11" FreezeDatabase "freeze-database" "PostgreSQL stands still" (3000, 12_000);
    /// Locks the table of runs, or takes every connection that PostgreSQL has.
    "F12" BlockDatabase "block-database" "locked or full database" (3000, 8000);
    /// Lets statements or commits fail by chance with serialization failures and deadlocks.
    "F13" FailTransactions "fail-transactions" "statements lose races" (3000, 8000);
    /// Fills the disk under PostgreSQL.
    "F14" FillDatabaseDisk "fill-database-disk" "disk of PostgreSQL full" (3000, 8000);
    /// Lets every fsync of PostgreSQL fail, so that nothing it writes can be made durable.
    "F15" FailDatabaseSync "fail-database-sync" "PostgreSQL cannot sync" (3000, 8000);
    /// Fills the disk under a device's home.
    "F16" FillDeviceDisk "fill-device-disk" "disk of a device full" (3000, 8000);
    /// Holds back everything between a device and its gateways without closing the connection.
    "F17" BlackholeConnection "blackhole-connection" "line silently cut" (4500, 8000);
    /// Holds back what goes in one direction between a device and its gateways, without closing the connection.
    "F18" BlackholeOneWay "blackhole-one-way" "line cut one way" (4500, 8000);
    /// Resets every connection between a device and its gateways, once.
    "F19" ResetConnection "reset-connection" "line reset" (0, 0);
    /// Drops a share of the packets between a device and its gateways.
    "F20" DropPackets "drop-packets" "line loses packets" (4000, 9000);
    /// Limits the connection between a device and its gateways to 64 kbit/s.
    "F21" ThrottleConnection "throttle-connection" "line of 64 kbit/s" (4000, 9000);
    /// Shows a gateway a wrong time of day, from its start on or suddenly.
    "F22" SkewGatewayClock "skew-gateway-clock" "wrong clock of a gateway" (4000, 9000);
    /// Shows an agent a wrong time of day, from its start on or suddenly.
    "F23" SkewDeviceClock "skew-device-clock" "wrong clock of a device" (4000, 9000);
    /// Lets the model provider refuse, fail, send nonsense, break off, hang or be away.
    "F24" BreakModel "break-model" "model out of order" (800, 3500);
    /// Lets the MCP server fail, forget its sessions, act without answering, or hang.
    "F25" BreakToolServer "break-tool-server" "tool server out of order" (800, 3500);
    /// Lets the receiver of callbacks fail, hang, redirect, or close the connection before it confirms.
    "F26" BreakReceiver "break-receiver" "receiver out of order" (500, 3500);
    /// Sends one event and one submission to every gateway several times at once.
    "F27" DuplicateRequests "duplicate-requests" "everything comes repeatedly" (0, 0);
    /// Starts a second agent with the same device key, and kills it again.
    "F28" DuplicateAgent "duplicate-agent" "a second agent with the same key" (2000, 4000);
    /// Runs a device or a gateway of another version, claims another version or protocol by hand, or marks the database as migrated by a newer one.
    "F29" MismatchVersion "mismatch-version" "one half of another version" (2000, 4000);
    /// Cuts a caller off in the middle of its request or of the answer; it comes again with the same key.
    "F30" CutOffCaller "cut-off-caller" "caller cut off" (0, 0);
    /// Revokes a key, an application or a device while it works.
    "F31" RevokeAccess "revoke-access" "revoked while at work" (0, 0);
    /// Lowers a gateway's limit of open files, so that it can open no more.
    "F32" ExhaustFiles "exhaust-files" "no more files" (2000, 4000);
    /// Stops gateways, database, connections and receiver in one order and resumes them in another.
    "F33" StopAndResumeAll "stop-and-resume-all" "everything stops, in any order" (3000, 7000);
    /// Strikes two other faults at the same time.
    "F34" OverlapTwo "overlap-two" "two faults at once" (2000, 6000);
    /// Resets a device's line while idle connections from its own address keep knocking at the gateways' SSH ports.
    "F35" KnockIdle "knock-idle" "idle connections from the device's address" (4500, 8000);
    /// Keeps the line between a device and its gateway open, and lets no request of it be answered.
    "F36" StallRequests "stall-requests" "a gateway answers pings and no requests" (3000, 5000);
    /// Has a command of a run fill the disk that the device's journal is on, as fast as it can.
    "F37" FillByCommand "fill-by-command" "a command fills the device's disk" (1000, 2000);
    /// Sends bodies that are refused before they are read, and good requests behind them on the same connection.
    "F38" RefuseBodies "refuse-bodies" "refused bodies on kept connections" (0, 0);
    /// Stops all gateways, restores their database from a backup of that moment, and starts them again.
    "F39" RestoreBackup "restore-backup" "a restored backup" (0, 0);
    /// Pairs a device by an invitation, and kills it or a gateway, cuts its line or refuses it meanwhile.
    "F40" InterruptPairing "interrupt-pairing" "a pairing that is interrupted" (0, 0);
}

impl FaultKind {
    /// The kinds of a short pass.
    pub(crate) const SHORT_PASS: [Self; 12] = [
        Self::KillGateway,
        Self::CrashGateway,
        Self::KillAgent,
        Self::CrashAgent,
        Self::TerminateDatabaseSessions,
        Self::KillDatabase,
        Self::BlackholeConnection,
        Self::ResetConnection,
        Self::BreakModel,
        Self::BreakReceiver,
        Self::CutOffCaller,
        Self::KnockIdle,
    ];

    /// Those in which a program dies at a point, about as often as there are points of its kind.
    pub(crate) const CRASH_POINT_PASS: [Self; 5] =
        [Self::CrashGateway, Self::CrashGateway, Self::CrashGateway, Self::CrashAgent, Self::CrashAgent];

    /// The kinds of which two may be active at the same time.
    pub(crate) const COMBINABLE: [Self; 13] = [
        Self::KillGateway,
        Self::KillAgent,
        Self::FreezeGateway,
        Self::FreezeAgent,
        Self::TerminateDatabaseSessions,
        Self::FreezeDatabase,
        Self::BlackholeOneWay,
        Self::ResetConnection,
        Self::DropPackets,
        Self::BreakModel,
        Self::BreakToolServer,
        Self::BreakReceiver,
        Self::CutOffCaller,
    ];
}

impl fmt::Display for FaultKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.number())
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL_KINDS.into_iter().find(|kind| kind.number() == name || kind.word() == name);
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
        let made = plan(42, &FaultKind::SHORT_PASS, 72);
        assert_eq!(made, plan(42, &FaultKind::SHORT_PASS, 72));
        assert_ne!(made, plan(43, &FaultKind::SHORT_PASS, 72));
        for kind in FaultKind::SHORT_PASS {
            assert_eq!(made.iter().filter(|planned| planned.kind == kind).count(), 6, "{kind}");
        }
    }

    #[test]
    fn a_kind_that_is_none_is_refused_with_those_that_are() {
        assert_eq!("F17".parse(), Ok(FaultKind::BlackholeConnection));
        assert_eq!("reset-connection".parse(), Ok(FaultKind::ResetConnection));
        assert!("F99".parse::<FaultKind>().unwrap_err().contains("none of F1, F2"));
    }
}
