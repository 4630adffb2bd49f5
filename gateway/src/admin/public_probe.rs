//! The public address as a caller sees it: name, certificate, responding server, plain HTTP, and whether events arrive
//! when they are sent.
//!
//! It uses no HTTP client, for it measures when bytes arrive, which clients hide.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deskgate_protocol::VERSION;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use super::check::{CheckStatus, Finding, judge_expiry};
use crate::domain::trial::{EVENT_INTERVAL, TRIAL_EVENTS};
use crate::tls;

/// For an answer, and for a whole trial through a proxy that buffers it to its end.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// More than the head and a refusal.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

type BoxedProbeStream = Box<dyn ProbeStream>;

trait ProbeStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ProbeStream for T {}

/// Runs the probe; `ticket` is for one trial stream. It trusts the system's authorities, or `SSL_CERT_FILE` if that is
/// set.
pub(super) async fn look(address: &Url, ticket: &str) -> Vec<Finding> {
    let is_tls = address.scheme() == "https";
    let mut findings = Vec::new();
    let good = match open(address).await {
        Ok((_, until)) if is_tls => {
            let finding = judge_expiry("public TLS", &format!("{} is who it says", shown(address)), until);
            finding.verdict != CheckStatus::Fail && {
                findings.push(finding);
                true
            }
        }
        Ok(_) => {
            let loopback = address.host_str().is_some_and(|host| ["127.0.0.1", "localhost", "[::1]"].contains(&host));
            let (verdict, detail) = match loopback {
                true => (CheckStatus::Skip, "plain HTTP on this computer"),
                false => (CheckStatus::Fail, "plain HTTP: keys and contents can be read on the way"),
            };
            findings.push(Finding::new("public TLS", verdict, format!("{}: {detail}", shown(address))));
            true
        }
        Err(why) => {
            findings.push(Finding::new("public address", CheckStatus::Fail, format!("{}: {why}", shown(address))));
            false
        }
    };
    if good {
        findings.push(answers(address).await);
        findings.push(streams(address, ticket).await);
        if is_tls {
            findings.push(plain(address).await);
        }
    }
    findings
}

/// A connection, and until when the server's certificate is valid.
async fn open(address: &Url) -> Result<(BoxedProbeStream, Option<jiff::Timestamp>), String> {
    let (host, port) = host_and_port(address).ok_or("it names no host")?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let connected = timeout(PROBE_TIMEOUT, TcpStream::connect((bare, port))).await.map_err(|_| late())?;
    let stream = connected.map_err(|error| error.to_string())?;
    if address.scheme() != "https" {
        return Ok((Box::new(stream), None));
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|error| error.to_string())?;
    let handshake = timeout(PROBE_TIMEOUT, connector()?.connect(name, stream)).await.map_err(|_| late())?;
    let stream = handshake.map_err(|error| format!("{error}. Callers would not trust it either"))?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let until = shown.and_then(|certificate| tls::not_after(certificate));
    Ok((Box::new(stream), until))
}

fn connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn late() -> String {
    format!("no answer within {} s", PROBE_TIMEOUT.as_secs())
}

/// Requests without a key are refused, and the refusal names this version.
async fn answers(address: &Url) -> Finding {
    let name = "public API";
    let head = match whole(address, "/api/v1/agent-endpoints").await {
        Ok(answer) => answer.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase(),
        Err(why) => return Finding::new(name, CheckStatus::Fail, why),
    };
    let status = head.lines().next().unwrap_or_default().to_owned();
    let version = head.lines().find_map(|line| line.strip_prefix("gateway-version:")).map(str::trim);
    match version {
        Some(VERSION) if status.contains(" 401") => {
            Finding::new(name, CheckStatus::Pass, "this gateway answers, and asks for a key")
        }
        Some(version) => {
            let detail = format!("a gateway of version {version} answers {status:?}; this program is {VERSION}");
            Finding::new(name, CheckStatus::Fail, detail)
        }
        None => {
            let detail = format!("what answers there is no Deskgate gateway: {status:?}. See where the proxy leads");
            Finding::new(name, CheckStatus::Fail, detail)
        }
    }
}

/// When the first and the last event of a trial arrived, from the request on.
struct ArrivalTimes {
    first: Duration,
    last: Duration,
}

