//! What the lists of several nouns have in common.

/// How to go on with a list.
pub(super) fn older(next: Option<impl std::fmt::Display>) -> String {
    next.map(|next| format!("\nOlder ones: --before {next}")).unwrap_or_default()
}
