//! Anthropic's Messages, as its documentation describes it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Move, Refusal, VendorState, bad, check_media, list, only, tokens};

/// How many positions before a breakpoint the cache is searched.
const LOOKBACK: usize = 20;

impl VendorState {
    pub(super) fn check_messages(&mut self, body: &Value) -> Result<(), Refusal> {
        only(
            body,
            &[
                "model",
                "max_tokens",
                "system",
                "messages",
                "stream",
                "tools",
                "tool_choice",
                "thinking",
                "output_config",
            ],
            "body",
        )?;
        match body["max_tokens"].as_u64() {
            Some(1..=128_000) => {}
            _ => return Err(bad("max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens")),
        }
        check_thinking(body)?;
        let marks = body.to_string().matches("\"cache_control\"").count();
        if marks > 4 {
            return Err(bad(&format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}.")));
        }
        for block in list(&body["system"]) {
            only(block, &["type", "text", "cache_control"], "system.0")?;
            not_blank(block, "system")?;
        }
        for tool in list(&body["tools"]) {
            only(tool, &["name", "description", "input_schema", "cache_control"], "tools.0")?;
            if tool["input_schema"]["type"] != "object" {
                return Err(bad("tools.0.custom.input_schema.type: Input should be 'object'"));
            }
        }
        for (at, tool) in list(&body["tools"]).iter().enumerate() {
            if ["oneOf", "anyOf", "allOf"].iter().any(|member| tool["input_schema"].get(member).is_some()) {
                return Err(bad(&format!(
                    "tools.{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
                )));
            }
            let fits = |key: &String| {
                let is_known = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                (1..=64).contains(&key.len()) && key.chars().all(is_known)
            };
            if !tool["input_schema"]["properties"].as_object().is_none_or(|keys| keys.keys().all(fits)) {
                return Err(bad(&format!(
                    "tools.{at}.custom.input_schema.properties: Property keys should match pattern \
                     '^[a-zA-Z0-9_.-]{{1,64}}$'"
                )));
            }
        }
        let messages = list(&body["messages"]);
        if messages.first().is_none_or(|first| first["role"] != "user") {
            return Err(bad("messages: first message must use the \"user\" role"));
        }
        if messages.last().is_some_and(|last| last["role"] != "user") {
            return Err(bad("This model does not support assistant message prefill."));
        }
        let mut open: Vec<&str> = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            only(message, &["role", "content"], &format!("messages.{at}"))?;
            let blocks = list(&message["content"]);
            if blocks.is_empty() {
                return Err(bad("all messages must have non-empty content"));
            }
            let answered: Vec<_> = blocks.iter().filter_map(|block| block["tool_use_id"].as_str()).collect();
            if !open.is_empty() && answered != open {
                return Err(bad(&format!("messages.{at}: `tool_use` ids were found without `tool_result` blocks")));
            }
            if open.is_empty() && !answered.is_empty() {
                return Err(bad(&format!("messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks")));
            }
            open.clear();
            for (index, block) in blocks.iter().enumerate() {
                let path = format!("messages.{at}.content.{index}");
                self.check_block(body, at, block, &path)?;
                open.extend(block["id"].as_str().filter(|_| block["type"] == "tool_use"));
            }
            let (last, calls) = (blocks.last().expect("not empty"), !open.is_empty());
            if last["type"] == "thinking" {
                return Err(bad("The final block in an assistant message cannot be `thinking`."));
            }
            // Every answer here begins with thinking.
            if calls && blocks[0]["type"] != "thinking" {
                return Err(bad(&format!(
                    "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`"
                )));
            }
        }
        Ok(())
    }

