//! Requests that browsers do not send, byte by byte, and every linked page.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use deskgate_tests::TestDevice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Pages of one kind that are checked.
const PAGES_PER_KIND: usize = 3;

/// A response.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }
}

/// Sends exactly these bytes, and reads one response. A response without a length, such as a stream, has no body here.
pub(crate) async fn exchange(address: SocketAddr, request: &str) -> RawResponse {
    let answer = timeout(ANSWER_TIMEOUT, async {
        let mut stream = TcpStream::connect(address).await.expect("the pages are up");
        stream.write_all(request.as_bytes()).await.expect("it listens");
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = whole(&bytes) {
                return answer;
            }
            let read = stream.read_buf(&mut bytes).await.expect("it answers");
            assert_ne!(read, 0, "no whole answer to {request}: {}", String::from_utf8_lossy(&bytes));
        }
    });
    answer.await.unwrap_or_else(|_| panic!("no answer to {request}"))
}

fn whole(bytes: &[u8]) -> Option<RawResponse> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let answer = RawResponse { status, headers, body: body.to_owned() };
    let length: usize = answer.header("content-length").parse().unwrap_or_default();
    (body.len() >= length).then_some(answer)
}

/// A signed-in session without a browser. Paths, and the addresses in answers, are as within the pages' path.
#[derive(Clone, Debug)]
pub(crate) struct RawSession {
    /// The address of the pages.
    pub(crate) address: SocketAddr,
    /// The path below which they lie, as `/…`.
    pub(crate) mount: String,
    /// Name and value.
    pub(crate) cookie: String,
    /// The token of its forms.
    pub(crate) token: String,
}

impl RawSession {
    pub(crate) async fn signed_in(device: &TestDevice) -> Self {
        let link = device.page_link().await;
        let address = link.trim_start_matches("http://").split('/').next().and_then(|host| host.parse().ok());
        let mut hand = Self::stranger(address.expect("an address"), "");
        let code = link.split_once("code=").expect("the link has a code").1;
        let entered = hand.post("/sign-in", &hand.own(), &format!("code={code}")).await;
        assert_eq!(entered.status, 303, "{entered:?}");
        hand.mount = entered.header("location").trim_end_matches('/').to_owned();
        hand.cookie = entered.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        let page = hand.get("/access").await.body;
        let field = page.split_once("name=\"token\" value=\"").expect("a form").1;
        hand.token = field.split('"').next().expect("it ends").to_owned();
        hand
    }

    /// Somebody without a session, who knows the path or guesses one.
    pub(crate) fn stranger(address: SocketAddr, mount: &str) -> Self {
        Self { address, mount: mount.to_owned(), cookie: String::new(), token: String::new() }
    }

    /// Sends a request, and takes the pages' path off the addresses in the answer.
    pub(crate) async fn exchange(&self, request: &str) -> RawResponse {
        let mut answer = exchange(self.address, request).await;
        if !self.mount.is_empty() {
            answer.body = answer.body.replace(&self.mount, "");
            for (_, value) in &mut answer.headers {
                *value = value.replace(&self.mount, "");
            }
        }
        answer
    }

    /// The headers that a browser sends with our own forms.
    pub(crate) fn own(&self) -> String {
        format!("Sec-Fetch-Site: same-origin\r\nOrigin: http://{}\r\n", self.address)
    }

    pub(crate) async fn get(&self, path: &str) -> RawResponse {
        let Self { address, mount, cookie, .. } = self;
        let request = format!("GET {mount}{path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n");
        self.exchange(&request).await
    }

    /// Posts a form with further headers, each with its end of line.
    pub(crate) async fn post(&self, path: &str, headers: &str, form: &str) -> RawResponse {
        let Self { address, mount, cookie, .. } = self;
        let length = form.len();
        let kind = "Content-Type: application/x-www-form-urlencoded";
        let request = format!(
            "POST {mount}{path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n{kind}\r\nContent-Length: {length}\r\n\
             {headers}\r\n{form}"
        );
        self.exchange(&request).await
    }

    /// The pages linked from the overview, a few of each kind.
    pub(crate) async fn every_page(&self) -> BTreeMap<String, RawResponse> {
        let mut found = BTreeMap::new();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        let mut next = VecDeque::from(["/".to_owned()]);
        while let Some(path) = next.pop_front() {
            let of_its_kind = kinds.entry(kind(&path)).or_default();
            if found.contains_key(&path) || *of_its_kind == PAGES_PER_KIND {
                continue;
            }
            *of_its_kind += 1;
            let answer = self.get(&path).await;
            next.extend(links(&answer.body));
            found.insert(path, answer);
        }
        found
    }
}

/// The common part of the addresses of one kind of page.
pub(crate) fn kind(path: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let is_id = |part: &str| part.rsplit_once('_').is_some_and(|(_, rest)| rest.len() == 32);
    let parts: Vec<_> = path.split('/').map(|part| if is_id(part) { "id" } else { part }).collect();
    let names: Vec<_> = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default()).collect();
    format!("{}?{}", parts.join("/"), names.join("&"))
}

fn links(page: &str) -> Vec<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let own = links.filter(|link| link.starts_with('/') && !link.contains('#'));
    own.filter(|link| !link.ends_with(".css") && !link.ends_with(".svg"))
        .map(|link| link.replace("&amp;", "&"))
        .collect()
}
