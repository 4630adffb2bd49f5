//! What a message sees of a conversation, what is stored, and when it is forgotten.

use std::sync::LazyLock;

use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::run::{Effects, RunResult, Usage};

use super::*;

/// The service that the conversations belong to.
static SERVICE: LazyLock<EndpointId> = LazyLock::new(EndpointId::new);

fn message(conversation: ConversationId, generation: u32, text: &str) -> Offer {
    Offer {
        run_id: RunId::new(),
        attempt: 1,
        endpoint_id: *SERVICE,
        endpoint_version: 1,
        definition_sha256: Sha256Digest::of(b"definition"),
        subject: Some("customer-91".to_owned()),
        input: Input { text: text.to_owned(), more: serde_json::Map::new() },
        output: None,
        conversation: Some(conversation),
        generation: Some(generation),
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
    }
}

fn answered(text: &str) -> Outcome {
    let result = RunResult::completed(text);
    Outcome::Succeeded { result, usage: Usage::default() }
}

async fn finished(store: &Store, offer: &Offer, outcome: &Outcome) {
    let journal = store.journal();
    journal.take(offer).await.expect("taken");
    journal.start(offer.run_id, 1).await.expect("started");
    // A write that failed with an unknown result is repeated.
    for _ in 0..2 {
        journal.finish(offer.run_id, 1, 1, outcome, &[]).await.expect("finished");
    }
}

/// What a message sees of its conversation, which has to be its own.
async fn seen_by(store: &Store, offer: &Offer) -> Vec<TranscriptEntry> {
    match store.transcripts().seen_by(offer).await.expect("readable") {
        Earlier::Exchanges(earlier) => earlier,
        Earlier::OfAnother => panic!("it belongs to another"),
    }
}

async fn lines(store: &Store, conversation: ConversationId, generation: u32) -> Vec<String> {
    seen_by(store, &message(conversation, generation, "next"))
        .await
        .into_iter()
        .map(|said| format!("{} -> {}", said.input.text, said.answer))
        .collect()
}

#[tokio::test]
async fn a_generation_sees_its_own_messages_in_their_order_until_it_is_closed() {
    let home = tempfile::tempdir().expect("temporary folder");
    let store = Store::open(home.path().join("deskgate.db"))
        .await
        .expect("opens")
        .signing_with(ReceiptSigner::from_seed([7; 32]));
    let (ours, other) = (ConversationId::new(), ConversationId::new());
    finished(&store, &message(ours, 1, "one"), &answered("1")).await;
    finished(&store, &message(other, 1, "elsewhere"), &answered("x")).await;
    let stopped = Outcome::Cancelled { effects: Effects::None, usage: Usage::default() };
    finished(&store, &message(ours, 1, "two"), &stopped).await;
    let expected = ["one -> 1", "two -> [This request was stopped and has no answer.]"];
    assert_eq!(lines(&store, ours, 1).await, expected);

    for _ in 0..2 {
        store.transcripts().close(ours, 1).await.expect("closed");
    }
    finished(&store, &message(ours, 1, "late"), &answered("never seen")).await;
    finished(&store, &message(ours, 2, "anew"), &answered("2")).await;
    assert_eq!(lines(&store, ours, 1).await, [""; 0]);
    assert_eq!(lines(&store, ours, 2).await, ["anew -> 2"]);
    assert_eq!(lines(&store, other, 1).await, ["elsewhere -> x"]);
}

/// Opens a store in a fresh folder, which must be held as long as the store.
#[tokio::test]
async fn a_message_of_no_generation_ends_like_any_other_and_nobody_sees_it() {
    let (store, _home) = store().await;
    let conversation = ConversationId::new();
    let none = Offer { generation: None, ..message(conversation, 1, "none") };
    for offer in [message(conversation, 0, "zero"), none] {
        finished(&store, &offer, &answered("x")).await;
    }
    for generation in [0, 1] {
        assert_eq!(lines(&store, conversation, generation).await, [""; 0]);
    }
}