    fn check_block(&self, body: &Value, at: usize, block: &Value, path: &str) -> Result<(), Refusal> {
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                only(block, &["type", "text", "cache_control"], path)?;
                not_blank(block, path)
            }
            "thinking" => {
                only(block, &["type", "thinking", "signature"], path)?;
                let signature = block["signature"].as_str().unwrap_or_default();
                let Some((_, before)) = self.issued.iter().find(|(issued, _)| issued == signature) else {
                    return Err(bad(&format!("{path}: Invalid `signature` in `thinking` block")));
                };
                match *before == prefix(body, at) {
                    true => Ok(()),
                    false => Err(bad(&format!(
                        "{path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
                    ))),
                }
            }
            "tool_use" => {
                only(block, &["type", "id", "name", "input", "cache_control"], path)?;
                let id = block["id"].as_str().unwrap_or_default();
                let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
                match block["input"].is_object() && !id.is_empty() && id.chars().all(is_word) {
                    true => Ok(()),
                    false => Err(bad(&format!("{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"))),
                }
            }
            "tool_result" => {
                only(block, &["type", "tool_use_id", "content", "is_error", "cache_control"], path)?;
                list(&block["content"]).iter().try_for_each(|part| self.check_block(body, at, part, path))
            }
            "image" | "document" => {
                only(block, &["type", "source", "cache_control"], path)?;
                let source = &block["source"];
                only(source, &["type", "media_type", "data"], path)?;
                let [kind, media_type, data] =
                    ["type", "media_type", "data"].map(|name| source[name].as_str().unwrap_or_default());
                if kind != "base64" || (media_type == "application/pdf") != (block["type"] == "document") {
                    return Err(bad(&format!("{path}.source: Input should be a valid source")));
                }
                check_media(media_type, data, path)
            }
            kind => Err(bad(&format!("{path}: Input tag '{kind}' found"))),
        }
    }

    /// The stream of an answer. Each begins with thinking.
    pub(super) fn messages(&mut self, body: &Value, next: &Move) -> String {
        let (read, cached, written) = self.count(body);
        let at = list(&body["messages"]).len();
        let signature = self.issue(prefix(body, at));
        let summary = if body["thinking"]["display"] == "summarized" { "I look first." } else { "" };
        let usage = json!({
            "input_tokens": read - cached - written, "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written, "output_tokens": 1,
        });
        let start = json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant",
            "content": [], "model": body["model"], "stop_reason": null, "usage": usage } });
        let mut events = vec![start, json!({ "type": "ping" })];
        let mut block = |begun: Value, deltas: Vec<Value>| {
            let index = events.iter().filter(|event| event["type"] == "content_block_start").count();
            events.push(json!({ "type": "content_block_start", "index": index, "content_block": begun }));
            for delta in deltas {
                events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
            }
            events.push(json!({ "type": "content_block_stop", "index": index }));
        };
        let thought = json!({ "type": "thinking_delta", "thinking": summary });
        let signed = json!({ "type": "signature_delta", "signature": signature });
        block(json!({ "type": "thinking", "thinking": "", "signature": "" }), vec![thought, signed]);
        let call = |name: &str, number: usize| json!({ "type": "tool_use", "id": format!("toolu_{at}_{number}"), "name": name, "input": {} });
        let input = |text: &str| json!({ "type": "input_json_delta", "partial_json": text });
        let stop = match next {
            Move::Call(calls) => {
                for (number, (name, arguments)) in calls.iter().enumerate() {
                    let text = arguments.to_string();
                    let (one, two) = text.split_at(text.len() / 2);
                    block(call(name, number), vec![input(""), input(one), input(two)]);
                }
                "tool_use"
            }
            Move::CutCall(name) => {
                block(call(name, 0), vec![input("{\"file_path\": \"cut")]);
                "max_tokens"
            }
            Move::Say(text) => {
                block(json!({ "type": "text", "text": "" }), vec![json!({ "type": "text_delta", "text": text })]);
                "end_turn"
            }
            Move::Refuse(..) | Move::HangUp => "end_turn",
        };
        events.push(json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null },
            "usage": { "output_tokens": 20, "output_tokens_details": { "thinking_tokens": 7 } } }));
        events.push(json!({ "type": "message_stop" }));
        let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        events.iter().map(line).collect()
    }

    /// Tokens of the request, those of them from the cache, and those written to it: as the cache's rules have it.
    fn count(&mut self, body: &Value) -> (u64, u64, u64) {
        // Every block in the cache's order, with the digest of all blocks up to it, and whether it is marked.
        let mut positions: Vec<(String, u64, bool)> = Vec::new();
        let mut digest = Sha256::new();
        let mut length = 0;
        let messages = list(&body["messages"]).iter().flat_map(|message| list(&message["content"]));
        for block in list(&body["tools"]).iter().chain(list(&body["system"])).chain(messages) {
            let mut plain = block.clone();
            let marked = plain.as_object_mut().and_then(|block| block.remove("cache_control")).is_some();
            let text = plain.to_string();
            digest.update(&text);
            length += tokens(&text);
            positions.push((format!("{:x?}", digest.clone().finalize()), length, marked));
        }
        let marks: Vec<_> = (0..positions.len()).filter(|at| positions[*at].2).collect();
        let found = marks.iter().rev().find_map(|mark| {
            let first = mark.saturating_sub(LOOKBACK - 1);
            (first..=*mark).rev().find(|at| self.cached.contains(&positions[*at].0))
        });
        let cached = found.map_or(0, |at| positions[at].1);
        let end = marks.last().map_or(0, |at| positions[*at].1);
        self.cached.extend(marks.iter().map(|at| positions[*at].0.clone()));
        self.tokens.0 += length;
        self.tokens.1 += cached;
        (length, cached, end.saturating_sub(cached))
    }
}