async fn streams(address: &Url, ticket: &str) -> Finding {
    let name = "event streams";
    let arrivals = match timeout(PROBE_TIMEOUT, follow(address, ticket)).await {
        Ok(Ok(arrivals)) => arrivals,
        Ok(Err(why)) => return Finding::new(name, CheckStatus::Fail, why),
        Err(_) => return Finding::new(name, CheckStatus::Fail, format!("a trial stream did not end: {}", late())),
    };
    let ArrivalTimes { first, last } = arrivals;
    let sent_within = EVENT_INTERVAL * (TRIAL_EVENTS - 1);
    let (first_s, last_s) = (first.as_secs_f64(), last.as_secs_f64());
    if last - first >= sent_within / 2 {
        let detail = format!("events arrive when they are sent, the first after {first_s:.2} s");
        return Finding::new(name, CheckStatus::Pass, detail);
    }
    let detail = format!(
        "a proxy buffers: events sent over {:.1} s arrived together, the first after {first_s:.2} s and the last after \
         {last_s:.2} s. Let it pass them on at once (nginx: proxy_buffering off; and no gzip for text/event-stream)",
        sent_within.as_secs_f64()
    );
    Finding::new(name, CheckStatus::Fail, detail)
}

async fn follow(address: &Url, ticket: &str) -> Result<ArrivalTimes, String> {
    let (mut line, _) = open(address).await?;
    let asked = Instant::now();
    request(&mut line, address, &format!("/trial-stream/{ticket}"), "text/event-stream").await?;
    let (mut text, mut first) = (String::new(), None);
    let mut piece = [0; 4096];
    let last = format!("data: {TRIAL_EVENTS}");
    loop {
        let length = line.read(&mut piece).await.map_err(|error| error.to_string())?;
        text.push_str(&String::from_utf8_lossy(&piece[..length]));
        if first.is_none() && text.contains("data: 1") {
            first = Some(asked.elapsed());
        }
        match first {
            Some(first) if text.contains(&last) => return Ok(ArrivalTimes { first, last: asked.elapsed() }),
            _ if length == 0 || text.len() > MAX_RESPONSE_BYTES => {
                let status = text.lines().next().unwrap_or_default().to_owned();
                return Err(format!("a trial stream broke off, or did not begin: {status:?}"));
            }
            _ => {}
        }
    }
}

/// Plain HTTP must be unreachable, or redirect to HTTPS.
async fn plain(address: &Url) -> Finding {
    let name = "plain HTTP";
    let mut bare = address.clone();
    let port = match address.port() {
        None | Some(443) => 80,
        Some(own) => own,
    };
    if bare.set_scheme("http").is_err() || bare.set_port(Some(port)).is_err() {
        return Finding::new(name, CheckStatus::Skip, "there is no such address");
    }
    let answer = match whole(&bare, "/api/v1/agent-endpoints").await {
        Ok(answer) => answer,
        Err(_) => return Finding::new(name, CheckStatus::Pass, format!("port {port} answers nobody in it")),
    };
    let status = answer.split_ascii_whitespace().nth(1).unwrap_or_default();
    let leads_on = answer.to_ascii_lowercase().contains("\r\nlocation: https://");
    match status {
        "301" | "302" | "307" | "308" if leads_on => {
            Finding::new(name, CheckStatus::Pass, format!("port {port} leads on to https"))
        }
        "" | "400" | "404" | "421" | "426" => Finding::new(name, CheckStatus::Pass, format!("port {port} refuses it")),
        other => {
            let detail = format!("port {port} answers {other} without TLS: a key sent there can be read on the way");
            Finding::new(name, CheckStatus::Fail, detail)
        }
    }
}

async fn whole(address: &Url, path: &str) -> Result<String, String> {
    let exchange = async {
        let (mut line, _) = open(address).await?;
        request(&mut line, address, path, "application/json").await?;
        let mut answer = Vec::new();
        let read = line.take(MAX_RESPONSE_BYTES as u64).read_to_end(&mut answer).await;
        // Some servers close a connection without an answer; that is an error only if no byte came.
        match read {
            Err(error) if answer.is_empty() => Err(error.to_string()),
            _ if answer.is_empty() => Err("it hung up without an answer".to_owned()),
            _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    };
    timeout(PROBE_TIMEOUT, exchange).await.map_err(|_| late())?
}

async fn request(line: &mut BoxedProbeStream, address: &Url, path: &str, accept: &str) -> Result<(), String> {
    let host = address.host_str().unwrap_or_default();
    let host = address.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
    let below = address.path().trim_end_matches('/');
    let text = format!(
        "GET {below}{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: deskgate-gateway/{VERSION}\r\nAccept: {accept}\r\n\
         Connection: close\r\n\r\n"
    );
    line.write_all(text.as_bytes()).await.map_err(|error| error.to_string())?;
    line.flush().await.map_err(|error| error.to_string())
}

fn shown(address: &Url) -> String {
    format!(
        "{}://{}",
        address.scheme(),
        host_and_port(address).map_or(String::new(), |(host, port)| format!("{host}:{port}"))
    )
}

/// Host and port of an address.
fn host_and_port(address: &Url) -> Option<(&str, u16)> {
    Some((address.host_str()?, address.port_or_known_default()?))
}