async fn store() -> (Store, tempfile::TempDir) {
    let home = tempfile::tempdir().expect("temporary folder");
    (
        Store::open(home.path().join("deskgate.db"))
            .await
            .expect("opens")
            .signing_with(ReceiptSigner::from_seed([7; 32])),
        home,
    )
}

async fn seen(store: &Store, conversation: ConversationId) -> Vec<TranscriptEntry> {
    seen_by(store, &message(conversation, 1, "next")).await
}

#[tokio::test]
async fn of_a_long_conversation_the_newest_messages_are_seen_and_the_others_are_not_kept() {
    let (store, _home) = store().await;
    let (conversation, other) = (ConversationId::new(), ConversationId::new());
    finished(&store, &message(other, 1, "elsewhere"), &answered("x")).await;
    for text in ["a", "b", "c", "d", "e", "f"] {
        finished(&store, &message(conversation, 1, text), &answered(&text.repeat(120 * 1024))).await;
    }
    let said = seen(&store, conversation).await;
    assert_eq!(said.iter().map(|said| said.input.text.as_str()).collect::<Vec<_>>(), ["c", "d", "e", "f"]);
    let kept: i64 = store
        .lazily(|tx| Ok(tx.query_row("SELECT sum(octet_length(answer)) FROM transcript", [], |row| row.get(0))?))
        .await
        .expect("readable");
    assert_eq!(kept, 4 * 120 * 1024 + 1, "nothing is kept that nobody sees");
    assert_eq!(lines(&store, other, 1).await, ["elsewhere -> x"]);
}

#[tokio::test]
async fn an_overlong_exchange_loses_its_middle_and_hides_nothing_before_it() {
    let (store, _home) = store().await;
    let conversation = ConversationId::new();
    finished(&store, &message(conversation, 1, "before"), &answered("the answer before")).await;
    let mut long = message(conversation, 1, &format!("begin{}end", "ü".repeat(200 * 1024)));
    long.input.more.insert("table".to_owned(), "y".repeat(700 * 1024).into());
    finished(&store, &long, &answered(&format!("first{}last", "x".repeat(900 * 1024)))).await;
    let said = seen(&store, conversation).await;
    assert_eq!(said.len(), 2);
    assert_eq!((said[0].input.text.as_str(), said[0].answer.as_str()), ("before", "the answer before"));
    let TranscriptEntry { input, answer, .. } = &said[1];
    assert!(input.text.starts_with("begin") && input.text.contains("end\n[Further members"), "the ends say most");
    assert!(answer.starts_with("first") && answer.ends_with("last"));
    assert!(input.text.contains("bytes were left out") && answer.contains("bytes were left out"));
    assert!(
        input.more.is_empty() && input.text.ends_with("left out here: table.]"),
        "which members are missing is said"
    );
    assert!(input.text.len() + answer.len() < 2 * MAX_PART_BYTES + 200);
}

#[tokio::test]
async fn an_exchange_that_takes_much_more_room_written_down_is_still_seen() {
    let (store, _home) = store().await;
    let conversation = ConversationId::new();
    let escaped = "\u{1}".repeat(120 * 1024);
    finished(&store, &message(conversation, 1, "before"), &answered("b")).await;
    finished(&store, &message(conversation, 1, &escaped), &answered("a")).await;
    assert_eq!(
        seen(&store, conversation).await.iter().map(|said| said.input.text.len()).collect::<Vec<_>>(),
        [escaped.len()]
    );
}