/// Everything that stands before the message, without the marks of the cache, which do not count.
fn prefix(body: &Value, at: usize) -> String {
    let before = json!([body["system"], body["tools"], list(&body["messages"])[..at]]);
    let plain = before.to_string().replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "");
    format!("{:x?}", Sha256::digest(plain.replace("\"cache_control\":{\"type\":\"ephemeral\"},", "")))
}

/// How a model is asked to think, and the efforts that it takes.
fn forms(model: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match model {
        "claude-haiku-4-5" => (&["enabled", "disabled"], &[]),
        "claude-opus-4-6" | "claude-sonnet-4-6" => (&["adaptive", "disabled"], &["low", "medium", "high", "max"]),
        "claude-opus-5" => (&["adaptive", "disabled"], &["low", "medium", "high", "xhigh", "max"]),
        "claude-sonnet-5-5" => (&["adaptive", "between_tools"], &["low", "medium", "high", "xhigh", "max"]),
        _ => (&["adaptive"], &["low", "medium", "high", "xhigh", "max"]),
    }
}

/// The forms that a model of this generation takes.
fn check_thinking(body: &Value) -> Result<(), Refusal> {
    let (forms, efforts) = forms(body["model"].as_str().unwrap_or_default());
    if let Some(effort) = body["output_config"]["effort"].as_str().filter(|effort| !efforts.contains(effort)) {
        return Err(bad(&format!(
            "This model does not support effort level '{effort}'. Supported: {}",
            efforts.join(", ")
        )));
    }
    match body["thinking"]["type"].as_str() {
        None => Ok(()),
        Some("adaptive") if forms.contains(&"adaptive") => only(&body["thinking"], &["type", "display"], "thinking"),
        Some("enabled") if forms.contains(&"enabled") => {
            only(&body["thinking"], &["type", "budget_tokens", "display"], "thinking")?;
            let most = body["max_tokens"].as_u64().unwrap_or_default();
            match body["thinking"]["budget_tokens"].as_u64() {
                Some(budget) if (1024..most).contains(&budget) => Ok(()),
                _ => Err(bad("thinking.budget_tokens: at least 1024, and `max_tokens` must be greater than it")),
            }
        }
        Some(form) if forms.contains(&form) => only(&body["thinking"], &["type"], "thinking"),
        Some(form) => Err(bad(&format!(
            "\"thinking.type.{form}\" is not supported for this model. Use \"thinking.type.adaptive\" and \
             \"output_config.effort\" to control thinking behavior."
        ))),
    }
}

fn not_blank(block: &Value, path: &str) -> Result<(), Refusal> {
    match block["text"].as_str().is_some_and(|text| !text.trim().is_empty()) {
        true => Ok(()),
        false => Err(bad(&format!("{path}: text content blocks must contain non-whitespace text"))),
    }
}
