//! The desktop's own requests: each is answered with the reply that belongs to it.

use deskgate_protocol::control::ManagementResult;
use deskgate_protocol::management::{ManagementCall, ManagementError, ManagementErrorCode, ManagementRequest};

use crate::domain::desktop::Desktop;

/// Bytes of a reply; the rest of the frame is for its envelope.
const MAX_REPLY_BYTES: usize = deskgate_protocol::frame::MAX_FRAME_BYTES - 1024;

/// Answers one request.
pub(super) async fn answer(desktop: Desktop, request: ManagementRequest) -> ManagementResult {
    use ManagementRequest as Ask;
    match request {
        Ask::CreateApplication(request) => reply(&request.clone(), desktop.create_application(request).await),
        Ask::ListApplications(request) => reply(&request, desktop.applications().await),
        Ask::ShowApplication(request) => reply(&request, desktop.application(request).await),
        Ask::ListActivity(request) => reply(&request, desktop.activity(request).await),
        Ask::CreateKey(request) => reply(&request.clone(), desktop.create_key(request).await),
        Ask::ListKeys(request) => reply(&request, desktop.keys(request).await),
        Ask::RevokeKey(request) => reply(&request, desktop.revoke_key(request).await),
        Ask::RollKey(request) => reply(&request, desktop.roll_key(request).await),
        Ask::PreviewDisabling(request) => reply(&request, desktop.preview_disabling(request).await),
        Ask::DisableApplication(request) => reply(&request, desktop.disable_application(request).await),
        Ask::CompleteDisabling(request) => reply(&request, desktop.complete_disabling(request).await),
        Ask::RemoveApplication(request) => reply(&request, desktop.remove_application(request).await),
        Ask::ListRemoved(request) => reply(&request, desktop.removed().await),
        Ask::PublishEndpoint(request) => reply(&request.clone(), desktop.publish(request).await),
        Ask::ListEndpoints(request) => reply(&request, desktop.endpoints().await),
        Ask::PreviewUnpublishing(request) => reply(&request, desktop.preview_unpublishing(request).await),
        Ask::UnpublishEndpoint(request) => reply(&request, desktop.unpublish(request).await),
        Ask::EnableEndpoint(request) => reply(&request, desktop.enable_endpoint(request).await),
        Ask::TryEndpoint(request) => reply(&request.clone(), desktop.try_endpoint(request).await),
        Ask::TryDraft(request) => reply(&request.clone(), desktop.try_draft(request).await),
        Ask::GrantTransfer(request) => reply(&request, Ok(desktop.grant_transfer())),
        Ask::SetAccess(request) => reply(&request, desktop.set_access(request).await),
        Ask::GetAccess(request) => reply(&request, desktop.access().await),
        Ask::GetOverview(request) => reply(&request, desktop.overview().await),
        Ask::FindByEnd(request) => reply(&request.clone(), desktop.find_by_end(request).await),
        Ask::ListRuns(request) => reply(&request.clone(), desktop.runs(request).await),
        Ask::ExportRuns(request) => reply(&request, desktop.export(request).await),
        Ask::ShowRun(request) => reply(&request, desktop.run(request).await),
        Ask::StopRun(request) => reply(&request, desktop.stop_run(request).await),
        Ask::ListConversations(request) => reply(&request, desktop.conversations(request).await),
        Ask::ShowConversation(request) => reply(&request, desktop.conversation(request).await),
        Ask::ResetConversation(request) => reply(&request, desktop.reset_conversation(request).await),
        Ask::ShowOperation(request) => reply(&request, desktop.operation(request).await),
        Ask::ShowCallback(request) => reply(&request, desktop.callback(request).await),
        Ask::ListCallbacks(request) => reply(&request, desktop.callbacks().await),
        Ask::SetCallback(request) => reply(&request.clone(), desktop.set_callback(request).await),
        Ask::RollCallbackSecret(request) => reply(&request, desktop.roll_callback_secret(request).await),
        Ask::TestCallback(request) => reply(&request, desktop.test_callback(request).await),
        Ask::TriggerDelivery(request) => reply(&request, desktop.trigger(request).await),
        Ask::ListDeliveries(request) => reply(&request, desktop.deliveries(request).await),
        Ask::ShowDelivery(request) => reply(&request, desktop.show_delivery(request).await),
        Ask::ResendDelivery(request) => reply(&request, desktop.resend(request).await),
        Ask::RecoverDeliveries(request) => reply(&request, desktop.recover(request).await),
        Ask::ShowAllowlist(request) => reply(&request, desktop.allowlist().await),
        Ask::SetAllowlist(request) => reply(&request.clone(), desktop.set_allowlist(request).await),
        Ask::OpenListener(request) => reply(&request.clone(), desktop.open_listener(request).await),
        Ask::PollListener(request) => reply(&request.clone(), desktop.poll_listener(request).await),
        Ask::CloseListener(request) => reply(&request, desktop.close_listener(request).await),
        Ask::CreateWebhook(request) => reply(&request.clone(), desktop.create_webhook(request).await),
        Ask::ListWebhooks(request) => reply(&request, desktop.webhooks(request).await),
        Ask::ShowWebhook(request) => reply(&request, desktop.webhook(request).await),
        Ask::ChangeWebhook(request) => reply(&request.clone(), desktop.change_webhook(request).await),
        Ask::EnableWebhook(request) => reply(&request, desktop.enable_webhook(request).await),
        Ask::RollWebhookSecret(request) => reply(&request.clone(), desktop.roll_webhook_secret(request).await),
        Ask::RemoveWebhook(request) => reply(&request, desktop.remove_webhook(request).await),
        Ask::TestWebhook(request) => reply(&request.clone(), desktop.test_webhook(request).await),
    }
}

/// The type of the request decides the type of the reply.
fn reply<C: ManagementCall>(_request: &C, answer: Result<C::Reply, ManagementError>) -> ManagementResult {
    let value = answer.and_then(|reply| {
        serde_json::to_value(reply).map_err(|error| {
            tracing::error!(%error, "a reply cannot be written as JSON");
            ManagementError { code: ManagementErrorCode::Unavailable, message: "the gateway failed".to_owned() }
        })
    });
    match value {
        Ok(value) if value.to_string().len() > MAX_REPLY_BYTES => ManagementResult::Error(ManagementError {
            code: ManagementErrorCode::Invalid,
            message: "the answer is too large for one reply; ask for less at once".to_owned(),
        }),
        Ok(value) => ManagementResult::Ok(value),
        Err(error) => ManagementResult::Error(error),
    }
}
