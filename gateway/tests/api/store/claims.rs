//! Taking runs from the queue.

use std::collections::HashSet;
use std::time::Duration;

use deskgate_gateway::store::attempts::{AttemptUpdate, Claims, RecordOutcome, ServiceRoom};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_program::tasks::Tasks;
use deskgate_protocol::RunId;
use deskgate_protocol::control::RevokeCode;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{TestStore, quoted};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};
use crate::support::until;

#[tokio::test]
async fn eight_claimers_at_once_take_every_run_once_and_oldest_first() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    // All of one commit, so all of one moment: the identifiers decide.
    test_store
        .database
        .execute(&format!(
            "INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id,
                identity, fingerprint, input, metadata, max_duration_s, queue_expires_at)
            SELECT lpad(to_hex(n * 7919 % 400), 32, '0')::uuid, app_id, 'anna', endpoint_id, 1, definition_sha256, device_id,
                sha256(n::text::bytea), sha256(''), '{{\"text\":\"a\"}}', '{{}}', 60, now() + interval '1 hour'
            FROM endpoints, generate_series(1, 400) n WHERE endpoint_id = {}",
            quoted(test_store.device.endpoint.uuid())
        ))
        .await;
    let mut claimers = JoinSet::new();
    for _ in 0..8 {
        let store = test_store.store.clone();
        claimers.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let batch = store.claim(session, 7, &ServiceRoom::default(), LONG_LEASE).await.expect("claimed");
                if batch.is_empty() {
                    return taken;
                }
                taken.extend(batch.into_iter().map(|offer| (offer.run_id, offer.attempt)));
            }
        });
    }
    let taken = claimers.join_all().await;
    for one in &taken {
        assert!(one.is_sorted(), "each claimer sees them oldest first");
    }
    let distinct: HashSet<_> = taken.iter().flatten().map(|(run_id, _)| *run_id).collect();
    assert_eq!((distinct.len(), taken.iter().flatten().count()), (400, 400));
    assert!(taken.iter().flatten().all(|(_, attempt)| *attempt == 1));
}

#[tokio::test]
async fn only_the_newest_session_of_the_right_device_with_access_gets_work() {
    let test_store = TestStore::new().await;
    let (old, _) = test_store.device.connect().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.queue().await;
    let (foreign, _) = DeviceFixture::pair(&test_store.store).await.connect().await;
    assert_eq!(test_store.device.claim(old, 9).await, []);
    assert_eq!(test_store.store.claim(foreign, 9, &ServiceRoom::default(), LONG_LEASE).await.expect("claimed"), []);
    assert_eq!(test_store.device.claim(session, 0).await, []);
    test_store.device.allow(false).await;
    assert_eq!(test_store.device.claim(session, 9).await, []);
    test_store.device.allow(true).await;
    test_store.database.execute("UPDATE runs SET queue_expires_at = now()").await;
    assert_eq!(test_store.device.claim(session, 9).await, [], "its time is up");
    test_store.database.execute("UPDATE runs SET queue_expires_at = now() + interval '1 hour'").await;
    assert_eq!(test_store.device.claim(session, 9).await[0].run_id, run_id);
    assert_eq!(test_store.device.claim(session, 9).await, [], "it is offered to nobody twice");
    let after = test_store.queue().await;
    assert!(test_store.store.revoke_device(test_store.device.device_id, LONG_LEASE).await.expect("stored"));
    assert_eq!(test_store.device.claim(session, 9).await, []);
    assert_eq!(test_store.row(after).await.0, "cancelled");
}

#[tokio::test]
async fn runs_of_a_full_service_stay_queued_while_those_of_others_pass_them() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (full, other) = (test_store.device.endpoint, test_store.device.service(&test_store.device.app, "other").await);
    let mut queued = Vec::new();
    for endpoint in [full, full, other, full, other] {
        let run_id = test_store.queue().await;
        let (run, endpoint) = (quoted(run_id.uuid()), quoted(endpoint.uuid()));
        test_store.database.execute(&format!("UPDATE runs SET endpoint_id = {endpoint} WHERE run_id = {run}")).await;
        queued.push(run_id);
    }
    let claim = async |full: &[_]| -> Vec<(RunId, u32)> {
        let room = ServiceRoom { full: full.to_vec(), ..ServiceRoom::default() };
        let offers = test_store.store.claim(session, 2, &room, LONG_LEASE).await.expect("claimed");
        offers.into_iter().map(|offer| (offer.run_id, offer.attempt)).collect()
    };
    assert_eq!(claim(&[full]).await, [(queued[2], 1), (queued[4], 1)]);
    assert_eq!(claim(&[full, other]).await, []);
    assert_eq!(claim(&[other]).await, [(queued[0], 1), (queued[1], 1)], "in their old order, and never tried");
    assert_eq!(claim(&[]).await, [(queued[3], 1)]);
}

