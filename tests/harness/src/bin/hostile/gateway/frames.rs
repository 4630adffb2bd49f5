//! Messages that are no frames, or frames in the wrong place.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

use super::siege::Siege;
use crate::behaviour::{Behaviour, Evidence, NOTHING};

const BOUNDED: &str = "a frame has a bound, and what is no frame ends the session with its reason";
const ORDER: &str = "a frame in the wrong place changes nothing";

/// How long the desktop may take to read; it may have left before the end.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends messages in an open session; the desktop must hang up.
async fn hangs_up_after(siege: &mut Siege, messages: Vec<Message>) -> anyhow::Result<Evidence> {
    let line = siege.line().await?;
    for message in messages {
        line.send_message(message).await;
    }
    line.must_hang_up().await
}

/// Sends messages in an open session; the desktop must stay.
async fn stays_after(siege: &mut Siege, messages: Vec<Message>) -> anyhow::Result<Evidence> {
    let line = siege.line().await?;
    for message in messages {
        line.send_message(message).await;
    }
    line.must_stay().await
}

/// Writes bytes below the WebSocket in a new session; the desktop must hang up.
async fn bytes_end_it(siege: &mut Siege, bytes: Vec<u8>) -> anyhow::Result<Evidence> {
    let mut greeting = siege.welcomed().await?;
    let stream = greeting.socket.get_mut();
    let _ = tokio::time::timeout(WRITE_TIMEOUT, stream.write_all(&bytes)).await;
    let _ = tokio::time::timeout(WRITE_TIMEOUT, stream.flush()).await;
    greeting.hung_up("the session").await
}

fn text(text: impl Into<String>) -> Message {
    Message::text(text.into())
}

