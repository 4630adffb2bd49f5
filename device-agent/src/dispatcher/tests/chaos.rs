//! Cut connections, crashes, repeated and reordered frames, by seed, against a model of the gateway that checks every
//! frame.

use std::collections::HashMap;

use deskgate_protocol::control::{InFlightStatus, RevokeCode};

use super::*;

/// A small generator: the same seed gives the same schedule.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[derive(Debug, PartialEq)]
enum ModelRunState {
    Queued,
    Offered,
    Started,
    Final(Outcome),
}

#[derive(Debug)]
struct ModelRun {
    offer: Offer,
    known: ModelRunState,
    durable: u64,
}

impl ModelRun {
    fn restart(&mut self, out: &mut Vec<GatewayFrame>) {
        self.offer.attempt += 1;
        self.durable = 0;
        out.push(GatewayFrame::Offer(self.offer.clone()));
    }
}

/// A gateway's state, in memory that survives every fault.
struct GatewayModel {
    runs: HashMap<RunId, ModelRun>,
    credit: u32,
    out: Vec<GatewayFrame>,
}

impl GatewayModel {
    fn new(offers: impl IntoIterator<Item = Offer>) -> Self {
        // The claim numbers the attempts, so before the first one there is none.
        let run = |offer: Offer| {
            (offer.run_id, ModelRun { offer: Offer { attempt: 0, ..offer }, known: ModelRunState::Queued, durable: 0 })
        };
        Self { runs: offers.into_iter().map(run).collect(), credit: 0, out: Vec::new() }
    }

    fn all_final(&self) -> bool {
        self.runs.values().all(|run| matches!(run.known, ModelRunState::Final(_)))
    }

    fn hello(&mut self, in_flight: &[InFlightRun]) {
        self.credit = 0;
        self.out.clear();
        for run in self.runs.values_mut() {
            let (run_id, attempt) = (run.offer.run_id, run.offer.attempt);
            let entry = in_flight.iter().find(|entry| entry.run_id == run_id);
            let is_older = entry.is_some_and(|entry| entry.attempt < attempt);
            match (&run.known, entry.map(|entry| entry.status)) {
                (ModelRunState::Offered, status) if status.is_none() || is_older => run.known = ModelRunState::Queued,
                // A started run is never queued again: it is offered at once, without a declared slot, as the attempt
                // after its own.
                (ModelRunState::Started, Some(InFlightStatus::Interrupted)) => run.restart(&mut self.out),
                (ModelRunState::Started, Some(InFlightStatus::Taken)) if is_older => run.restart(&mut self.out),
                (ModelRunState::Started, Some(InFlightStatus::Taken)) => {
                    self.out.push(GatewayFrame::Start { run_id, attempt });
                }
                (ModelRunState::Started, None) => panic!("the device lost a started run: {run:?}, {entry:?}"),
                (ModelRunState::Started, _) if is_older => panic!("an older attempt goes on: {run:?}, {entry:?}"),
                _ => {}
            }
        }
        self.offer();
    }

    fn offer(&mut self) {
        for run in self.runs.values_mut().filter(|run| run.known == ModelRunState::Queued) {
            if self.credit == 0 {
                return;
            }
            self.credit -= 1;
            run.offer.attempt += 1;
            run.durable = 0;
            run.known = ModelRunState::Offered;
            self.out.push(GatewayFrame::Offer(run.offer.clone()));
        }
    }

