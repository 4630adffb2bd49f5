//! `verify-receipt`: checks receipts without an agent and without a gateway. Only an application's name needs them.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_protocol::ids::{ApplicationId, RunId};
use deskgate_protocol::receipt::chain::ChainCheck;
use deskgate_protocol::receipt::check::{Expected, check_key, check_record};
use deskgate_protocol::receipt::jws::SignedReceipt;
use deskgate_protocol::receipt::{OfferFacts, OutcomeFacts, Receipt, ReceiptEntry};
use serde::Serialize;
use serde_json::Value;

use super::app;
use super::socket::AgentClient;

/// The largest input. A record has at most some megabytes; a chain may have many receipts.
const MAX_INPUT_BYTES: u64 = 1 << 30;

/// `deskgate verify-receipt`
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the record of a run as the API gives it, the body of a callback, records on one line each, or \
receipts on one line each as `deskgate audit export` writes them. Ends with 10 unless everything holds."
)]
pub(super) struct VerifyReceiptArgs {
    /// What is checked; - or nothing for the standard input
    file: Option<PathBuf>,
    /// The fingerprint of the device's key, as its owner gave it to you; again for each further key
    #[arg(long, required = true, value_name = "SHA256:…")]
    fingerprint: Vec<String>,
    /// A file with the JSON object `input` that you sent
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Your application's identifier; with --subject. Its name, or the end of its identifier, is looked up by the agent
    #[arg(long, value_name = "APP", requires = "subject")]
    app: Option<String>,
    /// The subject that you submitted the run for; with --app
    #[arg(long, requires = "app")]
    subject: Option<String>,
    /// The receipts are some of a device's: that others are missing is no violation
    #[arg(long)]
    gaps_allowed: bool,
}

/// What was checked, for programs.
#[derive(Serialize)]
struct Verification {
    holds: bool,
    receipts: Vec<CheckedReceipt>,
    violations: Vec<FoundViolation>,
}

#[derive(Serialize)]
struct CheckedReceipt {
    fingerprint: String,
    #[serde(flatten)]
    receipt: Receipt,
}

#[derive(Serialize)]
struct FoundViolation {
    /// The line of the input, from 1.
    line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    message: String,
}

/// One thing to check.
enum Checked {
    Record(Value),
    Receipt(String),
}

pub(super) async fn run(args: &VerifyReceiptArgs, out: Output) -> Result<(), Failure> {
    let app_id = match &args.app {
        Some(app) => Some(identified(app).await?),
        None => None,
    };
    let text = read(args.file.as_deref())?;
    let input = match &args.input {
        Some(path) => Some(input_of(path)?),
        None => None,
    };
    let expected = Expected {
        fingerprints: &args.fingerprint,
        input: input.as_ref(),
        subject: app_id.zip(args.subject.as_deref()),
    };
    let found = verify(&text, expected, args.gaps_allowed)?;
    if out.json {
        out.result("receipts-verified/1", &found, String::new);
    } else if found.holds {
        out.result("receipts-verified/1", &found, || found.receipts.iter().map(line).collect());
    }
    if found.holds {
        return Ok(());
    }
    let line = |violation: &FoundViolation| {
        let run = violation.run_id.map(|run_id| format!("{run_id}: ")).unwrap_or_default();
        format!("line {}: {run}{}", violation.line, violation.message)
    };
    Err(Failure::new(Exit::CheckFailed, found.violations.iter().map(line).collect::<Vec<_>>().join("\n")))
}

/// The application that is named. An identifier is taken as it is, so that whoever checks a receipt needs no agent.
async fn identified(app: &str) -> Result<ApplicationId, Failure> {
    if let Ok(app_id) = app.parse() {
        return Ok(app_id);
    }
    let found = async { app::find(&AgentClient::find()?, app).await }.await;
    found.map_err(|failure| match failure.exit {
        Exit::CannotReach | Exit::NotSetUp => Failure::new(
            failure.exit,
            format!(
                "--app is no whole identifier, and is looked up by the agent: {}\nOr give it whole: app_…",
                failure.message
            ),
        ),
        _ => failure,
    })
}

