//! Search by identifier or name.

use std::collections::HashMap;
use std::str::FromStr;

use deskgate_definition::Service;
use deskgate_program::records::given;
use deskgate_program::visible;
use deskgate_protocol::ids::{ApplicationId, ConversationId, EndpointId, RunId};
use deskgate_protocol::management::{
    FindByEnd, ListApplications, ListKeys, ListRemoved, RecordKind, ShowConversation, ShowRun,
};
use deskgate_protocol::secret::SecretKind;
use deskgate_store::approvals::Approval;
use serde::{Deserialize, Serialize};

use super::error_reply::invalid;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use super::request::TypedRequest;
use super::{ApprovalState, ListApprovals, ShowApproval};

/// Characters of an input that name its run.
const MAX_NAME_CHARS: usize = 60;
/// At most this many hits of each kind.
const MAX_HITS_PER_KIND: usize = 50;

/// Searches by identifier or name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Find {
    /// An identifier, or a part of a name.
    pub text: String,
}

impl TypedRequest for Find {
    type Response = SearchResults;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<SearchResults, ErrorReply> {
        handler.find(self).await
    }
}

/// The results of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchResults {
    /// The hits, by kind.
    pub things: Vec<SearchHit>,
    /// Why the results are incomplete: the gateway could not be queried. Absent when they are complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
}

/// A hit, which has a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchHit {
    /// The kind of thing.
    pub kind: HitKind,
    /// Its identifier.
    pub id: String,
    /// Its name; without one, the name of what it belongs to.
    pub name: String,
    /// The path of its page.
    pub page: String,
    /// Whether it matches exactly.
    pub exact: bool,
}

deskgate_protocol::words! {
    /// The kinds, in the order in which they are listed.
    #[derive(PartialOrd, Ord)]
    pub enum HitKind {
        /// An application, removed or not.
        Application = "application",
        /// A service.
        Service = "service",
        /// An approval request.
        Approval = "approval",
        /// An application's key.
        Key = "key",
        /// A run.
        Run = "run",
        /// A conversation.
        Conversation = "conversation",
    }
}

impl SearchResults {
    /// The one thing that was meant, if that is certain.
    pub fn meant(&self) -> Option<&SearchHit> {
        let mut exact = self.things.iter().filter(|thing| thing.exact);
        exact.next().filter(|_| exact.next().is_none())
    }
}

/// A search and its hits.
struct Search<'a> {
    text: &'a str,
    lower: String,
    /// The text as the end of an identifier, as lists show it, if it can be one.
    end: Option<&'a str>,
    found: Vec<SearchHit>,
}

impl<'a> Search<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, lower: text.to_lowercase(), end: given::end_of_id(text), found: Vec::new() }
    }

    /// Adds a thing if its identifiers or names match.
    fn offer(&mut self, kind: HitKind, ids: &[&str], name: &str, page: String) {
        let lower = name.to_lowercase();
        let ends = self.end.is_some_and(|end| ids.iter().any(|id| id.ends_with(end)));
        // Four characters alone may be a part of a name, too; written as lists show them they are an end.
        let is_short_id = ends && self.end != Some(self.text);
        let exact = ids.contains(&self.text) || is_short_id || lower == self.lower;
        // An identifier's prefix alone matches everything.
        let begins = self.text.contains('_') && ids.iter().any(|id| id.starts_with(self.text));
        let room = self.found.iter().filter(|thing| thing.kind == kind).count() < MAX_HITS_PER_KIND;
        if exact || ((begins || ends || lower.contains(&self.lower)) && room) {
            let id = ids.first().copied().unwrap_or_default().to_owned();
            self.found.push(SearchHit { kind, id, name: name.to_owned(), page, exact });
        }
    }
}

impl RequestHandler {
    pub(super) async fn find(&self, ask: Find) -> Result<SearchResults, ErrorReply> {
        let text = ask.text.trim();
        if let Some(kind) = SecretKind::of(text) {
            return Err(invalid(format!("this is {kind}. It was not looked for; find a key by its name instead")));
        }
        let mut search = Search::new(text);
        if text.is_empty() {
            return Ok(SearchResults::default());
        }
        let services = self.store.services().list().await?;
        for service in &services {
            let endpoint = service.endpoint_id.map(|id| id.to_string()).unwrap_or_default();
            let draft = service.draft_id.to_string();
            let page = format!("/services/{draft}");
            let ids: Vec<_> = [draft.as_str(), endpoint.as_str()].into_iter().filter(|id| !id.is_empty()).collect();
            search.offer(HitKind::Service, &ids, &service.draft.name, page);
        }
        self.find_approvals(&mut search).await?;
        let incomplete = match self.find_at_gateway(&mut search, &services).await {
            Ok(()) => None,
            Err(no) => Some(no.message),
        };
        let mut things = search.found;
        things.sort_by_key(|thing| (thing.kind, !thing.exact));
        Ok(SearchResults { things, incomplete })
    }

