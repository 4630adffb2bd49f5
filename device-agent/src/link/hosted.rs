//! The control channel of a hosted gateway: a WebSocket over its public address, opened with an account's access token.

use std::net::IpAddr;
use std::time::Duration;

use deskgate_outbound::Clients;
use deskgate_protocol::control::DeviceFrame;
use deskgate_protocol::secret::AccessToken;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::builtin::BoxedStream;
use super::dial;
use super::error::LinkError;
use super::handshake::limits;
use super::network;
use super::session::ControlSocket;
use crate::account::{AccountError, GatewayAddress, TokenManager};

/// The timeout for connection, TLS and upgrade together.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout for connection and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval between two token requests while the issuer does not answer.
const TOKEN_RETRY_INTERVAL: Duration = Duration::from_secs(5);

// HTTP/2 has no upgrade.
static CLIENTS: Clients = Clients::new(|builder| builder.http1_only().connect_timeout(CONNECT_TIMEOUT));

/// A hosted gateway, and its account.
#[derive(Clone, Debug)]
pub struct HostedConnector {
    /// The gateway's address.
    pub gateway: GatewayAddress,
    /// Supplies the tokens.
    pub token_manager: TokenManager,
    /// This device's name when its account registers it.
    pub device_name: String,
}

impl HostedConnector {
    /// Opens the channel to this path with a valid token, and returns its local address.
    pub(super) async fn open(&self, path: &str) -> Result<(ControlSocket, Option<IpAddr>), LinkError> {
        let token = self.token_manager.token(&self.gateway).await?;
        let late =
            |_| LinkError::Timeout { address: self.gateway.to_string(), stage: "connecting", limit: UPGRADE_TIMEOUT };
        // A try that began while the network was down hangs after it is back; the gateway sees who gets through.
        let opened = dial::staggered(|| self.upgrade(&token, path), |error| !error.is_of_the_line());
        timeout(UPGRADE_TIMEOUT, opened).await.map_err(late)?
    }

    async fn upgrade(&self, token: &AccessToken, path: &str) -> Result<(ControlSocket, Option<IpAddr>), LinkError> {
        let key = generate_key();
        let url = self.gateway.url(path).ok_or_else(|| self.no_line("its address is no URL"))?;
        let request = CLIENTS
            .for_url(&url)
            .get(url)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", &key)
            .header(AUTHORIZATION, bearer(token)?);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {}
            StatusCode::UNAUTHORIZED => {
                self.token_manager.invalidate(&self.gateway, token).await;
                return Err(LinkError::AccessTokenRefused { address: self.gateway.to_string(), why: why(&response) });
            }
            StatusCode::NOT_FOUND => return Err(AccountError::NotHosted(self.gateway.to_string()).into()),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(LinkError::Lost(format!("it is not ready: HTTP status {}", status.as_u16())));
            }
            status => return Err(self.no_line(&format!("HTTP status {}", status.as_u16()))),
        }
        if !accepts(response.headers(), &key) {
            return Err(self.no_line("it became no WebSocket"));
        }
        let options = response.remote_addr().and_then(network::local_address_for);
        let stream = response.upgrade().await.map_err(|error| LinkError::Lost(error.to_string()))?;
        let stream: BoxedStream = Box::new(stream);
        Ok((WebSocketStream::from_raw_socket(stream, Role::Client, Some(limits())).await, options))
    }

    /// Presents a newer token whenever half of one's lifetime is over, so that the connection outlasts its first token.
    /// Ends when there is no newer one: the gateway then closes the connection when the last one expires.
    pub(super) async fn renew(self, frames: mpsc::Sender<DeviceFrame>) {
        loop {
            match self.token_manager.newer_token(&self.gateway).await {
                Ok(access_token) => {
                    if frames.send(DeviceFrame::Token { access_token }).await.is_err() {
                        return;
                    }
                }
                Err(error @ AccountError::Away { .. }) => {
                    tracing::warn!(%error, "no newer token can be had; the line stays up while the last one is good");
                    sleep(TOKEN_RETRY_INTERVAL).await;
                }
                Err(error) => return tracing::warn!(%error, "the line ends with its token"),
            }
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> LinkError {
        if let Some(why) = deskgate_outbound::certificate_problem(error) {
            return LinkError::Certificate { address: self.gateway.to_string(), why };
        }
        let mut deepest: &dyn std::error::Error = error;
        while let Some(source) = deepest.source() {
            deepest = source;
        }
        LinkError::Web { address: self.gateway.to_string(), why: deepest.to_string() }
    }

    fn no_line(&self, why: &str) -> LinkError {
        LinkError::NoLine { address: self.gateway.to_string(), why: why.to_owned() }
    }
}

fn bearer(token: &AccessToken) -> Result<HeaderValue, LinkError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .map_err(|_| AccountError::Kept("the issuer's token is none".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether the answer belongs to this request (RFC 6455, section 4.1).
fn accepts(headers: &HeaderMap, key: &str) -> bool {
    headers
        .get(SEC_WEBSOCKET_ACCEPT)
        .is_some_and(|value| value.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes())
}

/// The gateway's message about the token, without terminal control characters.
fn why(response: &Response) -> String {
    let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let described = challenge.split("error_description=\"").nth(1).and_then(|rest| rest.split('"').next());
    described.unwrap_or("it does not say why").chars().filter(|c| !c.is_control()).take(200).collect()
}
