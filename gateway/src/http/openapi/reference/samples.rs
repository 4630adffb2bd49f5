//! Each operation as a program: in curl, Python and TypeScript. A test runs them all.

use std::fmt::Write as _;

use serde_json::Value;

/// What a program needs to know of an operation.
pub(super) struct SampleCall<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Whether a signature stands in place of the key.
    pub(super) is_signed: bool,
    /// Whether its answer is a file.
    pub(super) is_download: bool,
    /// Whether its body is a file.
    pub(super) is_upload: bool,
    pub(super) has_idempotency_key: bool,
    pub(super) is_stream: bool,
    pub(super) body: Option<&'a Value>,
}

/// A program in one language.
pub(super) struct Sample {
    /// The language, as people write it.
    pub(super) language: &'static str,
    /// Its name in identifiers of the page.
    pub(super) id: &'static str,
    pub(super) code: String,
}

const IDEMPOTENCY_KEY: &str = "order-4711";

/// The programs for an operation. They read the address, the key, the subject and identifiers from the environment, and
/// stop when they are refused.
pub(super) fn of(call: &SampleCall<'_>) -> [Sample; 3] {
    let sample = |language, id, code| Sample { language, id, code };
    let (curl, python, script) = match call {
        SampleCall { is_signed: true, .. } => signed(call),
        SampleCall { is_upload: true, .. } => {
            (UPLOAD_CURL.to_owned(), UPLOAD_PYTHON.to_owned(), UPLOAD_TYPESCRIPT.to_owned())
        }
        _ => (curl(call), python(call), typescript(call)),
    };
    [sample("curl", "curl", curl), sample("Python", "python", python), sample("TypeScript", "typescript", script)]
}

/// A path with each parameter as a variable in its language: `{run_id}` becomes what `variable` makes of `RUN_ID`.
fn with_variables(path: &str, variable: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for (place, part) in path.split(['{', '}']).enumerate() {
        if place % 2 == 0 { text.push_str(part) } else { text.push_str(&variable(&part.to_uppercase())) }
    }
    text
}

fn pretty(body: &Value) -> String {
    serde_json::to_string_pretty(body).unwrap_or_default()
}

/// Whether success is a status alone.
fn has_no_answer(call: &SampleCall<'_>) -> bool {
    call.method == "DELETE"
}

fn curl(call: &SampleCall<'_>) -> String {
    let path = with_variables(call.path, |name| format!("${name}"));
    let output = match call {
        SampleCall { is_stream: true, .. } => "-N ",
        SampleCall { is_download: true, .. } => "-o artifact ",
        _ => "",
    };
    let mut text = format!("curl -sS {output}--fail-with-body \"$BASE_URL{path}\" \\\n");
    if call.method != "GET" && call.body.is_none() {
        let _ = writeln!(text, "  -X {} \\", call.method);
    }
    text.push_str("  -H \"Authorization: Bearer $APP_KEY\" \\\n  -H \"X-Gateway-Subject: $SUBJECT\"");
    if call.is_stream {
        text.push_str(" \\\n  -H \"Accept: text/event-stream\"");
    }
    if call.has_idempotency_key {
        let _ = write!(text, " \\\n  -H \"Idempotency-Key: {IDEMPOTENCY_KEY}\"");
    }
    if let Some(body) = call.body {
        let body = pretty(body).replace('\'', r"'\''");
        let _ = write!(text, " \\\n  -H \"Content-Type: application/json\" \\\n  -d '{body}'");
    }
    text
}

/// The headers of a call, with the value as an expression of either language.
fn headers(call: &SampleCall<'_>, key: &str, subject: &str) -> Vec<(&'static str, String)> {
    let mut headers = vec![("Authorization", key.to_owned()), ("X-Gateway-Subject", subject.to_owned())];
    if call.is_stream {
        headers.push(("Accept", "\"text/event-stream\"".to_owned()));
    }
    if call.has_idempotency_key {
        headers.push(("Idempotency-Key", format!("\"{IDEMPOTENCY_KEY}\"")));
    }
    if call.body.is_some() {
        headers.push(("Content-Type", "\"application/json\"".to_owned()));
    }
    headers
}

