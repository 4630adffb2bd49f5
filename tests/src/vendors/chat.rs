//! Chat Completions, as each vendor has it.

use serde_json::{Value, json};

use super::{Move, Refusal, Vendor, VendorState, bad, check_data_url, list, only, refusal, tokens};

impl VendorState {
    pub(super) fn check_chat(&mut self, body: &Value) -> Result<(), Refusal> {
        if self.vendor == Vendor::Openai && body.get("tools").is_some() && body["reasoning_effort"] != "none" {
            return Err(bad("Function tools with reasoning_effort are not supported for gpt-5.6-terra in \
                            /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to \
                            'none'."));
        }
        self.check_members(body)?;
        self.check_effort(body)?;
        for (at, tool) in list(&body["tools"]).iter().enumerate() {
            self.check_tool(tool, at)?;
        }
        let messages = list(&body["messages"]);
        let mut open: Vec<&Value> = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            match message["role"].as_str().unwrap_or_default() {
                "system" | "user" if !open.is_empty() => return Err(bad("Unexpected role 'user' before tool results")),
                "user" if self.is_mistral(body) && at > 0 && messages[at - 1]["role"] == "tool" => {
                    return Err(bad("Unexpected role 'user' after role 'tool'"));
                }
                "system" | "user" => self.check_parts(&message["content"])?,
                "assistant" => {
                    open = list(&message["tool_calls"]).iter().map(|call| &call["id"]).collect();
                    self.check_assistant(message, at)?;
                }
                "tool" => {
                    // A router takes parts too, which carry the marks for a cache.
                    if !message["content"].is_string() && !matches!(self.vendor, Vendor::Openrouter | Vendor::Mistral) {
                        return Err(bad("tool messages have text only"));
                    }
                    self.check_parts(&message["content"])?;
                    let place = open.iter().position(|id| **id == message["tool_call_id"]);
                    open.remove(place.ok_or_else(|| bad("Not the same number of function calls and responses"))?);
                }
                role => return Err(bad(&format!("unknown role {role}"))),
            }
        }
        if open.is_empty() { Ok(()) } else { Err(bad("Not the same number of function calls and responses")) }
    }

    /// Whether a model of Mistral's answers, at its vendor or behind a router.
    fn is_mistral(&self, body: &Value) -> bool {
        self.vendor == Vendor::Mistral || body["model"].as_str().is_some_and(|model| model.starts_with("mistralai/"))
    }

    /// The efforts that the vendor's model takes.
    fn check_effort(&self, body: &Value) -> Result<(), Refusal> {
        let known: &[&str] = match self.vendor {
            Vendor::Google | Vendor::Groq => &["low", "medium", "high"],
            Vendor::Mistral => &["none", "high"],
            Vendor::Deepseek => &["minimal", "low", "medium", "high", "xhigh", "max"],
            Vendor::Xai => &["low", "medium", "high", "xhigh"],
            Vendor::Openai => &["none", "low", "medium", "high", "xhigh"],
            Vendor::Openrouter | Vendor::Anthropic => &["none", "minimal", "low", "medium", "high", "xhigh", "max"],
        };
        if body["thinking"]["type"].as_str().is_some_and(|word| !["enabled", "disabled"].contains(&word)) {
            return Err(bad("thinking.type: unknown variant, expected `enabled` or `disabled`"));
        }
        match body["reasoning_effort"].as_str().or(body["reasoning"]["effort"].as_str()) {
            Some(effort) if !known.contains(&effort) => {
                Err(bad(&format!("Invalid reasoning_effort: {effort}. Valid values are: {}", known.join(", "))))
            }
            _ => Ok(()),
        }
    }

    /// One tool: its members, its name, and a schema of an object without what the vendor does not know.
    fn check_tool(&self, tool: &Value, at: usize) -> Result<(), Refusal> {
        let path = format!("tools[{at}]");
        only(tool, &["type", "function"], &path)?;
        let function = &tool["function"];
        only(function, &["name", "description", "parameters"], &format!("{path}.function"))?;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let name = function["name"].as_str().unwrap_or_default();
        if tool["type"] != "function" || !(1..=64).contains(&name.len()) || !name.chars().all(fits) {
            return Err(bad(&format!("Invalid '{path}.function.name': string does not match '^[a-zA-Z0-9_-]+$'")));
        }
        if !function["description"].is_string() || function["parameters"]["type"] != "object" {
            return Err(bad(&format!("Invalid schema for function '{name}': schema must be of type 'object'")));
        }
        let unknown = [
            "$schema",
            "$id",
            "$ref",
            "$defs",
            "additionalProperties",
            "propertyNames",
            "patternProperties",
            "exclusiveMinimum",
            "multipleOf",
            "uniqueItems",
            "const",
        ];
        let schema = function["parameters"].to_string();
        match unknown.iter().find(|member| schema.contains(&format!("\"{member}\":"))) {
            Some(member) if self.vendor == Vendor::Google => {
                let message = format!("Invalid JSON payload received. Unknown name \"{member}\" at '{path}.function'");
                Err((400, json!([{ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } }])))
            }
            _ => Ok(()),
        }
    }

    /// The parts of a message, as far as the vendor's models take them.
    fn check_parts(&self, content: &Value) -> Result<(), Refusal> {
        for part in list(content) {
            match part["type"].as_str().unwrap_or_default() {
                "text" => {}
                "image_url" if !matches!(self.vendor, Vendor::Deepseek | Vendor::Groq) => {
                    check_data_url(&part["image_url"]["url"], "image/", "image_url")?;
                }
                "file" if matches!(self.vendor, Vendor::Openai | Vendor::Openrouter) => {
                    only(&part["file"], &["filename", "file_data"], "file")?;
                    check_data_url(&part["file"]["file_data"], "application/pdf", "file")?;
                }
                kind => return Err(bad(&format!("unknown variant `{kind}`, expected `text`"))),
            }
        }
        Ok(())
    }

    /// The members that the vendor knows.
    fn check_members(&self, body: &Value) -> Result<(), Refusal> {
        let common = ["model", "messages", "stream", "tools", "reasoning_effort"];
        let further: &[&str] = match self.vendor {
            Vendor::Google => &["max_tokens", "max_completion_tokens", "stream_options"],
            Vendor::Mistral => &["max_tokens", "prompt_cache_key"],
            Vendor::Groq | Vendor::Xai => &["max_completion_tokens", "stream_options"],
            Vendor::Openrouter => &["max_tokens", "stream_options", "reasoning"],
            Vendor::Deepseek => &["max_tokens", "stream_options", "thinking"],
            Vendor::Openai | Vendor::Anthropic => &["max_completion_tokens", "stream_options", "prompt_cache_key"],
        };
        let known = |name: &str| common.contains(&name) || further.contains(&name);
        let Some(name) = body.as_object().and_then(|body| body.keys().find(|name| !known(name))) else { return Ok(()) };
        Err(match self.vendor {
            Vendor::Mistral => forbidden(&json!(["body", name])),
            Vendor::Google => {
                let message = format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field.");
                (400, json!([{ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } }]))
            }
            _ => bad(&format!("property '{name}' is unsupported")),
        })
    }

    /// What goes back with a message of the model.
    fn check_assistant(&self, message: &Value, at: usize) -> Result<(), Refusal> {
        let calls = list(&message["tool_calls"]);
        let own = match self.vendor {
            Vendor::Deepseek => "reasoning_content",
            Vendor::Groq => "reasoning",
            Vendor::Openrouter => "reasoning_details",
            Vendor::Google => "extra_content",
            _ => "",
        };
        let known = ["role", "content", "tool_calls", own];
        if let Some(name) =
            message.as_object().and_then(|message| message.keys().find(|name| !known.contains(&name.as_str())))
        {
            return Err(match self.vendor {
                Vendor::Mistral => forbidden(&json!(["body", "messages", at, "assistant", name])),
                _ => bad(&format!("'messages.{at}' : property '{name}' is unsupported")),
            });
        }
        if calls.is_empty() {
            return Ok(());
        }
        let first = &calls[0];
        let issued = |value: &Value| value.as_str().is_some_and(|text| self.was_issued(text));
        match self.vendor {
            Vendor::Deepseek if !message["reasoning_content"].is_string() => {
                Err(bad("The `reasoning_content` in the thinking mode must be passed back to the API."))
            }
            Vendor::Openrouter => {
                let details = list(&message["reasoning_details"]);
                let is_whole = details.len() == 2
                    && details[0]["text"] == "I look first."
                    && issued(&details[0]["signature"])
                    && issued(&details[1]["data"]);
                if is_whole { Ok(()) } else { Err(bad("Invalid signature in thinking block")) }
            }
            Vendor::Google if !issued(&first["extra_content"]["google"]["thought_signature"]) => {
                let message = "Function call is missing a thought_signature in functionCall parts.";
                Err((400, json!([{ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } }])))
            }
            Vendor::Mistral => {
                let fits = |id: &str| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric());
                if !calls.iter().all(|call| call["id"].as_str().is_some_and(fits)) {
                    return Err(bad("Tool call id must be a-z, A-Z, 0-9, with a length of 9."));
                }
                let thought = &list(&message["content"]).first().cloned().unwrap_or_default();
                let is_whole = thought["type"] == "thinking" && thought["thinking"][0]["text"] == "I look first.";
                if is_whole { Ok(()) } else { Err(bad("the thinking of the message is missing")) }
            }
            Vendor::Groq if message["reasoning"] != "I look first." => Err(bad("the reasoning is missing")),
            _ => Ok(()),
        }
    }

    /// The stream of an answer, in the vendor's own manner.
    pub(super) fn chat(&mut self, body: &Value, next: &Move) -> String {
        let read = tokens(&body.to_string());
        self.tokens.0 += read;
        let (one, two) = (self.issue(String::new()), self.issue(String::new()));
        let choice = |delta: Value, end: Option<&str>| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": end }] });
        let mut chunks = match self.vendor {
            Vendor::Deepseek | Vendor::Xai => vec![
                choice(json!({ "role": "assistant", "content": null, "reasoning_content": "I look " }), None),
                choice(json!({ "reasoning_content": "first." }), None),
            ],
            Vendor::Groq => {
                vec![choice(json!({ "reasoning": "I look " }), None), choice(json!({ "reasoning": "first." }), None)]
            }
            Vendor::Openrouter => {
                let text = |text: &str| {
                    json!({ "reasoning": text, "reasoning_details": [
                    { "type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0 }] })
                };
                let signed = json!({ "reasoning_details": [{ "type": "reasoning.text", "text": null, "signature": one,
                    "format": "anthropic-claude-v1", "index": 0 }] });
                let sealed =
                    json!({ "reasoning_details": [{ "type": "reasoning.encrypted", "data": two, "index": 1 }] });
                [text("I look "), text("first."), signed, sealed].into_iter().map(|delta| choice(delta, None)).collect()
            }
            Vendor::Mistral => {
                let thought = |text: &str| json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": text }] }] });
                vec![choice(thought("I look "), None), choice(thought("first."), None)]
            }
            Vendor::Google | Vendor::Openai | Vendor::Anthropic => Vec::new(),
        };
        let at = list(&body["messages"]).len();
        let call = |number: usize, name: &str, arguments: &str| {
            let function = json!({ "name": name, "arguments": arguments });
            let mut call = json!({ "index": number, "id": format!("call_{at}_{number}"), "type": "function", "function": function });
            match self.vendor {
                Vendor::Mistral => {
                    call = json!({ "id": format!("c{at:04}{number:04}"), "function": function });
                }
                Vendor::Google => {
                    call = json!({ "id": format!("call_{at}_{number}"), "type": "function", "function": function });
                    if number == 0 {
                        call["extra_content"] = json!({ "google": { "thought_signature": one } });
                    }
                }
                _ => {}
            }
            choice(json!({ "tool_calls": [call] }), None)
        };
        let end = match next {
            Move::Call(calls) => {
                chunks.extend(
                    calls
                        .iter()
                        .enumerate()
                        .map(|(number, (name, arguments))| call(number, name, &arguments.to_string())),
                );
                // Google says so even then.
                if self.vendor == Vendor::Google { "stop" } else { "tool_calls" }
            }
            Move::CutCall(name) => {
                chunks.push(call(0, name, "{\"file_path\": \"cut"));
                "length"
            }
            Move::Say(text) => {
                chunks.push(choice(json!({ "content": text }), None));
                "stop"
            }
            Move::Refuse(..) | Move::HangUp => "stop",
        };
        chunks.push(choice(json!({}), Some(end)));
        let usage = match self.vendor {
            // Both count reasoning in the total alone.
            Vendor::Xai => json!({ "prompt_tokens": read, "completion_tokens": 13, "total_tokens": read + 20,
                "completion_tokens_details": { "reasoning_tokens": 7 } }),
            Vendor::Google => json!({ "prompt_tokens": read, "completion_tokens": 13, "total_tokens": read + 20 }),
            _ => json!({ "prompt_tokens": read, "completion_tokens": 20, "total_tokens": read + 20,
                "completion_tokens_details": { "reasoning_tokens": 7 } }),
        };
        match self.vendor {
            Vendor::Mistral => chunks.last_mut().expect("the end")["usage"] = usage,
            _ => chunks.push(json!({ "choices": [], "usage": usage })),
        }
        let events: String = chunks.iter().map(|chunk| format!(": a comment\n\ndata: {chunk}\n\n")).collect();
        events + "data: [DONE]\n\n"
    }
}

/// Mistral's refusal of a member: the message is an object.
fn forbidden(place: &Value) -> Refusal {
    let detail =
        json!({ "detail": [{ "type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted" }] });
    let mut body = refusal("invalid_request_error", "", "");
    body = json!({ "object": "error", "message": detail, "type": body["error"]["type"], "param": null, "code": null });
    (422, body)
}
