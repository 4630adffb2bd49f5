//! The address on this computer to which the owner's browser brings the answer of a sign-in (RFC 8252, section 7.3).
//!
//! It answers the one request that has this sign-in's state. Whatever else asks, a page elsewhere or a program here, is
//! told that there is nothing.

use std::io;
use std::time::Duration;

use deskgate_oauth::OAuthError;
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// The path of the address.
const PATH: &str = "/callback";
/// The size limit of a request's head, in bytes. The answer is in its first line.
const MAX_HEAD_BYTES: u64 = 16 * 1024;
/// The timeout for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// At most this many requests at once.
const MAX_REQUESTS: usize = 16;
/// What the owner sees in the browser.
const PAGE: &str = "<!doctype html><meta charset=\"utf-8\"><title>Deskgate</title><p>Deskgate has the answer. You can close \
                    this page; the command line says what came of it.</p>\n";

/// The listener for one answer.
pub(super) struct RedirectListener {
    listener: TcpListener,
    port: u16,
}

/// What the browser brought back.
#[derive(Debug)]
pub(super) struct RedirectAnswer {
    /// The code, if the sign-in went well.
    pub(super) code: Option<Zeroizing<String>>,
    /// Who answered (RFC 9207).
    pub(super) issuer: Option<String>,
    /// Why it did not go well.
    pub(super) refusal: Option<OAuthError>,
}

impl RedirectListener {
    /// Listens on a free port of 127.0.0.1.
    pub(super) async fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// The address for the browser.
    pub(super) fn address(&self) -> String {
        format!("http://{}{PATH}", self.host())
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits for the answer with this state, without an end of its own.
    pub(super) async fn wait(self, state: &Zeroizing<String>) -> RedirectAnswer {
        let host = self.host();
        let mut requests = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if requests.len() < MAX_REQUESTS => {
                    let Ok((stream, _)) = accepted else { continue };
                    let (host, state) = (host.clone(), state.clone());
                    requests.spawn(async move { timeout(REQUEST_TIMEOUT, served(stream, &host, &state)).await });
                }
                Some(done) = requests.join_next() => {
                    if let Ok(Ok(Some(answer))) = done {
                        return answer;
                    }
                }
            }
        }
    }
}

/// Serves one request; the answer, if it brought it.
async fn served(mut stream: TcpStream, host: &str, state: &str) -> Option<RedirectAnswer> {
    let head = head_of(&mut stream).await?;
    let answer = answer_in(&head, host, state);
    let said = match &answer {
        Some(_) => format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
             content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{PAGE}",
            PAGE.len()
        ),
        None => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
    };
    // The answer counts, whether or not the browser waits for the page.
    let _ = stream.write_all(said.as_bytes()).await;
    let _ = stream.shutdown().await;
    answer
}

async fn head_of(stream: &mut TcpStream) -> Option<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::new());
    let mut bounded = stream.take(MAX_HEAD_BYTES);
    while !bytes.ends_with(b"\r\n\r\n") {
        if bounded.read_buf(&mut *bytes).await.ok()? == 0 {
            return None;
        }
    }
    String::from_utf8(bytes.to_vec()).ok().map(Zeroizing::new)
}

/// The answer in a request, if it is the one that is waited for.
fn answer_in(head: &str, host: &str, state: &str) -> Option<RedirectAnswer> {
    let (line, headers) = head.split_once("\r\n")?;
    let target = line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    // A page elsewhere whose name leads here would name its own host.
    let is_here = headers
        .lines()
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case("host") && value.trim() == host);
    let url = Url::parse(&format!("http://{host}{target}")).ok()?;
    if !is_here || url.path() != PATH {
        return None;
    }
    let one = |name: &str| {
        let mut values = url.query_pairs().filter(|(found, _)| found == name).map(|(_, value)| value.into_owned());
        values.next().filter(|_| values.next().is_none())
    };
    if one("state")? != state {
        return None;
    }
    let refusal = one("error").map(|error| OAuthError { error, error_description: one("error_description") });
    Some(RedirectAnswer { code: one("code").map(Zeroizing::new), issuer: one("iss"), refusal })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "127.0.0.1:4711";

    fn head(target: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
    }

    #[test]
    fn only_the_request_with_the_state_brings_the_answer() {
        let answer = answer_in(&head("/callback?code=c%2B1&state=s&iss=https%3A%2F%2Fid.example"), HOST, "s");
        let answer = answer.expect("the answer");
        assert_eq!(answer.code.as_deref().map(String::as_str), Some("c+1"));
        assert_eq!((answer.issuer.as_deref(), answer.refusal.is_none()), (Some("https://id.example"), true));
        let refusal = answer_in(&head("/callback?error=access_denied&state=s"), HOST, "s").expect("an answer");
        assert_eq!(refusal.refusal.expect("refused").words(), "access_denied");
        for other in [
            head("/callback?code=c"),
            head("/callback?code=c&state=t"),
            head("/callback?code=c&state=s&state=s"),
            head("/other?code=c&state=s"),
            head("/callback?code=c&state=s").replace("GET", "POST"),
            head("/callback?code=c&state=s").replace(&format!("Host: {HOST}"), "Host: evil.example:4711"),
            head("/callback?code=c&state=s").replace(&format!("Host: {HOST}\r\n"), ""),
            "GET /callback?code=c&state=s".to_owned(),
        ] {
            assert!(answer_in(&other, HOST, "s").is_none(), "{other}");
        }
        let twice = answer_in(&head("/callback?code=c&code=d&state=s"), HOST, "s").expect("an answer");
        assert!(twice.code.is_none(), "which of the two it is cannot be said");
    }

    #[tokio::test]
    async fn whatever_else_asks_is_told_that_there_is_nothing_and_the_answer_still_comes() {
        let listener = RedirectListener::bind().await.expect("a free port");
        let address = listener.address();
        let waiting = tokio::spawn(async move { listener.wait(&Zeroizing::new("s".to_owned())).await });
        let client = deskgate_outbound::builder().no_proxy().build().expect("a client");
        let silent =
            TcpStream::connect(Url::parse(&address).expect("a URL").socket_addrs(|| None).expect("one")[0]).await;
        for other in [address.replace(PATH, "/"), address.clone(), format!("{address}?state=t&code=c")] {
            assert_eq!(client.get(other).send().await.expect("answered").status(), 404);
        }
        let page = client.get(format!("{address}?state=s&code=c")).send().await.expect("answered");
        assert_eq!((page.status().as_u16(), page.headers()["cache-control"].as_bytes()), (200, &b"no-store"[..]));
        assert!(page.text().await.expect("a page").contains("close this page"));
        assert_eq!(waiting.await.expect("no panic").code.as_deref().map(String::as_str), Some("c"));
        assert!(client.get(address).send().await.is_err(), "nothing listens any more");
        drop(silent);
    }
}
