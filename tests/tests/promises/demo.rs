//! The line from clone to a finished run, in built-in mode and over SSH.

use deskgate_tests::{Device, Folder, GatewayProcess, Postgres, folder};

#[tokio::test]
async fn the_demo_path() {
    let device = Device::built_in().await;
    let folder = Folder::new();
    let backend = device.publish_here("shop", &folder, &[]).await;
    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.ended(&run_id).await;
    assert_eq!(run["state"], "succeeded", "{run}");
    let answer = run["result"]["text"].as_str().expect("a result");
    assert!(answer.contains("three green lamps"), "the result holds what stands in the folder: {answer}");
    assert!(folder::KNOWN.contains("three green lamps"));
    let status = device.status().await;
    assert_eq!((&status["mode"], &status["access"]["enabled"]), (&"built_in".into(), &true.into()), "{status}");
    assert_eq!(status["work"]["runs"], serde_json::json!([]), "nothing is left in hand: {status}");
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn the_same_over_ssh_to_a_gateway_on_a_server() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = Device::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.ended(&run_id).await;
    assert!(run["result"]["text"].as_str().is_some_and(|text| text.contains("three green lamps")), "{run}");
    assert_eq!(device.executions(&run_id), 1);
}
