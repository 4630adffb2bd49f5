//! The pages for people: public, complete, and without a request to anywhere else.

use deskgate_gateway::http::problems::Code;

use crate::support::call::{TestResponse, not_found};
use crate::support::gateway::TestGateway;

/// A page that a browser shows without a script and without asking another server.
pub(crate) fn assert_page(reply: &TestResponse) {
    assert_page_with(reply, "default-src 'none'; style-src 'self'; base-uri 'none';", &[]);
}

/// A page of the reference: it has the gateway's own search beside its style, and no other script.
pub(crate) fn assert_reference_page(reply: &TestResponse) {
    let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none';";
    assert_page_with(reply, policy, &["script src=\"/api/v1/docs/search.js\" defer"]);
}

fn assert_page_with(reply: &TestResponse, policy: &str, scripts: &[&str]) {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html; charset=utf-8")), "{reply:?}");
    let sent = reply.header("content-security-policy").expect("a policy");
    assert!(sent.starts_with(policy), "{sent}");
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    let tags = || reply.text.split('<').skip(1).map(|tag| tag.split('>').next().unwrap_or_default());
    assert_eq!(tags().filter(|tag| tag.starts_with("script")).collect::<Vec<_>>(), scripts);
    for elsewhere in ["http://", "https://", "src=", "style=", " on", "javascript:"] {
        let found = tags().filter(|tag| tag.contains(elsewhere) && !scripts.contains(tag));
        assert_eq!(found.collect::<Vec<_>>(), [""; 0], "{elsewhere:?}");
    }
    for link in reply.text.split("href=\"").skip(1) {
        assert!(link.starts_with('/') || link.starts_with('#'), "{}", &link[..40]);
    }
}

#[tokio::test]
async fn every_problem_has_a_page_that_says_what_why_and_what_next() {
    let gateway = TestGateway::new().await;
    let index = gateway.call("GET", "/problems").send().await;
    assert_page(&index);
    for code in Code::ALL {
        let path = format!("/problems/{}", code.as_str());
        let page = gateway.call("GET", &path).send().await;
        assert_page(&page);
        for part in [code.as_str(), "What happened", "Why", "What to do next"] {
            assert!(page.text.contains(part), "{part:?} is missing at {path}");
        }
        assert!(index.text.contains(&format!("href=\"{path}\"")), "{path} is not in the list");
    }
    gateway.call("GET", "/problems/made_up").send().await.assert_problem(&not_found());
    gateway.call("GET", "/problems/%ff").send().await.assert_problem(&not_found());
    gateway.stop().await;
}

#[tokio::test]
async fn the_type_of_a_problem_leads_to_its_page() {
    let gateway = TestGateway::new().await;
    let problem = gateway.call("GET", "/api/v1/agent-endpoints").send().await.json();
    let page = gateway.call("GET", problem["type"].as_str().expect("a text")).send().await;
    assert_page(&page);
    assert!(page.text.contains(problem["title"].as_str().expect("a text")), "{page:?}");
    let style = gateway.call("GET", "/api/v1/docs/style.css").send().await;
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
    assert!(!style.text.contains("url(") && !style.text.contains("@import"), "a style sheet that loads more");
    gateway.stop().await;
}
