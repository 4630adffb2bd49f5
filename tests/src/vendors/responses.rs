//! OpenAI's Responses, with nothing stored, as its documentation and its SDK describe it.

use serde_json::{Value, json};

use super::{Move, Refusal, Vendor, VendorState, bad, check_data_url, list, only, refusal, tokens};

impl VendorState {
    pub(super) fn check_responses(&mut self, body: &Value) -> Result<(), Refusal> {
        let members = [
            "model",
            "input",
            "instructions",
            "store",
            "stream",
            "include",
            "reasoning",
            "tools",
            "max_output_tokens",
            "prompt_cache_key",
        ];
        if let Some(name) = body.as_object().and_then(|body| body.keys().find(|name| !members.contains(&name.as_str())))
        {
            return Err(unsupported("unsupported_parameter", name, &format!("Unsupported parameter: '{name}'")));
        }
        if body["store"] != false {
            return Err(bad("this stand-in is for requests that store nothing"));
        }
        if body["max_output_tokens"].as_u64().is_some_and(|limit| !(16..=128_000).contains(&limit)) {
            return Err(unsupported("integer_below_min_value", "max_output_tokens", "Invalid 'max_output_tokens'"));
        }
        let efforts: &[&str] = match self.vendor {
            Vendor::Xai => &["low", "medium", "high", "xhigh"],
            _ => &["none", "low", "medium", "high", "xhigh", "max"],
        };
        if body["reasoning"]["effort"].as_str().is_some_and(|effort| !efforts.contains(&effort)) {
            return Err(unsupported("unsupported_value", "reasoning.effort", "Unsupported value: 'reasoning.effort'"));
        }
        if body["prompt_cache_key"].as_str().is_some_and(|key| key.len() > 64) {
            return Err(unsupported("string_above_max_length", "prompt_cache_key", "string too long"));
        }
        for tool in list(&body["tools"]) {
            only(tool, &["type", "name", "description", "parameters", "strict"], "tools[0]")?;
            match tool["strict"].as_bool() {
                Some(true) => check_strict(&tool["parameters"])?,
                Some(false) => {}
                None => return Err(bad("tools[0].strict: without it optional arguments become required")),
            }
        }
        self.check_items(list(&body["input"]))
    }

    fn check_items(&self, items: &[Value]) -> Result<(), Refusal> {
        for (at, item) in items.iter().enumerate() {
            let path = format!("input[{at}]");
            let next = items.get(at + 1);
            match item["type"].as_str().unwrap_or("message") {
                "reasoning" => {
                    only(item, &["type", "id", "summary", "encrypted_content"], &path)?;
                    let (id, content) = (item["id"].as_str(), item["encrypted_content"].as_str().unwrap_or_default());
                    if !self.was_issued(content) || id != Some(format!("rs_{content}").as_str()) {
                        let message = "The encrypted content could not be verified.";
                        return Err((400, refusal("invalid_request_error", "invalid_encrypted_content", message)));
                    }
                    if next.is_none_or(|next| next["type"] != "function_call" && next["role"] != "assistant") {
                        return Err(bad(&format!(
                            "Item '{content}' of type 'reasoning' was provided without its required \
                                                 following item."
                        )));
                    }
                }
                "function_call" => {
                    if item.get("id").is_some() {
                        let message = "Item not found. Items are not persisted when `store` is set to false.";
                        return Err((404, refusal("invalid_request_error", "", message)));
                    }
                    only(item, &["type", "call_id", "name", "arguments", "status"], &path)?;
                    let call = &item["call_id"];
                    // Calls of one answer stand behind its reasoning, one after the other.
                    let leads = items[..at].iter().rev().find(|before| before["type"] != "function_call");
                    if !self.forgives
                        && leads.is_none_or(|before| before["type"] != "reasoning" && before["role"] != "assistant")
                    {
                        return Err(bad(&format!(
                            "Item '{call}' of type 'function_call' was provided without its \
                                                 required 'reasoning' item."
                        )));
                    }
                    let is_output = |item: &&Value| item["type"] == "function_call_output" && item["call_id"] == *call;
                    if items[at..].iter().filter(is_output).count() != 1 {
                        return Err(bad(&format!("No tool output found for function call {call}.")));
                    }
                    if serde_json::from_str::<Value>(item["arguments"].as_str().unwrap_or_default()).is_err() {
                        return Err(bad(&format!("{path}.arguments: not JSON")));
                    }
                }
                "function_call_output" => {
                    only(item, &["type", "call_id", "output"], &path)?;
                    if !item["output"].is_string() && self.vendor == Vendor::Xai {
                        return Err(bad(&format!("{path}.output: expected a string")));
                    }
                    list(&item["output"]).iter().try_for_each(|part| self.check_input(part, &path))?;
                    let is_call =
                        |before: &Value| before["type"] == "function_call" && before["call_id"] == item["call_id"];
                    if !items[..at].iter().any(is_call) {
                        return Err(bad("No tool call found for function call output"));
                    }
                }
                "message" => {
                    if item.get("id").is_some() {
                        let message = "Item not found. Items are not persisted when `store` is set to false.";
                        return Err((404, refusal("invalid_request_error", "", message)));
                    }
                    if item["role"] != "assistant" {
                        list(&item["content"]).iter().try_for_each(|part| self.check_input(part, &path))?;
                    } else if list(&item["content"]).iter().any(|content| content["type"] != "output_text") {
                        let message = "Invalid value. Supported values are: 'output_text'";
                        return Err(bad(&format!("{path}.content[0].type: {message}")));
                    }
                }
                kind => return Err(bad(&format!("{path}.type: Invalid value: '{kind}'"))),
            }
        }
        Ok(())
    }

