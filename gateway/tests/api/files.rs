//! Files: uploaded, given to runs, deleted; and what is left of those that never became one.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deskgate_gateway::domain::storage_check::{self, StorageReport};
use deskgate_gateway::domain::{CallerLimits, StorageQuotas};
use deskgate_gateway::storage::{CHUNK_BYTES, StoragePlace};
use deskgate_gateway::upkeep::objects;
use deskgate_protocol::EndpointId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{MAX_FILE_BYTES, MAX_RUN_FILES};
use deskgate_protocol::management::{PublishEndpoint, Scope};
use deskgate_protocol::service::ServiceData;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::conversations::TestConversation;
use crate::document::assert_fits;
use crate::support::call::{ExpectedProblem, TestRequest, TestResponse};
use crate::support::gateway::{TestGateway, patient, work};

fn some_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 % 253) as u8).collect()
}

fn upload(gateway: &TestGateway, name: &str, bytes: impl Into<Vec<u8>>) -> TestRequest {
    gateway.ask("POST", &format!("/api/v1/files?name={name}")).bytes(bytes)
}

pub(crate) async fn uploaded(gateway: &TestGateway, name: &str, bytes: impl Into<Vec<u8>>) -> Value {
    let answer = upload(gateway, name, bytes).send().await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

pub(crate) fn id(file: &Value) -> &str {
    file["file_id"].as_str().expect("a text")
}

/// The service, published again as one that takes files.
pub(crate) async fn takes_files(gateway: &TestGateway) -> EndpointId {
    let endpoint_id = gateway.device.endpoint;
    let request = PublishEndpoint {
        app_id: gateway.device.app.id,
        endpoint_id,
        version: 2,
        name: "takes files".to_owned(),
        description: String::new(),
        definition_sha256: Sha256Digest::of(b"2"),
        data: ServiceData { takes_files: true, ..ServiceData::default() }.into(),
    };
    gateway.device.desktop.publish(request).await.expect("published");
    endpoint_id
}

pub(crate) async fn submit_with(gateway: &TestGateway, key: &str, files: &[&str]) -> TestResponse {
    let files: Vec<_> = files.iter().map(|file| json!({ "file_id": file })).collect();
    let body = json!({ "input": { "text": "What do they say?", "files": files } });
    gateway.submission(key).json(&body).send().await
}

/// Every file below the folder of objects.
fn stored(gateway: &TestGateway) -> BTreeSet<String> {
    fn walk(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("readable").path();
            match path.is_dir() {
                true => walk(&path, found),
                false => assert!(found.insert(path.display().to_string())),
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&gateway.dir().join("objects"), &mut found);
    found
}

/// One pass of upkeep over objects. The gateway's own passes may have come first.
async fn tidy(gateway: &TestGateway) {
    let storage = StoragePlace::in_state_dir(gateway.dir()).open().expect("opened");
    objects::run_once(gateway.store(), &storage, Duration::ZERO).await.expect("tidied");
}

async fn count(gateway: &TestGateway, table: &str) -> i64 {
    gateway.database.number(&format!("SELECT count(*) FROM {table}")).await
}

#[tokio::test]
async fn a_file_is_stored_as_it_came_and_told_with_its_digest() {
    let gateway = TestGateway::new().await;
    for length in [0, 1, 4 * 1024 * 1024, 4 * 1024 * 1024 + 1, 9_000_001] {
        let bytes = some_bytes(length);
        let sha256 = Sha256Digest::of(&bytes);
        let digest = format!("md5=:AAAA:, sha-256=:{}:", STANDARD.encode(sha256.0));
        let request = upload(&gateway, "M%C3%A4rz%20%281%29.pdf", bytes.clone()).header("Content-Digest", digest);
        let answer = request.header("Content-Type", "application/pdf").send().await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let file = answer.assert_envelope().json();
        assert_fits("File", &file);
        let told = (&file["name"], &file["media_type"], &file["size"], &file["sha256"]);
        assert_eq!(
            told,
            (&json!("März (1).pdf"), &json!("application/pdf"), &json!(length), &json!(sha256.to_string()))
        );
        let path = format!("/api/v1/files/{}", id(&file));
        assert_eq!(answer.header("location"), Some(path.as_str()));
        assert_eq!(gateway.ask("GET", &path).send().await.json(), file);
        let folder = gateway.dir().join("objects").join(&id(&file)["file_".len()..]);
        let chunks = (0..length.div_ceil(4 * 1024 * 1024))
            .map(|number| std::fs::read(folder.join(number.to_string())).expect("a chunk"));
        assert!(chunks.collect::<Vec<_>>().concat() == bytes, "{length}");
    }
    let page = gateway.ask("GET", "/api/v1/files?limit=2").send().await.json();
    assert_eq!((page["data"].as_array().map(Vec::len), &page["has_more"]), (Some(2), &json!(true)));
    let next = format!("/api/v1/files?limit=4&cursor={}", page["next_cursor"].as_str().expect("more"));
    assert_eq!(gateway.ask("GET", &next).send().await.json()["data"].as_array().map(Vec::len), Some(3));
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_is_seen_by_its_application_and_subject_only() {
    let gateway = TestGateway::new().await;
    let other = gateway.device.application("other").await;
    let file = uploaded(&gateway, "a", "x").await;
    let path = format!("/api/v1/files/{}", id(&file));
    for request in [
        gateway.ask("GET", &path).subject("somebody"),
        gateway.ask("DELETE", &path).subject("somebody"),
        gateway.ask("GET", &path).key(&other.key),
        gateway.ask("DELETE", &path).key(&other.key),
        gateway.ask("GET", "/api/v1/files/file_0"),
    ] {
        let answer = request.send().await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"));
    }
    let list = gateway.ask("GET", "/api/v1/files").subject("somebody").send().await.json();
    assert_eq!(list["data"], json!([]));
    let unscoped = gateway.device.restricted_key(|key| key.scopes = vec![Scope::RunsWrite]).await;
    let refused = upload(&gateway, "a", "x").key(&unscoped.text).send().await;
    assert_eq!((refused.status, refused.json()["required_scope"].clone()), (403, json!("files:write")));
    assert_eq!(gateway.ask("DELETE", &path).send().await.status, 204);
    assert_eq!(gateway.ask("GET", &path).send().await.status, 404);
    assert_eq!(gateway.ask("DELETE", &path).send().await.status, 404);
    tidy(&gateway).await;
    assert_eq!((stored(&gateway), count(&gateway, "objects").await), (BTreeSet::new(), 0));
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_with_the_reason_and_leaves_nothing() {
    let limits = CallerLimits {
        storage: StorageQuotas { bytes_per_application: 100_000, ..StorageQuotas::default() },
        ..patient()
    };
    let gateway = TestGateway::with(limits).await;
    let name = |name: &str| gateway.ask("POST", &format!("/api/v1/files?name={name}")).bytes("x");
    let long = "x".repeat(121);
    for (bad, reason) in [
        ("", "a file has a name"),
        ("..", "\"..\" is a folder's name"),
        ("a%2Fb", "a name must not contain /: it is no path"),
        ("a%5Cb", "a name must not contain \\: it is no path"),
        ("a%00b", "a name must not contain characters that are not seen; this one has U+0000"),
        ("gpj.%E2%80%AEexe", "a name must not contain characters that are not seen; this one has U+202E"),
        ("a%20", "a name must not begin or end with a space"),
        (&long, "a name has at most 120 bytes; this one has 121"),
    ] {
        let detail = format!("The file's name cannot be used: {reason}.");
        name(bad).send().await.assert_problem(&ExpectedProblem::new(422, "invalid_name", "Invalid name", &detail));
    }
    let code = async |request: TestRequest| {
        let answer = request.send().await;
        answer.assert_envelope();
        (answer.status, answer.code())
    };
    let refused = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(code(gateway.ask("POST", "/api/v1/files").bytes("x")).await, refused(422, "invalid_input"));
    assert_eq!(code(name("a&x=1")).await, refused(422, "invalid_input"));
    assert_eq!(code(name("a").header("Content-Digest", "sha-256=:AAAA:")).await, refused(422, "invalid_input"));
    assert_eq!(code(name("a").header("Content-Digest", "sha-256")).await, refused(422, "invalid_input"));
    assert_eq!(code(name("a").header("Content-Type", "pdf")).await, refused(422, "invalid_input"));
    assert_eq!(code(name("a").header("Content-Encoding", "gzip")).await, refused(415, "unsupported_media_type"));
    let wrong = format!("sha-256=:{}:", STANDARD.encode(Sha256Digest::of(b"y").0));
    assert_eq!(code(name("a").header("Content-Digest", wrong)).await, refused(422, "digest_mismatch"));
    let full = upload(&gateway, "a", some_bytes(100_001)).send().await;
    assert_eq!(
        (full.status, full.code().as_str(), full.json()["limit_bytes"].clone()),
        (429, "storage_full", json!(100_000))
    );
    let big = upload(&gateway, "a", vec![0; usize::try_from(MAX_FILE_BYTES).expect("small") + 1]).send().await;
    assert_eq!((big.status, big.code().as_str()), (413, "payload_too_large"));
    assert_eq!(count(&gateway, "files").await, 0);
    // What was announced and broke off is let go of behind the answer.
    gateway.database.until("SELECT count(*) = 0 FROM objects WHERE released_at IS NULL").await;
    tidy(&gateway).await;
    assert_eq!((stored(&gateway), count(&gateway, "objects").await), (BTreeSet::new(), 0));
    // Just the room that is left.
    uploaded(&gateway, "a", some_bytes(100_000)).await;
    assert_eq!(code(name("b")).await, refused(429, "storage_full"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_in_decomposed_form_is_composed() {
    let gateway = TestGateway::new().await;
    assert_eq!(uploaded(&gateway, "u%CC%88.txt", "x").await["name"], "ü.txt");
    gateway.stop().await;
}

#[tokio::test]
async fn one_idempotency_key_is_one_file() {
    let gateway = TestGateway::new().await;
    let once = async |name: &str, bytes: &str| {
        upload(&gateway, name, bytes).header("Idempotency-Key", "offer-17").send().await
    };
    let first = once("a", "x").await;
    let again = once("a", "x").await;
    assert_eq!((again.status, again.json()), (201, first.json()));
    assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), (None, Some("true")));
    for (name, bytes) in [("a", "y"), ("b", "x")] {
        let refused = once(name, bytes).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, "idempotency_key_reused"));
        assert_eq!(refused.json()["existing_file_id"], first.json()["file_id"]);
    }
    let twins = futures_util::future::join_all(
        (0..8).map(|_| async { upload(&gateway, "twin", "x").header("Idempotency-Key", "twins").send().await }),
    )
    .await;
    let ids: BTreeSet<_> = twins.iter().map(|twin| twin.json()["file_id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "{twins:?}");
    let others = upload(&gateway, "a", "y").header("Idempotency-Key", "offer-17").subject("somebody").send().await;
    assert_eq!(others.status, 201, "the key is its subject's own");
    gateway.database.until("SELECT count(*) = 3 FROM objects WHERE released_at IS NULL").await;
    tidy(&gateway).await;
    assert_eq!((stored(&gateway).len(), count(&gateway, "files").await), (3, 3));
    gateway.stop().await;
}

#[tokio::test]
async fn uploads_that_break_off_or_stall_become_no_file_and_hold_no_place() {
    let gateway = TestGateway::with(CallerLimits { uploads_per_key: 2, ..patient() }).await;
    let address = gateway.gateway.addresses().http;
    let open = async |length: usize| {
        let mut line = TcpStream::connect(address).await.expect("connected");
        let head = format!(
            "POST /api/v1/files?name=a HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nContent-Length: {length}\r\n\r\n",
            gateway.device.app.key
        );
        line.write_all(head.as_bytes()).await.expect("sent");
        line.write_all(&some_bytes(5_000_000)).await.expect("sent");
        line
    };
    let (first, second) = (open(8_000_000).await, open(8_000_000).await);
    gateway.database.until("SELECT count(*) = 2 FROM objects").await;
    let refused = upload(&gateway, "a", "x").send().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_uploads"));
    drop(first);
    gateway.database.until("SELECT count(*) = 1 FROM objects WHERE released_at IS NULL").await;
    uploaded(&gateway, "a", "x").await;
    // A sender that closes its side has sent too little.
    let mut second = second;
    second.shutdown().await.expect("closed");
    let mut answer = String::new();
    let _ = second.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || answer.contains("body_incomplete"), "{answer}");
    gateway.database.until("SELECT count(*) = 1 FROM objects WHERE released_at IS NULL").await;
    tidy(&gateway).await;
    assert_eq!((stored(&gateway).len(), count(&gateway, "files").await), (1, 1));
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_has_its_files_with_digests_and_keeps_them_until_it_is_purged() {
    let gateway = TestGateway::new().await;
    let one = uploaded(&gateway, "a.txt", "one").await;
    let two = uploaded(&gateway, "A.txt", "two").await;
    let refused = submit_with(&gateway, "early", &[id(&one)]).await;
    let error = &refused.json()["errors"][0];
    assert_eq!((refused.status, &error["pointer"], &error["code"]), (422, &json!("/input/files"), &json!("not_taken")));
    takes_files(&gateway).await;
    let answer = submit_with(&gateway, "k", &[id(&one), id(&two)]).await;
    let run_id = answer.run_id();
    let mut expected = [one.clone(), two.clone()];
    for file in &mut expected {
        let members = file.as_object_mut().expect("an object");
        members.remove("created_at");
        members.remove("expires_at");
    }
    expected[1]["name"] = json!("A (2).txt");
    assert_eq!(answer.json()["input"]["files"], json!(expected));
    assert_eq!(gateway.read(run_id).await.json()["input"]["files"], json!(expected));
    let (session, _) = gateway.device.connect().await;
    let offer = gateway.device.claim(session, 1).await.remove(0);
    let given = offer.input.files().expect("files");
    assert_eq!(given.iter().map(|file| file.file_id.to_string()).collect::<Vec<_>>(), [id(&one), id(&two)]);
    // It has them: nobody deletes them, and they have no end.
    let path = format!("/api/v1/files/{}", id(&one));
    let refused = gateway.ask("DELETE", &path).send().await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "file_in_use"));
    gateway.database.execute("UPDATE files SET expires_at = now()").await;
    tidy(&gateway).await;
    assert_eq!(gateway.ask("GET", &path).send().await.json().get("expires_at"), None);
    assert_eq!(stored(&gateway).len(), 2);
    // A repetition finds the run, also when a file is not there any more.
    let again = submit_with(&gateway, "k", &[id(&one), id(&two)]).await;
    assert_eq!((again.run_id(), again.header("idempotency-replayed")), (run_id, Some("true")));
    gateway
        .database
        .execute("UPDATE runs SET state = 'cancelled', offered_until = NULL, finished_at = now(), purge_at = now()")
        .await;
    gateway.database.until("SELECT count(*) = 0 FROM runs").await;
    gateway.database.execute("UPDATE files SET expires_at = now()").await;
    gateway.database.until("SELECT count(*) = 0 FROM objects").await;
    assert_eq!((stored(&gateway), count(&gateway, "files").await), (BTreeSet::new(), 0));
    gateway.stop().await;
}

#[tokio::test]
async fn files_that_are_not_there_or_too_many_are_named_place_by_place() {
    let gateway = TestGateway::new().await;
    takes_files(&gateway).await;
    let file = uploaded(&gateway, "a", "x").await;
    let others = upload(&gateway, "a", "x").subject("somebody").send().await.json();
    let flaws = |refused: &TestResponse| {
        assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_input"), "{refused:?}");
        let errors = refused.json()["errors"].clone();
        let text = |error: &Value, name: &str| error[name].as_str().expect("a text").to_owned();
        errors.as_array().expect("a list").iter().map(|e| (text(e, "pointer"), text(e, "code"))).collect::<Vec<_>>()
    };
    let flaw = |pointer: &str, code: &str| (pointer.to_owned(), code.to_owned());
    let unknown = "file_01a1fdacce837a12b3c4d5e6f7a8b9c0";
    let refused = submit_with(&gateway, "a", &[unknown, id(&file), id(&others)]).await;
    assert_eq!(
        flaws(&refused),
        [flaw("/input/files/0/file_id", "unknown_file"), flaw("/input/files/2/file_id", "unknown_file")]
    );
    let refused = submit_with(&gateway, "b", &[id(&file), id(&file)]).await;
    assert_eq!(flaws(&refused), [flaw("/input/files/1/file_id", "duplicate_file")]);
    let many = vec![unknown; MAX_RUN_FILES + 1];
    assert_eq!(flaws(&submit_with(&gateway, "c", &many).await), [flaw("/input/files", "out_of_range")]);
    for (files, expected) in [
        (json!("x"), flaw("/input/files", "wrong_type")),
        (json!(["x"]), flaw("/input/files/0", "wrong_type")),
        (json!([{}]), flaw("/input/files/0/file_id", "required")),
        (json!([{ "file_id": 1 }]), flaw("/input/files/0/file_id", "wrong_type")),
        (json!([{ "file_id": "run_1" }]), flaw("/input/files/0/file_id", "out_of_range")),
        (json!([{ "file_id": id(&file), "url": "http://x" }]), flaw("/input/files/0/url", "not_taken")),
    ] {
        let body = json!({ "input": { "text": "x", "files": files } });
        assert_eq!(flaws(&gateway.submission("d").json(&body).send().await), [expected]);
    }
    assert_eq!(count(&gateway, "runs").await, 0);
    // An empty list is no file.
    let body = json!({ "input": { "text": "x", "files": [] } });
    gateway.submission("e").json(&body).send().await.run_id();
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_has_files_too_and_deleting_its_content_lets_go_of_them() {
    let gateway = TestGateway::new().await;
    takes_files(&gateway).await;
    let file = uploaded(&gateway, "a", "x").await;
    let conversation = TestConversation::open(&gateway, "c").await;
    let mut body = work("look");
    body["expected_generation"] = json!(1);
    body["input"]["files"] = json!([{ "file_id": "file_01a1fdacce837a12b3c4d5e6f7a8b9c0" }]);
    let path = format!("/api/v1/conversations/{}/messages", conversation.id);
    let say = async |body: &Value| gateway.ask("POST", &path).header("Idempotency-Key", "m").json(body).send().await;
    assert_eq!(say(&body).await.status, 422);
    body["input"]["files"] = json!([{ "file_id": id(&file) }]);
    let run_id = say(&body).await.run_id();
    let file_path = format!("/api/v1/files/{}", id(&file));
    assert_eq!(gateway.ask("DELETE", &file_path).send().await.status, 409);
    gateway
        .database
        .execute("UPDATE runs SET state = 'cancelled', finished_at = now(), purge_at = now() + interval '1 day'")
        .await;
    assert_eq!(gateway.ask("DELETE", &format!("/api/v1/runs/{run_id}/content")).send().await.status, 204);
    assert_eq!(gateway.read(run_id).await.json().get("input"), None);
    assert_eq!(gateway.ask("DELETE", &file_path).send().await.status, 204);
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_that_is_deleted_while_it_is_given_to_runs_is_with_each_or_refused() {
    let gateway = TestGateway::new().await;
    takes_files(&gateway).await;
    for round in 0..20 {
        let file = uploaded(&gateway, "a", "x").await;
        let path = format!("/api/v1/files/{}", id(&file));
        let (key, other) = (format!("a{round}"), format!("b{round}"));
        let ids = [id(&file)];
        let (deleted, one, two) = tokio::join!(
            gateway.ask("DELETE", &path).send(),
            submit_with(&gateway, &key, &ids),
            submit_with(&gateway, &other, &ids)
        );
        let accepted = [&one, &two].into_iter().filter(|answer| answer.status == 202).count();
        assert!([&one, &two].into_iter().all(|answer| matches!(answer.status, 202 | 422)), "{one:?} {two:?}");
        match deleted.status {
            204 => assert_eq!(accepted, 0),
            409 => assert!(accepted > 0),
            other => panic!("{other}: {deleted:?}"),
        }
        let held = gateway
            .database
            .number("SELECT count(*) FROM run_files h LEFT JOIN files f USING (file_id) WHERE f.file_id IS NULL")
            .await;
        assert_eq!(held, 0);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_store_that_takes_nothing_is_told_and_nothing_is_left() {
    let gateway = TestGateway::new().await;
    let objects = gateway.dir().join("objects");
    std::fs::remove_dir_all(&objects).expect("removed");
    std::fs::write(&objects, "in the way").expect("written");
    let refused = upload(&gateway, "a", "x").send().await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "storage_unavailable"));
    assert_eq!(refused.header("retry-after"), Some("5"));
    std::fs::remove_file(&objects).expect("removed");
    std::fs::create_dir(&objects).expect("made");
    uploaded(&gateway, "a", "x").await;
    gateway.database.until("SELECT count(*) = 1 FROM objects WHERE released_at IS NULL").await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_missing_and_what_nothing_knows_is_found_as_after_a_restore() {
    let gateway = TestGateway::new().await;
    let storage = StoragePlace::in_state_dir(gateway.dir()).open().expect("opened");
    let check = async |delete| storage_check::check(gateway.store(), &storage, delete).await.expect("checked");
    let files = [
        uploaded(&gateway, "two-chunks", some_bytes(CHUNK_BYTES + 1)).await,
        uploaded(&gateway, "one", some_bytes(7)).await,
        uploaded(&gateway, "empty", some_bytes(0)).await,
    ];
    let found = check(true).await;
    let whole_bytes = (CHUNK_BYTES + 8) as u64;
    let place = storage.place().to_owned();
    let expected = StorageReport { place, whole: 3, whole_bytes, ..StorageReport::default() };
    assert_eq!(found, expected);

    // What a restore leaves: bytes without their row, and rows without their bytes.
    let objects = gateway.dir().join("objects");
    let folder = |file: &Value| objects.join(id(file).trim_start_matches("file_"));
    std::fs::remove_file(folder(&files[0]).join("1")).expect("a second chunk");
    let unknown =
        ["00000000000070008000000000000001", "00000000000070008000000000000002"].map(|name| objects.join(name));
    let day_ago = SystemTime::now() - Duration::from_secs(24 * 3600 + 60);
    for (folder, written_at) in unknown.iter().zip([SystemTime::now(), day_ago]) {
        std::fs::create_dir(folder).expect("made");
        std::fs::write(folder.join("0"), "left").expect("written");
        let chunk = std::fs::File::options().write(true).open(folder.join("0")).expect("opened");
        chunk.set_modified(written_at).expect("set");
    }
    std::fs::write(objects.join("not-ours"), "x").expect("written");
    let damaged = StorageReport { whole: 2, whole_bytes: 7, missing: 1, unknown: 2, unknown_bytes: 8, ..expected };
    assert_eq!(check(false).await, damaged);
    assert_eq!(check(true).await, StorageReport { deleted: 1, ..damaged.clone() });
    let left = [&unknown[0], &unknown[1]].map(|folder| folder.exists());
    assert_eq!(left, [true, false], "only what is a day old");
    assert!(objects.join("not-ours").exists(), "what is not ours stays");
    assert_eq!(check(true).await, StorageReport { unknown: 1, unknown_bytes: 4, ..damaged });
    gateway.stop().await;
}
