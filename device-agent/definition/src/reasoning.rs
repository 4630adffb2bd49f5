//! How much the model of a service reasons before it answers, and who reads a summary of it.

use serde::{Deserialize, Serialize};

deskgate_protocol::words! {
    /// How much a model reasons before it answers, the least first. Of those that a model is known not to take, the
    /// nearest that it takes is asked.
    #[derive(PartialOrd, Ord)]
    pub enum Effort {
        /// No reasoning.
        None = "none",
        /// As little as the model can.
        Minimal = "minimal",
        /// A little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
        /// More than that.
        Xhigh = "xhigh",
        /// As much as the model can.
        Max = "max",
    }
}

deskgate_protocol::words! {
    /// Who reads summaries of the reasoning.
    #[derive(Default)]
    pub enum ReasoningSummaries {
        /// Nobody: they are not asked for.
        Off = "off",
        /// The owner: they say why a tool call asks.
        #[default]
        Owner = "owner",
        /// Callers too, with each message of the run.
        Callers = "callers",
    }
}

/// The reasoning of a service's model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reasoning {
    /// How much; absent leaves it to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Who reads summaries of it.
    #[serde(default, skip_serializing_if = "ReasoningSummaries::is_default")]
    pub summaries: ReasoningSummaries,
}

impl ReasoningSummaries {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Reasoning {
    /// Whether everything is left as it is by default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