    fn check_input(&self, part: &Value, path: &str) -> Result<(), Refusal> {
        match part["type"].as_str().unwrap_or_default() {
            "input_text" => only(part, &["type", "text"], path),
            "input_image" => {
                only(part, &["type", "image_url"], path)?;
                check_data_url(&part["image_url"], "image/", path)
            }
            "input_file" if self.vendor == Vendor::Openai => {
                only(part, &["type", "filename", "file_data"], path)?;
                check_data_url(&part["file_data"], "application/pdf", path)
            }
            kind => Err(bad(&format!("{path}.content[0].type: Invalid value: '{kind}'"))),
        }
    }

    /// The stream of an answer. Each begins with reasoning.
    pub(super) fn responses(&mut self, body: &Value, next: &Move) -> String {
        let read = tokens(&body.to_string());
        let cached = if self.cached.contains(&body["prompt_cache_key"].to_string()) { read / 2 } else { 0 };
        self.cached.push(body["prompt_cache_key"].to_string());
        self.tokens = (self.tokens.0 + read, self.tokens.1 + cached);
        let opaque = self.issue(String::new());
        let mut events =
            vec![json!({ "type": "response.created", "response": { "status": "in_progress", "error": null } })];
        let shows = body["reasoning"]["summary"].is_string();
        let id = format!("rs_{opaque}");
        let begun = json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": "not yet whole" });
        events.push(json!({ "type": "response.output_item.added", "output_index": 0, "item": begun }));
        if shows {
            events.push(json!({ "type": "response.reasoning_summary_part.added", "summary_index": 0 }));
            events.push(json!({ "type": "response.reasoning_summary_text.delta", "delta": "I look first." }));
        }
        let summary = if shows { json!([{ "type": "summary_text", "text": "I look first." }]) } else { json!([]) };
        let whole =
            json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": opaque, "status": null });
        events.push(json!({ "type": "response.output_item.done", "output_index": 0, "item": whole }));
        let at = list(&body["input"]).len();
        let mut call = |name: &str, number: usize, arguments: &str, is_cut: bool| {
            let status = if is_cut { "incomplete" } else { "completed" };
            let item = |arguments: &str, status: &str| {
                json!({ "type": "function_call", "id": format!("fc_{at}_{number}"), "call_id": format!("call_{at}_{number}"),
                    "name": name, "arguments": arguments, "status": status })
            };
            events.push(json!({ "type": "response.output_item.added", "output_index": number + 1, "item": item("", "in_progress") }));
            events.push(json!({ "type": "response.function_call_arguments.delta", "delta": arguments }));
            events.push(json!({ "type": "response.output_item.done", "output_index": number + 1, "item": item(arguments, status) }));
        };
        let mut status = "completed";
        match next {
            Move::Call(calls) => {
                for (number, (name, arguments)) in calls.iter().enumerate() {
                    call(name, number, &arguments.to_string(), false);
                }
            }
            Move::CutCall(name) => {
                call(name, 0, "{\"file_path\": \"cut", true);
                status = "incomplete";
            }
            Move::Say(text) => {
                events.push(json!({ "type": "response.output_text.delta", "delta": text }));
                let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
                let item = json!({ "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                    "phase": "final_answer", "content": content });
                events.push(json!({ "type": "response.output_item.done", "output_index": 1, "item": item }));
            }
            Move::Refuse(..) | Move::HangUp => {}
        }
        let usage = json!({ "input_tokens": read, "input_tokens_details": { "cached_tokens": cached, "cache_write_tokens": 0 },
            "output_tokens": 20, "output_tokens_details": { "reasoning_tokens": 7 }, "total_tokens": read + 20 });
        let details = if status == "incomplete" { json!({ "reason": "max_output_tokens" }) } else { Value::Null };
        events.push(json!({ "type": format!("response.{status}"),
            "response": { "status": status, "error": null, "incomplete_details": details, "usage": usage } }));
        let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        events.iter().map(line).collect()
    }
}

fn unsupported(code: &str, param: &str, message: &str) -> Refusal {
    let mut body = refusal("invalid_request_error", code, message);
    body["error"]["param"] = param.into();
    (400, body)
}

/// Every object of a strict schema is closed, and has no optional member.
fn check_strict(schema: &Value) -> Result<(), Refusal> {
    if let Some(properties) = schema["properties"].as_object() {
        let required: Vec<_> = list(&schema["required"]).iter().filter_map(Value::as_str).collect();
        let is_closed = schema["additionalProperties"] == false;
        if !is_closed || !properties.keys().all(|name| required.contains(&name.as_str())) {
            return Err(bad(
                "Invalid schema for function: In context=(), 'required' is required to be supplied and to be an \
                            array including every key in properties.",
            ));
        }
        properties.values().try_for_each(check_strict)?;
    }
    match schema.get("items") {
        Some(items) => check_strict(items),
        None => Ok(()),
    }
}
