//! Runs of a restored backup: which are queued again by the word of their device, and which are not.

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::operations::FIRST_RESTORED_ATTEMPT;
use deskgate_protocol::run::EventType::*;
use deskgate_protocol::run::Phase;
use deskgate_protocol::{JournalId, RunId};

use super::TestStore;
use crate::support::gateway::DeviceFixture;

/// What a restore does to a database.
async fn restore(test_store: &TestStore) {
    for sql in [
        "UPDATE devices SET restored_journal_id = journal_id, epoch = epoch + 1000000, connected_epoch = NULL",
        &format!(
            "WITH doubtful AS (
                UPDATE runs SET state = 'awaiting_reconciliation', attempt = attempt + {FIRST_RESTORED_ATTEMPT},
                    offered_until = NULL, device_seq = 0, last_sequence = last_sequence + 1
                WHERE finished_at IS NULL RETURNING run_id, last_sequence)
            INSERT INTO run_events (run_id, sequence, event_id, type, data)
            SELECT run_id, last_sequence, gen_random_uuid(), 'run.awaiting_reconciliation', '{{}}' FROM doubtful"
        ),
    ] {
        test_store.database.execute(sql).await;
    }
}

#[tokio::test]
async fn what_had_not_begun_is_queued_again_by_the_word_of_the_journal_that_was_there_then() {
    let test_store = TestStore::new().await;
    let (store, journal) = (&test_store.store, JournalId::new());
    let (before, _) = test_store.device.connect().await;
    assert!(!store.note_journal(before, journal).await.expect("noted"), "nothing was restored");
    let began = test_store.started(before).await;
    let (offered, queued, had) = (test_store.queue().await, test_store.queue().await, test_store.queue().await);
    assert_eq!(test_store.device.claim(before, 1).await[0].run_id, offered);
    restore(&test_store).await;
    assert_eq!(store.requeue(before, &[queued]).await.expect("refused"), 0, "a session of before the restore is over");

    let (session, _) = test_store.device.connect().await;
    assert!(store.note_journal(session, journal).await.expect("noted"));
    assert_eq!(store.runs_to_recall(session, None).await.expect("read"), [offered, queued, had]);
    assert_eq!(store.runs_to_recall(session, Some(offered)).await.expect("read"), [queued, had]);
    assert_eq!(test_store.run(queued).await.phase, Phase::Accepted, "its phase does not go back when it is queued");
    assert_eq!(test_store.device.claim(session, 9).await, [], "nothing is offered before the device has said so");
    let strangers = DeviceFixture::pair(store).await;
    let (foreign, _) = strangers.connect().await;
    assert_eq!(store.requeue(foreign, &[queued]).await.expect("refused"), 0);
    assert_eq!(store.requeue(session, &[began, offered, queued, RunId::new()]).await.expect("queued"), 2);
    assert_eq!(store.requeue(session, &[queued]).await.expect("repeated"), 0);
    assert_eq!(test_store.events(queued).await, [RunAccepted, RunAwaitingReconciliation, RunReconciled]);
    for (run_id, state, attempt) in
        [(queued, "queued", 0), (had, "awaiting_reconciliation", 0), (began, "awaiting_reconciliation", 1)]
    {
        let run = test_store.run(run_id).await;
        assert_eq!((run.state.as_str(), run.attempt), (state, attempt));
    }
    let offers = test_store.device.claim(session, 9).await;
    let offers: Vec<_> = offers.into_iter().map(|offer| (offer.run_id, offer.attempt)).collect();
    assert_eq!(offers, [(offered, 2), (queued, 1)], "in their old places, with numbers that no offer had before");
    assert_eq!(test_store.one(session, queued, 1, AttemptUpdate::Start).await, RecordOutcome::Done);
    assert_eq!(test_store.run(queued).await.attempt, 1);
}

#[tokio::test]
async fn no_other_journal_says_what_became_of_a_run_not_even_when_it_comes_again() {
    let test_store = TestStore::new().await;
    let (store, journal, other) = (&test_store.store, JournalId::new(), JournalId::new());
    let (before, _) = test_store.device.connect().await;
    store.note_journal(before, journal).await.expect("noted");
    let run_id = test_store.queue().await;
    restore(&test_store).await;
    for comes in [other, other, journal] {
        let (session, _) = test_store.device.connect().await;
        assert!(!store.note_journal(session, comes).await.expect("noted"));
        assert_eq!(store.runs_to_recall(session, None).await.expect("read"), []);
        assert_eq!(store.requeue(session, &[run_id]).await.expect("refused"), 0);
    }
    assert_eq!(test_store.row(run_id).await.0, "awaiting_reconciliation");
}

#[tokio::test]
async fn a_run_that_is_older_than_a_journals_memory_or_was_in_doubt_before_or_is_to_stop_waits_for_its_owner() {
    let test_store = TestStore::new().await;
    let (store, journal) = (&test_store.store, JournalId::new());
    let (before, _) = test_store.device.connect().await;
    store.note_journal(before, journal).await.expect("noted");
    let (old, twice) = (test_store.queue().await, test_store.queue().await);
    let age = format!("UPDATE runs SET created_at = now() - interval '8 days' WHERE run_id = '{}'", old.uuid());
    test_store.database.execute(&age).await;
    restore(&test_store).await;
    let (between, _) = test_store.device.connect().await;
    store.note_journal(between, journal).await.expect("noted");
    assert_eq!(store.runs_to_recall(between, None).await.expect("read"), [twice]);
    // Nobody said anything, and another backup, of now, is restored: what began in a journal of before is not known.
    restore(&test_store).await;
    let (session, _) = test_store.device.connect().await;
    assert!(store.note_journal(session, journal).await.expect("noted"));
    assert_eq!(store.requeue(session, &[old, twice]).await.expect("refused"), 0);
    let new = test_store.queue().await;
    assert_eq!(test_store.device.claim(session, 9).await[0].run_id, new, "what is accepted since goes on");
}
