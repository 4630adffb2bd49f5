//! Handlers of the frames that change a run: offer, start, revoke, ack. Each may come twice, late, or out of order.

use std::sync::Arc;

use deskgate_definition::Definition;
use deskgate_protocol::control::{DeviceFrame, Offer, RefuseCode};
use deskgate_protocol::ids::RunId;
use deskgate_protocol::receipt::OfferAnswer;
use deskgate_protocol::run::{Effects, Outcome, RunError, RunErrorCode, Usage};
use deskgate_store::journal::{EndedAttempt, StartOutcome, TakeOutcome};
use deskgate_store::transcripts::{Earlier, TranscriptEntry};
use deskgate_store::{self, Services};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::backpressure::DeclineReason;
use super::run::{RunStage, TrackedRun};
use super::{Dispatcher, Link, MAX_UNSETTLED_RUNS, StopMode, orders};
use crate::executor::Exchange;

/// The definition that an offer was accepted for, if this device has exactly that one (I16).
pub(super) async fn definition(
    services: &Services,
    offer: &Offer,
) -> Result<Option<Arc<Definition>>, deskgate_store::Error> {
    let found = services.published(offer.endpoint_id, offer.endpoint_version).await?;
    Ok(found.filter(|(_, digest)| *digest == offer.definition_sha256).map(|(definition, _)| Arc::new(definition)))
}

/// The definition for a run that was taken before this process began. `None` if it is missing or damaged: its start may
/// be durable at the gateway, so that run is not returned but fails, and the others continue.
pub(super) async fn definition_left(
    services: &Services,
    offer: &Offer,
) -> Result<Option<Arc<Definition>>, deskgate_store::Error> {
    match definition(services, offer).await {
        Err(deskgate_store::Error::Damaged { what }) => {
            warn!(run_id = %offer.run_id, what, "the definition of a taken run cannot be read");
            Ok(None)
        }
        found => found,
    }
}

impl<L: Link> Dispatcher<L> {
    pub(super) async fn consider(&mut self, offer: Offer) {
        let held = self.runs.get(&offer.run_id).filter(|run| run.attempt < offer.attempt).map(|run| &run.stage);
        // Every offer uses up a declared slot and place, whatever its result. Only a restart does not: it takes the slot that the
        // interrupted attempt still has.
        let runs_again = held.is_some_and(RunStage::may_run_again);
        if !runs_again {
            self.credit = self.credit.saturating_sub(1);
            self.places.note_offer(offer.endpoint_id);
        }
        let has_a_slot = runs_again || matches!(held, Some(RunStage::Taken { .. }));
        if let Some(answer) = self.answer_known(&offer) {
            return self.sign_refusal(&offer, answer).await;
        }
        let definition = match definition(&self.services, &offer).await {
            Ok(Some(definition)) => {
                self.definition_works(offer.endpoint_id);
                definition
            }
            Ok(None) => {
                warn!(run_id = %offer.run_id, endpoint_id = %offer.endpoint_id, "refused: not the definition held here");
                self.sign_refusal(&offer, OfferAnswer::DefinitionMismatch).await;
                return self.refuse(&offer, RefuseCode::DefinitionMismatch);
            }
            Err(error) => {
                self.definition_failed(offer.run_id, offer.endpoint_id, &error);
                self.refuse_busy(&offer, DeclineReason::Unreadable(offer.endpoint_id));
                return self.sign_refusal(&offer, OfferAnswer::Busy).await;
            }
        };
        if self.asleep || !matches!(self.stop, StopMode::NotStopping) || !(has_a_slot || self.has_slot_for(&offer)) {
            self.refuse_busy(&offer, DeclineReason::Everything);
            return self.sign_refusal(&offer, OfferAnswer::Busy).await;
        }
        if !(has_a_slot || self.service_has_place_for(&offer, &definition)) {
            self.refuse_busy(&offer, DeclineReason::Full(offer.endpoint_id));
            return self.sign_refusal(&offer, OfferAnswer::Busy).await;
        }
        match self.journal.take(&offer).await {
            Ok(TakeOutcome::Fresh) => {
                self.journal_works();
                let (run_id, attempt) = (offer.run_id, offer.attempt);
                info!(%run_id, attempt, endpoint_id = %offer.endpoint_id, trace_id = offer.trace_id(), "took a run");
                // A stop of an earlier attempt applies to this one.
                let stop = self.runs.get(&run_id).and_then(|run| run.stop);
                self.runs.insert(run_id, TrackedRun { stop, ..TrackedRun::from_offer(offer, Some(definition)) });
                self.line.send(DeviceFrame::Accept { run_id, attempt });
            }
            Ok(TakeOutcome::Ended(EndedAttempt { seq, outcome, receipt, .. })) => {
                let (run_id, attempt) = (offer.run_id, offer.attempt);
                self.line.send(DeviceFrame::Finish { run_id, attempt, seq, outcome, receipt });
            }
            Ok(TakeOutcome::Stale) => {
                debug!(run_id = %offer.run_id, attempt = offer.attempt, "an echo of an old offer");
                self.refuse_busy(&offer, DeclineReason::Everything);
            }
            Err(error) => {
                self.journal_failed(offer.run_id, &error);
                self.refuse_busy(&offer, DeclineReason::Everything);
                self.refusals.not_listed(0);
            }
        }
    }

