//! Access control of the pages. Every request passes here, and is refused unless it is clearly valid:
//!
//! 1. Its host must be exactly this address: other names bound to loopback are refused.
//! 2. A request that changes something must come from these pages, by Fetch Metadata or the Origin of RFC 6454.
//! 3. It must lie below the pages' path (`mount`) and have a session; otherwise it gets the page to sign in, whatever
//!    it asked for. Only signing in and the static files need neither.
//! 4. A form must have the session's token too.

use std::net::{IpAddr, SocketAddr};

use askama::Template;
use axum::body::{Body, Bytes};
use axum::extract::{Form, FromRequest, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::canonical::Sha256Digest;

use super::fields::FormFields;
use super::mount::Mount;
use super::sessions::{SessionState, form_token, is_form_token};
use super::{ErrorNotice, ErrorPage, Pages, live, style, uploads};

/// The size limit of a form, in bytes.
pub(super) const MAX_FORM_BYTES: usize = 2 * 1024 * 1024;

/// What is said of a body that is no form.
pub(super) const NO_FORM: &str = "What was sent is not a form of these pages.";

/// What is said of a form of another session, or of none.
pub(super) const NO_TOKEN: &str = "The form did not carry this session's token.";

/// No content from elsewhere, no inline script or style, no frames.
const CSP_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const SECURITY_HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CSP_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A signed-in browser.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// The token that its forms carry.
    pub(super) token: String,
    /// The digest of its session.
    pub(super) session: Sha256Digest,
    /// The number of the newest change when it asked for a page; an answer to a form cannot be had again.
    pub(super) changes: Option<u64>,
    /// The path below which it found the pages.
    mount: Mount,
}

/// Why a request is refused.
#[derive(Debug)]
enum RejectReason {
    /// It names another host, or none.
    Host(String),
    /// `localhost` is another origin; the pages have only one.
    Localhost(String),
    /// It does not come from these pages.
    Foreign,
    /// It is not below the pages' path, or has no session there.
    SignIn {
        /// Whether it had one, which ended of age.
        ended: bool,
    },
    /// The form is not of this session, or the body is no form.
    Form(String, Option<Visitor>),
}

/// Admits a request or refuses it; every answer gets the security headers.
pub(super) async fn guard(State(pages): State<Pages>, mut request: Request, next: Next) -> Response {
    let dresses = request.method() == Method::GET && request.uri().path() == style::STYLESHEET_PATH;
    // By the address as it was sent, so that no answer here tells whether its path is the pages'.
    let named = names_us(&request, pages.address());
    let mount = take_off(&pages, &mut request).await;
    let has_cookie = cookie(request.headers(), &pages.cookie()).is_some();
    let admitted = match named {
        Ok(()) => admit(&pages, request, mount).await,
        Err(away) => Err(away),
    };
    let (mut response, visitor) = match admitted {
        Ok(request) => {
            let visitor = request.extensions().get::<Visitor>().cloned();
            let mut response = next.run(request).await;
            let told = response.extensions_mut().remove::<ErrorNotice>();
            if let (Some(told), Some(visitor)) = (told, &visitor) {
                response = ErrorPage::of(&pages, visitor, response.status(), told).await;
            }
            (response, visitor)
        }
        // The error page needs its style. The style sheet is the same for everybody.
        Err(RejectReason::Host(_)) if dresses => (style::css().await.into_response(), None),
        Err(away) => away.answer(&pages),
    };
    let is_nobodys = visitor.is_none();
    if let Some(visitor) = visitor {
        response = visitor.mount.put_on(response).await;
    }
    for (name, value) in SECURITY_HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    // Earlier versions had a cookie of the whole host, which every port of it gets.
    if has_cookie && is_nobodys {
        response.headers_mut().append(header::SET_COOKIE, pages.set_cookie("", "/; Max-Age=0"));
    }
    response
}

/// Takes the pages' path off a request; `None` if it does not lie below it.
async fn take_off(pages: &Pages, request: &mut Request) -> Option<Mount> {
    let mount = pages.sessions().mount().await;
    *request.uri_mut() = mount.take_off(request.uri())?;
    Some(mount)
}

