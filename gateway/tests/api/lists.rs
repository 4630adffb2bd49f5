//! Lists of runs: pages, filters, and what stays hidden from callers.

use std::collections::BTreeSet;

use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate};
use deskgate_protocol::{EndpointId, RunId};
use serde_json::{Value, json};

use crate::support::call::{ExpectedProblem, TestRequest, TestResponse};
use crate::support::gateway::{LONG_LEASE, TestGateway, work};

fn ids(page: &Value) -> Vec<RunId> {
    let runs = page["data"].as_array().unwrap_or_else(|| panic!("no page: {page}"));
    runs.iter().map(|run| run["run_id"].as_str().expect("a text").parse().expect("an identifier")).collect()
}

impl TestGateway {
    async fn list(&self, query: &str) -> TestResponse {
        self.ask("GET", &format!("/api/v1/runs?{query}")).send().await
    }

    /// Every run of the list, page by page; `between` is called before each further page.
    async fn pages(&self, query: &str, mut between: impl AsyncFnMut()) -> Vec<RunId> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let reply = self.list(&format!("{query}{cursor}")).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            let page = reply.json();
            all.extend(ids(&page));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
            assert_eq!(page["has_more"], true);
            between().await;
        }
    }
}

#[tokio::test]
async fn pages_are_newest_first_and_leave_out_inputs_and_results() {
    let gateway = TestGateway::new().await;
    let mut submitted = Vec::new();
    for key in ["one", "two", "three"] {
        submitted.insert(0, gateway.submit(key).await);
    }
    let reply = gateway.list("limit=2").await;
    reply.assert_envelope();
    let page = reply.json();
    assert_eq!((ids(&page), &page["has_more"]), (submitted[..2].to_vec(), &json!(true)));
    let run = &page["data"][0];
    assert_eq!(
        (&run["state"], &run["phase"], &run["input"]),
        (&json!("waiting_for_device"), &json!("accepted"), &Value::Null)
    );
    assert_eq!(run["state_reason"]["code"], "device_offline");
    let rest = gateway.list(&format!("limit=2&cursor={}", page["next_cursor"].as_str().expect("more"))).await.json();
    assert_eq!(rest, json!({ "data": rest["data"], "has_more": false }));
    assert_eq!(ids(&rest), submitted[2..]);
    gateway.stop().await;
}