    /// What this device's record of the run answers to the offer, which is done; none if it is an offer to consider.
    fn answer_known(&mut self, offer: &Offer) -> Option<OfferAnswer> {
        let (run_id, attempt) = (offer.run_id, offer.attempt);
        let run = self.runs.get_mut(&run_id)?;
        if run.attempt > attempt {
            debug!(%run_id, attempt, "an offer of an older attempt than the one held");
            return Some(OfferAnswer::Stale);
        }
        let newer = run.attempt < attempt;
        match &mut run.stage {
            // Two attempts of one run never execute side by side (I5): the older one ends first, and the gateway offers
            // again.
            RunStage::Running { stop, revoked, .. } if newer => {
                *revoked = true;
                stop.cancel();
                self.refuse_busy(offer, DeclineReason::Everything);
                Some(OfferAnswer::Busy)
            }
            RunStage::Ended { journalled: false, .. } => {
                self.refuse_busy(offer, DeclineReason::Everything);
                Some(OfferAnswer::Busy)
            }
            stage if newer && stage.may_run_again() => None,
            RunStage::Unknown { .. } => {
                warn!(%run_id, attempt, "refused: nobody has said yet what became of this run");
                self.refuse_busy(offer, DeclineReason::Everything);
                Some(OfferAnswer::Busy)
            }
            _ if newer => None,
            RunStage::Taken { .. } | RunStage::Running { .. } => {
                self.line.send(DeviceFrame::Accept { run_id, attempt });
                Some(OfferAnswer::Taken)
            }
            RunStage::Ended { sent, .. } => {
                run.log.rewind();
                *sent = false;
                Some(OfferAnswer::EndedBefore)
            }
            RunStage::Interrupted => {
                debug!(%run_id, attempt, "an interrupted attempt is not started again as itself");
                Some(OfferAnswer::Stale)
            }
        }
    }

    /// Signs an answer that changes nothing here. If that cannot be written, the offer is answered all the same: the
    /// next one is signed with the number of those before it.
    async fn sign_refusal(&mut self, offer: &Offer, answer: OfferAnswer) {
        let Some(unlisted) = self.refusals.next(Instant::now()) else { return };
        if let Err(error) = self.journal.answered(offer, answer, unlisted).await {
            warn!(run_id = %offer.run_id, %error, "the answer to an offer could not be signed");
            self.refusals.not_listed(unlisted);
        }
    }

