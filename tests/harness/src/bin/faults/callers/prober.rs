//! Probes isolation: requests resources of another subject or application, and has a model read beside its folder.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{ApiReply, Caller, CallerContext, SUBJECT, converser, submission, submitter};
use crate::history::{AnswerContent, HistoryRecord, ProbeRecord};
use crate::testbed::REPLICA_COUNT;

/// Another subject of the same application.
const OTHER_SUBJECT: &str = "customer-2";

/// The resources of another subject.
struct ProbeTarget {
    desktop: usize,
    job: String,
    run_id: String,
    conversation: String,
    operation_id: Option<String>,
}

/// A request for one of them.
struct ProbeRequest {
    method: Method,
    /// The path before and behind the identifier.
    path: (String, &'static str),
    /// Absent for a list.
    id: Option<String>,
    body: Option<Value>,
}

/// Submits its own jobs, and requests them under other identities, while the pass is open.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize) {
    let mut caller = business.caller(&name);
    let Some(conversation) = converser::open(&mut caller, desktop, "nobody else's").await else { return };
    let [near, far] = business.testbed.desktops[desktop].ways_beside();
    while business.is_open() {
        let job = business.fresh_job();
        let text = format!("job={job} plan=peek delay=0 near={near} far={far}");
        let request = submission(&caller, desktop, &job, &text, false);
        let Some(run_id) = caller.retry(&request).await.as_ref().and_then(ApiReply::run_id) else { continue };
        let operation = if caller.dice.percent(30) { caller.stop(desktop, &run_id).await } else { None };
        let operation_id = operation.and_then(|reply| match reply.seen {
            AnswerContent::Operation { operation_id, .. } => Some(operation_id),
            _ => None,
        });
        let theirs = ProbeTarget { desktop, job, run_id, conversation: conversation.clone(), operation_id };
        probe(&mut caller, &theirs).await;
        submitter::ends(&mut caller.fork("wait"), desktop, &theirs.run_id, theirs.operation_id.is_some()).await;
        if let Some(operation_id) = &theirs.operation_id {
            caller.completed(desktop, operation_id).await;
        }
        sleep(Duration::from_millis(caller.dice.within(50, 400))).await;
    }
}

/// Sends each request once as another subject, and once as another application.
async fn probe(caller: &mut Caller, theirs: &ProbeTarget) {
    let service = caller.service(theirs.desktop).clone();
    for (by, key, subject) in
        [("another subject", &service.key, OTHER_SUBJECT), ("another application", &service.strangers_key, SUBJECT)]
    {
        let mut questions = questions(theirs);
        if subject == SUBJECT {
            let path = ("/agent-endpoints/".to_owned(), "/runs");
            let body = Some(json!({ "input": { "text": "let me" } }));
            questions.push(ProbeRequest { method: Method::POST, path, id: Some(service.endpoint_id.clone()), body });
        }
        for question in questions {
            let replica = caller.dice.below(REPLICA_COUNT);
            let Some((status, body)) = ask(caller, replica, key, subject, &question, question.id.as_deref()).await
            else {
                continue;
            };
            let twin = match question.id.as_deref() {
                Some(id) => ask(caller, replica, key, subject, &question, Some(&nobodys(id))).await,
                None => None,
            };
            let probed = ProbeRecord {
                caller: caller.name.clone(),
                at: caller.business.testbed.clock.now(),
                by: by.to_owned(),
                asked: format!("{} {}", question.method, path(&question, question.id.as_deref())),
                is_list: question.id.is_none(),
                status,
                code: code(&body),
                shows: shows(theirs, &question, &body),
                twin: twin.map(|(status, body)| (status, code(&body))),
            };
            caller.business.histories.note(&caller.name, HistoryRecord::Probed(probed));
        }
    }
}

