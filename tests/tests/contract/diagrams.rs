//! The guides' diagrams, drawn by Mermaid in a real browser.

use std::path::Path;

use deskgate_tests::browser::{Browser, WindowOptions};
use deskgate_tests::third_party::install_dir;
use serde_json::json;

/// Draws each text, and answers with what was wrong, or with the number of shapes and arrows.
const DRAW: &str = r#"(async () => {
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });
  const drawn = [];
  for (const [n, text] of TEXTS.entries()) {
    try {
      const { svg } = await mermaid.render(`diagram-${n}`, text);
      const picture = new DOMParser().parseFromString(svg, "text/html");
      drawn.push(picture.querySelectorAll("rect, path, polygon, line, circle").length);
    } catch (error) {
      drawn.push(String(error));
    }
  }
  return drawn;
})()"#;

/// The diagrams of a page, each with the line at which it begins.
fn diagrams(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim() == "```mermaid" {
            let text: Vec<_> = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```").collect();
            found.push((number + 1, text.join("\n")));
        }
    }
    found
}

#[tokio::test]
async fn every_diagram_of_the_guides_can_be_drawn() {
    let Some(clients) = install_dir().await else { return };
    let Some(browser) = Browser::start().await else { return };
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it stands in the repository").join("docs");
    let (mut places, mut texts) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(docs).expect("readable") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            for (line, text) in diagrams(&std::fs::read_to_string(&path).expect("text")) {
                places.push(format!("{}:{line}", path.display()));
                texts.push(text);
            }
        }
    }
    assert!(texts.len() >= 6, "only {} diagrams were found", texts.len());
    // The last one shows that a wrong one is found.
    texts.push("flowchart LR\n  a --> --> b".to_owned());

    let folder = tempfile::tempdir().expect("a folder");
    let script = clients.join("node_modules/mermaid/dist/mermaid.min.js");
    let page = folder.path().join("page.html");
    let html = format!("<!doctype html><meta charset=utf-8><script src=\"file://{}\"></script>", script.display());
    std::fs::write(&page, html).expect("written");
    let window = browser.window(WindowOptions::default()).await;
    window.goto(&format!("file://{}", page.display())).await;
    let drawn = window.evaluate(&DRAW.replace("TEXTS", &json!(texts).to_string())).await;
    let drawn = drawn.as_array().expect("a list");
    assert_eq!(drawn.len(), texts.len());
    let (wrong, drawn) = drawn.split_last().expect("there are some");
    assert!(wrong.is_string(), "a wrong diagram was drawn: {wrong}");
    for (place, shapes) in places.iter().zip(drawn) {
        assert!(shapes.as_u64().is_some_and(|shapes| shapes > 3), "{place}: {shapes}");
    }
}
