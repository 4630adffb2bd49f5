//! What the search of the reference finds.

use serde_json::{Value, json};

use super::CALLBACKS_PAGE;
use super::views::Reference;
use crate::http::problems::Code;

/// Every page with its title, its kind, its address, and the words by which it is found.
pub(super) fn index(reference: &Reference) -> Value {
    let entry = |kind: &str, title: &str, address: String, words: Vec<&str>| json!({ "kind": kind, "title": title, "address": address, "words": words.join(" ").to_lowercase() });
    let page = |name: &str| format!("/api/v1/docs/{name}");
    let operations = reference.operations().map(|operation| {
        let codes = operation.refusals.iter().flat_map(|refusal| &refusal.codes);
        let own = [&operation.id, &operation.summary, &operation.method, &operation.path, &operation.description];
        let words = own.into_iter().chain(operation.parameters.iter().map(|one| &one.name)).chain(codes);
        entry("operation", &operation.summary, page(&operation.id), words.map(String::as_str).collect())
    });
    let records = reference.records.iter().map(|record| {
        let own = [&record.name, &record.description].into_iter().chain(&record.words);
        let words = own.chain(record.members.iter().map(|member| &member.name));
        entry("record", &record.name, page(&record.name), words.map(String::as_str).collect())
    });
    let callbacks = reference.callbacks.iter().map(|callback| {
        let words = vec![callback.event.as_str(), &callback.description, "callback webhook event"];
        entry("callback", &callback.event, format!("{}#{}", page(CALLBACKS_PAGE), callback.event), words)
    });
    let problems = Code::ALL.iter().map(|code| {
        let facts = code.facts();
        let status = facts.status.as_u16().to_string();
        let words = vec![code.as_str(), facts.title, facts.what, facts.why, &status];
        entry("problem", facts.title, format!("/problems/{}", code.as_str()), words)
    });
    operations.chain(callbacks).chain(records).chain(problems).collect()
}
