//! The closed list of problems: the words for each, its causes, and how long it must last.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How bad a problem is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// Work that should be done is not done.
    Fail,
    /// Work is done, but may soon stop.
    Warn,
}

/// The kinds of problems, in order of importance within a severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The agent does not run, or does not answer.
    AgentDown,
    /// The server is not the one that was pinned.
    HostKeyNotTrusted,
    /// The gateway and this device have versions that do not fit.
    VersionMismatch,
    /// The gateway refuses this device.
    DeviceNotAccepted,
    /// The gateway refuses the control token.
    ControlTokenRefused,
    /// There is no sign-in at the hosted gateway.
    SignedOut,
    /// The issuer of accounts refuses to renew the sign-in.
    SignInRefused,
    /// The issuer of accounts does not answer.
    IssuerUnreachable,
    /// The gateway cannot be reached.
    GatewayUnreachable,
    /// The device's journal cannot be written.
    JournalUnwritable,
    /// A service's definition cannot be read.
    ServiceUnreadable,
    /// A file that holds secrets can be read by others.
    FileLoose,
    /// Keys are in the keyring, and it cannot be read.
    KeyringShut,
    /// A published service's folder is gone.
    FolderGone,
    /// The commands of a service cannot be confined.
    SandboxMissing,
    /// A model provider refuses its key.
    ProviderRefusesKey,
    /// A published service is paused, because what it was published with has changed.
    ServicePaused,
    /// The management pages are not available.
    PagesDown,
    /// Runs were cut off and wait for the owner's decision.
    RunsUnsettled,
    /// A request for approval expires soon.
    ApprovalExpires,
    /// Sending to a callback was disabled after failures.
    CallbackOff,
    /// Runs wait in the queue while access is paused.
    AccessPaused,
    /// The computer may fall asleep during a run.
    SleepNotPrevented,
    /// A disk is nearly full.
    DiskNearlyFull,
    /// This computer's clock is behind the gateway's.
    ClockBehind,
}

/// The description of a code.
#[derive(Clone, Copy, Debug)]
pub struct CodeInfo {
    /// The code.
    pub code: ProblemCode,
    /// The problem's severity.
    pub severity: Severity,
    /// The problem in a few words.
    pub title: &'static str,
    /// The state without the problem, in a few words.
    pub fine: &'static str,
    /// Problems that may cause it, and that hide it then.
    pub follows: &'static [ProblemCode],
    /// How long it must last before it is shown.
    pub delay: Duration,
}

/// The permanent failures of the connection.
const LINE_CODES: &[ProblemCode] = &[
    ProblemCode::HostKeyNotTrusted,
    ProblemCode::VersionMismatch,
    ProblemCode::DeviceNotAccepted,
    ProblemCode::ControlTokenRefused,
    ProblemCode::SignedOut,
    ProblemCode::SignInRefused,
    ProblemCode::IssuerUnreachable,
    ProblemCode::GatewayUnreachable,
];

const fn entry(
    code: ProblemCode,
    severity: Severity,
    title: &'static str,
    fine: &'static str,
    follows: &'static [ProblemCode],
    delay_s: u64,
) -> CodeInfo {
    CodeInfo { code, severity, title, fine, follows, delay: Duration::from_secs(delay_s) }
}

impl ProblemCode {
    /// Every code, the most important first.
    pub const ALL: [CodeInfo; 25] = {
        use ProblemCode::*;
        use Severity::*;
        [
            entry(AgentDown, Fail, "The agent does not run", "The agent runs", &[], 0),
            entry(HostKeyNotTrusted, Fail, "The server is not trusted", "The server is the pinned one", &[], 0),
            entry(VersionMismatch, Fail, "The gateway has another version", "The gateway's version fits", &[], 0),
            entry(DeviceNotAccepted, Fail, "The gateway refuses this device", "The gateway knows this device", &[], 0),
            entry(ControlTokenRefused, Fail, "The control token is refused", "The control token fits", &[], 0),
            entry(SignedOut, Fail, "Nobody is signed in", "An account is signed in", &[], 0),
            entry(SignInRefused, Fail, "The sign-in is over", "The sign-in is active", &[], 0),
            entry(
                IssuerUnreachable,
                Fail,
                "The issuer of accounts is unreachable",
                "The issuer of accounts is reached",
                &[SignedOut, SignInRefused],
                10,
            ),
            entry(GatewayUnreachable, Fail, "The gateway is unreachable", "The gateway is reached", &[], 10),
            entry(
                JournalUnwritable,
                Fail,
                "The journal cannot be written",
                "The journal is written",
                &[DiskNearlyFull],
                2,
            ),
            entry(ServiceUnreadable, Fail, "A service cannot be read", "Services can be read", &[], 0),
            entry(FileLoose, Fail, "A private file is open to others", "Private files are private", &[], 0),
            entry(KeyringShut, Fail, "The keyring cannot be read", "Keys can be read", &[], 0),
            entry(FolderGone, Fail, "A service's folder is gone", "Folders of services are there", &[], 10),
            entry(SandboxMissing, Fail, "Commands cannot be kept in", "Commands are kept in", &[FolderGone], 0),
            entry(
                ProviderRefusesKey,
                Fail,
                "A model provider refuses its key",
                "Model providers take their keys",
                &[FileLoose, KeyringShut],
                0,
            ),
            entry(ServicePaused, Fail, "A service is paused", "Published services run", &[FolderGone], 0),
            entry(PagesDown, Fail, "The management pages are not up", "The management pages are up", &[], 10),
            entry(RunsUnsettled, Warn, "Runs need your decision", "No run needs your decision", &[], 0),
            entry(ApprovalExpires, Warn, "A request expires soon", "No request is about to expire", &[], 0),
            entry(CallbackOff, Warn, "A callback was switched off", "No callback was switched off", LINE_CODES, 0),
            entry(
                AccessPaused,
                Warn,
                "Runs wait while access is paused",
                "Access keeps no run waiting",
                LINE_CODES,
                10,
            ),
            entry(SleepNotPrevented, Warn, "Sleep can stop runs", "Sleep stops no run", &[], 30),
            entry(DiskNearlyFull, Warn, "The disk is nearly full", "The disk has room", &[], 10),
            entry(ClockBehind, Warn, "This computer's clock is behind", "The clock is not behind", &[], 0),
        ]
    };

    /// The description of this code.
    pub fn entry(self) -> &'static CodeInfo {
        Self::ALL.iter().find(|entry| entry.code == self).expect("every code has an entry, which a test sees to")
    }

    /// The code's name for programs.
    pub fn as_str(self) -> String {
        serde_json::to_value(self).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

impl std::str::FromStr for ProblemCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|entry| entry.code.as_str() == text).map(|entry| entry.code);
        known.ok_or_else(|| format!("there is no problem of the code {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_entry_in_the_order_of_importance() {
        for pair in ProblemCode::ALL.windows(2) {
            assert!(pair[0].code < pair[1].code && pair[0].severity <= pair[1].severity, "{pair:?}");
        }
        assert_eq!(ProblemCode::ALL.last().map(|entry| entry.code), Some(ProblemCode::ClockBehind));
        for entry in ProblemCode::ALL {
            assert_eq!(entry.code.as_str().parse(), Ok(entry.code));
            assert!(!entry.follows.contains(&entry.code));
        }
    }
}
