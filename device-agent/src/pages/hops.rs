//! The stations of a request's path, as the overview and the connection show them.

use deskgate_definition::{Provider, Service};

use super::frame::Frame;
use super::labels::Shape;
use crate::settings::Mode;

/// One station on a request's path.
pub(super) struct Hop {
    pub(super) name: &'static str,
    pub(super) icon: &'static str,
    /// The address of the page that is about it.
    pub(super) page: &'static str,
    pub(super) shape: Shape,
    pub(super) word: String,
}

/// The stations of a request's path, from who calls to the model that answers.
pub(super) fn of(frame: &Frame, services: &[Service]) -> Vec<Hop> {
    let line = frame.line();
    let hop = |name, icon, page, shape, word: &str| Hop { name, icon, page, shape, word: word.to_owned() };
    let word = match frame.access() {
        Some(true) => "May call",
        Some(false) => "Access is paused",
        None => "Not known",
    };
    let mut hops = vec![hop("Callers", "applications", "/applications", frame.access_shape(), word)];
    let at_gateway = |name, icon, word: &str| hop(name, icon, "/connection", line.shape, word);
    match frame.status.as_ref().map(|status| status.mode) {
        Some(Mode::Remote) => {
            hops.push(at_gateway("Gateway", "gateway", "On its server"));
            hops.push(at_gateway("SSH tunnel", "connection", &capital(line.word)));
        }
        Some(Mode::Hosted) => hops.push(at_gateway("Hosted gateway", "gateway", &capital(line.word))),
        _ => hops.push(at_gateway("Gateway", "gateway", &format!("Built-in, {}", line.word))),
    }
    let (slots, active) = match &frame.status {
        Some(status) => (status.work.slots, status.work.runs.as_array().map_or(0, Vec::len)),
        None => (0, 0),
    };
    let word = format!("{active} of {slots} slots in use");
    hops.push(hop("This computer", "laptop", "/runs", Shape::Good, &word));
    let models = services.iter().filter(|service| service.draft.provider != Provider::Scripted).count();
    let (shape, word) = match (services.is_empty(), models) {
        (true, _) => (Shape::Unknown, "No service yet"),
        (false, 0) => (Shape::Good, "Scripted assistant"),
        (false, _) => (Shape::Good, "Chosen by each service"),
    };
    hops.push(hop("Model", "model", "/providers", shape, word));
    hops
}

/// A word as it begins a line.
fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
