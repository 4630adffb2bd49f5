//! How much of one key, application or address may be under way at once.

use deskgate_gateway::domain;
use deskgate_gateway::http::server::{Entrance, Limits};
use serde_json::json;

use crate::support::call::{Call, Problem};
use crate::support::door::Door;
use crate::support::raw::Raw;
use crate::support::until;
use crate::support::world::{World, work};

async fn door(world: &World, callers: domain::Limits) -> Door {
    Door::with(world.store(), Entrance::default(), Limits::default(), callers).await
}

/// The head of a submission; of its body, or the length of it, `rest` says something.
fn head(world: &World, key: &str, rest: &str) -> String {
    format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\n{rest}",
        world.runs_of(world.desk.endpoint),
        world.desk.app.key
    )
}

/// A body that is being read and does not come.
async fn half_a_body(world: &World, door: &Door, key: &str, length: &str) -> Raw {
    let mut raw = Raw::connect(door.address).await;
    assert!(raw.say(head(world, key, &format!("{length}\r\nExpect: 100-continue\r\n\r\n"))).await);
    // Whoever reads a body says so first.
    raw.hear_until(|heard| heard.starts_with("HTTP/1.1 100 Continue\r\n\r\n")).await;
    raw
}

#[tokio::test]
async fn a_key_has_room_for_so_many_bodies_and_no_byte_of_one_more_is_waited_for() {
    let world = World::new().await;
    let door = door(&world, domain::Limits { bodies_per_key: 2, ..Default::default() }).await;
    let submission =
        |key: &str| world.submission(key).to(door.address, &world.runs_of(world.desk.endpoint)).json(&work("a"));
    let length = "Content-Length: 26";
    let (mut first, second) =
        (half_a_body(&world, &door, "first", length).await, half_a_body(&world, &door, "second", length).await);

    let mut third = Raw::connect(door.address).await;
    assert!(third.say(head(&world, "third", "Content-Length: 26\r\n\r\n")).await);
    let heard = third.hear_until(|heard| heard.ends_with('}')).await;
    assert!(heard.starts_with("HTTP/1.1 429 ") && heard.contains("retry-after: 1\r\n"), "{heard}");
    let detail =
        "This key has too many requests with a body under way. Nothing was read; try again when some are answered.";
    let problem = Problem::new(429, "rate_limited", "Rate limited", detail).retryable();
    submission("third").send().await.assert_problem(&problem);
    for path in ["/api/v1/conversations", "/api/v1/runs/run_x/stop", "/api/v1/conversations/conv_x/reset"] {
        let other = Call::new(door.address, "POST", path).key(&world.desk.app.key).subject("anna");
        let other = other.header("Idempotency-Key", "other").json(&json!({}));
        other.send().await.assert_problem(&problem);
    }
    let another = world.desk.restricted_key(|_| {}).await.text;
    assert_eq!(submission("another").key(&another).send().await.status, 202, "each key has room of its own");
    let reading = Call::new(door.address, "GET", "/api/v1/runs").key(&world.desk.app.key).subject("anna");
    assert_eq!(reading.send().await.status, 200, "what has no body needs no room");

    assert!(first.say("{\"input\":{\"text\":\"hello\"}}").await);
    first.hear_until(|heard| heard.starts_with("HTTP/1.1 202 ")).await;
    assert_eq!(submission("after-the-first").send().await.status, 202, "who is answered makes room");
    drop(second);
    until("who is gone makes room", async || submission("after-the-second").send().await.status == 202).await;
    world.stop().await;
}

#[tokio::test]
async fn bodies_of_a_key_have_so_many_bytes_and_one_of_unknown_length_counts_as_the_largest() {
    let world = World::new().await;
    let door = door(&world, domain::Limits { body_bytes_per_key: 1024 * 1024, ..Default::default() }).await;
    let submission =
        |key: &str| world.submission(key).to(door.address, &world.runs_of(world.desk.endpoint)).json(&work("a"));
    let endless = half_a_body(&world, &door, "endless", "Transfer-Encoding: chunked").await;
    assert_eq!(submission("probe").send().await.code(), "rate_limited");
    drop(endless);
    until("it is gone", async || submission("probe").send().await.status == 202).await;

    let large = half_a_body(&world, &door, "large", "Content-Length: 1048570").await;
    assert_eq!(submission("probe").send().await.code(), "rate_limited");
    let too_large = world.submission("too-large").to(door.address, &world.runs_of(world.desk.endpoint));
    assert_eq!(too_large.text("x".repeat(2_000_000)).send().await.status, 429);
    drop(large);
    until("it is gone", async || submission("probe").send().await.status == 202).await;
    world.stop().await;
}