async fn admit(pages: &Pages, request: Request, mount: Option<Mount>) -> Result<Request, RejectReason> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    if !safe && !is_ours(request.headers(), pages.address()) {
        return Err(RejectReason::Foreign);
    }
    let session = match mount {
        None if style::is_open(request.uri().path()) => None,
        None => return Err(RejectReason::SignIn { ended: false }),
        Some(mount) => {
            let value = cookie(request.headers(), &pages.cookie()).map(str::to_owned);
            let is_persons = is_persons(&request);
            let changes = safe.then(|| pages.live().number());
            let (value, visitor) = session(pages, value, is_persons, mount).await?;
            Some((value, Visitor { changes, ..visitor }))
        }
    };
    let (value, visitor) = session.unzip();
    let rejected = |why| RejectReason::Form(why, visitor.clone());
    let is_token = |token: &str| value.as_ref().is_none_or(|value| is_form_token(value, token));
    let (mut request, fields) = if safe {
        (request, FormFields::default())
    } else if visitor.is_some() && uploads::takes_files(&request) {
        form_with_files(pages, request, is_token).await.map_err(rejected)?
    } else {
        form(request).await.map_err(rejected)?
    };
    if !safe && !is_token(fields.get("token")) {
        return Err(rejected(NO_TOKEN.to_owned()));
    }
    if let Some(visitor) = visitor {
        request.extensions_mut().insert(visitor);
    }
    request.extensions_mut().insert(fields);
    Ok(request)
}

/// The session of a cookie's value below the pages' path: the value, and who it stands for.
async fn session(
    pages: &Pages,
    value: Option<String>,
    is_persons: bool,
    mount: Mount,
) -> Result<(String, Visitor), RejectReason> {
    let value = value.ok_or(RejectReason::SignIn { ended: false })?;
    match pages.sessions().judge(&value, is_persons).await {
        SessionState::Active(session) => {
            let visitor = Visitor { token: form_token(&value), session, changes: None, mount };
            Ok((value, visitor))
        }
        state => Err(RejectReason::SignIn { ended: state == SessionState::Ended }),
    }
}

/// Whether a person asks: opens a page or sends a form. What an open page fetches by itself is no sign of anybody.
fn is_persons(request: &Request) -> bool {
    let mode = request.headers().get("sec-fetch-mode").map(HeaderValue::as_bytes);
    *request.method() == Method::POST
        || (matches!(mode, None | Some(b"navigate")) && request.uri().path() != live::PATH)
}

/// The host of a request must be exactly the pages' address.
fn names_us(request: &Request, own: SocketAddr) -> Result<(), RejectReason> {
    let in_headers: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    let in_target = request.uri().authority().map(Authority::as_str);
    let named: Vec<&str> = in_headers.iter().map(|host| host.to_str().unwrap_or("?")).chain(in_target).collect();
    if in_headers.len() > 1 || named.is_empty() {
        return Err(RejectReason::Host(String::new()));
    }
    for name in named {
        if name.eq_ignore_ascii_case(&format!("localhost:{}", own.port())) {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            return Err(RejectReason::Localhost(path.to_owned()));
        }
        let (with_port, alone) = (name.parse::<SocketAddr>(), name.parse::<IpAddr>());
        if with_port != Ok(own) && !(alone == Ok(own.ip()) && own.port() == 80) {
            return Err(RejectReason::Host(name.to_owned()));
        }
    }
    Ok(())
}

/// Whether a request that changes something comes from these pages.
fn is_ours(headers: &HeaderMap, own: SocketAddr) -> bool {
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        (values.next(), values.next().is_some())
    };
    let (site, sites) = only(HeaderName::from_static("sec-fetch-site"));
    let (origin, origins) = only(header::ORIGIN);
    if sites || origins {
        return false;
    }
    let is_own = |origin: &HeaderValue| origin.as_bytes() == format!("http://{own}").as_bytes();
    match (site, origin) {
        // The pages' referrer policy makes a browser send `null` to the pages too; the site is what it vouches for.
        (Some(site), Some(origin)) => site == "same-origin" && (origin == "null" || is_own(origin)),
        (Some(site), None) => site == "same-origin",
        (None, Some(origin)) => is_own(origin),
        (None, None) => false,
    }
}

/// Reads a form, or says why it cannot. Other types are refused: a page elsewhere could send those without a preflight
/// too.
async fn form(request: Request) -> Result<(Request, FormFields), String> {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, MAX_FORM_BYTES).await.map_err(|_| "The form is too large.".to_owned())?;
    let copy = Request::from_parts(parts.clone(), Body::from(bytes));
    let read = Form::<Vec<(String, String)>>::from_request(copy, &()).await;
    let Form(fields) = read.map_err(|_| NO_FORM.to_owned())?;
    Ok((Request::from_parts(parts, Body::from(Bytes::new())), FormFields(fields)))
}

/// The same for a form with files.
async fn form_with_files(
    pages: &Pages,
    request: Request,
    is_token: impl Fn(&str) -> bool,
) -> Result<(Request, FormFields), String> {
    let (mut parts, body) = request.into_parts();
    let copy = Request::from_parts(parts.clone(), body);
    let (fields, files) = uploads::read(copy, &pages.handler().own_folder, is_token).await?;
    parts.extensions.insert(files);
    Ok((Request::from_parts(parts, Body::from(Bytes::new())), fields))
}

/// The value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[derive(Template)]
#[template(path = "wrong-host.html")]
struct WrongHostPage<'a> {
    named: &'a str,
    address: SocketAddr,
    port: u16,
}