#[tokio::test]
async fn a_conversation_is_forgotten_when_nothing_was_said_for_long_and_not_before() {
    let (store, _home) = store().await;
    let (silent, old) = (ConversationId::new(), ConversationId::new());
    for (conversation, text) in [(silent, "one"), (old, "two"), (old, "three")] {
        finished(&store, &message(conversation, 1, text), &answered("x")).await;
    }
    let age = "UPDATE transcript SET said_at = said_at - ?1 WHERE input LIKE ?2";
    for (days, text) in [(91, "%one%"), (91, "%two%"), (89, "%three%")] {
        store.lazily(move |tx| Ok(tx.execute(age, params![days * 24 * 3600, text])?)).await.expect("written");
    }
    assert_eq!(lines(&store, silent, 1).await, [""; 0], "nobody sees it, also when it is still there");
    store.transcripts().forget_silent().await.expect("forgotten");
    assert_eq!(store.transcripts_kept().await, 2);
    assert_eq!(lines(&store, old, 1).await, ["two -> x", "three -> x"], "it is spoken in");
}

#[tokio::test]
async fn an_owner_who_keeps_less_knows_before_how_much_goes_and_it_goes_at_once() {
    let (store, _home) = store().await;
    let (old, young) = (ConversationId::new(), ConversationId::new());
    let offers = [message(old, 1, "one"), message(young, 1, "two")];
    for offer in &offers {
        finished(&store, offer, &answered("secret")).await;
        store.journal().forget(offer.run_id, 1).await.expect("settled");
    }
    let (conversation, run) = (old.to_string(), offers[0].run_id.to_string());
    store
        .lazily(move |tx| {
            tx.execute(
                "UPDATE transcript SET said_at = said_at - 8 * 86400 WHERE conversation_id = ?1",
                [conversation],
            )?;
            Ok(tx.execute("UPDATE past_run SET settled_at = settled_at - 8 * 86400 WHERE run_id = ?1", [run])?)
        })
        .await
        .expect("written");
    let (transcripts, journal) = (store.transcripts(), store.journal());
    let forget = async || {
        transcripts.forget_now().await.expect("forgotten");
        journal.forget_old_answers().await.expect("forgotten");
        (transcripts.silent_for(7).await.expect("counted"), journal.answers_older_than(7).await.expect("counted"))
    };
    assert_eq!(forget().await, ((2, 1), (2, 1)), "nothing goes before it is chosen");
    let keep = |conversations, journal| RetentionSettings { conversations, journal, ..RetentionSettings::DEFAULT };
    store.settings().set(&keep(90, 7)).await.expect("kept");
    assert_eq!(forget().await, ((2, 1), (1, 0)), "the answer in the journal alone");
    assert_eq!(lines(&store, old, 1).await, ["one -> secret"]);
    store.settings().set(&keep(7, 7)).await.expect("kept");
    assert_eq!(lines(&store, old, 1).await, [""; 0], "nobody sees it from now on");
    assert_eq!(forget().await, ((1, 0), (1, 0)));
    assert_eq!(lines(&store, young, 1).await, ["two -> secret"]);
    let again = store.journal().take(&offers[0]).await.expect("readable");
    assert!(matches!(again, crate::journal::TakeOutcome::Ended(_)), "that it ended stays known: {again:?}");
}

#[tokio::test]
async fn a_summary_stands_for_what_it_sums_up_until_the_generation_is_closed() {
    let (store, _home) = store().await;
    let (ours, other) = (ConversationId::new(), ConversationId::new());
    for (conversation, text) in [(other, "elsewhere"), (ours, "one"), (ours, "two")] {
        finished(&store, &message(conversation, 1, text), &answered("x")).await;
    }
    let place = seen(&store, ours).await.last().expect("two").place;
    let summary = || Input { text: "both".to_owned(), more: serde_json::Map::new() };
    for _ in 0..2 {
        store.transcripts().sum_up(place, summary(), "Good.".to_owned()).await.expect("written");
    }
    finished(&store, &message(ours, 1, "three"), &answered("3")).await;
    assert_eq!(lines(&store, ours, 1).await, ["both -> Good.", "three -> 3"]);
    assert_eq!(lines(&store, other, 1).await, ["elsewhere -> x"]);
    assert_eq!(store.transcripts_kept().await, 3, "what was summed up is gone");

    store.transcripts().close(ours, 1).await.expect("closed");
    store.transcripts().sum_up(place, summary(), "Late.".to_owned()).await.expect("nothing to sum up");
    assert_eq!(lines(&store, ours, 1).await, [""; 0]);
    assert_eq!(store.transcripts_kept().await, 1);
}

