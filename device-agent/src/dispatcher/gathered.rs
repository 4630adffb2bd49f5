//! Frames that came by the same moment, sorted by what they ask.

use std::collections::HashMap;
use std::mem::Discriminant;

use deskgate_protocol::control::{GatewayFrame, Offer};
use deskgate_protocol::ids::RunId;

/// Offers, starts and acknowledgements. No run has frames of two kinds in it, or two offers or starts, so that what is said
/// about one run keeps its order.
#[derive(Debug, Default)]
pub(super) struct GatheredFrames {
    pub(super) offers: Vec<Offer>,
    /// Run and attempt.
    pub(super) starts: Vec<(RunId, u32)>,
    /// Run, attempt, and the number through which all is durable.
    pub(super) acks: Vec<(RunId, u32, u64)>,
    kinds: HashMap<RunId, Discriminant<GatewayFrame>>,
}

impl GatheredFrames {
    /// Adds a frame, or returns it if it has to wait for those that are here, or is of another kind. The first of these kinds
    /// always fits.
    pub(super) fn add(&mut self, frame: GatewayFrame) -> Option<GatewayFrame> {
        let run_id = match &frame {
            GatewayFrame::Offer(offer) => offer.run_id,
            GatewayFrame::Start { run_id, .. } | GatewayFrame::Ack { run_id, .. } => *run_id,
            _ => return Some(frame),
        };
        let kind = std::mem::discriminant(&frame);
        let may_come_again = matches!(frame, GatewayFrame::Ack { .. });
        if self.kinds.get(&run_id).is_some_and(|known| *known != kind || !may_come_again) {
            return Some(frame);
        }
        self.kinds.insert(run_id, kind);
        match frame {
            GatewayFrame::Offer(offer) => self.offers.push(offer),
            GatewayFrame::Start { run_id, attempt } => self.starts.push((run_id, attempt)),
            GatewayFrame::Ack { run_id, attempt, through } => self.acks.push((run_id, attempt, through)),
            other => return Some(other),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_about_one_run_keep_their_order_and_others_are_sorted() {
        let (one, other) = (RunId::new(), RunId::new());
        let start = |run_id| GatewayFrame::Start { run_id, attempt: 1 };
        let ack = |run_id, through| GatewayFrame::Ack { run_id, attempt: 1, through };
        let mut gathered = GatheredFrames::default();
        for fits in [start(one), ack(other, 1), ack(other, 2)] {
            assert_eq!(gathered.add(fits), None);
        }
        for waits in [start(one), ack(one, 1), start(other), GatewayFrame::Ping] {
            assert_eq!(gathered.add(waits.clone()), Some(waits));
        }
        assert_eq!((gathered.starts, gathered.acks), (vec![(one, 1)], vec![(other, 1, 1), (other, 1, 2)]));
    }
}
