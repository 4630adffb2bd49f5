//! `listen`: posts an application's events to an address of this computer, as its callback would get them.
//!
//! The events come over the desktop's own connection and go to loopback only, so the rules for callbacks are not
//! weakened. This process posts them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryErrorCode};
use deskgate_protocol::management::{ForwardOutcome, ForwardedDelivery, OpenListener, PollListener};
use reqwest::{Client, Url};
use serde_json::json;

use super::app;
use super::socket::AgentClient;

/// `deskgate listen …`
#[derive(Debug, Args)]
#[command(
    after_help = "Ends with Ctrl-C. Make something to receive with: deskgate delivery trigger run.succeeded --app APP"
)]
pub(super) struct ListenArgs {
    /// The application: its name or identifier
    #[arg(long)]
    app: String,
    /// Where to post: http and an address of this computer, as in http://127.0.0.1:3000/hook
    #[arg(long, value_name = "URL", value_parser = here)]
    forward_to: Url,
    /// An event to receive, as in run.succeeded; may be repeated [default: all]
    #[arg(long, value_name = "EVENT")]
    event: Vec<CallbackEvent>,
}

/// The timeout for the receiver, as for a callback's.
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long one request to the gateway may wait for an event.
const POLL_WAIT_SECS: u32 = 20;
/// How many deliveries are sent at once.
const MAX_DELIVERIES_AT_ONCE: u32 = 8;

pub(super) async fn run(agent: AgentClient, listen: ListenArgs, out: Output) -> Result<(), Failure> {
    let app_id = app::find(&agent, &listen.app).await?;
    let client = client(&listen.forward_to)?;
    let opened = agent.manage(OpenListener { app_id, types: listen.event }).await?;
    out.result("listening/1", &opened, || {
        format!(
            "Listening for {}; posting to {}.\nSigning secret of this session, shown this once:\n{}\n",
            listen.app, listen.forward_to, opened.secret
        )
    });
    let mut outcomes = Vec::new();
    loop {
        let poll = PollListener {
            listener_id: opened.listener_id,
            limit: MAX_DELIVERIES_AT_ONCE,
            wait_s: POLL_WAIT_SECS,
            outcomes,
        };
        let forwards = agent.manage(poll).await?.forwards;
        outcomes = Vec::with_capacity(forwards.len());
        for forward in forwards {
            let outcome = post(&client, &listen.forward_to, &forward).await;
            out.result("forwarded/1", &json!({ "kind": forward.kind, "outcome": outcome }), || {
                line(&forward, &outcome)
            });
            outcomes.push(outcome);
        }
    }
}

/// Connects to this computer only, without proxy and redirects.
fn client(to: &Url) -> Result<Client, Failure> {
    let port = to.port_or_known_default().unwrap_or(80);
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let addresses = loopback.map(|address| SocketAddr::new(address, port));
    deskgate_outbound::builder()
        .no_proxy()
        .timeout(RECEIVER_TIMEOUT)
        .resolve_to_addrs("localhost", &addresses)
        .build()
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// Parses an address of this computer.
fn here(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let is_here = match url.host_str().map(|host| host.trim_matches(['[', ']'])) {
        Some("localhost") => true,
        Some(host) => host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    };
    match url.scheme() {
        "http" if is_here && url.username().is_empty() && url.password().is_none() => Ok(url),
        "http" => Err("events are only forwarded to this computer: 127.0.0.1, [::1] or localhost".to_owned()),
        _ => Err("it begins with http://".to_owned()),
    }
}

async fn post(client: &Client, to: &Url, forward: &ForwardedDelivery) -> ForwardOutcome {
    let began = Instant::now();
    let request = forward
        .headers
        .iter()
        .fold(client.post(to.clone()), |request, (name, value)| request.header(name.as_str(), value.as_str()));
    let answered = request.body(forward.body.clone()).send().await;
    let (status_code, error_code) = match answered {
        Ok(answer) => (Some(answer.status().as_u16()), None),
        Err(error) if error.is_timeout() => (None, Some(DeliveryErrorCode::Timeout)),
        Err(error) if error.is_connect() => (None, Some(DeliveryErrorCode::ConnectFailed)),
        Err(_) => (None, Some(DeliveryErrorCode::BadAnswer)),
    };
    let duration_ms = u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX);
    ForwardOutcome { delivery_id: forward.delivery_id, attempt: forward.attempt, duration_ms, status_code, error_code }
}

fn line(forward: &ForwardedDelivery, outcome: &ForwardOutcome) -> String {
    let came = match (outcome.status_code, outcome.error_code) {
        (Some(status), _) => status.to_string(),
        (None, error) => error.map_or("no answer".to_owned(), |error| error.to_string()),
    };
    let (id, ms) = (forward.delivery_id, outcome.duration_ms);
    format!("{:28} {id}  {came} in {ms} ms", forward.kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_forwarded_to_this_computer_only() {
        for url in ["http://127.0.0.1:3000/hook", "http://[::1]/", "http://localhost:8080", "http://127.8.9.1/"] {
            assert!(here(url).is_ok(), "{url}");
        }
        for url in [
            "https://127.0.0.1/",
            "http://192.168.0.1/",
            "http://example.com/",
            "http://localhost.example.com/",
            "http://a@127.0.0.1/",
            "http://0.0.0.0/",
            "127.0.0.1:3000",
            "file:///etc/passwd",
        ] {
            assert!(here(url).is_err(), "{url}");
        }
    }
}
