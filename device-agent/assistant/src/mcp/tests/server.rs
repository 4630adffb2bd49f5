//! A TLS server that plays the replies of a test, well-behaved or not, and records the requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

/// One recorded request.
#[derive(Clone, Debug)]
pub(super) struct SeenRequest {
    /// The head as it was sent, in lower case.
    pub(super) head: String,
    /// The first line as it was sent.
    pub(super) line: String,
    /// The credentials as they were sent, without the word `Bearer`.
    pub(super) bearer: Option<String>,
    /// The protocol's method; empty without a body.
    pub(super) method: String,
    pub(super) body: Value,
    /// The body as it was sent.
    pub(super) text: String,
}

/// The server's reply to a request.
pub(super) enum ServerReply {
    /// These bytes, and the end of the connection.
    Bytes(Vec<u8>),
    /// The connection ends without a reply.
    Cut,
    /// No reply, for as long as the client waits.
    Nothing,
    /// These bytes, after which the connection stays open for as long as the client waits.
    Open(String),
    /// Another reply, after this time.
    Late(Duration, Box<ServerReply>),
    /// This head, followed by an endless body.
    Endless(&'static str),
}

type PlayFn = Arc<dyn Fn(&SeenRequest) -> ServerReply + Send + Sync>;

pub(super) struct FakeMcpServer {
    pub(super) url: String,
    pub(super) certificate: reqwest::Certificate,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    given_up: Arc<AtomicUsize>,
    _serving: AbortOnDropHandle<()>,
}

impl FakeMcpServer {
    pub(super) async fn start(play: impl Fn(&SeenRequest) -> ServerReply + Send + Sync + 'static) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let certificate = reqwest::Certificate::from_der(made.cert.der()).expect("a certificate");
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("it fits its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("https://localhost:{}/mcp", listener.local_addr().expect("bound").port());
        let (seen, play): (Arc<Mutex<Vec<SeenRequest>>>, PlayFn) = (Arc::default(), Arc::new(play));
        let given_up = Arc::new(AtomicUsize::new(0));
        let kept = (Arc::clone(&seen), Arc::clone(&given_up));
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, (seen, given_up), play) = (acceptor.clone(), kept.clone(), Arc::clone(&play));
                connections.spawn(async move { serve(acceptor, stream, (&seen, &given_up), &play).await });
            }
        });
        Self { url, certificate, seen, given_up, _serving: AbortOnDropHandle::new(serving) }
    }

    /// The requests so far.
    pub(super) fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().expect("no panic").clone()
    }

    /// How many requests without an answer the client has given up.
    pub(super) fn given_up(&self) -> usize {
        self.given_up.load(Ordering::SeqCst)
    }

    /// How many requests had this method.
    pub(super) fn count(&self, method: &str) -> usize {
        self.seen().iter().filter(|seen| seen.method == method).count()
    }
}

/// Serves one request on each connection.
async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    (seen, given_up): (&Mutex<Vec<SeenRequest>>, &AtomicUsize),
    play: &PlayFn,
) -> Option<()> {
    let mut stream = acceptor.accept(stream).await.ok()?;
    let request = read(&mut stream).await?;
    let mut reply = play(&request);
    seen.lock().expect("no panic").push(request);
    while let ServerReply::Late(after, other) = reply {
        tokio::time::sleep(after).await;
        reply = *other;
    }
    match reply {
        ServerReply::Late(..) => return None,
        ServerReply::Bytes(bytes) => stream.write_all(&bytes).await.ok()?,
        ServerReply::Cut => return Some(()),
        ServerReply::Nothing => wait_for_end(&mut stream, given_up).await,
        ServerReply::Open(text) => {
            stream.write_all(text.as_bytes()).await.ok()?;
            wait_for_end(&mut stream, given_up).await;
        }
        ServerReply::Endless(head) => {
            stream.write_all(head.as_bytes()).await.ok()?;
            let piece = vec![b'x'; 1 << 20];
            while stream.write_all(&piece).await.is_ok() {}
        }
    }
    stream.shutdown().await.ok()
}

/// Waits until the client gives up.
async fn wait_for_end(stream: &mut TlsStream<TcpStream>, given_up: &AtomicUsize) {
    let _ = stream.read(&mut [0]).await;
    given_up.fetch_add(1, Ordering::SeqCst);
}

async fn read(stream: &mut TlsStream<TcpStream>) -> Option<SeenRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let sent = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let bearer = sent.lines().find_map(|line| line.strip_prefix("authorization: Bearer ").map(str::to_owned));
    let line = sent.lines().next().unwrap_or_default().to_owned();
    let head = sent.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    while bytes.len() < end + length.unwrap_or(0) {
        stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
    }
    let body: Value = serde_json::from_slice(&bytes[end..]).unwrap_or_default();
    let method = body["method"].as_str().unwrap_or_default().to_owned();
    Some(SeenRequest { head, line, bearer, method, body, text: String::from_utf8_lossy(&bytes[end..]).into_owned() })
}

/// An HTTP answer with a body and further header lines.
pub(super) fn http(status: &str, headers: &str, body: &str) -> ServerReply {
    let length = body.len();
    ServerReply::Bytes(
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}").into(),
    )
}

/// The result of a request.
pub(super) fn result(seen: &SeenRequest, result: Value) -> ServerReply {
    let body = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": result });
    http("200 OK", "content-type: application/json\r\nmcp-session-id: s-1\r\n", &body.to_string())
}

/// The error of a request.
pub(super) fn refusal(seen: &SeenRequest, status: &str, error: Value) -> ServerReply {
    let body = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": error });
    http(status, "content-type: application/json\r\n", &body.to_string())
}

/// The reply of a well-behaved server of the older era to everything but a call.
pub(super) fn polite(seen: &SeenRequest, tools: Value) -> ServerReply {
    match seen.method.as_str() {
        "initialize" => greeting(seen, "2025-06-18"),
        "server/discover" => http("400 Bad Request", "", ""),
        "tools/list" => result(seen, json!({ "tools": tools })),
        "" => http("405 Method Not Allowed", "", ""),
        _ => http("202 Accepted", "", ""),
    }
}

/// The answer to a handshake in a version.
pub(super) fn greeting(seen: &SeenRequest, version: &str) -> ServerReply {
    let info = json!({ "name": "played", "version": "1" });
    result(seen, json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": info }))
}

/// The reply of a well-behaved server of revision 2026-07-28, which demands what that asks of each request.
pub(super) fn modern(seen: &SeenRequest, tools: Value) -> ServerReply {
    let meta = &seen.body["params"]["_meta"];
    let version = "2026-07-28";
    let is_whole = seen.head.contains(&format!("mcp-protocol-version: {version}\r\n"))
        && seen.head.contains(&format!("mcp-method: {}\r\n", seen.method))
        && !seen.head.contains("mcp-session-id")
        && meta["io.modelcontextprotocol/protocolVersion"] == version
        && meta["io.modelcontextprotocol/clientCapabilities"].is_object();
    if !is_whole {
        return refusal(seen, "400 Bad Request", json!({ "code": -32020, "message": "header mismatch" }));
    }
    let cached = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
    let with = |mut given: Value| {
        given.as_object_mut().expect("an object").extend(cached.as_object().expect("an object").clone());
        result(seen, given)
    };
    match seen.method.as_str() {
        "server/discover" => with(json!({ "supportedVersions": [version], "capabilities": { "tools": {} } })),
        "tools/list" => with(json!({ "tools": tools })),
        _ => refusal(seen, "404 Not Found", json!({ "code": -32601, "message": "method not found" })),
    }
}