    /// There are many approval requests, so a decided one is found by its identifier or its end only.
    async fn find_approvals(&self, search: &mut Search<'_>) -> Result<(), ErrorReply> {
        let waiting = self.approvals(ListApprovals { all: false, run_id: None }).await?;
        let mut approvals: Vec<Approval> = waiting.into_iter().map(|view| view.approval).collect();
        let given = match (search.text.parse(), search.end) {
            (Ok(approval_id), _) => vec![approval_id],
            (Err(_), Some(end)) => self.store.approvals().ids_by_end(end.to_owned()).await?,
            (Err(_), None) => Vec::new(),
        };
        for approval_id in given {
            if approvals.iter().all(|waiting| waiting.approval_id != approval_id)
                && let Some(view) = known(self.approval(ShowApproval { approval_id }).await)?
            {
                approvals.push(view.approval);
            }
        }
        for approval in approvals {
            let id = approval.approval_id.to_string();
            let decided = if approval.state == ApprovalState::Waiting { "" } else { "?decided=true" };
            let name = format!("{} of {}", approval.tool, approval.service);
            search.offer(HitKind::Approval, &[&id], &name, format!("/approvals{decided}#{id}"));
        }
        Ok(())
    }

    async fn find_at_gateway(&self, search: &mut Search<'_>, services: &[Service]) -> Result<(), ErrorReply> {
        let applications = self.manage(ListApplications {}).await?;
        let removed = self.manage(ListRemoved {}).await?.into_iter().map(|removed| removed.application);
        let mut names: HashMap<ApplicationId, String> = HashMap::new();
        for application in applications.iter().cloned().chain(removed) {
            let id = application.app_id.to_string();
            search.offer(HitKind::Application, &[&id], &application.name, format!("/applications/{id}"));
            names.insert(application.app_id, application.name);
        }
        for application in &applications {
            for key in self.manage(ListKeys { app_id: application.app_id }).await? {
                let (id, app_id) = (key.key_id.to_string(), application.app_id);
                search.offer(HitKind::Key, &[&id], &key.name, format!("/applications/{app_id}#row-{id}"));
            }
        }
        for run_id in self.given::<RunId>(search, RecordKind::Run).await {
            let Some(detail) = known(self.manage(ShowRun { run_id, after: 0, wait_s: 0 }).await)? else { continue };
            let id = run_id.to_string();
            let service = service_name(services, detail.run.endpoint_id);
            let name = match &detail.run.input {
                Some(input) => format!("{} ({service})", visible::first_words(&input.text, MAX_NAME_CHARS)),
                None => format!("of {service}"),
            };
            search.offer(HitKind::Run, &[&id], &name, format!("/runs/{id}"));
        }
        for conversation_id in self.given::<ConversationId>(search, RecordKind::Conversation).await {
            let Some(detail) = known(self.manage(ShowConversation { conversation_id }).await)? else { continue };
            let id = conversation_id.to_string();
            let held = &detail.conversation;
            let name = format!("of {}", names.get(&held.app_id).map_or(held.subject.as_str(), String::as_str));
            search.offer(HitKind::Conversation, &[&id], &name, format!("/conversations/{id}"));
        }
        Ok(())
    }
}

impl RequestHandler {
    /// The identifiers that were meant: the whole one, or those with that end.
    async fn given<I: FromStr>(&self, search: &Search<'_>, kind: RecordKind) -> Vec<I> {
        let end = match (search.text.parse(), search.end) {
            (Ok(id), _) => return vec![id],
            (Err(_), Some(end)) => end.to_owned(),
            (Err(_), None) => return Vec::new(),
        };
        // A gateway of before knows whole identifiers alone.
        self.manage(FindByEnd { kind, end }).await.unwrap_or_default().parsed().collect()
    }
}

/// A missing thing is no hit, and no failure.
fn known<T>(asked: Result<T, ErrorReply>) -> Result<Option<T>, ErrorReply> {
    match asked {
        Ok(found) => Ok(Some(found)),
        Err(no) if no.code == ErrorReplyCode::NotFound => Ok(None),
        Err(no) => Err(no),
    }
}

fn service_name(services: &[Service], endpoint_id: EndpointId) -> String {
    let service = services.iter().find(|service| service.endpoint_id == Some(endpoint_id));
    service.map_or_else(|| endpoint_id.to_string(), |service| service.draft.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> SearchResults {
        let mut search = Search::new(text);
        for (id, name) in [("app_0a1b", "Billing"), ("app_0a2c", "Billing of Berlin"), ("app_9f00", "Help & desk")] {
            search.offer(HitKind::Application, &[id], name, format!("/applications/{id}"));
        }
        SearchResults { things: search.found, incomplete: None }
    }

    #[test]
    fn an_identifier_or_a_whole_name_is_meant_and_parts_are_listed() {
        for (text, meant) in [
            ("app_0a2c", Some("app_0a2c")),
            ("billing", Some("app_0a1b")),
            ("BILL", None),
            ("app", None),
            ("…9f00", Some("app_9f00")),
        ] {
            assert_eq!(found(text).meant().map(|thing| thing.id.as_str()), meant, "{text}");
        }
        for (text, count) in [
            ("bill", 2),
            ("app_0a", 2),
            ("app_", 3),
            ("app", 0),
            ("& d", 1),
            ("ship", 0),
            ("0a2c", 1),
            ("…0a2c", 1),
            ("…0000", 0),
        ] {
            assert_eq!(found(text).things.len(), count, "{text}");
        }
    }

    #[test]
    fn two_things_of_one_name_are_both_shown() {
        let mut both = found("billing");
        both.things.push(SearchHit { kind: HitKind::Service, ..both.things[0].clone() });
        assert_eq!(both.meant(), None);
    }
}
