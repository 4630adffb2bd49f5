//! One row of the table: what is tried, which promise it attacks, and what shows that the victim read it.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use serde::Serialize;

/// What shows that the victim read what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It answered, to this or to what was sent after it.
    Answered(String),
    /// It closed the connection.
    HungUp(String),
    /// It wrote this down, or showed it.
    Said(String),
}

impl Evidence {
    /// Its text for the table.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Answered(what) => format!("answered: {what}"),
            Self::HungUp(what) => format!("hung up: {what}"),
            Self::Said(what) => format!("said: {what}"),
        }
    }
}

/// What was seen that must not be: the error of a behaviour that was delivered.
#[derive(Debug)]
struct Effect(String);

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Effect {}

/// The error for a promise that did not hold.
pub(crate) fn effect(what: impl Into<String>) -> anyhow::Error {
    Effect(what.into()).into()
}

/// Ends a behaviour with an effect unless this holds.
macro_rules! holds {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err($crate::behaviour::effect(format!($($what)*)));
        }
    };
}
pub(crate) use holds;

/// What one behaviour does.
pub(crate) type Act<S> = for<'a> fn(&'a mut S) -> Pin<Box<dyn Future<Output = anyhow::Result<Evidence>> + 'a>>;

/// One hostile behaviour against a stage.
pub(crate) struct Behaviour<S> {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// The promise that it attacks.
    pub(crate) promise: &'static str,
    /// What of the owner's own work it may bring about.
    pub(crate) allowed: Allowed,
    /// Plays it.
    pub(crate) act: Act<S>,
}

/// What a behaviour may bring about, because a gateway may ask for it: a run of a published service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// How often the model may be asked.
    pub(crate) questions: usize,
    /// How many lines may be added to the ledger.
    pub(crate) ledger_lines: usize,
}

/// Nothing at all.
pub(crate) const NOTHING: Allowed = Allowed { questions: 0, ledger_lines: 0 };

/// What came of one behaviour.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) side: &'static str,
    pub(crate) name: String,
    pub(crate) promise: String,
    /// What shows that it was delivered, if it was.
    pub(crate) evidence: Result<String, String>,
    /// What it changed, though it must change nothing.
    pub(crate) effects: Vec<String>,
    pub(crate) took_ms: u64,
}

impl Row {
    /// A row for what was played since `began`.
    pub(crate) fn new<S>(
        side: &'static str,
        behaviour: &Behaviour<S>,
        began: Instant,
        evidence: anyhow::Result<Evidence>,
    ) -> Self {
        let (evidence, effects) = match evidence {
            Ok(evidence) => (Ok(evidence.text()), Vec::new()),
            Err(error) if error.is::<Effect>() => (Ok("it showed".to_owned()), vec![error.to_string()]),
            Err(error) => (Err(format!("{error:#}")), Vec::new()),
        };
        Self {
            side,
            name: behaviour.name.to_owned(),
            promise: behaviour.promise.to_owned(),
            evidence,
            effects,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Says at once what came of it.
    pub(crate) fn announce(&self) {
        let held = if self.holds() { "held" } else { "NOT HELD" };
        println!("{:<8} {held} {} ({} ms)", self.side, self.name, self.took_ms);
        if let Err(why) = &self.evidence {
            println!("         not delivered: {}", visible(why));
        }
        for effect in &self.effects {
            println!("         effect: {}", visible(effect));
        }
    }

    /// Whether it was delivered and changed nothing.
    pub(crate) fn holds(&self) -> bool {
        self.evidence.is_ok() && self.effects.is_empty()
    }
}

/// A text without characters that a terminal obeys.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if deskgate_protocol::hidden::hides(c) || c == '\t' { '·' } else { c }).collect()
}
