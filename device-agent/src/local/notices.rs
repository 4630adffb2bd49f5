//! Shows a desktop notification for each call that waits for a decision, until it is decided anywhere.

use std::collections::BTreeSet;
use std::time::Duration;

use deskgate_program::visible;
use deskgate_protocol::ids::ApprovalId;
use deskgate_store::approvals::Approval;
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use super::{OpenPages, opener};
use crate::config::Home;
use crate::notices::DesktopNotifications;
use crate::settings::Notifications;

/// Gets the settings of notifications.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetNotifications {}

impl TypedRequest for GetNotifications {
    type Response = Notifications;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Notifications, ErrorReply> {
        handler.notifications().await
    }
}

/// Changes the settings of notifications; absent fields stay.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetNotifications {
    /// See [`Notifications::on`].
    pub on: Option<bool>,
    /// See [`Notifications::hide_details`].
    pub hide_details: Option<bool>,
}

impl TypedRequest for SetNotifications {
    type Response = Notifications;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Notifications, ErrorReply> {
        handler.set_notifications(self).await
    }
}

/// How often it is looked without a change: the notification service may have come, or the settings may be other ones.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Shows and withdraws notifications until the agent ends.
pub async fn follow(handler: RequestHandler) {
    let mut requests = handler.store.request_changes();
    let mut notices = DesktopNotifications::default();
    loop {
        handler.notify(&mut notices).await;
        tokio::select! {
            _ = requests.changed() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            approval_id = notices.clicked() => handler.open_for_person(approval_id).await,
        }
    }
}

impl RequestHandler {
    pub(super) async fn notifications(&self) -> Result<Notifications, ErrorReply> {
        Ok(self.store.settings().get::<Notifications>().await?)
    }

    pub(super) async fn set_notifications(&self, ask: SetNotifications) -> Result<Notifications, ErrorReply> {
        let settings = self.store.settings();
        let old = settings.get::<Notifications>().await?;
        let new =
            Notifications { on: ask.on.unwrap_or(old.on), hide_details: ask.hide_details.unwrap_or(old.hide_details) };
        settings.set(&new).await?;
        Ok(new)
    }

    async fn notify(&self, notices: &mut DesktopNotifications<ApprovalId>) {
        let (Ok(waiting), Ok(wanted)) =
            (self.store.approvals().list(false).await, self.store.settings().get::<Notifications>().await)
        else {
            return;
        };
        let waiting = if wanted.on { waiting } else { Vec::new() };
        let ids: BTreeSet<_> = waiting.iter().map(|approval| approval.approval_id).collect();
        notices.retain(|id| ids.contains(&id)).await;
        for approval in waiting.iter().filter(|approval| !notices.has(approval.approval_id)).collect::<Vec<_>>() {
            notices.show(approval.approval_id, &body(approval, wanted.hide_details)).await;
        }
    }

    /// Opens the page of the request, where the person decides.
    async fn open_for_person(&self, approval_id: ApprovalId) {
        let opened = match self.open_pages(&OpenPages { page: Some(format!("/approvals#{approval_id}")) }) {
            Ok(opened) => opener::open(&Home::at(self.own_folder.clone()).opener(), opened.link).await,
            Err(no) => Err(no.message),
        };
        if let Err(why) = opened {
            tracing::warn!(why, "the pages could not be opened for a notification");
        }
    }
}

fn body(approval: &Approval, hide_details: bool) -> String {
    if hide_details {
        return "A tool call waits for your decision.".to_owned();
    }
    let place = approval.plan.as_ref().and_then(|plan| plan.place.as_deref());
    let place = place.map(|place| format!(" in {place}")).unwrap_or_default();
    visible::line(&format!("{} wants to run {}{place}", approval.service, approval.tool))
}
