//! Receipts: what this device signed, and whether a run's record agrees with it.

use deskgate_protocol::receipt::check::{Expected, Violation, check_record};
use deskgate_protocol::receipt::jws::SignedReceipt;
use deskgate_protocol::run::{Phase, Run};
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;

/// The most receipts in one answer: together they fit into it.
pub const MAX_RECEIPTS_PER_PAGE: u32 = 32;

/// Lists receipts of this device, in their order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListReceipts {
    /// Only those with a higher number.
    pub after: u64,
    /// At most so many, and at most [`MAX_RECEIPTS_PER_PAGE`].
    pub limit: u32,
}

impl TypedRequest for ListReceipts {
    type Response = Vec<String>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<String>, ErrorReply> {
        let limit = self.limit.min(MAX_RECEIPTS_PER_PAGE);
        handler.store.receipts().after(self.after, limit).await.map_err(ErrorReply::from)
    }
}

/// What the receipt in a run's record is worth to this device's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum ReceiptVerdict {
    /// The record agrees with what this device signed.
    Holds {
        /// The receipt's number.
        device_seq: u64,
    },
    /// The record has none.
    Absent,
    /// The record does not agree with it, and why.
    Fails {
        /// A sentence for each violation.
        violations: Vec<String>,
    },
}

impl ReceiptVerdict {
    /// The verdict on a run that has ended. `fingerprint`: of this device's key.
    pub fn of(run: &Run, fingerprint: &str) -> Option<Self> {
        if run.phase != Phase::Final {
            return None;
        }
        let Some(text) = &run.receipt else { return Some(Self::Absent) };
        let record = serde_json::to_value(run).expect("a record is JSON");
        let fingerprints = [fingerprint.to_owned()];
        let violations = check_record(&record, Expected { fingerprints: &fingerprints, ..Expected::default() });
        match (violations.is_empty(), SignedReceipt::read(text)) {
            (true, Ok(signed)) => Some(Self::Holds { device_seq: signed.receipt.device_seq }),
            _ => Some(Self::Fails { violations: violations.iter().map(Violation::to_string).collect() }),
        }
    }
}

impl std::fmt::Display for ReceiptVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Holds { device_seq } => {
                write!(f, "number {device_seq}; the record is what this device has signed")
            }
            Self::Absent => f.write_str("none; the gateway ended this run alone"),
            Self::Fails { violations } => f.write_str(&violations.join("\n")),
        }
    }
}
