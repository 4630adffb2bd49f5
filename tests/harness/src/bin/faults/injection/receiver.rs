//! F26: the receiver of callbacks fails, hangs, redirects, or dies before it confirms.

use super::{one_of, until_it_hit};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;
use crate::testbed::fake_receiver::ReceiverBehaviour;

/// Keeps it faulty for as long as planned.
pub(crate) async fn disturb(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let manner = ReceiverBehaviour::FAULTS[one_of(planned.manner, ReceiverBehaviour::FAULTS.len())];
    testbed.receiver.set_behaviour(manner);
    let hit = until_it_hit(planned.lasts_ms, || testbed.receiver.disturbed()).await;
    testbed.receiver.set_behaviour(ReceiverBehaviour::Confirms);
    Ok(format!("{manner:?}: {} callbacks", hit?))
}