    fn hear(&mut self, frame: DeviceFrame) {
        let (run_id, attempt) = match &frame {
            DeviceFrame::Ready { slots, .. } => {
                self.credit += slots;
                return self.offer();
            }
            DeviceFrame::Accept { run_id, attempt }
            | DeviceFrame::Refuse { run_id, attempt, .. }
            | DeviceFrame::Event { run_id, attempt, .. }
            | DeviceFrame::Finish { run_id, attempt, .. } => (*run_id, *attempt),
            other => panic!("nobody asked for {other:?}"),
        };
        let run = self.runs.get_mut(&run_id).expect("a run of this model");
        if run.offer.attempt != attempt {
            return self.out.push(GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::StaleAttempt });
        }
        let acknowledge = |through| GatewayFrame::Ack { run_id, attempt, through };
        match (frame, &run.known) {
            (DeviceFrame::Accept { .. }, ModelRunState::Offered | ModelRunState::Started) => {
                run.known = ModelRunState::Started;
                self.out.push(GatewayFrame::Start { run_id, attempt });
            }
            (DeviceFrame::Refuse { .. }, ModelRunState::Offered) => {
                run.known = ModelRunState::Queued;
                self.offer();
            }
            (DeviceFrame::Event { seq, .. }, ModelRunState::Started) => {
                assert!(seq <= run.durable + 1, "a gap before event {seq} of {run:?}");
                run.durable = run.durable.max(seq);
                self.out.push(acknowledge(run.durable));
            }
            (DeviceFrame::Finish { seq, outcome, .. }, ModelRunState::Started) => {
                assert_eq!(seq, run.durable + 1, "a gap before the finish of {run:?}");
                run.known = ModelRunState::Final(outcome);
                self.out.push(acknowledge(seq));
            }
            (DeviceFrame::Finish { seq, outcome, .. }, ModelRunState::Final(known)) => {
                assert_eq!(outcome, *known, "a second, other outcome");
                self.out.push(acknowledge(seq));
            }
            (DeviceFrame::Event { seq, .. }, ModelRunState::Final(_)) => self.out.push(acknowledge(seq)),
            (DeviceFrame::Accept { .. }, ModelRunState::Final(_)) => {
                self.out.push(GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::AlreadyFinal });
            }
            (DeviceFrame::Refuse { .. }, ModelRunState::Started) => panic!("a restart was refused: {run:?}"),
            (DeviceFrame::Refuse { .. }, _) => {}
            (DeviceFrame::Accept { .. }, ModelRunState::Queued) => {
                self.out.push(GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::StaleAttempt });
            }
            (frame, _) => panic!("{frame:?} does not fit {run:?}"),
        }
    }
}

/// What goes wrong before a frame is delivered, in either direction.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Cut,
    Crash,
    Repeat,
    Echo,
}

/// Drives device and model until every run is final and the device has the acknowledgement.
async fn play(device: &mut TestDevice, model: &mut GatewayModel, mut fault: impl FnMut() -> (Fault, usize)) -> u32 {
    let (mut crashes, mut said) = (0, Vec::<GatewayFrame>::new());
    'sessions: loop {
        let (mut peer, in_flight) = device.connect().await;
        model.hello(&in_flight);
        loop {
            for frame in std::mem::take(&mut model.out) {
                let (fault, any) = fault();
                match fault {
                    Fault::Cut => continue 'sessions,
                    Fault::Crash => {
                        crashes += 1;
                        device.crash().await;
                        device.boot().await;
                        continue 'sessions;
                    }
                    Fault::Echo if !said.is_empty() => {
                        let echo: GatewayFrame = said[any % said.len()].clone();
                        peer.send(echo).await;
                    }
                    Fault::Repeat => peer.send(frame.clone()).await,
                    Fault::None | Fault::Echo => {}
                }
                said.push(frame.clone());
                peer.send(frame).await;
            }
            if model.all_final() && device.handle().status().runs.is_empty() {
                return crashes;
            }
            let settled = device.until("the device is settled", |status| status.runs.is_empty());
            let frame = tokio::select! {
                frame = soon("the device speaks", peer.from.recv()) => frame.expect("the device is there"),
                () = settled, if model.all_final() => continue,
            };
            match fault() {
                (Fault::Cut, _) => continue 'sessions,
                (Fault::Crash, _) => {
                    crashes += 1;
                    device.crash().await;
                    device.boot().await;
                    continue 'sessions;
                }
                (Fault::Repeat, _) if !matches!(frame, DeviceFrame::Ready { .. }) => {
                    model.hear(frame.clone());
                    model.hear(frame);
                }
                _ => model.hear(frame),
            }
        }
    }
}

