//! Receipts: what a device signs about each offer and each outcome, so that others can check it without the gateway.
//!
//! A receipt is a compact JWS (RFC 7515) with an Ed25519 signature (RFC 8037) over canonical JSON (RFC 8785). The receipts
//! of a device are numbered without gaps, and each names the digest of the one before it: together they are a chain.
//!
//! | file | what it does |
//! |---|---|
//! | here | what a receipt says |
//! | [`jws`] | signs one, and reads one strictly |
//! | [`check`] | compares one with a run's record |
//! | [`chain`] | whether receipts follow each other |

pub mod chain;
pub mod check;
pub mod jws;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Sha256Digest;
use crate::control::Offer;
use crate::ids::{ApplicationId, ApprovalId, ConversationId, EndpointId, RunId};
use crate::run::{Effects, Outcome, RunErrorCode, RunState};
use crate::time::Timestamp;

/// The version of the payload, its member `v`.
pub const RECEIPT_VERSION: u32 = 1;
/// The most bytes of a receipt in its compact form.
pub const MAX_RECEIPT_BYTES: usize = 64 * 1024;
/// The most tool calls that a receipt lists one by one, and so fits into [`MAX_RECEIPT_BYTES`].
pub const MAX_LISTED_CALLS: usize = 128;
/// The most characters of a tool's name in a receipt.
pub const MAX_CALL_NAME_CHARS: usize = 64;
/// The first part of what is digested for [`subject_tag`].
const SUBJECT_CONTEXT: &str = "deskgate subject v1";

/// What a device signs: one entry of its chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// [`RECEIPT_VERSION`].
    pub v: u32,
    /// Its number in the device's chain, from 1 without gaps.
    pub device_seq: u64,
    /// The SHA-256 of the compact form of the receipt before it; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<Sha256Digest>,
    /// The run it is about.
    #[serde(flatten)]
    pub run: RunFacts,
    /// What is said about that run.
    #[serde(flatten)]
    pub entry: ReceiptEntry,
}

/// The run that a receipt is about, as it was offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The run.
    pub run_id: RunId,
    /// The number of the offer of this run. Offers that were not taken have one too, so it may be higher than the
    /// `attempt` of the record, which counts how often the run began.
    pub attempt: u32,
    /// The service.
    pub endpoint_id: EndpointId,
    /// Its version.
    pub endpoint_version: u32,
    /// The digest of the definition that was asked for.
    pub definition_sha256: Sha256Digest,
    /// The digest of the canonical JSON of the `input`.
    pub input_sha256: Sha256Digest,
    /// The application that the service belongs to on the device; absent if the device does not know the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_id: Option<ApplicationId>,
    /// [`subject_tag`] of application and subject; absent if one of them is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_tag: Option<Sha256Digest>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The generation of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

impl RunFacts {
    /// The facts of an offer. `app_id`: the application that the service belongs to on this device.
    ///
    /// # Errors
    /// The input has no canonical JSON.
    pub fn of(offer: &Offer, app_id: Option<ApplicationId>) -> Result<Self, serde_json::Error> {
        let tag = |app_id| offer.subject.as_deref().map(|subject| subject_tag(app_id, subject));
        Ok(Self {
            run_id: offer.run_id,
            attempt: offer.attempt,
            endpoint_id: offer.endpoint_id,
            endpoint_version: offer.endpoint_version,
            definition_sha256: offer.definition_sha256,
            input_sha256: Sha256Digest::of_json(&offer.input)?,
            app_id,
            subject_tag: app_id.and_then(tag),
            conversation_id: offer.conversation,
            generation: offer.generation,
        })
    }
}

/// For whom a run was submitted, without the name: the digest of the canonical JSON of
/// `["deskgate subject v1", app_id, subject]`.
pub fn subject_tag(app_id: ApplicationId, subject: &str) -> Sha256Digest {
    let parts = [SUBJECT_CONTEXT, &app_id.to_string(), subject];
    Sha256Digest::of_json(&parts).expect("three texts have canonical JSON")
}

/// What a receipt says about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReceiptEntry {
    /// The gateway offered it.
    Offer(OfferFacts),
    /// It ended.
    Outcome(OutcomeFacts),
}

/// An offer, and what the device answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferFacts {
    /// When it came, by the device's clock.
    pub offered_at: Timestamp,
    /// What the device answered.
    pub answer: OfferAnswer,
    /// How many refused offers before this one are not listed, because they came too fast.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What a device answered to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferAnswer {
    /// It was taken; it is executed once the gateway has confirmed the start.
    Taken,
    /// Refused: the device does not hold this definition.
    DefinitionMismatch,
    /// Refused for now: no room, the device stops or sleeps, or another attempt of the run is not settled.
    Busy,
    /// The run had ended here before, and is not executed again.
    EndedBefore,
    /// The device knows a later attempt of this run, or has answered this one.
    Stale,
}

