//! Why a model could not be used, in the provider's own words: for the owner of the device alone.

use deskgate_protocol::Timestamp;
use serde::{Deserialize, Serialize};

/// The failure that ended a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// When the call failed.
    pub at: Timestamp,
    /// The provider, by its name on this device.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// What callers read.
    pub message: String,
    /// What the provider said.
    pub detail: ProviderErrorDetail,
}

impl ModelFailure {
    /// Why the model could not be used: in the provider's words, or else in ours.
    pub fn why(&self) -> String {
        let detail = self.detail.to_string();
        if detail.is_empty() { self.message.clone() } else { detail }
    }
}

/// A provider's error in its own words, for the owner of the device alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderErrorDetail {
    /// The HTTP status; absent when an answer broke later, or there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The kind of error, in the provider's words.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The member of the request that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// The message, without the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The provider's name for the request, for its support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl std::fmt::Display for ProviderErrorDetail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let status = self.status.map(|status| format!("HTTP {status}"));
        let param = self.param.as_ref().map(|param| format!("parameter {param}"));
        let kind = self.kind.clone().filter(|kind| Some(kind) != self.code.as_ref());
        let head = [status, kind, self.code.clone(), param].into_iter().flatten().collect::<Vec<_>>().join(", ");
        match (&self.message, head.is_empty()) {
            (Some(message), true) => f.write_str(message),
            (Some(message), false) => write!(f, "{head}: {message}"),
            (None, _) => f.write_str(&head),
        }
    }
}
