//! The unguessable path below which the pages lie: taken off requests, put on answers. The pages themselves do not know
//! it, and write their links as if they lay at the top.
//!
//! A browser sends a cookie to every port of a host, so another program that listens on 127.0.0.1 would get a cookie of
//! the whole host. One of this path is sent only with requests below it, and nobody can lead a browser there who does not
//! know it.

use std::fmt;

use axum::body::Body;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Uri, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::secret::digests_equal;
use rand::TryRng;
use serde::{Deserialize, Serialize};

/// How many random bytes the path has: 128 bits.
const PATH_BYTES: usize = 16;
/// The attributes of the pages that hold addresses. Text is escaped, so no quote in it looks like one of them.
const ADDRESS_ATTRIBUTES: [&str; 3] = ["href", "src", "action"];

/// The first part of the path, without slashes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Mount(String);

impl Mount {
    /// A fresh one.
    pub(super) fn random() -> Self {
        let mut bytes = [0; PATH_BYTES];
        rand::rngs::SysRng
            .try_fill_bytes(&mut bytes)
            .expect("the operating system gives random bytes; without them nothing here is safe");
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The path of the session's cookie.
    pub(super) fn cookie_path(&self) -> String {
        format!("/{}/", self.0)
    }

    /// The address of a request as the pages know it; `None` if it is not below the path. The time it takes reveals
    /// nothing about the path: digests are compared.
    pub(super) fn take_off(&self, uri: &Uri) -> Option<Uri> {
        let (first, rest) = uri.path().strip_prefix('/')?.split_once('/')?;
        if !digests_equal(&Sha256Digest::of(first.as_bytes()), &Sha256Digest::of(self.0.as_bytes())) {
            return None;
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(format!("/{rest}{query}")).ok()?);
        Uri::from_parts(parts).ok()
    }

    /// The answer with its addresses below the path: the target of a redirect, and the links and forms of a page.
    pub(super) async fn put_on(&self, response: Response) -> Response {
        let (mut head, body) = response.into_parts();
        let target = head.headers.get(header::LOCATION).and_then(|place| place.to_str().ok());
        if let Some(target) = target.filter(|target| target.starts_with('/')) {
            let target = HeaderValue::from_str(&format!("/{}{target}", self.0));
            head.headers.insert(header::LOCATION, target.expect("base64 before a value of a header"));
        }
        let is_page =
            head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
        if !is_page {
            return Response::from_parts(head, body);
        }
        // A page is written whole before it is sent, so this waits for nothing.
        let page = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        head.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(head, Body::from(self.put_on_links(&String::from_utf8_lossy(&page))))
    }

    fn put_on_links(&self, page: &str) -> String {
        ADDRESS_ATTRIBUTES.iter().fold(page.to_owned(), |page, attribute| {
            page.replace(&format!(" {attribute}=\"/"), &format!(" {attribute}=\"/{}/", self.0))
        })
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mount(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount() -> Mount {
        Mount("p4th".to_owned())
    }

    #[test]
    fn each_is_random_and_shown_nowhere() {
        let (one, other) = (Mount::random(), Mount::random());
        assert!(one != other && one.0.len() == 22, "128 bits");
        assert!(!format!("{one:?}").contains(&one.0));
    }

    #[test]
    fn only_what_lies_below_it_is_taken_off() {
        let taken = |address: &str| mount().take_off(&address.parse().expect("an address")).map(|uri| uri.to_string());
        assert_eq!(taken("/p4th/").as_deref(), Some("/"));
        assert_eq!(taken("/p4th/runs/run_1?a=b").as_deref(), Some("/runs/run_1?a=b"));
        assert_eq!(taken("http://127.0.0.1:7420/p4th/runs").as_deref(), Some("http://127.0.0.1:7420/runs"));
        assert_eq!(taken("/p4th/p4th/runs").as_deref(), Some("/p4th/runs"), "once");
        for other in ["/", "/p4th", "/P4TH/", "/p4t/h", "/p4thx/", "/runs", "//p4th/", "/./p4th/", "/%704th/", "*"] {
            assert_eq!(taken(other), None, "{other}");
        }
    }

    #[test]
    fn every_address_of_ours_is_put_below_it_and_nothing_else_changes() {
        let page = "<a href=\"/\">x</a><a class=\"x\" href=\"/runs?a=b#c\"><form method=\"get\" action=\"/search\">\
                    <script src=\"/script.js\" defer>";
        let mounted = "<a href=\"/p4th/\">x</a><a class=\"x\" href=\"/p4th/runs?a=b#c\">\
                       <form method=\"get\" action=\"/p4th/search\"><script src=\"/p4th/script.js\" defer>";
        assert_eq!(mount().put_on_links(page), mounted);
        let same = "<a href=\"#main\"><a href=\"https://example.com/\"><pre>&#60;a href=&#34;/runs&#34;</pre>\
                    <link rel=\"icon\" href=\"data:,\"><input value=\"/home\">";
        assert_eq!(mount().put_on_links(same), same);
    }

    #[tokio::test]
    async fn a_redirect_stays_below_it_and_a_file_stays_as_it_is() {
        let response = |name: header::HeaderName, value: &str, body: &str| {
            Response::builder().header(name, value).body(Body::from(body.to_owned())).expect("a response")
        };
        let redirected = mount().put_on(response(header::LOCATION, "/runs", "")).await;
        assert_eq!(redirected.headers()[header::LOCATION], "/p4th/runs");
        let elsewhere = mount().put_on(response(header::LOCATION, "https://issuer.example/", "")).await;
        assert_eq!(elsewhere.headers()[header::LOCATION], "https://issuer.example/");
        let file = "{\"text\": \"<a href=\"/\">\"}";
        let file_as_sent = mount().put_on(response(header::CONTENT_TYPE, "application/jsonl", file)).await;
        assert_eq!(axum::body::to_bytes(file_as_sent.into_body(), 100).await.expect("read"), file.as_bytes());
    }

    /// A template that wrote an address otherwise would lead out of the path.
    #[test]
    fn every_template_writes_its_addresses_in_the_way_that_is_recognised() {
        let templates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        for file in std::fs::read_dir(templates).expect("a folder").map(|entry| entry.expect("readable").path()) {
            let text = std::fs::read_to_string(&file).expect("text");
            for attribute in ADDRESS_ATTRIBUTES.iter().chain(&["formaction", "poster", "data", "srcset"]) {
                for (at, _) in text.match_indices(&format!("{attribute}=")) {
                    let before = text[..at].chars().next_back();
                    let known =
                        ADDRESS_ATTRIBUTES.contains(attribute) && text[at + attribute.len()..].starts_with("=\"");
                    assert!(
                        before != Some(' ') && before != Some('\n') || (known && before == Some(' ')),
                        "{file:?}: {attribute}"
                    );
                }
            }
        }
    }
}