/// The head of an unmasked WebSocket frame with this first byte and a length of 64 bits.
fn head(first: u8, length: u64) -> Vec<u8> {
    [&[first, 127][..], &length.to_be_bytes()].concat()
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a frame of 4 MiB and one byte",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let long = "x".repeat(4 * 1024 * 1024);
                    hangs_up_after(siege, vec![text(json!({ "frame": "ping", "more": long }).to_string())]).await
                })
            },
        },
        Behaviour {
            name: "a frame that is cut in the middle",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| Box::pin(hangs_up_after(siege, vec![text(r#"{"frame":"offer","run_id":"run_"#)])),
        },
        Behaviour {
            name: "JSON nested a million deep",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| Box::pin(hangs_up_after(siege, vec![text("[".repeat(1_000_000))])),
        },
        Behaviour {
            name: "an input nested a hundred thousand deep",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let offer = siege.offer(&super::offers::run_id(), 1, "x").to_string();
                    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "1");
                    let deep = format!("{deep}{}", "}".repeat(100_000));
                    let offer = offer.replace("\"text\":\"x\"", &format!("\"text\":\"x\",\"deep\":{deep}"));
                    hangs_up_after(siege, vec![text(offer)]).await
                })
            },
        },
        Behaviour {
            name: "a text message that is not UTF-8",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| Box::pin(bytes_end_it(siege, vec![0x81, 4, 0xff, 0xfe, 0xc0, 0x80])),
        },
        Behaviour {
            name: "a frame with the same member twice",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (one, two) = (super::offers::run_id(), super::offers::run_id());
                    let frame = format!(
                        r#"{{"frame":"revoke","run_id":"{one}","run_id":"{two}","attempt":1,"code":"unknown_run"}}"#
                    );
                    let line = siege.line().await?;
                    line.send_text(frame).await;
                    line.read_it().await
                })
            },
        },
        Behaviour {
            name: "a frame of an unknown kind",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| Box::pin(hangs_up_after(siege, vec![text(r#"{"frame":"execute","command":"id"}"#)])),
        },
        Behaviour {
            name: "a frame that only a device sends",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| Box::pin(hangs_up_after(siege, vec![text(r#"{"frame":"ready","slots":4}"#)])),
        },
        Behaviour {
            name: "a binary message with a frame in it",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| Box::pin(hangs_up_after(siege, vec![Message::binary(&br#"{"frame":"ping"}"#[..])])),
        },
        Behaviour {
            name: "twenty thousand pings of the protocol",
            promise: "a flood is answered or ended within bounds",
            allowed: NOTHING,
            act: |siege| Box::pin(stays_after(siege, vec![text(r#"{"frame":"ping"}"#); 20_000])),
        },
        Behaviour {
            name: "twenty thousand pings of WebSocket",
            promise: "a flood is answered or ended within bounds",
            allowed: NOTHING,
            act: |siege| Box::pin(stays_after(siege, vec![Message::Ping(vec![7; 125].into()); 20_000])),
        },
        Behaviour {
            name: "fragments without an end, a megabyte each",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let fragment = [head(0x01, 1 << 20), vec![b' '; 1 << 20]].concat();
                    let mut more = fragment.clone();
                    more[0] = 0x00;
                    bytes_end_it(siege, [fragment, more.repeat(7)].concat()).await
                })
            },
        },
        Behaviour {
            name: "empty fragments without an end",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut greeting = siege.welcomed().await?;
                    let stream = greeting.socket.get_mut();
                    stream.write_all(&[0x01, 0]).await?;
                    stream.write_all(&[0x00, 0].repeat(200_000)).await?;
                    // At last a fragment that is no JSON, by which the desktop shows that it read all.
                    stream.write_all(&[0x80, 1, b'}']).await?;
                    stream.flush().await?;
                    greeting.hung_up("at the end of the fragments").await
                })
            },
        },
        Behaviour {
            name: "a compressed message that nobody agreed to",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    // The first bytes of a deflate stream that repeats one byte.
                    let bomb = [0xec, 0xc1, 0x81, 0, 0, 0, 0, 0x80, 0x90, 0xfe, 0xaf];
                    bytes_end_it(siege, [&[0xc1, 11][..], &bomb].concat()).await
                })
            },
        },
        Behaviour {
            name: "the head of a message of 2^62 bytes",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| Box::pin(bytes_end_it(siege, head(0x81, 1 << 62))),
        },
        Behaviour {
            name: "a masked frame, as only clients send them",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut greeting = siege.welcomed().await?;
                    let stream = greeting.socket.get_mut();
                    stream.write_all(&[0x81, 0x82, 1, 2, 3, 4, b'{' ^ 1, b'}' ^ 2]).await?;
                    stream.flush().await?;
                    greeting.hung_up("the session").await
                })
            },
        },
        Behaviour {
            name: "a close with escapes as its reason",
            promise: "what a gateway writes reaches no terminal raw",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let reason = b"\x03\xe8bye\x1b[2J\x1b]52;c;aWQ=\x07";
                    let bytes = [&[0x88, u8::try_from(reason.len())?][..], reason].concat();
                    bytes_end_it(siege, bytes).await
                })
            },
        },
        Behaviour {
            name: "a second challenge within the session",
            promise: ORDER,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let again = super::line::challenge(&siege.gateway_id);
                    let line = siege.line().await?;
                    line.send(again).await;
                    line.read_it().await
                })
            },
        },
        Behaviour {
            name: "a second welcome with another device and a policy of zeros",
            promise: ORDER,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut again = super::line::welcome("dev_00000000000070008000000000000000", 1);
                    for limit in ["heartbeat_ms", "lease_ms", "offer_ms", "unacknowledged_events"] {
                        again["policy"][limit] = 0.into();
                    }
                    let line = siege.line().await?;
                    line.send(again).await;
                    line.read_it().await
                })
            },
        },
        Behaviour {
            name: "a refusal in the middle of the session",
            promise: ORDER,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let refused = super::greetings::refusal("revoked_device", "gone", None);
                    let line = siege.line().await?;
                    line.send(refused).await;
                    line.read_it().await
                })
            },
        },
        Behaviour {
            name: "a goodbye with escapes, a bell and right-to-left text",
            promise: "what a gateway writes reaches no terminal raw",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let message = super::greetings::ESCAPES;
                    let bye = json!({ "frame": "bye", "code": "unavailable", "message": message });
                    hangs_up_after(siege, vec![text(bye.to_string())]).await
                })
            },
        },
        Behaviour {
            name: "a drain, and offers behind it",
            promise: ORDER,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let offer = siege.offer(&super::offers::run_id(), 1, "after the drain");
                    let line = siege.fresh_line().await?;
                    line.send(json!({ "frame": "drain" })).await;
                    line.send(offer).await;
                    line.read_it().await
                })
            },
        },
    ]
}
