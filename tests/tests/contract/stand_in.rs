//! A small server in place of a gateway: it answers as a test wants, and remembers what it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// What a stand-in answers.
#[derive(Clone)]
pub(crate) enum StandInAnswer {
    /// The first post and the first read are answered with [`PASSING`]; everything else goes on to a gateway.
    Passing(String),
    /// Always this status, with a JSON document.
    Json(u16),
    /// Always 502, as a proxy without a gateway behind it.
    BadGateway,
}

/// The faults that pass, in their order.
pub(crate) const PASSING: [u16; 3] = [502, 429, 503];

/// What is sent with 429: longer than the pause would be.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(3);

/// One request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    /// Method, target and version.
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
    /// The status that it was given here; `None` if it went on to the gateway.
    pub(crate) status: Option<u16>,
}

impl SeenRequest {
    /// The value of a header, named in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(own, value)| (own == name).then_some(value.as_str()))
    }
}

/// The server. It stops when this is dropped.
pub(crate) struct StandIn {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    _serving: AbortOnDropHandle<()>,
}

impl StandIn {
    pub(crate) async fn start(answer: StandInAnswer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it listens");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (log.clone(), answer.clone());
                // A caller that leaves in the middle is no fault of this.
                connections.spawn(async move { drop(serve(stream, &answer, &log).await) });
            }
        });
        Self { address, seen, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One connection with one request.
async fn serve(stream: TcpStream, answer: &StandInAnswer, log: &Mutex<Vec<SeenRequest>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(());
    }
    let mut headers = Vec::new();
    loop {
        let mut text = String::new();
        if stream.read_line(&mut text).await? == 0 || text == "\r\n" {
            break;
        }
        let (name, value) = text.split_once(':').unwrap_or((&text, ""));
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut request = SeenRequest { line, headers, body: Vec::new(), at: Instant::now(), status: None };
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body.resize(length, 0);
    stream.read_exact(&mut request.body).await?;
    {
        let mut seen = log.lock().unwrap_or_else(PoisonError::into_inner);
        request.status = answer.status(&request.line, &seen);
        seen.push(request.clone());
    }
    match (request.status, answer) {
        (None, StandInAnswer::Passing(gateway)) => pass_on(stream, &request, gateway).await,
        (status, _) => {
            stream.write_all(response(status.unwrap_or(502)).as_bytes()).await?;
            stream.shutdown().await
        }
    }
}

async fn pass_on(mut stream: BufReader<TcpStream>, request: &SeenRequest, gateway: &str) -> std::io::Result<()> {
    let kept = request.headers.iter().filter(|(name, _)| name != "connection");
    let headers: String = kept.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut onward = TcpStream::connect(gateway.trim_start_matches("http://")).await?;
    onward.write_all(format!("{}{headers}connection: close\r\n\r\n", request.line).as_bytes()).await?;
    onward.write_all(&request.body).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut onward).await?;
    Ok(())
}

impl StandInAnswer {
    /// The status of the next request; `None` if it goes on.
    fn status(&self, line: &str, seen: &[SeenRequest]) -> Option<u16> {
        match self {
            Self::Passing(_) => {
                let is_post = line.starts_with("POST ");
                let alike = |seen: &&SeenRequest| seen.status.is_some() && seen.line.starts_with("POST ") == is_post;
                PASSING.get(seen.iter().filter(alike).count()).copied()
            }
            Self::Json(status) => Some(*status),
            Self::BadGateway => Some(502),
        }
    }
}

/// A problem document, or what a proxy says that has no gateway behind it.
fn response(status: u16) -> String {
    let problem = format!(
        r#"{{"type":"/problems/x","title":"X","status":{status},"code":"x","detail":"d","request_id":"r","retryable":false}}"#
    );
    let (form, more, body) = match status {
        502 => ("text/html", String::new(), "<html>Bad Gateway</html>".to_owned()),
        429 => ("application/problem+json", format!("retry-after: {}\r\n", RETRY_AFTER.as_secs()), problem),
        _ => ("application/problem+json", String::new(), problem),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {form}\r\ncontent-length: {length}\r\n{more}connection: close\r\n\r\n{body}"
    )
}
