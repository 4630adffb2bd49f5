//! A client that a third-party generator made from the API document.

use std::path::Path;

use deskgate_tests::third_party::python_tool;

use crate::fixture::{ContractFixture, beside};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generated_python_client_does_the_whole_journey() {
    let site = ContractFixture::open().await;
    let document = format!("{}/api/v1/openapi.json", site.base_url);
    let arguments =
        ["generate", "--url", &document, "--meta", "none", "--output-path", "deskgate_client", "--fail-on-warning"];
    site.run(&python_tool("openapi-python-client"), &arguments).await;
    std::fs::copy(beside("journey.py"), site.folder().join("journey.py")).expect("it is there");
    let printed = site.run(Path::new(&python_tool("python3")), &["journey.py"]).await;
    assert_eq!(printed.lines().last(), Some("arrived"), "{printed}");
}