/// Makes the computer's clock jump this many days ahead.
async fn the_clock_jumps(store: &Store, days: i64) {
    let sql = "UPDATE transcript_clock SET wall = unixepoch() - ?1";
    store.lazily(move |tx| Ok(tx.execute(sql, [days * 24 * 3600])?)).await.expect("written");
}

#[tokio::test]
async fn a_clock_that_is_years_off_makes_no_conversation_old() {
    let (store, _home) = store().await;
    let conversation = ConversationId::new();
    finished(&store, &message(conversation, 1, "one"), &answered("1")).await;
    let mut running = store.transcripts();
    for days in [3650, -3650, 1, 3650] {
        the_clock_jumps(&store, days).await;
        running.forget_silent().await.expect("nothing to forget");
        the_clock_jumps(&store, days).await;
        store.transcripts().forget_silent().await.expect("nothing to forget, at a start");
        assert_eq!(lines(&store, conversation, 1).await, ["one -> 1"]);
    }
    assert_eq!(store.transcripts_kept().await, 1);
}

#[tokio::test]
async fn days_that_passed_are_counted_also_those_without_the_agent() {
    let (store, _home) = store().await;
    finished(&store, &message(ConversationId::new(), 1, "one"), &answered("1")).await;
    for _ in 0..90 {
        the_clock_jumps(&store, 1).await;
        store.transcripts().forget_silent().await.expect("a start on every day");
    }
    assert_eq!(store.transcripts_kept().await, 1);
    the_clock_jumps(&store, 1).await;
    store.transcripts().forget_silent().await.expect("forgotten");
    assert_eq!(store.transcripts_kept().await, 0);
}

#[tokio::test]
async fn nothing_of_a_forgotten_conversation_stays_in_the_file_and_its_runs_stay_known() {
    let (store, home) = store().await;
    let (reset, silent, kept) = (ConversationId::new(), ConversationId::new(), ConversationId::new());
    let offers = [
        (message(reset, 1, "question-reset"), answered("answer-reset")),
        (message(silent, 1, "question-silent"), answered("answer-silent")),
        (message(kept, 1, "question-kept"), answered("answer-kept")),
        (message(reset, 1, "question-late"), answered("answer-late")),
    ];
    for (offer, outcome) in &offers {
        finished(&store, offer, outcome).await;
    }
    let journal = store.journal();
    for (offer, _) in &offers[..3] {
        journal.forget(offer.run_id, 1).await.expect("settled");
    }
    let age = "UPDATE transcript SET said_at = said_at - 91 * 24 * 3600 WHERE conversation_id = ?1";
    store.lazily(move |tx| Ok(tx.execute(age, [silent.to_string()])?)).await.expect("written");
    store.transcripts().forget_silent().await.expect("forgotten");
    store.transcripts().close(reset, 1).await.expect("closed");
    // Its finish is acknowledged only now.
    journal.forget(offers[3].0.run_id, 1).await.expect("settled");

    for (offer, outcome) in &offers {
        let crate::journal::TakeOutcome::Ended(ended) = journal.take(offer).await.expect("readable") else {
            panic!("it ended here")
        };
        assert_eq!(ended.outcome == *outcome, offer.conversation == Some(kept), "{ended:?}");
    }
    drop((journal, store));
    let file = std::fs::read(home.path().join("deskgate.db")).expect("readable");
    let holds = |text: &str| file.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("question-kept") && holds("answer-kept"));
    for text in ["reset", "silent", "late"] {
        assert!(!holds(&format!("question-{text}")) && !holds(&format!("answer-{text}")), "{text}");
    }
}

