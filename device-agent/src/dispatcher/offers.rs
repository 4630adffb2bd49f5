//! Handlers of the frames that change a run: offer, start, revoke, ack. Each may come twice, late, or out of order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use deskgate_definition::Definition;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{DeviceFrame, Offer, RefuseCode};
use deskgate_protocol::ids::{EndpointId, RunId};
use deskgate_protocol::receipt::OfferAnswer;
use deskgate_protocol::run::{Effects, Outcome, RunError, RunErrorCode, Usage};
use deskgate_protocol::service::DRAFT_VERSION;
use deskgate_store::journal::{EndedAttempt, StartOutcome, TakeOutcome};
use deskgate_store::transcripts::{Earlier, TranscriptEntry};
use deskgate_store::{self, Journal, Services, Transcripts};
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::backpressure::DeclineReason;
use super::run::{RunStage, TrackedRun};
use super::{Dispatcher, Link, MAX_UNSETTLED_RUNS, StopMode, orders};
use crate::executor::Exchange;

/// A definition as it is held here, with its digest; none of a version that no run may start of.
type HeldDefinition = Option<(Arc<Definition>, Sha256Digest)>;

/// The definitions that offers which came by the same moment were accepted for: each version is read once.
#[derive(Debug, Default)]
pub(super) struct DefinitionReader(HashMap<(EndpointId, u32), HeldDefinition>);

impl DefinitionReader {
    /// The definition that an offer was accepted for, if this device has exactly that one (I16), and it takes the offer's
    /// schema.
    pub(super) async fn definition(
        &mut self,
        services: &Services,
        offer: &Offer,
    ) -> Result<Option<Arc<Definition>>, deskgate_store::Error> {
        if offer.endpoint_version == DRAFT_VERSION && !services.admits_trial(offer).await? {
            return Ok(None);
        }
        let version = (offer.endpoint_id, offer.endpoint_version);
        let found = match self.0.entry(version) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => {
                let found = services.offered(offer.endpoint_id, offer.endpoint_version).await?;
                unread.insert(found.map(|(definition, digest)| (Arc::new(definition), digest)))
            }
        };
        let exact = found.as_ref().filter(|(_, digest)| *digest == offer.definition_sha256);
        let takes_output = |definition: &Definition| match offer.endpoint_version {
            DRAFT_VERSION => definition.data.output().as_ref() == offer.output.as_deref(),
            _ => definition.data.takes(offer.output.as_deref()),
        };
        let taken = exact.filter(|(definition, _)| takes_output(definition));
        Ok(taken.map(|(definition, _)| Arc::clone(definition)))
    }
}

