//! Schemathesis reads the document, sends valid and invalid requests, and compares the answers by all of its checks.

use std::time::Duration;

use deskgate_tests::third_party::python_tool;

use crate::fixture::{ContractFixture, beside};

/// How many requests it makes up for each operation in one phase, and how many there must be at least in all.
const EXAMPLES: u32 = 80;
const MIN_CASES: u32 = 2_000;
/// The same for `make contract-long`.
const LONG_EXAMPLES: u32 = 2_200;
const LONG_MIN_CASES: u32 = 20_000;
/// Where the configuration says that its hooks are, seen from the folder it runs in.
const HOOKS: &str = "schemathesis_hooks.py";
/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_reads_the_document_finds_nothing_that_is_not_so() {
    finds_nothing(EXAMPLES, MIN_CASES).await;
}

/// `make contract-long` runs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make contract-long"]
async fn a_machine_that_reads_the_document_finds_nothing_in_twenty_thousand_requests() {
    finds_nothing(LONG_EXAMPLES, LONG_MIN_CASES).await;
}

async fn finds_nothing(examples: u32, at_least: u32) {
    let site = ContractFixture::open().await;
    let document = format!("{}/api/v1/openapi.json", site.base_url);
    std::fs::copy(beside(HOOKS), site.folder().join(HOOKS)).expect("copied");
    let config = beside("schemathesis.toml");
    let examples = examples.to_string();
    let arguments = ["--config-file", &config, "run", "--checks", "all", "--max-examples", &examples, &document];
    let printed = site.run_within(TIMEOUT, &python_tool("schemathesis"), &arguments).await;
    assert!(printed.contains("No issues found"), "{printed}");
    let cases = printed.lines().find_map(|line| line.split_once(" generated")).map(|(number, _)| number);
    let cases: String = cases.unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
    assert!(cases.parse::<u32>().is_ok_and(|cases| cases >= at_least), "only {cases} requests: {printed}");
}