#[tokio::test]
async fn another_service_or_subject_sees_nothing_of_a_conversation_and_adds_nothing_to_it() {
    let (store, _home) = store().await;
    let conversation = ConversationId::new();
    let own = message(conversation, 1, "one");
    let others = [
        Offer { subject: Some("customer-92".to_owned()), run_id: RunId::new(), ..own.clone() },
        Offer { subject: None, run_id: RunId::new(), ..own.clone() },
        Offer { endpoint_id: EndpointId::new(), run_id: RunId::new(), ..own.clone() },
        Offer { subject: None, generation: Some(2), run_id: RunId::new(), ..own.clone() },
    ];
    finished(&store, &own, &answered("secret")).await;
    for other in &others {
        assert_eq!(store.transcripts().seen_by(other).await.expect("readable"), Earlier::OfAnother);
        // It was under way when the conversation became the first one's.
        finished(&store, other, &answered("planted")).await;
    }
    assert_eq!(lines(&store, conversation, 1).await, ["one -> secret"]);
    assert_eq!(store.transcripts_kept().await, 1);
    // What was kept before belongs to whoever goes on with it first.
    let unbound = "UPDATE transcript SET participant = NULL";
    store.lazily(move |tx| Ok(tx.execute(unbound, [])?)).await.expect("written");
    assert_eq!(seen_by(&store, &others[1]).await.len(), 1);
    finished(&store, &message(conversation, 1, "two"), &answered("2")).await;
    assert_eq!(store.transcripts().seen_by(&others[1]).await.expect("readable"), Earlier::OfAnother);
}

#[tokio::test]
async fn nothing_is_kept_for_longer_than_the_gateway_keeps_the_run() {
    let (store, _home) = store().await;
    let conversation = ConversationId::new();
    let offers = ["old", "new"].map(|text| message(conversation, 1, text));
    for offer in &offers {
        finished(&store, offer, &answered("said")).await;
        store.journal().forget(offer.run_id, 1).await.expect("settled");
    }
    store
        .lazily(|tx| {
            tx.execute("UPDATE transcript SET said_at = said_at - 86401 WHERE input LIKE '%old%'", [])?;
            Ok(tx.execute("UPDATE past_run SET settled_at = settled_at - 86401 WHERE n = 1", [])?)
        })
        .await
        .expect("written");
    let forget = async || {
        store.transcripts().forget_now().await.expect("forgotten");
        store.journal().forget_old_answers().await.expect("forgotten");
        (store.transcripts_kept().await, store.journal().answers_older_than(0).await.expect("counted").0)
    };
    store.settings().set_gateway_retention(None).await.expect("noted");
    assert_eq!(forget().await, (2, 2), "its owner alone decides");
    store.settings().set_gateway_retention(Some(86400)).await.expect("noted");
    assert_eq!(lines(&store, conversation, 1).await, ["new -> said"], "nobody sees it from now on");
    assert_eq!(forget().await, (1, 1));
    store.settings().set_gateway_retention(Some(u64::MAX)).await.expect("noted");
    assert_eq!(forget().await, (1, 1));
}

#[tokio::test]
async fn resets_are_noted_only_of_conversations_that_the_journal_knows() {
    let (store, _home) = store().await;
    let noted = async || {
        let sql = "SELECT count(*) FROM closed_generation";
        store.lazily(move |tx| Ok(tx.query_row(sql, [], |row| row.get::<_, i64>(0))?)).await.expect("counted")
    };
    store.transcripts().close(ConversationId::new(), 1).await.expect("nothing to close");
    assert_eq!(noted().await, 0);
    let known = message(ConversationId::new(), 1, "one");
    finished(&store, &known, &answered("1")).await;
    store.transcripts().close(known.conversation.expect("one"), 1).await.expect("closed");
    store.journal().forget(known.run_id, 1).await.expect("settled");
    store.journal().forget_old_answers().await.expect("swept");
    assert_eq!(noted().await, 1);
    store.lazily(|tx| Ok(tx.execute("DELETE FROM past_run", [])?)).await.expect("written");
    store.journal().forget_old_answers().await.expect("swept");
    assert_eq!(noted().await, 0);
}
