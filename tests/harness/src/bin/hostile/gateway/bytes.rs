//! Before any SSH: greetings that are none, packets in the clear, silence.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::greetings::ESCAPES;
use super::line::ANSWER_TIMEOUT;
use super::siege::Siege;
use crate::behaviour::{Behaviour, Evidence, NOTHING};

const UNPROVEN: &str = "nothing counts before the host key is verified";
const SILENCE: &str = "silence ends the attempt";
const GREETING: &[u8] = b"SSH-2.0-Deskgate\r\n";

/// Writes bytes to a desktop that dialled; it must leave.
async fn says(siege: &mut Siege, bytes: &[u8]) -> anyhow::Result<Evidence> {
    let mut socket = siege.visitor().await?;
    // The desktop may leave before it has read all.
    let _ = timeout(ANSWER_TIMEOUT, socket.write_all(bytes)).await;
    let mut read = Vec::new();
    let _ = timeout(ANSWER_TIMEOUT, socket.read_to_end(&mut read)).await?;
    anyhow::ensure!(!read.is_empty(), "the desktop never greeted");
    Ok(Evidence::HungUp(format!("after {} bytes of its own", read.len())))
}

/// A packet in the clear.
fn packet(payload: &[u8]) -> Vec<u8> {
    let padding = 4 + (8 - (payload.len() + 1 + 4 + 4) % 8) % 8;
    let length = u32::try_from(payload.len() + 1 + padding).unwrap_or_default();
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).unwrap_or_default());
    packet.extend(payload);
    packet.extend(vec![0; padding]);
    packet
}

fn string(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or_default();
    [&length.to_be_bytes()[..], text].concat()
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a greeting of random bytes",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let noise: Vec<u8> = (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
                    says(siege, &noise).await
                })
            },
        },
        Behaviour {
            name: "lines before the greeting without an end",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| Box::pin(async move { says(siege, &b"welcome to this server\r\n".repeat(500_000)).await }),
        },
        Behaviour {
            name: "a greeting of sixteen megabytes in one line",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move { says(siege, &[b"SSH-2.0-".to_vec(), vec![b'a'; 16 << 20]].concat()).await })
            },
        },
        Behaviour {
            name: "a greeting of escapes, and then nothing",
            promise: "what a gateway writes reaches no terminal raw",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let escapes = ESCAPES.replace(['\r', '\n'], "");
                    says(siege, format!("SSH-2.0-{escapes}\r\n{escapes}\r\n").as_bytes()).await
                })
            },
        },
        Behaviour {
            name: "a greeting of another protocol",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| Box::pin(says(siege, b"220 mail.example ESMTP \x1b[2J\r\n250 ok\r\n")),
        },
        Behaviour {
            name: "a packet of 4 GiB in the clear",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| Box::pin(async move { says(siege, &[GREETING, &[0xff; 64]].concat()).await }),
        },
        Behaviour {
            name: "a disconnect in the clear, with escapes",
            promise: "what a gateway writes reaches no terminal raw",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let payload = [&[1, 0, 0, 0, 2][..], &string(ESCAPES.as_bytes()), &string(b"\x1b[2J")].concat();
                    says(siege, &[GREETING, &packet(&payload)].concat()).await
                })
            },
        },
        Behaviour {
            name: "the success of a sign-in that was not, in the clear",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move { says(siege, &[GREETING, &packet(&[52]), &packet(&[52])].concat()).await })
            },
        },
        Behaviour {
            name: "a channel that is confirmed in the clear, with data on it",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let confirmed = packet(&[&[91][..], &[0; 16]].concat());
                    let data = packet(&[&[94, 0, 0, 0, 0][..], &string(b"{}")].concat());
                    says(siege, &[GREETING, &confirmed, &data].concat()).await
                })
            },
        },
        Behaviour {
            name: "a hundred thousand packets to ignore, before any key",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let ignored = packet(&[&[2][..], &string(&[7; 64])].concat());
                    says(siege, &[GREETING, &ignored.repeat(100_000)].concat()).await
                })
            },
        },
        Behaviour {
            name: "an offer of algorithms that do not exist",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let lists = (0..10).flat_map(|_| string(b"none,rot13")).collect::<Vec<_>>();
                    let payload = [&[20][..], &[0; 16], &lists, &[0; 5]].concat();
                    says(siege, &[GREETING, &packet(&payload)].concat()).await
                })
            },
        },
        Behaviour {
            name: "nothing at all",
            promise: SILENCE,
            allowed: NOTHING,
            act: |siege| Box::pin(says(siege, b"")),
        },
        Behaviour {
            name: "a greeting of one byte a second",
            promise: SILENCE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut socket = siege.visitor().await?;
                    for byte in b"SSH-2.0-Deskgate_and_so_on" {
                        if socket.write_all(&[*byte]).await.is_err() {
                            break;
                        }
                        sleep(Duration::from_millis(700)).await;
                    }
                    let mut read = Vec::new();
                    let _ = timeout(ANSWER_TIMEOUT, socket.read_to_end(&mut read)).await?;
                    Ok(Evidence::HungUp("after its own time".to_owned()))
                })
            },
        },
    ]
}