    fn has_slot_for(&self, offer: &Offer) -> bool {
        self.others(offer).count() < self.slots as usize && self.runs.len() < self.slots as usize + MAX_UNSETTLED_RUNS
    }

    fn service_has_place_for(&self, offer: &Offer, definition: &Definition) -> bool {
        let active = self.others(offer).filter(|run| run.endpoint_id == offer.endpoint_id).count();
        active < definition.limits.concurrency as usize
    }

    /// The other runs that use a slot.
    fn others(&self, offer: &Offer) -> impl Iterator<Item = &TrackedRun> {
        let run_id = offer.run_id;
        self.runs.iter().filter(move |(id, run)| **id != run_id && run.occupies_slot()).map(|(_, run)| run)
    }

    /// Declared again unchanged, the slot would bring the same run back at once.
    fn refuse_busy(&mut self, offer: &Offer, why: DeclineReason) {
        self.withheld.record_refusal(why, Instant::now());
        // Before the run is queued again: slots that were declared earlier would bring it back at once.
        self.declare_slots();
        self.refuse(offer, RefuseCode::Busy);
    }

    fn refuse(&mut self, offer: &Offer, code: RefuseCode) {
        self.line.send(DeviceFrame::Refuse { run_id: offer.run_id, attempt: offer.attempt, code });
    }

    /// The start is durable at the gateway.
    pub(super) async fn confirm(&mut self, run_id: RunId, attempt: u32) {
        let Some(run) = self.runs.get_mut(&run_id).filter(|run| run.attempt == attempt) else {
            return debug!(%run_id, attempt, "a start of an attempt that is not held");
        };
        let RunStage::Taken { confirmed, offer, .. } = &mut run.stage else {
            return debug!(%run_id, attempt, "a start of an attempt that is past it");
        };
        *confirmed = true;
        let earlier = match self.transcripts.seen_by(offer).await {
            Ok(Earlier::Exchanges(earlier)) => {
                run.said_before = earlier.last().map(|said| said.place);
                Ok(Some(earlier))
            }
            Ok(Earlier::OfAnother) => {
                warn!(%run_id, attempt, endpoint_id = %run.endpoint_id,
                    "the gateway offered a message in a conversation of another service or subject; it fails");
                Ok(None)
            }
            Err(error) => Err(error),
        };
        let started = match earlier {
            Ok(earlier) => self.journal.start(run_id, attempt).await.map(|started| (started, earlier)),
            Err(error) => Err(error),
        };
        match started {
            Ok((started, earlier)) => {
                self.journal_works();
                self.begin(run_id, started, earlier).await;
            }
            Err(error) => self.journal_failed(run_id, &error),
        }
    }

    /// `earlier`: what it sees of its conversation; `None`: the conversation is another's.
    async fn begin(&mut self, run_id: RunId, started: StartOutcome, earlier: Option<Vec<TranscriptEntry>>) {
        let effects = self.journal.effects(run_id).await;
        let Some(run) = self.runs.get_mut(&run_id) else { return };
        match started {
            StartOutcome::Ended { outcome, receipt } => {
                info!(%run_id, attempt = run.attempt, "this run ended here before; its outcome is sent again");
                run.stage = RunStage::Ended { outcome: Box::new(outcome), receipt, journalled: true, sent: false };
                self.withheld.record_end(run.endpoint_id);
            }
            StartOutcome::Execute if run.stop.is_some() => {
                info!(%run_id, attempt = run.attempt, "stopped before it began");
                run.stage = RunStage::ended(orders::never_began(effects));
                self.journal_finish(run_id).await;
            }
            StartOutcome::Execute if matches!(run.stage, RunStage::Taken { definition: None, .. }) => {
                warn!(%run_id, attempt = run.attempt, "the definition that this run was taken for is gone; it fails");
                run.stage = RunStage::ended(no_definition(effects));
                self.journal_finish(run_id).await;
            }
            StartOutcome::Execute => {
                let Some(earlier) = earlier else {
                    run.stage = RunStage::ended(of_another(effects));
                    return self.journal_finish(run_id).await;
                };
                let exchange = |TranscriptEntry { input, answer, .. }| Exchange { request: input, answer };
                self.execute(run_id, earlier.into_iter().map(exchange).collect());
            }
        }
    }

