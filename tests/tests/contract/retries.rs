//! The examples in `docs/` at a gateway that is in trouble: they try again by the rule of `docs/errors.md`, and no more.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use crate::examples::{Example, Guides};
use crate::fixture::{ContractFixture, EndedProgram, PROGRAM_TIMEOUT};
use crate::stand_in::{PASSING, RETRY_AFTER, SeenRequest, StandIn, StandInAnswer};

/// The most times that one request is sent, by `docs/errors.md`.
const MAX_TRIES: usize = 5;

/// The most requests of one example: its work, and the faults before it.
const MAX_REQUESTS: usize = 30;

/// An example that has ended, with the requests that it sent.
struct Tried<'a> {
    example: &'a Example,
    ended: EndedProgram,
    requests: Vec<SeenRequest>,
}

/// Runs all examples that call a gateway, each at a stand-in of its own.
async fn try_all<'a>(site: &ContractFixture, guides: &'a Guides, answer: StandInAnswer) -> Vec<Tried<'a>> {
    let calling: Vec<_> = guides.examples.iter().filter(|example| example.calls()).collect();
    assert!(calling.len() >= 20, "only {} examples call a gateway", calling.len());
    join_all(calling.into_iter().map(async |example| {
        let folder = ContractFixture::new_folder().await;
        guides.save_files(folder.path());
        let (program, arguments) = example.save(folder.path()).expect("bash, Python and Node are there");
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let stand_in = StandIn::start(answer.clone()).await;
        let ended = site.run_to_end(PROGRAM_TIMEOUT, &program, &arguments, folder.path(), &stand_in.address()).await;
        Tried { example, ended, requests: stand_in.seen() }
    }))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_gets_through_when_502_429_and_503_pass() {
    let site = ContractFixture::open().await;
    let guides = Guides::read();
    // One example lists what others have submitted.
    site.backend.submit("What does order 4711 say?").await;
    let passing = StandInAnswer::Passing(site.base_url.clone());
    for Tried { example, ended, requests } in try_all(&site, &guides, passing).await {
        let place = &example.place;
        assert!(ended.is_success && ended.out.contains(&example.prints), "{place}:\n{}{}", ended.out, ended.err);
        assert!(requests.len() <= MAX_REQUESTS, "{place} sent {} requests", requests.len());
        assert!(requests.iter().filter(|one| one.status.is_some()).count() >= PASSING.len(), "{place} met no trouble");
        for (number, failed) in requests.iter().enumerate().filter(|(_, one)| one.status.is_some()) {
            let again = requests[number + 1..].iter().find(|one| one.line == failed.line);
            let again = again.unwrap_or_else(|| panic!("{place} did not try again after {failed:?}"));
            let identity =
                |one: &SeenRequest| ["idempotency-key", "webhook-id"].map(|name| one.header(name).map(str::to_owned));
            assert_eq!(identity(again), identity(failed), "{place}: another try is the same work");
            let pause = if failed.status == Some(429) { RETRY_AFTER } else { Duration::from_secs(1) };
            assert!(again.at - failed.at >= pause, "{place} waited {:?} after {failed:?}", again.at - failed.at);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_stops_at_once_when_it_is_refused_for_good() {
    let site = ContractFixture::open().await;
    let guides = Guides::read();
    for status in [400, 401] {
        for Tried { example, ended, requests } in try_all(&site, &guides, StandInAnswer::Json(status)).await {
            assert_eq!(requests.len(), 1, "{} after {status}: {requests:?}", example.place);
            // One page only, whose examples show a refusal.
            let shows = example.place.starts_with("errors.md");
            assert_eq!(ended.is_success, shows, "{} after {status}:\n{}{}", example.place, ended.out, ended.err);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_gives_up_when_nothing_works() {
    let site = ContractFixture::open().await;
    let guides = Guides::read();
    for Tried { example, ended, requests } in try_all(&site, &guides, StandInAnswer::BadGateway).await {
        let mut tries = BTreeMap::new();
        for request in &requests {
            *tries.entry(&request.line).or_insert(0_usize) += 1;
        }
        assert_eq!(tries.values().collect::<Vec<_>>(), [&MAX_TRIES], "{}: {tries:?}", example.place);
        assert!(!ended.is_success, "{} ends well:\n{}", example.place, ended.out);
    }
}
