//! Messages below the frames: too large, in pieces without an end, compressed, binary, after the end.

use anyhow::bail;
use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::camp::Camp;
use super::line::{ANSWER_TIMEOUT, Socket, socket};
use crate::behaviour::{Behaviour, Evidence, NOTHING, effect};

const BOUNDED: &str = "a message has a bound, and what is no frame ends the session";

/// A welcomed socket.
async fn welcomed(camp: &Camp) -> anyhow::Result<Socket> {
    let token = std::fs::read_to_string(camp.gateway.control_token_file())?;
    let mut socket = socket(&camp.gateway, "/control", Some(token.trim())).await?;
    let Some(Ok(Message::Text(text))) = socket.next().await else { bail!("no challenge") };
    let deskgate_protocol::control::GatewayFrame::Challenge(challenge) = serde_json::from_str(text.as_str())? else {
        bail!("no challenge")
    };
    let hello = serde_json::to_string(&camp.hostile.hello(&challenge, Vec::new()))?;
    socket.send(Message::text(hello)).await?;
    Ok(socket)
}

/// Waits until the gateway has hung up.
async fn hung_up(mut socket: Socket) -> anyhow::Result<Evidence> {
    let rest = async {
        let mut last = String::new();
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                last = text.as_str().to_owned();
            }
        }
        last
    };
    match timeout(ANSWER_TIMEOUT, rest).await {
        Ok(last) => Ok(Evidence::HungUp(last)),
        Err(_) => Err(effect("the gateway stays")),
    }
}

/// Writes bytes below the WebSocket; the gateway must hang up.
async fn bytes(camp: &mut Camp, bytes: Vec<u8>) -> anyhow::Result<Evidence> {
    let mut socket = welcomed(camp).await?;
    let _ = timeout(ANSWER_TIMEOUT, socket.get_mut().write_all(&bytes)).await?;
    hung_up(socket).await
}

/// Sends a message; the gateway must hang up.
async fn message(camp: &mut Camp, message: Message) -> anyhow::Result<Evidence> {
    let mut socket = welcomed(camp).await?;
    let _ = timeout(ANSWER_TIMEOUT, socket.send(message)).await?;
    hung_up(socket).await
}

/// The head of a masked frame with this first byte, and a mask of zeros.
fn head(first: u8, length: u64) -> Vec<u8> {
    [&[first, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat()
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "a message of five megabytes",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(async move { message(camp, Message::text("x".repeat(5 << 20))).await }),
        },
        Behaviour {
            name: "a binary message",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(message(camp, Message::binary(&br#"{"frame":"pong"}"#[..]))),
        },
        Behaviour {
            name: "JSON nested a million deep",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(async move { message(camp, Message::text("[".repeat(1_000_000))).await }),
        },
        Behaviour {
            name: "a frame that only a gateway sends",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(message(camp, Message::text(r#"{"frame":"drain"}"#))),
        },
        Behaviour {
            name: "text that is not UTF-8",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move { bytes(camp, [head(0x81, 4), vec![0xff, 0xfe, 0xc0, 0x80]].concat()).await })
            },
        },
        Behaviour {
            name: "fragments without an end, a megabyte each",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let more = [head(0x00, 1 << 20), vec![b' '; 1 << 20]].concat();
                    bytes(camp, [head(0x01, 1 << 20), vec![b' '; 1 << 20], more.repeat(7)].concat()).await
                })
            },
        },
        Behaviour {
            name: "the head of a message of 2^62 bytes",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(async move { bytes(camp, head(0x81, 1 << 62)).await }),
        },
        Behaviour {
            name: "a compressed message that nobody agreed to",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(async move { bytes(camp, [head(0xc1, 3), vec![1, 2, 3]].concat()).await }),
        },
        Behaviour {
            name: "a frame without a mask",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(bytes(camp, b"\x81\x02{}".to_vec())),
        },
        Behaviour {
            name: "a close, and frames behind it",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let ready = br#"{"frame":"ready","slots":9}"#;
                    bytes(camp, [head(0x88, 0), head(0x81, ready.len() as u64), ready.to_vec()].concat()).await
                })
            },
        },
        Behaviour {
            name: "an upgrade whose headers never end",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let mut stream = UnixStream::connect(camp.gateway.control_socket()).await?;
                    let _ = stream.write_all(b"GET /control HTTP/1.1\r\nHost: deskgate\r\n").await;
                    for _ in 0..100_000 {
                        let written =
                            timeout(ANSWER_TIMEOUT, stream.write_all(b"X-A: aaaaaaaaaaaaaaaaaaaaaaaa\r\n")).await;
                        if !matches!(written, Ok(Ok(()))) {
                            break;
                        }
                    }
                    let mut answer = Vec::new();
                    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer);
                    let _ = timeout(ANSWER_TIMEOUT, read).await.map_err(|_| effect("the gateway stays"))?;
                    Ok(Evidence::HungUp(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()))
                })
            },
        },
    ]
}