/// How a run ended, and what was done in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeFacts {
    /// The final state.
    pub state: RunState,
    /// The digest of the canonical JSON of the `result`, if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_sha256: Option<Sha256Digest>,
    /// The code of the `error`, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<RunErrorCode>,
    /// The digest of the canonical JSON of the `error`, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_sha256: Option<Sha256Digest>,
    /// Whether anything outside the run may have changed.
    pub effects: Effects,
    /// Who decided how it ended.
    pub decided_by: OutcomeDecider,
    /// Its tool calls in all attempts, in their order, at most [`MAX_LISTED_CALLS`].
    pub tools: Vec<CallFacts>,
    /// The tool calls beyond those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_tools: Option<MoreCalls>,
    /// When this attempt began to execute, by the device's clock; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the outcome was written down, by the device's clock.
    pub ended_at: Timestamp,
}

impl OutcomeFacts {
    /// The facts of an outcome that the device has made. `effects`: of the run's calls, for an outcome that names none.
    ///
    /// # Errors
    /// The outcome has no canonical JSON.
    pub fn of(
        outcome: &Outcome,
        effects: Effects,
        decided_by: OutcomeDecider,
        calls: Vec<CallFacts>,
        started_at: Option<Timestamp>,
        ended_at: Timestamp,
    ) -> Result<Self, serde_json::Error> {
        let (mut result_sha256, mut error_code, mut error_sha256) = (None, None, None);
        let effects = match outcome {
            Outcome::Succeeded { result, .. } => {
                result_sha256 = Some(Sha256Digest::of_json(result)?);
                effects
            }
            Outcome::Failed { error, .. } => {
                (error_code, error_sha256) = (Some(error.code), Some(Sha256Digest::of_json(error)?));
                error.effects
            }
            Outcome::Cancelled { effects, .. } => *effects,
        };
        let (tools, more_tools) = bounded(calls)?;
        let state = outcome.state();
        Ok(Self {
            state,
            result_sha256,
            error_code,
            error_sha256,
            effects,
            decided_by,
            tools,
            more_tools,
            started_at,
            ended_at,
        })
    }

    /// Whether this is what would be said of `outcome`.
    pub fn fits(&self, outcome: &Outcome) -> bool {
        let Ok(said) = Self::of(outcome, self.effects, self.decided_by, Vec::new(), None, self.ended_at) else {
            return false;
        };
        (said.state, said.result_sha256, said.error_sha256, said.effects)
            == (self.state, self.result_sha256, self.error_sha256, self.effects)
    }
}

/// The calls that are listed, and the others as a number and a digest.
fn bounded(mut calls: Vec<CallFacts>) -> Result<(Vec<CallFacts>, Option<MoreCalls>), serde_json::Error> {
    if calls.len() <= MAX_LISTED_CALLS {
        return Ok((calls, None));
    }
    let more = calls.split_off(MAX_LISTED_CALLS);
    let more = MoreCalls { count: more.len() as u64, sha256: Sha256Digest::of_json(&more)? };
    Ok((calls, Some(more)))
}

/// Who decided how a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeDecider {
    /// The device, which executed it.
    Device,
    /// The device's owner, who found out what became of it.
    Owner,
}

/// One tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFacts {
    /// The attempt it was made in.
    pub attempt: u32,
    /// The tool, at most [`MAX_CALL_NAME_CHARS`] of it.
    pub name: String,
    /// The digest of the canonical JSON of its exact arguments.
    pub args_sha256: Sha256Digest,
    /// What became of it.
    pub status: CallStatus,
    /// The request for approval that decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalFacts>,
}

/// What became of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// It was executed, and reported success.
    Ok,
    /// It was executed, and reported an error.
    Error,
    /// It was begun, and what became of it is not known.
    Unknown,
    /// It was not executed.
    NotRun,
}

/// A request for approval, as it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalFacts {
    /// The request.
    pub id: ApprovalId,
    /// How it ended.
    pub decision: ApprovalDecision,
    /// When, by the device's clock.
    pub decided_at: Timestamp,
}

/// How a request for approval ended, as a receipt says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// The owner allowed the call.
    Approved,
    /// The owner allowed it, and further calls of its kind in this run.
    ApprovedForRun,
    /// The owner denied it.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The run ended, was stopped or began again before a decision.
    Withdrawn,
}

/// Tool calls that are not listed one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoreCalls {
    /// How many.
    pub count: u64,
    /// The digest of the canonical JSON of their list.
    pub sha256: Sha256Digest,
}

/// A tool's name as a receipt has it: its beginning, with `?` for what would be longer in JSON.
pub fn call_name(tool: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\') { c } else { '?' };
    tool.chars().take(MAX_CALL_NAME_CHARS).map(plain).collect()
}

/// The digest of a call's arguments.
///
/// # Errors
/// The arguments have no canonical JSON.
pub fn args_sha256(arguments: &Value) -> Result<Sha256Digest, serde_json::Error> {
    Sha256Digest::of_json(arguments)
}

#[cfg(test)]
mod tests;