fn verify(text: &str, expected: Expected<'_>, gaps_allowed: bool) -> Result<Verification, Failure> {
    let things = things(text)?;
    let records = things.iter().any(|(_, thing)| matches!(thing, Checked::Record(_)));
    let mut chain = if gaps_allowed || records { ChainCheck::some() } else { ChainCheck::whole() };
    let mut found = Verification { holds: true, receipts: Vec::new(), violations: Vec::new() };
    for (line, thing) in things {
        let mut violations = Vec::new();
        let signed = match &thing {
            Checked::Record(record) => {
                violations.extend(check_record(record, expected).iter().map(ToString::to_string));
                record.get("receipt").and_then(Value::as_str).map(SignedReceipt::read)
            }
            Checked::Receipt(text) => Some(SignedReceipt::read(text)),
        };
        let mut run_id = None;
        match signed {
            Some(Ok(signed)) => {
                run_id = Some(signed.receipt.run.run_id);
                if let Checked::Receipt(_) = thing {
                    violations.extend(check_key(&signed, expected.fingerprints).err().map(|error| error.to_string()));
                }
                violations.extend(chain.next(&signed).iter().map(ToString::to_string));
                found.receipts.push(CheckedReceipt { fingerprint: signed.key.fingerprint(), receipt: signed.receipt });
            }
            // Of a record it is among its violations already.
            Some(Err(error)) if matches!(thing, Checked::Receipt(_)) => {
                violations.push(format!("the receipt is not valid: {error}"));
            }
            _ => {}
        }
        found.violations.extend(violations.into_iter().map(|message| FoundViolation { line, run_id, message }));
    }
    found.holds = found.violations.is_empty();
    Ok(found)
}

/// The things to check, with their lines.
fn things(text: &str) -> Result<Vec<(usize, Checked)>, Failure> {
    if let Ok(value @ Value::Object(_)) = serde_json::from_str(text) {
        return Ok(vec![(1, record_in(value)?)]);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let thing = |(index, line): (usize, &str)| {
        let thing = match line.trim_start().starts_with('{') {
            true => serde_json::from_str(line).map_err(|_| not_readable(index + 1)).and_then(record_in)?,
            false => Checked::Receipt(line.trim().to_owned()),
        };
        Ok((index + 1, thing))
    };
    let things = lines.map(thing).collect::<Result<Vec<_>, Failure>>()?;
    if things.is_empty() {
        return Err(Failure::new(Exit::Usage, "nothing to check: give the record of a run, or receipts"));
    }
    Ok(things)
}

/// The record in a callback's body, in what `deskgate run show` prints, or itself.
fn record_in(mut value: Value) -> Result<Checked, Failure> {
    for pointer in ["/data/run", "/run"] {
        if let Some(record) = value.pointer_mut(pointer).filter(|record| record.is_object()) {
            return Ok(Checked::Record(record.take()));
        }
    }
    match value.get("run_id").is_some() && value.get("phase").is_some() {
        true => Ok(Checked::Record(value)),
        false => Err(Failure::new(
            Exit::Usage,
            "this JSON is not the record of a run: read it again with GET /api/v1/runs/{run_id}, or give the whole body of a \
             callback",
        )),
    }
}

fn not_readable(line: usize) -> Failure {
    Failure::new(Exit::Usage, format!("line {line} is neither JSON nor a receipt"))
}

fn read(file: Option<&Path>) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file.filter(|path| *path != Path::new("-")) {
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(MAX_INPUT_BYTES).read_to_string(&mut text)),
        None => std::io::stdin().lock().take(MAX_INPUT_BYTES).read_to_string(&mut text),
    };
    let name = file.map_or("the standard input".to_owned(), |path| path.display().to_string());
    read.map_err(|error| Failure::new(Exit::Failed, format!("{name}: {error}")))?;
    Ok(text)
}

fn input_of(path: &Path) -> Result<Value, Failure> {
    let text = read(Some(path))?;
    let not_an_object = || format!("{}: this is not the JSON object `input` that was sent", path.display());
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        _ => Err(Failure::new(Exit::Usage, not_an_object())),
    }
}

/// A receipt that holds, in one line.
fn line(checked: &CheckedReceipt) -> String {
    let Receipt { device_seq, run, entry, .. } = &checked.receipt;
    let said = match entry {
        ReceiptEntry::Offer(OfferFacts { answer, offered_at, .. }) => {
            format!("offered {offered_at}, {}", word(answer))
        }
        ReceiptEntry::Outcome(outcome) => said_of(outcome),
    };
    format!("holds: {device_seq}  {} attempt {}  {said}  {}\n", run.run_id, run.attempt, checked.fingerprint)
}

fn said_of(outcome: &OutcomeFacts) -> String {
    let calls = outcome.tools.len() as u64 + outcome.more_tools.map_or(0, |more| more.count);
    let OutcomeFacts { state, effects, ended_at, decided_by, .. } = outcome;
    format!("{state} {ended_at}, effects {}, {calls} tool calls, decided by the {}", word(effects), word(decided_by))
}

fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