/// For every length of a page, with runs arriving between two of them.
#[tokio::test]
async fn the_union_of_the_pages_is_what_there_was_at_the_start_each_once() {
    let gateway = TestGateway::new().await;
    let mut before = Vec::new();
    for number in 0..23 {
        before.insert(0, gateway.submit(&format!("early {number}").replace(' ', "-")).await);
    }
    // Rows of one commit have one time; only their identifiers differ.
    let same = "UPDATE runs SET created_at = date_trunc('minute', created_at) WHERE get_byte(identity, 31) < 128";
    gateway.database.execute(same).await;
    before = gateway.pages("limit=100", async || ()).await;
    for limit in [1, 2, 3, 7, 22, 50, 99] {
        let mut arrived = 0;
        let seen = gateway
            .pages(&format!("limit={limit}&created_before=2100-01-01T00:00:00Z"), async || {
                arrived += 1;
                gateway.submit(&format!("late-{limit}-{arrived}")).await;
            })
            .await;
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "none came twice");
        assert_eq!(seen, before, "with pages of {limit}");
        before = gateway.pages("limit=100", async || ()).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn filters_go_by_what_is_seen_at_this_moment() {
    let gateway = TestGateway::new().await;
    let second = gateway.device.service(&gateway.device.app, "second").await;
    let first = gateway.submit("first").await;
    let other = gateway
        .submission("first")
        .to(gateway.gateway.addresses().http, &gateway.runs_of(second))
        .send()
        .await
        .run_id();
    let third = gateway.submit("third").await;
    let all = vec![third, other, first];
    let found = async |query: &str| ids(&gateway.list(query).await.json());

    assert_eq!(found(&format!("endpoint_id={second}")).await, [other]);
    assert_eq!(found(&format!("endpoint_id={}", EndpointId::new())).await, []);
    assert_eq!(found("state=waiting_for_device").await, all);
    assert_eq!(found("state=queued").await, []);
    let (session, _) = gateway.device.connect().await;
    assert_eq!(found("state=queued").await, all);
    assert_eq!(found("state=waiting_for_device").await, []);
    assert_eq!(found("phase=accepted").await, all);
    assert_eq!(found("phase=accepted&state=running").await, []);

    gateway.device.claim(session, 1).await;
    let start = AttemptRecord { run_id: first, attempt: 1, what: AttemptUpdate::Start };
    gateway.store().record(session, &[start], LONG_LEASE).await.expect("stored");
    assert_eq!((found("state=running").await, found("phase=started").await), (vec![first], vec![first]));
    assert_eq!(found("phase=accepted").await, [third, other]);
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("stored");
    assert_eq!((found("state=failed").await, found("phase=final").await), (vec![first], all.clone()));

    assert_eq!(found("idempotency_key=first").await, [other, first], "whatever it was sent to");
    assert_eq!(found(&format!("idempotency_key=first&endpoint_id={second}")).await, [other]);
    assert_eq!(found("idempotency_key=never").await, []);
    assert_eq!(gateway.pages("idempotency_key=first&limit=1", async || ()).await, [other, first]);

    let run = gateway.read(other).await.json();
    let shown = run["created_at"].as_str().expect("a time").to_owned();
    gateway
        .database
        .execute("UPDATE runs SET created_at = date_trunc('second', created_at) + interval '0.5005 seconds'")
        .await;
    let cut = format!("{}.500Z", &shown[..19]);
    assert_eq!(found(&format!("created_after={cut}&created_before={cut}")).await, []);
    for (bound, count) in [("created_after", 0), ("created_before", 0)] {
        assert_eq!(found(&format!("{bound}={cut}&endpoint_id={second}")).await.len(), count, "{bound} is exclusive");
    }
    let around =
        format!("created_after={}.499Z&created_before={}.501Z&endpoint_id={second}", &shown[..19], &shown[..19]);
    assert_eq!(found(&around).await, [other]);
    assert_eq!(found("created_after=9999-12-30T22:00:00Z").await, []);
    assert_eq!(found("created_before=0001-01-01T00:00:00Z").await, []);
    gateway.stop().await;
}

#[tokio::test]
async fn a_filter_that_nothing_fits_is_answered_from_a_part_of_a_long_list_at_a_time() {
    let gateway = TestGateway::new().await;
    let needle = gateway.submit("needle").await;
    gateway.database.execute(&copies(needle, 25_000)).await;
    let page = gateway.list("state=running").await.json();
    assert_eq!((&page["data"], &page["has_more"]), (&json!([]), &json!(true)));
    // The rest of the list is looked at by going on.
    assert_eq!(gateway.pages("state=running", async || ()).await, []);
    assert_eq!(gateway.pages("state=waiting_for_device", async || ()).await, [needle]);
    gateway.stop().await;
}

/// Pages that few runs match end where they stopped reading. While other runs come and go, that is another position in
/// each snapshot of the table.
#[tokio::test]
async fn a_filtered_list_shows_each_run_once_while_thousands_of_others_come_and_go() {
    let gateway = TestGateway::new().await;
    let oldest = gateway.submit("oldest").await;
    gateway.database.execute(&copies(oldest, 25_000)).await;
    // Sixty that fit, around the end of each page.
    let fitting = "UPDATE runs SET state = 'cancelled' FROM (
            SELECT run_id, row_number() OVER (ORDER BY created_at DESC, run_id DESC) AS place FROM runs) r
        WHERE r.run_id = runs.run_id AND (place BETWEEN 9971 AND 10030 OR place BETWEEN 19971 AND 20030)";
    gateway.database.execute(fitting).await;
    let (client, _connection) = gateway.database.connect().await;
    let come = copies(oldest, 20)
        .replace("sha256(n::text", "sha256(('more ' || n)::text")
        .replace("created_at + n", "created_at + interval '24 seconds' + n");
    let go = "DELETE FROM runs
        WHERE identity IN (SELECT sha256(('more ' || n)::text::bytea) FROM generate_series(1, 20) n)";
    let coming_and_going = tokio::spawn(async move {
        loop {
            client.batch_execute(&come).await.expect("stored");
            client.batch_execute(go).await.expect("deleted");
        }
    });
    for _ in 0..10 {
        let seen = gateway.pages("state=cancelled&limit=100", async || ()).await;
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "none came twice");
        assert_eq!(seen.len(), 120, "none was skipped");
    }
    assert!(!coming_and_going.is_finished(), "others came and went all the time");
    coming_and_going.abort();
    gateway.stop().await;
}

/// Statements that store ended copies of a run, all newer than it.
fn copies(run_id: RunId, count: u32) -> String {
    format!(
        "INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id, identity,
            fingerprint, input, metadata, max_duration_s, state, created_at, queue_expires_at, finished_at, purge_at)
        SELECT gen_random_uuid(), app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id,
            sha256(n::text::bytea), fingerprint, input, metadata, max_duration_s, 'expired',
            created_at + n * interval '1 millisecond', queue_expires_at, now(), now() + interval '1 day'
        FROM runs, generate_series(1, {count}) n WHERE run_id = '{}'",
        run_id.uuid()
    )
}

