//! A person at the management pages, without a browser: signed in, and sending the forms of the pages.

use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};

use crate::TestDevice;
use crate::backend::client;

const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// A signed-in visitor of one agent's pages.
#[derive(Clone, Debug)]
pub struct Visitor {
    http: Client,
    /// `http://127.0.0.1:…`
    origin: String,
    /// The path below which the pages lie, as `/…`.
    mount: String,
    cookie: String,
    token: String,
}

/// A page, or the response to a form. Its addresses are as within the pages' path.
#[derive(Clone, Debug)]
pub struct PageResponse {
    /// The status.
    pub status: StatusCode,
    /// The redirect target of a form that succeeded; empty if there is none.
    pub leads_to: String,
    /// The page.
    pub text: String,
}

impl PageResponse {
    /// The redirect target of a form that must have succeeded.
    pub fn redirect_target(self) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        self.leads_to
    }
}

impl Visitor {
    /// Signs in with a fresh launch link.
    pub async fn of(device: &TestDevice) -> Self {
        let opened = device.cli(&["open", "--print"]).await.ok();
        let link = opened["link"].as_str().expect("a link").to_owned();
        let (page, code) = link.split_once("?code=").expect("the link holds a code");
        let origin = page.trim_end_matches("/sign-in").to_owned();
        let http = client().redirect(Policy::none()).build().expect("a client");
        let form = http
            .post(page)
            .header(ORIGIN, &origin)
            .header(CONTENT_TYPE, FORM_CONTENT_TYPE)
            .body(encoded(&[("code", code)]));
        let entered = form.send().await.expect("answered");
        let cookie =
            entered.headers()[SET_COOKIE].to_str().expect("text").split(';').next().expect("a value").to_owned();
        let mount = entered.headers()[LOCATION].to_str().expect("text").trim_end_matches('/').to_owned();
        let mut visitor = Self { http, origin, mount, cookie, token: String::new() };
        visitor.token = value(&visitor.page("/settings").await.text, "token");
        visitor
    }

    /// Fetches a page.
    pub async fn page(&self, path: &str) -> PageResponse {
        self.shown(self.http.get(self.address(path)).header(COOKIE, &self.cookie)).await
    }

    /// Sends a form as the pages do, with the session's token.
    pub async fn send(&self, path: &str, fields: &[(&str, &str)]) -> PageResponse {
        let token = [("token", self.token.as_str())];
        self.send_as_it_is(path, &[&token, fields].concat()).await
    }

    /// Sends a form without adding the token.
    pub async fn send_as_it_is(&self, path: &str, fields: &[(&str, &str)]) -> PageResponse {
        let form = self.http.post(self.address(path)).header(COOKIE, &self.cookie).header(ORIGIN, &self.origin);
        self.shown(form.header(CONTENT_TYPE, FORM_CONTENT_TYPE).body(encoded(fields))).await
    }

    fn address(&self, path: &str) -> String {
        format!("{}{}{path}", self.origin, self.mount)
    }

    async fn shown(&self, asked: reqwest::RequestBuilder) -> PageResponse {
        let answer = asked.send().await.expect("answered");
        let status = answer.status();
        let leads_to = answer.headers().get(LOCATION).map_or("", |place| place.to_str().expect("text")).to_owned();
        let within = |text: String| text.replace(&self.mount, "");
        PageResponse { status, leads_to: within(leads_to), text: within(answer.text().await.expect("text")) }
    }
}

/// Fields encoded as a form, which is the encoding of a query.
fn encoded(fields: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form/", fields).expect("a sound address");
    url.query().unwrap_or_default().to_owned()
}

/// The value of a page's hidden field.
pub fn value(page: &str, name: &str) -> String {
    let (_, rest) =
        page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split('"').next().expect("it ends").to_owned()
}