/// The definition for a run that was taken before this process began. `None` if it is missing or damaged: its start may
/// be durable at the gateway, so that run is not returned but fails, and the others continue.
pub(super) async fn definition_left(
    services: &Services,
    offer: &Offer,
) -> Result<Option<Arc<Definition>>, deskgate_store::Error> {
    match services.published(offer.endpoint_id, offer.endpoint_version).await {
        Err(deskgate_store::Error::Damaged { what }) => {
            warn!(run_id = %offer.run_id, what, "the definition of a taken run cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
        Ok(found) => {
            let exact = found.filter(|(_, digest)| *digest == offer.definition_sha256);
            Ok(exact.map(|(definition, _)| Arc::new(definition)))
        }
    }
}

impl<L: Link> Dispatcher<L> {
    /// Answers offers of different runs.
    pub(super) async fn consider(&mut self, offers: Vec<Offer>) {
        let mut to_take = Vec::with_capacity(offers.len());
        let mut definitions = DefinitionReader::default();
        for offer in offers {
            if let Some(definition) = self.judge(&offer, &to_take, &mut definitions).await {
                to_take.push((offer, definition));
            }
        }
        let outcomes = join_all(to_take.iter().map(|(offer, _)| self.journal.take(offer))).await;
        for ((offer, definition), outcome) in to_take.into_iter().zip(outcomes) {
            self.take(offer, definition, outcome);
        }
        let busy = std::mem::take(&mut self.busy);
        if !busy.is_empty() {
            // Before the refused runs are queued again: slots that were declared earlier would bring them back at once.
            self.declare_at = Some(Instant::now());
            self.declare_slots();
        }
        busy.into_iter().for_each(|refusal| self.line.send(refusal));
    }

    /// The definition for an offer that can be taken beside those that are being taken; any other one is answered.
    async fn judge(
        &mut self,
        offer: &Offer,
        to_take: &[(Offer, Arc<Definition>)],
        definitions: &mut DefinitionReader,
    ) -> Option<Arc<Definition>> {
        let held = self.runs.get(&offer.run_id).filter(|run| run.attempt < offer.attempt).map(|run| &run.stage);
        // Every offer uses up a declared slot and place, whatever its result. Only a restart does not: it takes the slot that the
        // interrupted attempt still has.
        let runs_again = held.is_some_and(RunStage::may_run_again);
        if !runs_again {
            self.credit = self.credit.saturating_sub(1);
            self.places.note_offer(offer.endpoint_id);
        }
        let has_a_slot = runs_again || matches!(held, Some(RunStage::Taken { .. }));
        if let Some(answer) = self.answer_known(offer) {
            self.sign_refusal(offer, answer).await;
            return None;
        }
        let definition = match definitions.definition(&self.services, offer).await {
            Ok(Some(definition)) => {
                self.definition_works(offer.endpoint_id);
                definition
            }
            Ok(None) => {
                warn!(run_id = %offer.run_id, endpoint_id = %offer.endpoint_id, "refused: not the definition held here");
                self.sign_refusal(offer, OfferAnswer::DefinitionMismatch).await;
                self.refuse(offer, RefuseCode::DefinitionMismatch);
                return None;
            }
            Err(error) => {
                self.definition_failed(offer.run_id, offer.endpoint_id, &error);
                self.refuse_busy(offer, DeclineReason::Unreadable(offer.endpoint_id));
                self.sign_refusal(offer, OfferAnswer::Busy).await;
                return None;
            }
        };
        let accepts = !self.asleep && matches!(self.stop, StopMode::NotStopping);
        let lacks = match has_a_slot {
            _ if !accepts => Some(DeclineReason::Everything),
            true => None,
            false if !self.has_slot_for(offer, to_take) => Some(DeclineReason::Everything),
            false if !self.service_has_place_for(offer, &definition, to_take) => {
                Some(DeclineReason::Full(offer.endpoint_id))
            }
            false => None,
        };
        if let Some(why) = lacks {
            self.refuse_busy(offer, why);
            self.sign_refusal(offer, OfferAnswer::Busy).await;
            return None;
        }
        Some(definition)
    }

    /// Goes on with an offer as the journal has it.
    fn take(&mut self, offer: Offer, definition: Arc<Definition>, outcome: Result<TakeOutcome, deskgate_store::Error>) {
        let (run_id, attempt) = (offer.run_id, offer.attempt);
        match outcome {
            Ok(TakeOutcome::Fresh) => {
                self.journal_works();
                info!(%run_id, attempt, endpoint_id = %offer.endpoint_id, trace_id = offer.trace_id(), "took a run");
                // A stop of an earlier attempt applies to this one.
                let stop = self.runs.get(&run_id).and_then(|run| run.stop);
                self.runs.insert(run_id, TrackedRun { stop, ..TrackedRun::from_offer(offer, Some(definition)) });
                self.line.send(DeviceFrame::Accept { run_id, attempt });
            }
            Ok(TakeOutcome::Ended(EndedAttempt { seq, outcome, receipt, .. })) => {
                self.line.send(DeviceFrame::Finish { run_id, attempt, seq, outcome, receipt });
            }
            Ok(TakeOutcome::Stale) => {
                debug!(%run_id, attempt, "an echo of an old offer");
                self.refuse_busy(&offer, DeclineReason::Everything);
            }
            Err(error) => {
                self.journal_failed(run_id, &error);
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

    fn has_slot_for(&self, offer: &Offer, to_take: &[(Offer, Arc<Definition>)]) -> bool {
        let new = self.new_among(to_take).count();
        self.others(offer).count() + new < self.slots as usize
            && self.runs.len() + new < self.slots as usize + MAX_UNSETTLED_RUNS
    }

    fn service_has_place_for(
        &self,
        offer: &Offer,
        definition: &Definition,
        to_take: &[(Offer, Arc<Definition>)],
    ) -> bool {
        let active = self.others(offer).filter(|run| run.endpoint_id == offer.endpoint_id).count();
        let new = self.new_among(to_take).filter(|other| other.endpoint_id == offer.endpoint_id).count();
        active + new < definition.limits.concurrency as usize
    }

    /// Those that have no slot yet.
    fn new_among<'a>(&'a self, to_take: &'a [(Offer, Arc<Definition>)]) -> impl Iterator<Item = &'a Offer> {
        let has_slot = |offer: &Offer| self.runs.get(&offer.run_id).is_some_and(TrackedRun::occupies_slot);
        to_take.iter().map(|(offer, _)| offer).filter(move |offer| !has_slot(offer))
    }

    /// The other runs that use a slot.
    fn others(&self, offer: &Offer) -> impl Iterator<Item = &TrackedRun> {
        let run_id = offer.run_id;
        self.runs.iter().filter(move |(id, run)| **id != run_id && run.occupies_slot()).map(|(_, run)| run)
    }

    /// Declared again unchanged, the slot would bring the same run back at once. Said once all offers are judged, and it is
    /// known what is free.
    fn refuse_busy(&mut self, offer: &Offer, why: DeclineReason) {
        self.withheld.record_refusal(why, Instant::now());
        let (run_id, attempt) = (offer.run_id, offer.attempt);
        self.busy.push(DeviceFrame::Refuse { run_id, attempt, code: RefuseCode::Busy });
    }

    fn refuse(&mut self, offer: &Offer, code: RefuseCode) {
        self.line.send(DeviceFrame::Refuse { run_id: offer.run_id, attempt: offer.attempt, code });
    }

    /// The starts of these attempts are durable at the gateway.
    pub(super) async fn confirm(&mut self, starts: Vec<(RunId, u32)>) {
        let mut confirmed = Vec::with_capacity(starts.len());
        for (run_id, attempt) in starts {
            let Some(run) = self.runs.get_mut(&run_id).filter(|run| run.attempt == attempt) else {
                debug!(%run_id, attempt, "a start of an attempt that is not held");
                continue;
            };
            let RunStage::Taken { confirmed: is_confirmed, .. } = &mut run.stage else {
                debug!(%run_id, attempt, "a start of an attempt that is past it");
                continue;
            };
            *is_confirmed = true;
            confirmed.push(run_id);
        }
        let (journal, transcripts) = (&self.journal, &self.transcripts);
        let starts =
            confirmed.iter().filter_map(|run_id| self.runs.get(run_id)).map(|run| start(journal, transcripts, run));
        let started = join_all(starts).await;
        for (run_id, started) in confirmed.into_iter().zip(started) {
            match started {
                Ok((started, earlier)) => {
                    self.journal_works();
                    self.begin(run_id, started, earlier).await;
                }
                Err(error) => self.journal_failed(run_id, &error),
            }
        }
    }

    /// `earlier`: what it sees of its conversation; `None`: the conversation is another's.
    async fn begin(&mut self, run_id: RunId, started: StartOutcome, earlier: Option<Vec<TranscriptEntry>>) {
        let Some(run) = self.runs.get_mut(&run_id) else { return };
        let never_began: fn(Effects) -> Outcome = match started {
            StartOutcome::Ended { outcome, receipt } => {
                info!(%run_id, attempt = run.attempt, "this run ended here before; its outcome is sent again");
                run.stage = RunStage::Ended { outcome: Box::new(outcome), receipt, journalled: true, sent: false };
                return self.withheld.record_end(run.endpoint_id);
            }
            StartOutcome::Execute if run.stop.is_some() => {
                info!(%run_id, attempt = run.attempt, "stopped before it began");
                orders::never_began
            }
            StartOutcome::Execute if matches!(run.stage, RunStage::Taken { definition: None, .. }) => {
                warn!(%run_id, attempt = run.attempt, "the definition that this run was taken for is gone; it fails");
                no_definition
            }
            StartOutcome::Execute => match earlier {
                None => of_another,
                Some(earlier) => {
                    run.said_before = earlier.last().map(|said| said.place);
                    let exchange = |TranscriptEntry { input, answer, .. }| Exchange { request: input, answer };
                    return self.execute(run_id, earlier.into_iter().map(exchange).collect());
                }
            },
        };
        let effects = self.journal.effects(run_id).await;
        let Some(run) = self.runs.get_mut(&run_id) else { return };
        run.stage = RunStage::ended(never_began(effects));
        self.journal_finish(&[run_id]).await;
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
            _ => self.forget(&[(run_id, attempt)]).await,
        }
    }

    /// Stops all runs, because the gateway removed this device.
    pub(super) async fn revoke_all(&mut self) {
        let held: Vec<_> = self.runs.iter().map(|(run_id, run)| (*run_id, run.attempt)).collect();
        for (run_id, attempt) in held {
            self.revoke(run_id, attempt).await;
        }
    }

    /// Events, and perhaps the finishes, are durable at the gateway.
    pub(super) async fn acknowledge(&mut self, acks: Vec<(RunId, u32, u64)>) {
        let mut settled = Vec::new();
        for (run_id, attempt, through) in acks {
            let Some(run) = self.runs.get_mut(&run_id).filter(|run| run.attempt == attempt) else { continue };
            if matches!(run.stage, RunStage::Unknown { .. }) {
                self.number(run_id, through).await;
                continue;
            }
            run.log.acknowledge(through);
            let is_settled =
                matches!(run.stage, RunStage::Ended { journalled: true, sent: true, .. }) && through > run.log.last();
            if is_settled && !settled.contains(&(run_id, attempt)) {
                settled.push((run_id, attempt));
            }
        }
        self.forget(&settled).await;
    }

    /// Removes attempts that are settled.
    pub(super) async fn forget(&mut self, settled: &[(RunId, u32)]) {
        for (run_id, _) in settled {
            self.tickets.forget(*run_id);
            if let Some(run) = self.runs.remove(run_id) {
                self.withheld.record_end(run.endpoint_id);
            }
        }
        let forgotten = settled.iter().map(|(run_id, attempt)| self.journal.forget(*run_id, *attempt));
        for ((run_id, _), forgotten) in settled.iter().zip(join_all(forgotten).await) {
            if let Err(error) = forgotten {
                // The entry is read again at the next start, and settled then.
                warn!(%run_id, %error, "a settled run could not be removed from the journal");
            }
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
        // One at a time: one for which the disk has no room keeps no other one from being written.
        for (run_id, attempt) in ids {
            match self.runs.get(&run_id).map(|run| &run.stage) {
                Some(RunStage::Taken { .. }) => self.confirm(vec![(run_id, attempt)]).await,
                Some(RunStage::Ended { .. }) => self.journal_finish(&[run_id]).await,
                _ => {}
            }
        }
        self.retry_orders().await;
        self.try_journal().await;
    }
}

/// Journals a start, and reads what the run sees of its conversation; `None`: the conversation is another's.
async fn start(
    journal: &Journal,
    transcripts: &Transcripts,
    run: &TrackedRun,
) -> Result<(StartOutcome, Option<Vec<TranscriptEntry>>), deskgate_store::Error> {
    let RunStage::Taken { offer, .. } = &run.stage else {
        unreachable!("`confirm` calls this for runs that it found taken")
    };
    let earlier = match transcripts.seen_by(offer).await? {
        Earlier::Exchanges(earlier) => Some(earlier),
        Earlier::OfAnother => {
            warn!(run_id = %offer.run_id, attempt = run.attempt, endpoint_id = %run.endpoint_id,
                "the gateway offered a message in a conversation of another service or subject; it fails");
            None
        }
    };
    Ok((journal.start(offer.run_id, run.attempt).await?, earlier))
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
