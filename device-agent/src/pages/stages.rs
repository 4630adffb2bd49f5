//! The parts of a service's page beside its form: its stage, and what a new draft changes.

use deskgate_definition::{CheckResult, Service, ServiceStage};

use super::labels::Shape;
use super::versions::{self, FieldChange};
use crate::local::ServiceStanding;

/// One stage of the bar.
pub(super) struct StageStep {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// A note about it; empty when it is reached.
    pub(super) about: String,
}

/// The bar: Draft, Checked, Published, Enabled. `access` and the standing are unknown while the gateway cannot be queried.
pub(super) fn bar(service: &Service, standing: Option<ServiceStanding>, access: Option<bool>) -> Vec<StageStep> {
    let step = |name, shape, about: &str| StageStep { name, shape, about: about.to_owned() };
    let checked = match (service.stage(), failures(service)) {
        (ServiceStage::Checked | ServiceStage::Published, _) => step("Checked", Shape::Good, ""),
        (ServiceStage::Draft, 0) => step("Checked", Shape::Waiting, "not yet, or changed since"),
        (ServiceStage::Draft, failed) => step("Checked", Shape::Bad, &format!("{failed} failed")),
    };
    let published = match (service.stage(), &service.published) {
        (_, Some(_)) if standing == Some(ServiceStanding::Elsewhere) => {
            step("Published", Shape::Bad, "at another gateway, this one does not know it")
        }
        (_, Some(_)) if standing == Some(ServiceStanding::Unpublished) => {
            step("Published", Shape::Waiting, "not any more")
        }
        (ServiceStage::Published, _) => step("Published", Shape::Good, ""),
        (_, Some(version)) => {
            step("Published", Shape::Waiting, &format!("version {} is, this draft not", version.version))
        }
        (_, None) => step("Published", Shape::Waiting, "not yet"),
    };
    let enabled = match (&service.published, access) {
        _ if matches!(standing, Some(ServiceStanding::Elsewhere | ServiceStanding::Unpublished)) => {
            step("Enabled", Shape::Waiting, "after publishing")
        }
        (Some(_), _) if standing == Some(ServiceStanding::Disabled) => {
            step("Enabled", Shape::Paused, "this service is disabled")
        }
        (None, _) => step("Enabled", Shape::Waiting, "after publishing"),
        (Some(version), _) if version.paused.is_some() => step("Enabled", Shape::Bad, "nothing of it runs"),
        (Some(_), Some(true)) => step("Enabled", Shape::Good, ""),
        (Some(_), Some(false)) => step("Enabled", Shape::Paused, "access is paused"),
        (Some(_), None) => step("Enabled", Shape::Unknown, "not known"),
    };
    vec![step("Draft", Shape::Good, ""), checked, published, enabled]
}

/// How far a service is, in one state. `access` and the standing are unknown while the gateway cannot be queried.
pub(super) fn standing(
    service: &Service,
    standing: Option<ServiceStanding>,
    access: Option<bool>,
) -> (Shape, &'static str) {
    match standing {
        Some(ServiceStanding::Ended) => return (Shape::Over, "Its application has ended"),
        Some(ServiceStanding::Elsewhere) => return (Shape::Over, "At another gateway"),
        Some(ServiceStanding::Disabled) => return (Shape::Paused, "Disabled"),
        Some(ServiceStanding::Unpublished) if service.published.is_some() => {
            return (Shape::Waiting, "Not published any more");
        }
        _ => {}
    }
    match (&service.published, service.stage()) {
        (None, ServiceStage::Draft) if failures(service) > 0 => (Shape::Bad, "Draft, a check failed"),
        (None, ServiceStage::Draft) => (Shape::Waiting, "Draft"),
        (None, _) => (Shape::Waiting, "Checked, not published"),
        (Some(version), _) if version.paused.is_some() => (Shape::Bad, "Nothing of it runs"),
        (Some(_), _) => match access {
            Some(true) => (Shape::Good, "Enabled"),
            Some(false) => (Shape::Paused, "Published, access is paused"),
            None => (Shape::Unknown, "Published"),
        },
    }
}

/// How many checks of exactly this draft failed.
pub(super) fn failures(service: &Service) -> usize {
    let report = service.checks.as_ref().filter(|report| report.definition_sha256 == service.draft.digest());
    report.map_or(0, |report| report.checks.iter().filter(|check| check.verdict == CheckResult::Fail).count())
}

/// Why the draft cannot be published now; `None` if it can.
pub(super) fn unpublishable(service: &Service) -> Option<String> {
    let paused = service.published.as_ref().is_some_and(|version| version.paused.is_some());
    match (service.stage(), failures(service)) {
        // Publishing again ends a pause.
        (ServiceStage::Published, _) if paused => None,
        (ServiceStage::Published, _) => Some("This draft is what is published.".to_owned()),
        (ServiceStage::Checked, _) => None,
        (ServiceStage::Draft, 0) => Some("Inactive until this draft has been checked.".to_owned()),
        (ServiceStage::Draft, 1) => Some("Inactive: 1 check failed.".to_owned()),
        (ServiceStage::Draft, failed) => Some(format!("Inactive: {failed} checks failed.")),
    }
}

/// What publishing the draft would change for callers, field by field.
pub(super) fn changes(service: &Service) -> Vec<FieldChange> {
    service.published.as_ref().map(|version| versions::changes(&version.definition, &service.draft)).unwrap_or_default()
}
