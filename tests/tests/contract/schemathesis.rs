//! Schemathesis reads the document, sends valid and invalid requests, and compares the answers.

use deskgate_tests::third_party::python_tool;

use crate::fixture::{ContractFixture, beside};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_reads_the_document_finds_nothing_that_is_not_so() {
    let site = ContractFixture::open().await;
    let document = format!("{}/api/v1/openapi.json", site.base_url);
    let config = beside("schemathesis.toml");
    let printed = site.run(&python_tool("schemathesis"), &["--config-file", &config, "run", &document]).await;
    assert!(printed.contains("No issues found"), "{printed}");
}
