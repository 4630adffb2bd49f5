//! Why a run that this device could execute waits: its service has no place free, or the device no slot.

use std::collections::BTreeMap;

use deskgate_protocol::ids::{EndpointId, RunId};
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;

/// Gets, for each service whose next run would wait on this device, what it waits for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListQueueReasons {}

impl TypedRequest for ListQueueReasons {
    type Response = BTreeMap<EndpointId, QueueReason>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Self::Response, ErrorReply> {
        let Ok(active) = handler.active() else { return Ok(BTreeMap::new()) };
        let status = active.dispatcher.status();
        let services = handler.store.services().list().await?;
        let published = services.iter().filter_map(|service| service.endpoint_id.zip(service.published.as_ref()));
        let slots = usize::try_from(status.slots).unwrap_or(usize::MAX);
        let reason = |name: &str, places: u32| {
            let of_service = status.runs.iter().filter(|run| run.service == name);
            let ahead: Vec<_> = of_service.map(|run| run.run_id).collect();
            if ahead.len() >= usize::try_from(places).unwrap_or(usize::MAX) {
                Some(QueueReason::Service { places, ahead })
            } else if status.runs.len() >= slots {
                Some(QueueReason::Slots { slots: status.slots })
            } else {
                None
            }
        };
        Ok(published
            .filter_map(|(endpoint_id, version)| {
                let definition = &version.definition;
                Some((endpoint_id, reason(&definition.name, definition.limits.concurrency)?))
            })
            .collect())
    }
}

/// What the next run of a service waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "waits_for", rename_all = "snake_case")]
pub enum QueueReason {
    /// A place of its service.
    Service {
        /// How many runs of it execute at the same time.
        places: u32,
        /// The runs that have them.
        ahead: Vec<RunId>,
    },
    /// A slot of the device.
    Slots {
        /// How many it has.
        slots: u32,
    },
}

impl std::fmt::Display for QueueReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Service { places: 1, .. } => {
                f.write_str("It waits for another run of its service, which executes one at a time.")
            }
            Self::Service { places, .. } => {
                write!(f, "It waits for other runs of its service, which executes {places} at a time.")
            }
            Self::Slots { slots: 1 } => f.write_str("It waits for the one slot of this computer."),
            Self::Slots { slots } => {
                write!(f, "It waits for one of the {slots} slots of this computer, which are all in use.")
            }
        }
    }
}
