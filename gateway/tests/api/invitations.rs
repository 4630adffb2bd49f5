//! Invitations: one device, one answer, and an end.

use std::time::Duration;

use deskgate_gateway::domain::invitations::{AnswerError, confirm, give_token, refusal, refuse};
use deskgate_gateway::store::invitations::InvitationState;
use deskgate_protocol::VERSION;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::invitation::InvitationToken;

use crate::store::TestStore;
use crate::support::gateway::cipher;

const HOUR: Duration = Duration::from_secs(3600);

/// Some device's key.
fn key() -> PublicKey {
    PublicKey::of(&InvitationToken::generate().tunnel_key())
}

#[tokio::test]
async fn the_device_that_came_last_is_confirmed_by_its_own_code_and_no_other() {
    let test_store = TestStore::new().await;
    let (store, token) = (&test_store.store, InvitationToken::generate());
    let id = store.create_invitation(&token, None, HOUR).await.expect("made").invitation_id;
    let (first, last) = (key(), key());
    let nobody = confirm(store, id, &first.short_code()).await.expect_err("nobody came");
    assert!(matches!(nobody, AnswerError::NobodyCame), "{nobody}");
    for (key, name) in [(&first, "first"), (&last, "last")] {
        store.note_invited(id, key, name, VERSION).await.expect("noted").expect("it is open");
    }
    let waiting = store.invitation(id).await.expect("read").expect("there");
    assert!(refusal(&waiting, &first).is_some_and(|no| no.message.contains("Another device")));
    assert!(refusal(&waiting, &last).is_none());
    let other = confirm(store, id, &first.short_code()).await.expect_err("it was replaced");
    assert!(matches!(&other, AnswerError::OtherDevice { came, .. } if *came == last.short_code()), "{other}");
    assert!(store.device_by_key(&first).await.expect("read").is_none());
    assert_eq!(confirm(store, id, &last.short_code()).await.expect("it waits").name, "last");

    // One answer: neither a second device nor a second word changes it.
    assert!(store.note_invited(id, &first, "first", VERSION).await.expect("asked").is_none());
    for again in [confirm(store, id, &last.short_code()).await.err(), refuse(store, id).await.err()] {
        assert!(matches!(again, Some(AnswerError::Over(InvitationState::Confirmed))), "{again:?}");
    }
    let confirmed = store.invitation(id).await.expect("read").expect("there");
    assert!(refusal(&confirmed, &last).is_none() && refusal(&confirmed, &first).is_some());
}

#[tokio::test]
async fn of_two_administrators_who_answer_at_once_one_has_answered() {
    let test_store = TestStore::new().await;
    let (store, token) = (&test_store.store, InvitationToken::generate());
    let key = key();
    let id = store.create_invitation(&token, None, HOUR).await.expect("made").invitation_id;
    store.note_invited(id, &key, "desk", VERSION).await.expect("noted").expect("it is open");
    let code = key.short_code();
    let (yes, no) = tokio::join!(confirm(store, id, &code), refuse(store, id));
    assert_ne!(yes.is_ok(), no.is_ok(), "{yes:?} {no:?}");
    let paired = store.device_by_key(&key).await.expect("read").is_some();
    assert_eq!(paired, yes.is_ok(), "who was refused is not paired");
}