#[tokio::test]
async fn of_each_service_as_many_runs_are_claimed_as_it_has_places_and_the_oldest_of_all_come_first() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (one, two) = (test_store.device.endpoint, test_store.device.service(&test_store.device.app, "two").await);
    let mut queued = Vec::new();
    for endpoint in [one, one, two, one, two, two] {
        let run_id = test_store.queue().await;
        let (run, endpoint) = (quoted(run_id.uuid()), quoted(endpoint.uuid()));
        test_store.database.execute(&format!("UPDATE runs SET endpoint_id = {endpoint} WHERE run_id = {run}")).await;
        queued.push(run_id);
    }
    let claim = async |limit, room: ServiceRoom| -> Vec<RunId> {
        let offers = test_store.store.claim(session, limit, &room, LONG_LEASE).await.expect("claimed");
        offers.into_iter().map(|offer| offer.run_id).collect()
    };
    let room = ServiceRoom { places: vec![(one, 1), (two, 2)], ..ServiceRoom::default() };
    assert_eq!(claim(3, room.clone()).await, [queued[0], queued[2]], "of the three oldest, as many as fit");
    assert_eq!(claim(1, room.clone()).await, [queued[1]], "and always one if there is one that fits");
    let rest = ServiceRoom { full: vec![one], places: vec![(two, 1)], only: None };
    assert_eq!(claim(9, rest).await, [queued[4]]);
    let only_one = ServiceRoom { only: Some(vec![one]), ..ServiceRoom::default() };
    assert_eq!(claim(9, only_one.clone()).await, [queued[3]], "those of others are not looked for");
    assert_eq!(claim(9, only_one).await, []);
    assert_eq!(claim(9, room).await, [queued[5]]);
}

/// Claims of these sessions at one moment, each of up to two runs.
async fn claim_together(claims: &Claims, sessions: &[SessionKey]) -> Vec<Vec<RunId>> {
    let claimed = sessions.iter().map(async |session| {
        let offers = claims.claim(*session, 2, &ServiceRoom::default()).await.expect("claimed");
        assert!(offers.iter().all(|offer| offer.attempt == 1), "{offers:?}");
        offers.into_iter().map(|offer| offer.run_id).collect()
    });
    join_all(claimed).await
}

#[tokio::test]
async fn devices_that_claim_at_the_same_moment_get_each_its_own_oldest_runs() {
    let test_store = TestStore::new().await;
    let tasks = Tasks::new(CancellationToken::new());
    let claims = Claims::start(&test_store.store, &tasks, LONG_LEASE);
    let (mut sessions, mut queued) = (Vec::new(), Vec::new());
    // More than share a statement.
    for number in 0..40 {
        let device = DeviceFixture::pair(&test_store.store).await;
        let (session, _) = device.connect().await;
        let mut runs = Vec::new();
        for _ in 0..number % 4 {
            runs.push(test_store.queue_for(device.endpoint).await);
        }
        sessions.push(session);
        queued.push((device, runs));
    }
    for (number, (device, _)) in queued.iter().enumerate().filter(|(number, _)| number % 8 >= 4) {
        match number % 8 {
            4 => assert_ne!(device.connect().await.0, sessions[number], "a newer session"),
            5 => device.allow(false).await,
            6 => test_store.store.fall_asleep(sessions[number]).await.expect("stored"),
            _ => assert!(test_store.store.revoke_device(device.device_id, LONG_LEASE).await.expect("stored")),
        }
    }
    for round in 0..2 {
        for (number, claimed) in claim_together(&claims, &sessions).await.into_iter().enumerate() {
            let expected = match number % 8 {
                ..4 => queued[number].1.chunks(2).nth(round).unwrap_or_default(),
                _ => &[],
            };
            assert_eq!(claimed, expected, "device {number} in round {round}");
        }
    }
    let first = &queued[1].0;
    let offered = test_store.store.offer(sessions[1], queued[1].1[0]).await.expect("read").expect("it is its own");
    assert_eq!(test_store.one(sessions[1], offered.run_id, 1, AttemptUpdate::Start).await, RecordOutcome::Done);
    assert_eq!(first.connect().await.1.len(), 1, "and the next session takes it over");
    assert_eq!(test_store.one(sessions[1], offered.run_id, 1, super::succeeded(1)).await, RecordOutcome::Replaced);
}

#[tokio::test]
async fn a_device_that_somebody_holds_delays_the_claims_of_no_other() {
    let test_store = TestStore::new().await;
    let tasks = Tasks::new(CancellationToken::new());
    let claims = Claims::start(&test_store.store, &tasks, LONG_LEASE);
    let other = DeviceFixture::pair(&test_store.store).await;
    let (held_session, _) = test_store.device.connect().await;
    let (session, _) = other.connect().await;
    let (held_run, run) = (test_store.queue().await, test_store.queue_for(other.endpoint).await);
    let holder = test_store.database.begin().await;
    holder
        .execute(&format!("SELECT FROM devices WHERE device_id = {} FOR UPDATE", quoted(held_session.device_id.uuid())))
        .await;
    let held = tokio::spawn({
        let claims = claims.clone();
        async move { claim_together(&claims, &[held_session, session]).await }
    });
    let offered = format!("SELECT offered_until IS NOT NULL FROM runs WHERE run_id = '{}'", run.uuid());
    until("the other to be offered its run", async || test_store.database.value(&offered).await == "true").await;
    test_store.database.waits_for_a_lock("attempts::claim").await;
    holder.commit().await;
    assert_eq!(held.await.expect("no panic"), [[held_run], [run]]);
}

