//! F30: a caller is cut off at some byte of its request, or of the answer.

use super::one_of;
use crate::callers::{Caller, cut};
use crate::plan::Planned;

/// Cuts one submission, which then comes again under the same key.
pub(crate) async fn cut_off(caller: &mut Caller, planned: &Planned) -> anyhow::Result<String> {
    let desk = one_of(planned.target, caller.business.scene.desks.len());
    cut::submit(caller, desk, planned.manner.is_multiple_of(2), planned.target / 2).await
}