#[derive(Template)]
#[template(path = "turned-away.html")]
struct RejectedPage<'a> {
    why: &'a str,
    signed_in: bool,
}

impl RejectReason {
    /// The page that says why, and the visitor it is for.
    fn answer(self, pages: &Pages) -> (Response, Option<Visitor>) {
        let address = pages.address();
        let page = match self {
            Self::Host(named) => {
                let page = WrongHostPage { named: &named, address, port: address.port() };
                super::html(StatusCode::FORBIDDEN, &page)
            }
            Self::Localhost(path) => Redirect::permanent(&format!("http://{address}{path}")).into_response(),
            Self::Foreign => {
                let why = "The request did not come from one of these pages, so nothing was changed.";
                super::html(StatusCode::FORBIDDEN, &RejectedPage { why, signed_in: false })
            }
            Self::Form(why, visitor) => {
                let page = RejectedPage { why: &why, signed_in: visitor.is_some() };
                return (super::html(StatusCode::FORBIDDEN, &page), visitor);
            }
            Self::SignIn { ended } => super::sign_in_form::page(ended),
        };
        (page, None)
    }
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        // The guard put it there, unless the path is an open one.
        parts.extensions.get().cloned().ok_or_else(|| super::sign_in_form::page(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 7420))
    }

    fn to(hosts: &[&str], target: &str) -> Result<(), RejectReason> {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        names_us(&request.body(Body::empty()).expect("a request"), own())
    }

    #[test]
    fn only_the_address_itself_is_a_host() {
        assert!(to(&["127.0.0.1:7420"], "/").is_ok());
        assert!(to(&["127.0.0.1:7420"], "http://127.0.0.1:7420/").is_ok());
        for host in [
            "127.0.0.1",
            "127.0.0.1:7421",
            "127.0.0.1:7420.",
            "127.0.0.1.:7420",
            "127.0.0.2:7420",
            "127.1:7420",
            "0x7f000001:7420",
            "2130706433:7420",
            "0127.0.0.1:7420",
            "[::1]:7420",
            "[::ffff:127.0.0.1]:7420",
            "[::ffff:7f00:1]:7420",
            "127.evil.com:7420",
            "127.0.0.1.evil.com:7420",
            "evil.com",
            "0.0.0.0:7420",
            "user@127.0.0.1:7420",
            "127.0.0.1:7420@evil.com",
            "",
        ] {
            assert!(matches!(to(&[host], "/"), Err(RejectReason::Host(_))), "{host}");
        }
        assert!(matches!(to(&[], "/"), Err(RejectReason::Host(_))), "none");
        assert!(matches!(to(&["127.0.0.1:7420", "127.0.0.1:7420"], "/"), Err(RejectReason::Host(_))), "two");
        assert!(matches!(to(&["127.0.0.1:7420"], "http://evil.com/"), Err(RejectReason::Host(_))), "another target");
        assert!(
            matches!(to(&["LocalHost:7420"], "/runs?a=b"), Err(RejectReason::Localhost(path)) if path == "/runs?a=b")
        );
    }

    #[test]
    fn what_changes_something_comes_from_our_own_pages() {
        let ours = |site: Option<&'static str>, origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(site) = site {
                headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            is_ours(&headers, own())
        };
        assert!(ours(Some("same-origin"), Some("null")) && ours(Some("same-origin"), None));
        assert!(ours(None, Some("http://127.0.0.1:7420")));
        for (site, origin) in [
            (None, None),
            (None, Some("null")),
            (None, Some("http://127.0.0.1:7421")),
            (None, Some("http://localhost:7420")),
            (None, Some("https://127.0.0.1:7420")),
            (Some("none"), None),
            (Some("same-site"), Some("http://127.0.0.1:7420")),
            (Some("cross-site"), Some("null")),
            (Some("cross-site"), Some("http://127.0.0.1:7420")),
            (Some("same-origin"), Some("http://127.0.0.1:7421")),
            (Some("same-origin"), Some("http://evil.com")),
        ] {
            assert!(!ours(site, origin), "{site:?} {origin:?}");
        }
        let mut two = HeaderMap::new();
        two.append("sec-fetch-site", HeaderValue::from_static("same-origin"));
        two.append("sec-fetch-site", HeaderValue::from_static("cross-site"));
        assert!(!is_ours(&two, own()));
    }

    #[test]
    fn a_sibling_ports_cookie_is_not_ours() {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("ui_bbbb=other; ui_aaaa=own; ui_aaaab=x"));
        assert_eq!(cookie(&headers, "ui_aaaa"), Some("own"));
        assert_eq!(cookie(&headers, "ui_aaa"), None);
        assert_eq!(cookie(&headers, "ui_cccc"), None);
    }
}