#[tokio::test]
async fn an_invitation_that_has_ended_opens_nothing_and_is_forgotten_later() {
    let test_store = TestStore::new().await;
    let (store, token) = (&test_store.store, InvitationToken::generate());
    let key = key();
    let invitation = store.create_invitation(&token, None, Duration::ZERO).await.expect("made");
    let id = invitation.invitation_id;
    assert!(!store.is_invited(&invitation.tunnel_key).await.expect("asked"));
    assert!(store.note_invited(id, &key, "late", VERSION).await.expect("asked").is_none());
    let ended = store.invitation_by_secret(token.digest()).await.expect("read").expect("there");
    assert_eq!(ended.state, InvitationState::Expired);
    assert!(refusal(&ended, &key).is_some_and(|no| no.message.contains("expired")));
    assert!(matches!(refuse(store, id).await, Err(AnswerError::Over(InvitationState::Expired))));
    assert_eq!(store.forget_invitations().await.expect("forgotten"), 0, "it can be seen for a week");
    for (age, forgotten) in [("6 days", 0), ("8 days", 1)] {
        let older = format!("UPDATE invitations SET expires_at = now() - interval '{age}'");
        test_store.database.execute(&older).await;
        assert_eq!(store.forget_invitations().await.expect("forgotten"), forgotten, "{age} after its end");
    }
    assert!(store.invitation(id).await.expect("asked").is_none());
}

/// The answer to a confirmed device may get lost: each time that it comes it is given the same token, and no further one.
#[tokio::test]
async fn a_confirmed_device_has_one_token_until_it_comes_with_it_and_then_none() {
    let test_store = TestStore::new().await;
    let (store, token) = (&test_store.store, InvitationToken::generate());
    let (desk, other) = (key(), key());
    let id = store.create_invitation(&token, None, HOUR).await.expect("made").invitation_id;
    store.note_invited(id, &desk, "desk", VERSION).await.expect("noted").expect("it is open");
    let cipher = cipher();
    let give = async |key: &PublicKey| give_token(store, &cipher, id, key).await.expect("the database answers");
    let valid = async || store.control_tokens().await.expect("read");
    let before = valid().await.len();
    assert!(give(&desk).await.is_none() && valid().await.len() == before, "nobody confirmed it");
    confirm(store, id, &desk.short_code()).await.expect("it waits");
    let first = give(&desk).await.expect("confirmed");
    let (one, two) = tokio::join!(give(&desk), give(&desk));
    for again in [one, two] {
        assert_eq!(again.expect("its answer may be lost").digest(), first.digest());
    }
    assert!(give(&other).await.is_none(), "another key is given nothing");
    assert_eq!(valid().await.len(), before + 1);
    let sealed = test_store.database.value("SELECT encode(token_sealed, 'escape') FROM invitations").await;
    assert!(!sealed.contains(first.reveal()), "the table has it encrypted");

    // One that the administrator has ended meanwhile is replaced.
    store.end_other_control_tokens(InvitationToken::generate().digest(), Duration::ZERO).await.expect("ended");
    let second = give(&desk).await.expect("its token has ended");
    assert_ne!(second.digest(), first.digest());
    assert_eq!(store.use_up_invitation(first.digest()).await.expect("noted"), None, "not this one");
    assert_eq!(store.use_up_invitation(second.digest()).await.expect("noted"), Some(id));
    assert!(give(&desk).await.is_none(), "it has come with its token");
    assert_eq!(valid().await, [second.digest()], "which stays valid");
    let paired = store.invitation(id).await.expect("read").expect("there");
    assert_eq!(paired.state, InvitationState::Paired);
    assert!(refusal(&paired, &desk).is_some_and(|no| no.message.contains("used up")));
    assert!(refusal(&paired, &other).is_some_and(|no| no.message.contains("Another device")));
    assert_eq!(test_store.database.value("SELECT count(token_sealed)::text FROM invitations").await, "0");
}

#[tokio::test]
async fn an_invitation_that_ends_before_its_device_came_again_gives_it_nothing() {
    let test_store = TestStore::new().await;
    let (store, desk) = (&test_store.store, key());
    let id = store.create_invitation(&InvitationToken::generate(), None, HOUR).await.expect("made").invitation_id;
    store.note_invited(id, &desk, "desk", VERSION).await.expect("noted").expect("it is open");
    confirm(store, id, &desk.short_code()).await.expect("it waits");
    test_store.database.execute("UPDATE invitations SET expires_at = now()").await;
    assert!(give_token(store, &cipher(), id, &desk).await.expect("the database answers").is_none());
}