    /// Stops and removes an attempt that was revoked.
    pub(super) async fn revoke(&mut self, run_id: RunId, attempt: u32) {
        let Some(run) = self.runs.get_mut(&run_id).filter(|run| run.attempt == attempt) else { return };
        match &mut run.stage {
            RunStage::Running { stop, revoked, .. } => {
                *revoked = true;
                stop.cancel();
            }
            // Its journal entry must be `finished` before the run counts as ended there.
            RunStage::Ended { journalled: false, .. } => {}
            _ => self.forget(run_id, attempt).await,
        }
    }

    /// Stops all runs, because the gateway removed this device.
    pub(super) async fn revoke_all(&mut self) {
        let held: Vec<_> = self.runs.iter().map(|(run_id, run)| (*run_id, run.attempt)).collect();
        for (run_id, attempt) in held {
            self.revoke(run_id, attempt).await;
        }
    }

    /// Events, and perhaps the finish, are durable at the gateway.
    pub(super) async fn acknowledge(&mut self, run_id: RunId, attempt: u32, through: u64) {
        let Some(run) = self.runs.get_mut(&run_id).filter(|run| run.attempt == attempt) else { return };
        if matches!(run.stage, RunStage::Unknown { .. }) {
            return self.number(run_id, through).await;
        }
        run.log.acknowledge(through);
        if matches!(run.stage, RunStage::Ended { journalled: true, sent: true, .. }) && through > run.log.last() {
            self.forget(run_id, attempt).await;
        }
    }

    pub(super) async fn forget(&mut self, run_id: RunId, attempt: u32) {
        if let Some(run) = self.runs.remove(&run_id) {
            self.withheld.record_end(run.endpoint_id);
        }
        if let Err(error) = self.journal.forget(run_id, attempt).await {
            // The entry is read again at the next start, and settled then.
            warn!(%run_id, %error, "a settled run could not be removed from the journal");
        }
    }

    /// Repeats failed journal writes.
    pub(super) async fn retry(&mut self) {
        let waiting = |run: &TrackedRun| match run.stage {
            RunStage::Taken { confirmed, .. } => confirmed,
            RunStage::Ended { journalled, .. } => !journalled,
            _ => false,
        };
        let ids: Vec<_> =
            self.runs.iter().filter(|(_, run)| waiting(run)).map(|(id, run)| (*id, run.attempt)).collect();
        for (run_id, attempt) in ids {
            match self.runs.get(&run_id).map(|run| &run.stage) {
                Some(RunStage::Taken { .. }) => self.confirm(run_id, attempt).await,
                Some(RunStage::Ended { .. }) => self.journal_finish(run_id).await,
                _ => {}
            }
        }
        self.retry_orders().await;
        self.try_journal().await;
    }
}

/// The outcome of a message in a conversation that is another's. It was not executed; `effects`: of the attempts before
/// it.
fn of_another(effects: Effects) -> Outcome {
    let message = "On the device this conversation belongs to another service or subject.".to_owned();
    let error = RunError { code: RunErrorCode::Internal, message, retryable: false, effects };
    Outcome::Failed { error, usage: Usage::default() }
}

/// The outcome of an attempt whose definition was lost after it was taken. It was not executed; `effects`: of the
/// attempts before it.
fn no_definition(effects: Effects) -> Outcome {
    let message = "The device no longer holds the version of the service that this run was accepted for.".to_owned();
    let code = RunErrorCode::DefinitionMismatch;
    let error = RunError { code, message, retryable: effects == Effects::None, effects };
    Outcome::Failed { error, usage: Usage::default() }
}