fn python(call: &SampleCall<'_>) -> String {
    let path = with_variables(call.path, |name| format!("{{os.environ['{name}']}}"));
    let quote = if path.contains('{') { "f\"" } else { "\"" };
    let mut text =
        String::from(if (call.is_stream || call.is_download || has_no_answer(call)) && call.body.is_none() {
            "import os, urllib.request\n\n"
        } else {
            "import json, os, urllib.request\n\n"
        });
    if let Some(body) = call.body {
        let _ = writeln!(text, "body = {}", python_literal(body, 0));
    }
    let _ = write!(text, "request = urllib.request.Request(\n    os.environ[\"BASE_URL\"] + {quote}{path}\",\n");
    let _ = write!(text, "    method=\"{}\",\n    headers={{\n", call.method);
    for (name, value) in headers(call, "\"Bearer \" + os.environ[\"APP_KEY\"]", "os.environ[\"SUBJECT\"]") {
        let _ = writeln!(text, "        \"{name}\": {value},");
    }
    text.push_str("    },\n");
    if call.body.is_some() {
        text.push_str("    data=json.dumps(body).encode(),\n");
    }
    text.push_str(")\nwith urllib.request.urlopen(request, timeout=70) as response:\n");
    text.push_str(match call.is_stream {
        true => "    for line in response:\n        print(line.decode(), end=\"\")",
        false if has_no_answer(call) => "    print(response.status)",
        false if call.is_download => {
            "    with open(\"artifact\", \"wb\") as file:\n        while piece := response.read(1 << 16):\n            file.write(piece)"
        }
        false => "    print(json.load(response))",
    });
    text
}

/// A value as Python writes it.
fn python_literal(value: &Value, depth: usize) -> String {
    let (outer, inner) = ("    ".repeat(depth), "    ".repeat(depth + 1));
    let lines = |open: char, entries: Vec<String>, close: char| {
        let entries: String = entries.into_iter().map(|entry| format!("{inner}{entry},\n")).collect();
        format!("{open}\n{entries}{outer}{close}")
    };
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(values) => lines('[', values.iter().map(|value| python_literal(value, depth + 1)).collect(), ']'),
        Value::Object(members) => {
            let entry = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::from(name.as_str()), python_literal(value, depth + 1))
            };
            lines('{', members.iter().map(entry).collect(), '}')
        }
        other => other.to_string(),
    }
}

fn typescript(call: &SampleCall<'_>) -> String {
    let mut names = vec!["BASE_URL".to_owned(), "APP_KEY".to_owned(), "SUBJECT".to_owned()];
    names.extend(call.path.split(['{', '}']).skip(1).step_by(2).map(str::to_uppercase));
    let path = with_variables(call.path, |name| format!("${{{name}}}"));
    let mut text = format!("const {{ {} }} = process.env;\n\n", names.join(", "));
    let _ = write!(
        text,
        "const response = await fetch(`${{BASE_URL}}{path}`, {{\n  method: \"{}\",\n  headers: {{\n",
        call.method
    );
    for (name, value) in headers(call, "`Bearer ${APP_KEY}`", "SUBJECT") {
        let _ = writeln!(text, "    \"{name}\": {value},");
    }
    text.push_str("  },\n");
    if let Some(body) = call.body {
        let body = pretty(body).replace('\n', "\n  ");
        let _ = writeln!(text, "  body: JSON.stringify({body}),");
    }
    text.push_str("});\nif (!response.ok) throw new Error(`${response.status} ${await response.text()}`);\n");
    text.push_str(match call.is_stream {
        true => {
            "for await (const piece of response.body.pipeThrough(new TextDecoderStream())) process.stdout.write(piece);"
        }
        false if has_no_answer(call) => "console.log(response.status);",
        false if call.is_download => {
            "const { writeFile } = await import(\"node:fs/promises\");\nawait writeFile(\"artifact\", response.body);"
        }
        false => "console.log(await response.json());",
    });
    text
}

/// An event of another system, signed by Standard Webhooks.
fn signed(call: &SampleCall<'_>) -> (String, String, String) {
    let body = call.body.map(Value::to_string).unwrap_or_default();
    let fill = |text: &str| text.replace("BODY", &body);
    (fill(SIGNED_CURL), fill(SIGNED_PYTHON), fill(SIGNED_TYPESCRIPT))
}

