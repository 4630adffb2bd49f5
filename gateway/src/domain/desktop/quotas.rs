//! What a device is told when a quota leaves no room.

use deskgate_protocol::management::{ManagementError, ManagementErrorCode};

use crate::store::quotas::{MADE_PER_DAY, QuotaKind, QuotaReached};

/// The refusal: which quota, how many there are, and what makes room.
pub(super) fn quota_reached(reached: QuotaReached) -> ManagementError {
    tracing::info!(quota = %reached.kind, used = reached.used, "a quota leaves no room");
    ManagementError { code: ManagementErrorCode::QuotaReached, message: text(reached) }
}

fn text(reached: QuotaReached) -> String {
    let QuotaReached { kind, limit, used, is_of_the_day } = reached;
    let (who, what, remedy) = words(kind);
    if is_of_the_day {
        let most = limit.saturating_mul(MADE_PER_DAY);
        return format!(
            "{who} made {used} {what} within a day, of at most {most}, ended ones included. Nothing was made. Wait until \
             tomorrow, or have the gateway's administrator raise limits.{kind}"
        );
    }
    format!(
        "{who} has {used} {what}, and may have {limit}. Nothing was made. {remedy}, or have the gateway's administrator \
         raise limits.{kind}"
    )
}

/// Who has what, and what its owner can do.
fn words(kind: QuotaKind) -> (&'static str, &'static str, &'static str) {
    const END_APPLICATION: &str = "Disable an application whose services are not needed any more";
    match kind {
        QuotaKind::ApplicationsPerDevice => {
            ("this device", "applications", "Disable and remove one that is not needed any more")
        }
        QuotaKind::ApplicationsPerAccount => (
            "this account, with all its devices,",
            "applications",
            "Disable and remove one that is not needed any more, on any of them",
        ),
        QuotaKind::KeysPerApplication => (
            "this application",
            "live keys",
            "Revoke one that is not needed any more, or roll a key without an overlap",
        ),
        QuotaKind::ServicesPerApplication => {
            ("this application", "published services", "Publish a new version of one of them instead")
        }
        QuotaKind::ServicesPerDevice => ("this device", "published services", END_APPLICATION),
        QuotaKind::ServicesPerAccount => ("this account, with all its devices,", "published services", END_APPLICATION),
        QuotaKind::WebhooksPerApplication => ("this application", "webhooks", "Remove one that is not needed any more"),
        QuotaKind::ListenersPerApplication => {
            ("this application", "listeners", "End one of them; one that does not poll ends within two minutes")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_quota_how_many_there_are_and_what_to_do() {
        for kind in QuotaKind::ALL {
            let reached = QuotaReached { kind, limit: 7, used: 8, is_of_the_day: false };
            let text = text(reached);
            for part in ["has 8 ", "may have 7", &format!("raise limits.{kind}")] {
                assert!(text.contains(part), "{part} in {text}");
            }
            let text = super::text(QuotaReached { used: 70, is_of_the_day: true, ..reached });
            assert!(text.contains("made 70 ") && text.contains("at most 70") && text.contains("tomorrow"), "{text}");
        }
    }
}