#[tokio::test]
async fn a_line_cut_at_any_point_ends_in_one_finish_and_one_execution() {
    let mut cut_at = 0;
    loop {
        let mut device = TestDevice::new().await;
        device.window = 2;
        let offer = device.publish(4).await.offer("say 5");
        let run_id = offer.run_id;
        let mut model = GatewayModel::new([offer]);
        let mut step = 0;
        let fault = || {
            step += 1;
            (if step == cut_at { Fault::Cut } else { Fault::None }, 0)
        };
        play(&mut device, &mut model, fault).await;
        assert_eq!(model.runs[&run_id].known, ModelRunState::Final(answer("done")), "cut at {cut_at}");
        assert_eq!(device.ledger.of(run_id).len(), 1, "cut at {cut_at}");
        if step < cut_at {
            assert!(cut_at > 15, "the conversation is longer than {cut_at} frames");
            return;
        }
        cut_at += 1;
    }
}

#[tokio::test]
async fn a_crash_at_any_point_ends_in_one_finish_and_at_most_one_more_execution() {
    let mut crash_at = 1;
    loop {
        let mut device = TestDevice::new().await;
        device.window = 2;
        let offer = device.publish(4).await.offer("say 30");
        let run_id = offer.run_id;
        let mut model = GatewayModel::new([offer]);
        let mut step = 0;
        let fault = || {
            step += 1;
            (if step == crash_at { Fault::Crash } else { Fault::None }, 0)
        };
        play(&mut device, &mut model, fault).await;
        assert_eq!(model.runs[&run_id].known, ModelRunState::Final(answer("done")), "crash at {crash_at}");
        let executed = device.ledger.of(run_id);
        assert!((1..=2).contains(&executed.len()), "crash at {crash_at}: {executed:?}");
        assert!(executed.windows(2).all(|pair| pair[0] < pair[1]), "crash at {crash_at}: {executed:?}");
        if step < crash_at {
            return;
        }
        crash_at += 1;
    }
}

#[tokio::test]
async fn whatever_is_cut_crashed_or_repeated_each_run_ends_once_and_runs_again_only_after_a_crash() {
    let (mut crashed, mut repeated) = (0, 0);
    for seed in 1..=60_u64 {
        let mut device = TestDevice::new().await;
        device.window = 3;
        let service = device.publish(4).await;
        let offers: Vec<_> = (0..5).map(|n| service.offer(&format!("say {}", 4 * n + 10))).collect();
        let ids: Vec<_> = offers.iter().map(|offer| offer.run_id).collect();
        let mut model = GatewayModel::new(offers);
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut troubles = 25;
        let fault = || {
            let fault = match dice.roll(60) {
                _ if troubles == 0 => Fault::None,
                0..=2 => Fault::Cut,
                3 => Fault::Crash,
                4..=9 => Fault::Repeat,
                10..=15 => Fault::Echo,
                _ => Fault::None,
            };
            troubles -= u32::from(fault != Fault::None);
            (fault, dice.roll(1 << 20) as usize)
        };
        println!("seed {seed}");
        let crashes = play(&mut device, &mut model, fault).await;
        for id in ids {
            let executed = device.ledger.of(id);
            assert!(executed.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {executed:?}");
            assert!(executed.len() <= 2.min(1 + crashes as usize), "seed {seed}: {executed:?}, {crashes} crashes");
            let ended = &model.runs[&id].known;
            // A crash may also happen between the journal's `running` and its first step.
            let gave_up = matches!(ended, ModelRunState::Final(Outcome::Failed { .. })) && crashes >= 2;
            assert!(gave_up || *ended == ModelRunState::Final(answer("done")), "seed {seed}: {ended:?}");
            repeated += usize::from(executed.len() == 2);
        }
        crashed += crashes;
    }
    assert!(crashed > 20 && repeated > 5, "too few crashes struck to show anything: {crashed}, {repeated}");
}