const SIGNED_CURL: &str = r#"body='BODY'
id="msg_$(date +%s)" now=$(date +%s)
key=$(printf %s "${HOOK_SECRET#whsec_}" | base64 -d | od -An -v -tx1 | tr -d ' \n')
signature=$(printf %s "$id.$now.$body" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)

curl -sS --fail-with-body "$BASE_URL/api/v1/webhooks/$HOOK_ID" \
  -H "Content-Type: application/json" \
  -H "webhook-id: $id" \
  -H "webhook-timestamp: $now" \
  -H "webhook-signature: v1,$signature" \
  --data-binary "$body""#;

const SIGNED_PYTHON: &str = r#"import base64, hashlib, hmac, json, os, time, urllib.request

body = b'BODY'
event_id, now = f"msg_{time.time_ns()}", str(int(time.time()))
key = base64.b64decode(os.environ["HOOK_SECRET"].removeprefix("whsec_"))
signature = hmac.digest(key, f"{event_id}.{now}.".encode() + body, hashlib.sha256)

request = urllib.request.Request(
    os.environ["BASE_URL"] + f"/api/v1/webhooks/{os.environ['HOOK_ID']}",
    method="POST",
    headers={
        "Content-Type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": now,
        "webhook-signature": "v1," + base64.b64encode(signature).decode(),
    },
    data=body,
)
with urllib.request.urlopen(request, timeout=70) as response:
    print(json.load(response))"#;

const SIGNED_TYPESCRIPT: &str = r#"import { createHmac, randomUUID } from "node:crypto";

const { BASE_URL, HOOK_ID, HOOK_SECRET } = process.env;

const body = JSON.stringify(BODY);
const [id, now] = [`msg_${randomUUID()}`, String(Math.floor(Date.now() / 1000))];
const key = Buffer.from(HOOK_SECRET.replace(/^whsec_/, ""), "base64");
const signature = createHmac("sha256", key).update(`${id}.${now}.${body}`).digest("base64");

const response = await fetch(`${BASE_URL}/api/v1/webhooks/${HOOK_ID}`, {
  method: "POST",
  headers: {
    "Content-Type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": now,
    "webhook-signature": `v1,${signature}`,
  },
  body,
});
if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
console.log(await response.json());"#;

const UPLOAD_CURL: &str = r#"curl -sS --fail-with-body "$BASE_URL/api/v1/files?name=report.pdf" \
  -H "Authorization: Bearer $APP_KEY" \
  -H "X-Gateway-Subject: $SUBJECT" \
  -H "Idempotency-Key: order-4711" \
  -H "Content-Type: application/pdf" \
  --data-binary @report.pdf"#;

const UPLOAD_PYTHON: &str = r#"import json, os, urllib.request

with open("report.pdf", "rb") as file:
    request = urllib.request.Request(
        os.environ["BASE_URL"] + "/api/v1/files?name=report.pdf",
        method="POST",
        headers={
            "Authorization": "Bearer " + os.environ["APP_KEY"],
            "X-Gateway-Subject": os.environ["SUBJECT"],
            "Idempotency-Key": "order-4711",
            "Content-Type": "application/pdf",
        },
        data=file.read(),
    )
with urllib.request.urlopen(request, timeout=70) as response:
    print(json.load(response))"#;

const UPLOAD_TYPESCRIPT: &str = r#"import { readFile } from "node:fs/promises";

const { BASE_URL, APP_KEY, SUBJECT } = process.env;

const response = await fetch(`${BASE_URL}/api/v1/files?name=report.pdf`, {
  method: "POST",
  headers: {
    "Authorization": `Bearer ${APP_KEY}`,
    "X-Gateway-Subject": SUBJECT,
    "Idempotency-Key": "order-4711",
    "Content-Type": "application/pdf",
  },
  body: await readFile("report.pdf"),
});
if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
console.log(await response.json());"#;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_as_python_reads_them() {
        let value = json!({ "a": [true, null, 1.5], "b": "it's \"x\"" });
        let text =
            "{\n    \"a\": [\n        True,\n        None,\n        1.5,\n    ],\n    \"b\": \"it's \\\"x\\\"\",\n}";
        assert_eq!(python_literal(&value, 0), text);
    }
}
