//! Every word of every closed enum.

use deskgate_protocol::control::*;
use deskgate_protocol::conversation::*;
use deskgate_protocol::delivery::*;
use deskgate_protocol::file::ArtifactState;
use deskgate_protocol::management::*;
use deskgate_protocol::operation::*;
use deskgate_protocol::run::*;
use deskgate_protocol::transfer::TransferRefusalCode;
use deskgate_protocol::*;

use crate::file::Golden;

#[test]
fn every_word_is_written_and_read_as_ever() {
    let mut file = Golden::open("words");
    macro_rules! words {
        ($($kind:ident { $($word:ident)* })*) => {
            $(every!(file, $kind { $($word: $kind::$word;)* });)*
        };
    }
    words! {
        RefusedCode { VersionMismatch UnknownDevice RevokedDevice BadProof OtherServer BadHello Unavailable OtherAccount TooManyDevices
            InvitationOver }
        RefuseCode { DefinitionMismatch Busy }
        RevokeCode { StaleAttempt AlreadyFinal UnknownRun }
        ByeCode { Replaced Revoked Unresponsive ProtocolViolation Unavailable SignInExpired }
        InFlightStatus { Taken Running Interrupted Unknown Finished }
        ToolKind { Read Write }
        ToolStatus { Ok Error }
        ApprovalResolution { Approved Denied Expired Withdrawn }
        Half { Gateway Device }
        TransferRefusalCode { TicketInvalid Stale Invalid Gone DigestMismatch TooMany StorageFull Busy }
        ManagementErrorCode { Invalid NotFound Conflict AdministratorOnly QuotaReached Unavailable }
        AskedBy { Page Cli Agent }
        Actor { Page Cli Agent Key Webhook Administrator }
        ActivityKind { ApplicationCreated ApplicationDisabled DisablingCompleted ApplicationRemoved KeyCreated KeyRolled
            KeyRevoked ServicePublished ServiceDisabled ServiceEnabled ServiceUnpublished AccessEnabled AccessPaused CallbackSet CallbackDisabled CallbackEnabled
            CallbackSecretRolled AllowlistChanged DeliveryTriggered DeliveryResent DeliveriesRecovered ListenerOpened
            RunStopped ConversationReset WebhookCreated WebhookChanged WebhookEnabled WebhookDisabled WebhookSecretRolled
            WebhookRemoved }
        RecordKind { Application Run Conversation Operation Delivery }
        HashAlgorithm { Sha1 Sha256 Sha512 }
        SignatureEncoding { Hex Base64 }
        ReceiptOutcome { Accepted Ignored Refused Repeated }
        KeyWarning { NewAddress Unused }
        ApplicationState { Active Disabling Disabled Removed }
        Scope { EndpointsRead RunsWrite RunsRead RunsControl ConversationsWrite ConversationsRead ConversationsControl
            DeliveriesRead FilesWrite }
        ArtifactState { Stored Missing }
        CallbackEvent { RunAccepted RunStarted RunAwaitingApproval RunApprovalResolved RunAwaitingReconciliation
            RunReconciled RunRestarted RunCancelling RunSucceeded RunFailed RunCancelled RunExpired ConversationReset
            WebhookTest }
        DeliveryState { Pending Delivered Exhausted Discarded }
        DeliveryErrorCode { HostNotAllowed HostNotPublic DnsFailed ConnectFailed ConnectTimeout CertificateInvalid
            TlsFailed Timeout BadAnswer Misconfigured TooLarge }
        CallbackOff { Gone Failing Owner Application }
        DestinationKind { Callback Listener }
        Phase { Accepted Started Final }
        RunState { Queued WaitingForDevice Running AwaitingApproval AwaitingReconciliation Cancelling Succeeded Failed
            Cancelled Expired }
        ConversationState { Idle Busy Resetting }
        OnBusy { Reject Enqueue Interrupt }
        CallbackFormat { Deskgate Openai }
        OperationKind { RunStop ConversationReset }
        OperationState { Pending Delivered Completed Failed }
        OperationErrorCode { DeviceRemoved }
        OutcomeCode { Stopped AlreadyFinal OutcomeUnknown Reset }
        RequestedBy { Application DesktopUser Administrator }
        StateReasonCode { DeviceOffline DeviceAsleep DevicePaused DeviceIncompatible DeviceBusy ConversationBusy ApprovalPending ModelUnavailable
            OutcomeUnknown StopRequested }
        FinishReason { Completed Length }
        RunErrorCode { ModelError ModelAuth ToolError SandboxUnavailable MaxDurationExceeded MaxTurnsExceeded
            FileUnavailable OutputMismatch BudgetReached ApprovalDenied ApprovalExpired Interrupted DeviceRemoved DefinitionMismatch Internal }
        Effects { None Possible Known }
        EventType { RunAccepted RunStarted RunAwaitingApproval RunApprovalResolved RunAwaitingReconciliation
            RunReconciled RunRestarted RunCancelling ToolStarted ToolCompleted MessageCompleted ArtifactCreated UsageUpdated RunSucceeded RunFailed RunCancelled RunExpired }
    }
    file.close();
}