#[tokio::test]
async fn parameters_that_are_unknown_repeated_or_no_values_are_refused_by_name() {
    let gateway = TestGateway::new().await;
    let long = format!("idempotency_key={}", "x".repeat(256));
    for (query, name) in [
        ("colour=red", "colour"),
        ("limit=1&limit=2", "limit"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=many", "limit"),
        ("state=sleeping", "state"),
        ("phase=", "phase"),
        ("endpoint_id=run_00000000000000000000000000000000", "endpoint_id"),
        ("created_after=yesterday", "created_after"),
        ("created_before=2026-13-01T00:00:00Z", "created_before"),
        ("idempotency_key=", "idempotency_key"),
        (long.as_str(), "idempotency_key"),
    ] {
        let reply = gateway.list(query).await;
        let detail = reply.json()["detail"].as_str().expect("a text").to_owned();
        let flaw = json!([{ "pointer": format!("?{name}"), "code": "invalid_value", "detail": detail }]);
        let problem =
            ExpectedProblem::new(422, "invalid_input", "Invalid input", &detail).with(json!({ "errors": flaw }));
        reply.assert_problem(&problem);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_cursor_is_good_for_its_own_list_of_its_own_caller_only() {
    let gateway = TestGateway::new().await;
    for key in ["one", "two", "three"] {
        gateway.submit(key).await;
    }
    let page = gateway.list("limit=1&phase=accepted").await.json();
    let cursor = page["next_cursor"].as_str().expect("more").to_owned();
    assert_eq!(
        gateway.list(&format!("limit=2&phase=accepted&cursor={cursor}")).await.status,
        200,
        "pages may vary in length"
    );
    let detail = "The cursor does not belong to this list with these filters. Begin the list again without it.";
    let problem = ExpectedProblem::new(400, "invalid_cursor", "Invalid cursor", detail);
    let other = gateway.device.application("other").await;
    let path = format!("/api/v1/runs?phase=accepted&cursor={cursor}");
    let foreign = [gateway.ask("GET", &path).subject("berta"), gateway.ask("GET", &path).key(&other.key)];
    let mut wrong: Vec<TestRequest> = foreign.into();
    let changed = cursor.chars().rev().collect::<String>();
    for query in [
        format!("cursor={cursor}"),
        format!("phase=final&cursor={cursor}"),
        format!("phase=accepted&cursor={changed}"),
        format!("phase=accepted&cursor={}", &cursor[1..]),
        "phase=accepted&cursor=".to_owned(),
        "phase=accepted&cursor=%00%ff".to_owned(),
    ] {
        wrong.push(gateway.ask("GET", &format!("/api/v1/runs?{query}")));
    }
    for call in wrong {
        call.send().await.assert_problem(&problem);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn nobody_learns_of_the_runs_of_another_subject_application_or_service() {
    let gateway = TestGateway::new().await;
    let (device, address) = (&gateway.device, gateway.gateway.addresses().http);
    let own = gateway.submit("own").await;
    let other_app = device.application("other").await;
    let second = device.service(&device.app, "second").await;
    let limited = device.restricted_key(|key| key.endpoints = vec![second]).await.text;
    let nothing = json!({ "data": [], "has_more": false });
    for query in [
        String::new(),
        "idempotency_key=own".to_owned(),
        format!("endpoint_id={}", device.endpoint),
        "phase=accepted".to_owned(),
        "limit=1".to_owned(),
    ] {
        let ask = || gateway.ask("GET", &format!("/api/v1/runs?{query}"));
        for stranger in [ask().subject("berta"), ask().key(&other_app.key), ask().key(&limited)] {
            assert_eq!(stranger.send().await.json(), nothing, "{query}");
        }
        assert_eq!(ids(&ask().send().await.json()), [own], "{query}");
    }
    let allowed =
        gateway.submission("own").json(&work("x")).to(address, &gateway.runs_of(second)).send().await.run_id();
    let listed = gateway.ask("GET", "/api/v1/runs").key(&limited).send().await.json();
    assert_eq!(ids(&listed), [allowed]);
    gateway.stop().await;
}

#[tokio::test]
async fn the_desktops_own_list_goes_page_by_page_through_all_subjects() {
    use deskgate_protocol::management::ListRuns;
    let gateway = TestGateway::new().await;
    let mut submitted = Vec::new();
    for subject in ["anna", "berta", "anna"] {
        let key = format!("{subject}-{}", submitted.len());
        submitted.insert(0, gateway.submission(&key).subject(subject).send().await.run_id());
    }
    let page = async |before| {
        gateway.device.desktop.runs(ListRuns { limit: 2, before, ..ListRuns::default() }).await.expect("listed")
    };
    let first = page(None).await;
    let shown =
        |runs: &[deskgate_protocol::management::ListedRun]| runs.iter().map(|run| run.run_id).collect::<Vec<_>>();
    assert_eq!((shown(&first.runs), first.has_more), (submitted[..2].to_vec(), true));
    let second = page(Some(submitted[1])).await;
    assert_eq!((shown(&second.runs), second.has_more), (submitted[2..].to_vec(), false));
    gateway.stop().await;
}
