//! The SDKs: their own tests, against a real gateway and desktop.

use std::path::{Path, PathBuf};

use deskgate_tests::{Folder, TestDevice, process, third_party};
use serde_json::json;

/// The services that the tests of every SDK call.
struct SdkFixture {
    _device: TestDevice,
    folder: Folder,
    variables: Vec<(&'static str, String)>,
}

impl SdkFixture {
    async fn new() -> Self {
        let (device, folder) = (TestDevice::built_in().await, Folder::new());
        folder.write("a.txt", &"A file.\n".repeat(40_000));
        let answers = folder.script("answers", json!([{ "text": "Answer " }, { "text": "to {{input}}." }]));
        let counts = folder.script("counts", json!([{ "result": { "count": 3 } }]));
        let fails = folder.script("fails", json!([{ "tool": "Glob", "arguments": { "pattern": "*" } }, { "tool": "Glob", "arguments": { "pattern": "*" } }]));
        let hands = folder
            .script("hands", json!([{ "tool": "Deliver", "arguments": { "file_path": "a.txt" } }, { "text": "done" }]));
        let slow = folder.slow_answer(600_000, "late");
        folder.write(
            "schema.json",
            &json!({ "type": "object", "properties": { "count": { "type": "integer" } } }).to_string(),
        );
        let schema = folder.path().join("schema.json").display().to_string();
        let backend = device.publish_here("answers", &folder, &["--model", &answers, "--concurrency", "8"]).await;
        let mut services = json!({ "answers": backend.endpoint_id() });
        for (name, arguments) in [
            ("counts", &["--model", &counts, "--output-schema", &schema][..]),
            ("fails", &["--model", &fails, "--max-turns", "1"]),
            ("files", &["--model", &hands, "--tools", "Read,Deliver", "--allow", "Deliver", "--takes-files", "yes"]),
            ("slow", &["--model", &slow]),
        ] {
            services[name] = json!(device.add_service("answers", name, &folder, arguments).await);
        }
        let identity = device.cli(&["identity", "show"]).await.ok();
        let origin = backend.request(reqwest::Method::GET, "").build().expect("a request").url().origin();
        let variables = vec![
            ("DESKGATE_URL", origin.ascii_serialization()),
            ("DESKGATE_KEY", backend.key().to_owned()),
            ("DESKGATE_SUBJECT", "customer-1".to_owned()),
            ("SERVICES", services.to_string()),
            ("DEVICE_FINGERPRINT", identity["fingerprint"].as_str().expect("a fingerprint").to_owned()),
        ];
        Self { _device: device, folder, variables }
    }

    /// Runs a program in a folder of the repository, which must end well.
    async fn run(&self, program: &Path, folder: &str, arguments: &[&str], variables: &[(&str, &str)]) {
        let mut command = process::command(program, &self.folder.path());
        command.current_dir(repository().join(folder)).args(arguments);
        command
            .envs(self.variables.iter().map(|(name, value)| (*name, value.as_str())).chain(variables.iter().copied()));
        let output =
            tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it is there");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

#[tokio::test]
async fn the_python_sdk_passes_its_own_tests_and_is_generated_from_the_document() {
    let fixture = SdkFixture::new().await;
    let python = third_party::python_tool("python");
    fixture.run(&python, "sdk/python", &["generate.py", "--check"], &[]).await;
    let options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"];
    fixture.run(&python, "sdk/python", &options, &[("PYTHONPATH", "src"), ("PYTHONDONTWRITEBYTECODE", "1")]).await;
}

#[tokio::test]
async fn the_typescript_sdk_passes_its_own_tests_and_is_generated_from_the_document() {
    let Some(clients) = third_party::install_dir().await else { return };
    let fixture = SdkFixture::new().await;
    let program = |name: &str| clients.join("node_modules/.bin").join(name);
    let check = ["../../docs/openapi.json", "--output", "src/types.ts", "--check"];
    fixture.run(&program("openapi-typescript"), "sdk/typescript", &check, &[]).await;
    let built = fixture.folder.path().join("dist");
    let dist = built.display().to_string();
    fixture.run(&program("tsc"), "sdk/typescript", &["-p", ".", "--outDir", &dist], &[]).await;
    fixture.folder.write("package.json", r#"{ "type": "module" }"#);
    // In turn, as a folder as an argument is understood otherwise by each version of Node.
    for file in ["tests/webhooks.test.mjs", "tests/client.test.mjs"] {
        fixture.run(Path::new("node"), "sdk/typescript", &["--test", file], &[("DIST", &dist)]).await;
    }
}
