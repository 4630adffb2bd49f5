//! The models that a provider lists, as the choices of the service form's field. Any other name is accepted too.

use super::Pages;
use super::labels::{CountLabel, NumberLabel};
use crate::local::{ListModels, ListedModel};

/// How many models are offered. A router lists thousands.
const MAX_OFFERED: usize = 300;
/// The provider that needs no account, and its model that needs no file.
const SCRIPTED: (&str, &str) = ("scripted", "folder");

/// What a provider lists, or why it cannot be had.
pub(super) struct ModelChoice {
    provider: String,
    listed: Result<Vec<ListedModel>, String>,
}

/// One choice: the model's name, and what is known of it.
pub(super) struct OfferedModel {
    pub(super) model: String,
    pub(super) about: String,
}

impl ModelChoice {
    /// Asks a provider. What goes wrong is told beside the field, and holds nothing up.
    pub(super) async fn of(pages: &Pages, provider: &str) -> Self {
        let listed = match provider == SCRIPTED.0 {
            true => Ok(Vec::new()),
            false => pages.handler().request(ListModels { name: provider.to_owned() }).await,
        };
        Self { provider: provider.to_owned(), listed: listed.map_err(|no| no.message) }
    }

    fn is_scripted(&self) -> bool {
        self.provider == SCRIPTED.0
    }

    /// The choices.
    pub(super) fn offered(&self) -> Vec<OfferedModel> {
        if self.is_scripted() {
            let about = "answers from the folder, without a model".to_owned();
            return vec![OfferedModel { model: SCRIPTED.1.to_owned(), about }];
        }
        self.listed.iter().flatten().take(MAX_OFFERED).map(OfferedModel::new).collect()
    }

    /// Whether it could not be listed.
    pub(super) fn has_failed(&self) -> bool {
        self.listed.is_err()
    }

    /// What came of it, in a sentence.
    pub(super) fn told(&self) -> String {
        let provider = &self.provider;
        match &self.listed {
            _ if self.is_scripted() => "The scripted assistant answers by itself: no account is needed.".to_owned(),
            Err(why) => {
                let why = why.trim_end_matches('.');
                format!("The models of {provider} cannot be listed: {why}. Write the model's name yourself.")
            }
            Ok(listed) if listed.is_empty() => {
                format!("{provider} lists no model for this key. Write the model's name yourself.")
            }
            Ok(listed) => {
                let count = u32::try_from(listed.len()).unwrap_or(u32::MAX);
                let first = if listed.len() > MAX_OFFERED {
                    format!(", of which the first {MAX_OFFERED} are offered")
                } else {
                    String::new()
                };
                format!("{provider} lists {}{first}. Another name is accepted too.", CountLabel(&count, "model"))
            }
        }
    }
}

impl OfferedModel {
    fn new(listed: &ListedModel) -> Self {
        let window = listed.context_tokens.map(|tokens| format!("{} tokens", NumberLabel(tokens)));
        let reads = listed.reads.map(|reads| format!("reads {}", reads.words()));
        let price =
            listed.usd_per_million_tokens.map(|(read, written)| format!("USD {read} / {written} per million tokens"));
        let about: Vec<_> = [window, reads, price].into_iter().flatten().collect();
        Self { model: listed.model.clone(), about: about.join(", ") }
    }
}
