//! The closed list of problems: the words for each, its causes, and how long it must last.

use std::time::Duration;

deskgate_protocol::words! {
    /// How bad a problem is; the worst first.
    #[derive(PartialOrd, Ord)]
    pub enum Severity {
        /// Work that should be done is not done.
        Fail = "FAIL",
        /// Work is done, but may soon stop.
        Warn = "WARN",
    }
}

deskgate_protocol::words! {
    /// The kinds of problems, in order of importance within a severity.
    #[derive(PartialOrd, Ord)]
    pub enum ProblemCode {
        /// The agent does not run, or does not answer.
        AgentDown = "agent_down",
        /// The server is not the one that was pinned.
        HostKeyNotTrusted = "host_key_not_trusted",
        /// The server does what no gateway does.
        ServerHostile = "server_hostile",
        /// Another gateway answers than the known one.
        GatewayReplaced = "gateway_replaced",
        /// The gateway and this device have versions that do not fit.
        VersionMismatch = "version_mismatch",
        /// The gateway refuses this device.
        DeviceNotAccepted = "device_not_accepted",
        /// The gateway refuses the control token.
        ControlTokenRefused = "control_token_refused",
        /// There is no sign-in at the hosted gateway.
        SignedOut = "signed_out",
        /// The issuer of accounts refuses to renew the sign-in.
        SignInRefused = "sign_in_refused",
        /// The issuer of accounts does not answer.
        IssuerUnreachable = "issuer_unreachable",
        /// The certificate of the hosted gateway is not trusted.
        CertificateNotTrusted = "certificate_not_trusted",
        /// The gateway cannot be reached.
        GatewayUnreachable = "gateway_unreachable",
        /// The device's journal cannot be written.
        JournalUnwritable = "journal_unwritable",
        /// A service's definition cannot be read.
        ServiceUnreadable = "service_unreadable",
        /// A file that holds secrets can be read by others.
        FileLoose = "file_loose",
        /// Keys are in the keyring, and it cannot be read.
        KeyringShut = "keyring_shut",
        /// A published service's folder is gone.
        FolderGone = "folder_gone",
        /// A published service's folder is another one than was published.
        FolderReplaced = "folder_replaced",
        /// The commands of a service cannot be confined.
        SandboxMissing = "sandbox_missing",
        /// A model provider that a service names is not on this computer.
        ProviderMissing = "provider_missing",
        /// A model provider refuses its key.
        ProviderRefusesKey = "provider_refuses_key",
        /// The model of a service does not do what a run asks of it.
        ModelUnusable = "model_unusable",
        /// A published service is paused, because what it was published with has changed.
        ServicePaused = "service_paused",
        /// A budget of the month is used up.
        BudgetReached = "budget_reached",
        /// The management pages are not available.
        PagesDown = "pages_down",
        /// Runs were cut off and wait for the owner's decision.
        RunsUnsettled = "runs_unsettled",
        /// A request for approval expires soon.
        ApprovalExpires = "approval_expires",
        /// Sending to a callback was disabled after failures.
        CallbackOff = "callback_off",
        /// A budget of the month is nearly used up.
        BudgetNearlySpent = "budget_nearly_spent",
        /// Runs wait in the queue while access is paused.
        AccessPaused = "access_paused",
        /// The computer may fall asleep during a run.
        SleepNotPrevented = "sleep_not_prevented",
        /// A disk is nearly full.
        DiskNearlyFull = "disk_nearly_full",
        /// The room that the agent held back was used.
        ReserveUsed = "reserve_used",
        /// This computer's clock is behind the gateway's.
        ClockBehind = "clock_behind",
    }
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
    ProblemCode::ServerHostile,
    ProblemCode::GatewayReplaced,
    ProblemCode::VersionMismatch,
    ProblemCode::DeviceNotAccepted,
    ProblemCode::ControlTokenRefused,
    ProblemCode::SignedOut,
    ProblemCode::SignInRefused,
    ProblemCode::IssuerUnreachable,
    ProblemCode::CertificateNotTrusted,
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
    pub const ENTRIES: [CodeInfo; 34] = {
        use ProblemCode::*;
        use Severity::*;
        [
            entry(AgentDown, Fail, "The agent does not run", "The agent runs", &[], 0),
            entry(HostKeyNotTrusted, Fail, "The server is not trusted", "The server is the pinned one", &[], 0),
            entry(ServerHostile, Fail, "The server attacks this device", "The server behaves as a gateway", &[], 0),
            entry(GatewayReplaced, Fail, "Another gateway answers", "The gateway is the known one", &[], 0),
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
            entry(
                CertificateNotTrusted,
                Fail,
                "The gateway's certificate is not trusted",
                "The gateway's certificate is trusted",
                &[],
                0,
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
            entry(
                FolderReplaced,
                Fail,
                "A service's folder is another one",
                "Folders of services are those that were published",
                &[],
                0,
            ),
            entry(SandboxMissing, Fail, "Commands cannot be kept in", "Commands are kept in", &[FolderGone], 0),
            entry(
                ProviderMissing,
                Fail,
                "A model provider is missing",
                "Model providers of services are there",
                &[],
                0,
            ),
            entry(
                ProviderRefusesKey,
                Fail,
                "A model provider refuses its key",
                "Model providers take their keys",
                &[FileLoose, KeyringShut],
                0,
            ),
            entry(
                ModelUnusable,
                Fail,
                "A model cannot be used",
                "Models of services can be used",
                &[FileLoose, KeyringShut],
                0,
            ),
            entry(
                ServicePaused,
                Fail,
                "A service is paused",
                "Published services run",
                &[FolderGone, FolderReplaced],
                0,
            ),
            entry(BudgetReached, Fail, "A budget is used up", "Budgets have room", &[], 0),
            entry(PagesDown, Fail, "The management pages are not up", "The management pages are up", &[], 10),
            entry(RunsUnsettled, Warn, "Runs need your decision", "No run needs your decision", &[], 0),
            entry(ApprovalExpires, Warn, "A request expires soon", "No request is about to expire", &[], 0),
            entry(CallbackOff, Warn, "A callback was switched off", "No callback was switched off", LINE_CODES, 0),
            entry(BudgetNearlySpent, Warn, "A budget is nearly used up", "Budgets have much room", &[], 0),
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
            entry(ReserveUsed, Warn, "The journal's reserve is used up", "The journal has a reserve", &[], 0),
            entry(ClockBehind, Warn, "This computer's clock is behind", "The clock is not behind", &[], 0),
        ]
    };

    /// The description of this code.
    pub fn entry(self) -> &'static CodeInfo {
        Self::ENTRIES.iter().find(|entry| entry.code == self).expect("every code has an entry, which a test sees to")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_entry_in_the_order_of_importance() {
        for pair in ProblemCode::ENTRIES.windows(2) {
            assert!(pair[0].code < pair[1].code && pair[0].severity <= pair[1].severity, "{pair:?}");
        }
        assert_eq!(ProblemCode::ENTRIES.last().map(|entry| entry.code), Some(ProblemCode::ClockBehind));
        for entry in ProblemCode::ENTRIES {
            assert_eq!(entry.code.as_str().parse(), Ok(entry.code));
            assert!(!entry.follows.contains(&entry.code));
        }
    }
}
