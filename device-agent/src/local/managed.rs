//! What the gateway answers: the agent passes such requests on.

use deskgate_protocol::management::{
    CreateApplication, CreateKey, GetAccess, ListApplications, ListConversations, ListEndpoints, ListKeys, ListRuns,
    ManagementRequest, PublishEndpoint, ResetConversation, RevokeKey, RollKey, SetAccess, SetApplication,
    ShowConversation, ShowOperation, ShowRun, StopRun,
};

use super::desk::{Answer, Desk};
use super::no::failed;
use crate::services::Gateway;

impl Desk {
    pub(super) async fn manage(&self, request: ManagementRequest) -> Answer {
        use ManagementRequest as Pass;
        let engine = self.engine()?;
        let dispatcher = &engine.dispatcher;
        macro_rules! pass {
            ($request:expr, $kind:ty) => {{
                let reply = dispatcher.call::<$kind>($request).await?;
                serde_json::to_value(reply).map_err(|error| failed(error.to_string()))
            }};
        }
        match request {
            Pass::CreateApplication(request) => pass!(request, CreateApplication),
            Pass::ListApplications(request) => pass!(request, ListApplications),
            Pass::CreateKey(request) => pass!(request, CreateKey),
            Pass::ListKeys(request) => pass!(request, ListKeys),
            Pass::RevokeKey(request) => pass!(request, RevokeKey),
            Pass::RollKey(request) => pass!(request, RollKey),
            Pass::SetApplication(request) => pass!(request, SetApplication),
            Pass::PublishEndpoint(request) => pass!(request, PublishEndpoint),
            Pass::ListEndpoints(request) => pass!(request, ListEndpoints),
            Pass::SetAccess(request) => pass!(request, SetAccess),
            Pass::GetAccess(request) => pass!(request, GetAccess),
            Pass::ListRuns(request) => pass!(request, ListRuns),
            Pass::ShowRun(request) => pass!(request, ShowRun),
            Pass::StopRun(request) => pass!(request, StopRun),
            Pass::ListConversations(request) => pass!(request, ListConversations),
            Pass::ShowConversation(request) => pass!(request, ShowConversation),
            Pass::ResetConversation(request) => pass!(request, ResetConversation),
            Pass::ShowOperation(request) => pass!(request, ShowOperation),
        }
    }
}