fn questions(theirs: &ProbeTarget) -> Vec<ProbeRequest> {
    let one = |method: Method, before: &str, id: &str, behind: &'static str, body: Option<Value>| ProbeRequest {
        method,
        path: (before.to_owned(), behind),
        id: Some(id.to_owned()),
        body,
    };
    let list = |path: String| ProbeRequest { method: Method::GET, path: (path, ""), id: None, body: None };
    let (run, talk) = (&theirs.run_id, &theirs.conversation);
    let message = json!({ "expected_generation": 1, "input": { "text": "let me" } });
    let mut questions = vec![
        one(Method::GET, "/runs/", run, "", None),
        one(Method::GET, "/runs/", run, "/events", None),
        one(Method::POST, "/runs/", run, "/stop", Some(json!({}))),
        one(Method::GET, "/conversations/", talk, "", None),
        one(Method::POST, "/conversations/", talk, "/messages", Some(message)),
        one(Method::POST, "/conversations/", talk, "/reset", Some(json!({ "expected_generation": 1 }))),
        list("/runs?limit=100".to_owned()),
        list(format!("/runs?idempotency_key={}", theirs.job)),
        list("/conversations?limit=100".to_owned()),
        list("/deliveries?limit=100".to_owned()),
    ];
    if let Some(operation_id) = &theirs.operation_id {
        questions.push(one(Method::GET, "/control-operations/", operation_id, "", None));
    }
    questions
}

fn path(question: &ProbeRequest, id: Option<&str>) -> String {
    let (before, behind) = &question.path;
    format!("{before}{}{behind}", id.unwrap_or_default())
}

/// Sends a request once. `None` if no complete answer arrived, or the gateway was too busy.
async fn ask(
    caller: &Caller,
    replica: usize,
    key: &str,
    subject: &str,
    question: &ProbeRequest,
    id: Option<&str>,
) -> Option<(u16, String)> {
    let url = format!("http://{}/api/v1{}", caller.business.testbed.address(replica), path(question, id));
    let request = caller.business.http.request(question.method.clone(), url).bearer_auth(key);
    let mut request = request.header("X-Gateway-Subject", subject).header("Accept", "application/json");
    if let Some(body) = &question.body {
        request = request.header("Idempotency-Key", caller.business.fresh_job()).json(body);
    }
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    let body = response.text().await.ok()?;
    (status != 429 && status < 500).then_some((status, body))
}

fn code(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    body["code"].as_str().unwrap_or_default().to_owned()
}

/// The target's values that an answer shows and the request did not name.
fn shows(theirs: &ProbeTarget, question: &ProbeRequest, body: &str) -> Vec<String> {
    let asked = path(question, question.id.as_deref());
    let names = [Some(&theirs.run_id), Some(&theirs.conversation), Some(&theirs.job), theirs.operation_id.as_ref()];
    let is_named = |name: &str| body.contains(&format!("\"{name}\"")) || body.contains(&format!("={name} "));
    let names = names.into_iter().flatten().filter(|name| is_named(name) && !asked.contains(name.as_str()));
    names.cloned().collect()
}

/// An unused identifier of the same kind.
fn nobodys(id: &str) -> String {
    let last = if id.ends_with('0') { '1' } else { '0' };
    let kept: String = id.chars().take(id.chars().count() - 1).collect();
    format!("{kept}{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_names_what_was_not_asked_for_shows_it() {
        let theirs = ProbeTarget {
            desktop: 0,
            job: "job-1".to_owned(),
            run_id: "run_1".to_owned(),
            conversation: "conv_1".to_owned(),
            operation_id: None,
        };
        let question = &questions(&theirs)[0];
        assert_eq!(shows(&theirs, question, r#"{"code":"not_found","instance":"run_1"}"#), Vec::<String>::new());
        assert_eq!(shows(&theirs, question, r#"{"input":{"text":"job=job-1 plan=peek"}}"#), ["job-1"]);
        assert_eq!(shows(&theirs, question, r#"{"conversation_id":"conv_1"}"#), ["conv_1"]);
        assert_ne!(nobodys("run_10"), "run_10");
    }
}
