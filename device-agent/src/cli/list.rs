//! Shared code for lists.

/// The hint for the next page of a list.
pub(super) fn older(next: Option<impl std::fmt::Display>) -> String {
    next.map(|next| format!("\nOlder ones: --before {next}")).unwrap_or_default()
}