#[tokio::test]
async fn an_offer_says_for_whom_it_was_submitted() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.queue().await;
    assert_eq!(test_store.device.claim(session, 1).await[0].subject.as_deref(), Some("anna"));
    let again = test_store.store.offer(session, run_id).await.expect("read").expect("held");
    assert_eq!(again.subject.as_deref(), Some("anna"), "also when it is offered again");
}

#[tokio::test]
async fn a_returned_run_keeps_its_place_and_gets_a_fresh_attempt() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (first, second) = (test_store.queue().await, test_store.queue().await);
    let claimed = test_store.device.claim(session, 1).await;
    assert_eq!((claimed[0].run_id, claimed[0].attempt), (first, 1));
    test_store.one(session, first, 1, AttemptUpdate::Return).await;
    let claimed: Vec<(RunId, u32)> =
        test_store.device.claim(session, 2).await.into_iter().map(|offer| (offer.run_id, offer.attempt)).collect();
    assert_eq!(claimed, [(first, 2), (second, 1)]);
}

#[tokio::test]
async fn an_offer_nobody_took_is_queued_again_and_its_late_acceptance_refused() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.queue().await;
    test_store.store.claim(session, 1, &ServiceRoom::default(), Duration::ZERO).await.expect("claimed");
    assert_eq!(test_store.store.return_unaccepted_offers().await.expect("done"), 1);
    assert_eq!(test_store.store.return_unaccepted_offers().await.expect("done"), 0);
    let late = test_store.one(session, run_id, 1, AttemptUpdate::Start).await;
    assert_eq!(
        late,
        deskgate_gateway::store::attempts::RecordOutcome::Revoked(deskgate_protocol::control::RevokeCode::StaleAttempt)
    );
    assert_eq!(test_store.device.claim(session, 1).await[0].attempt, 2);
}

/// The effect of a database crash on a claim, which is not durable before its start is.
async fn lose_the_claim(test_store: &TestStore, run_id: RunId) {
    let sql = "UPDATE runs SET attempt = 0, epoch = 0, offered_until = NULL WHERE run_id = ";
    test_store.database.execute(&format!("{sql}'{}'", run_id.uuid())).await;
}

#[tokio::test]
async fn the_number_of_an_attempt_whose_claim_was_lost_is_not_given_to_another_one() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (in_session, in_journal) = (test_store.queue().await, test_store.queue().await);
    assert_eq!(test_store.device.claim(session, 2).await.iter().map(|offer| offer.attempt).collect::<Vec<_>>(), [1, 1]);
    for run_id in [in_session, in_journal] {
        lose_the_claim(&test_store, run_id).await;
    }
    // The device accepts what it was offered, or comes back with it.
    let stale = RecordOutcome::Revoked(RevokeCode::StaleAttempt);
    assert_eq!(test_store.one(session, in_session, 1, AttemptUpdate::Start).await, stale);
    let (session, held) = test_store.device.connect().await;
    assert_eq!(held, []);
    test_store.store.pass_over_lost_claims(session, &[(in_journal, 1), (RunId::new(), 1)]).await.expect("written");
    assert_eq!(test_store.device.claim(session, 2).await.iter().map(|offer| offer.attempt).collect::<Vec<_>>(), [2, 2]);
    for run_id in [in_session, in_journal] {
        assert_eq!(
            test_store.one(session, run_id, 1, AttemptUpdate::Start).await,
            stale,
            "what is revoked is not started"
        );
        assert_eq!(test_store.one(session, run_id, 2, AttemptUpdate::Start).await, RecordOutcome::Done);
    }
}

#[tokio::test]
async fn a_claim_anew_before_the_lost_one_is_accepted_is_what_the_device_holds() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.queue().await;
    test_store.device.claim(session, 1).await;
    lose_the_claim(&test_store, run_id).await;
    assert_eq!(test_store.device.claim(session, 1).await[0].attempt, 1);
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::Start).await, RecordOutcome::Done);
}

#[tokio::test]
async fn no_device_uses_up_the_numbers_of_attempts_or_passes_over_those_of_others() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let started = test_store.started(session).await;
    let queued = test_store.queue().await;
    let stranger = DeviceFixture::pair(&test_store.store).await;
    let (foreign, _) = stranger.connect().await;
    let older = SessionKey { epoch: session.epoch - 1, ..session };
    for (session, run_id, attempt) in [
        (session, queued, u32::MAX),
        (session, queued, 5000),
        (session, started, 7),
        (foreign, queued, 7),
        (older, queued, 7),
    ] {
        test_store.store.pass_over_lost_claims(session, &[(run_id, attempt)]).await.expect("written");
    }
    assert_eq!((test_store.row(queued).await.1, test_store.row(started).await.1), (0, 1));
}
