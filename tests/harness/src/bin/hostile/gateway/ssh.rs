//! Below the control channel: SSH as only a server with the right host key can misuse it, and the upgrade.

use std::time::Duration;

use anyhow::Context;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::Config;
use russh::{Disconnect, Limits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::greetings::ESCAPES;
use super::line::{ANSWER_TIMEOUT, Greeting, Line, challenge, welcome};
use super::shell::{Manner, Shell};
use super::siege::Siege;
use crate::behaviour::{Behaviour, Evidence, NOTHING, effect, holds};

const CHANNELS: &str = "a server opens no channel on the desktop";
const BOUNDED: &str = "a flood below the session is bounded";
const UPGRADE: &str = "what is no gateway is called so";
const PINNED: &str = "the paired host key alone is trusted";

/// A session with a server of these settings.
async fn line_with(siege: &mut Siege, config: Config) -> anyhow::Result<Line> {
    let (ssh, socket, serving) = siege.shell(config).await?.upgrade().await?;
    let mut greeting = Greeting { ssh, socket, serving };
    greeting.send(&challenge(&siege.gateway_id)).await?;
    greeting.next().await?.context("no hello")?;
    greeting.send(&welcome(&siege.device_id, siege.epoch)).await?;
    Ok(Line::after(greeting))
}

/// Waits until the desktop has closed the channel, whatever it wrote before.
async fn left(shell: &mut Shell, why: &str) -> anyhow::Result<Evidence> {
    let mut buffer = vec![0; 16 * 1024];
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        match tokio::time::timeout_at(deadline, shell.stream.read(&mut buffer)).await.context("the desktop stays")? {
            Ok(1..) => {}
            _ => return Ok(Evidence::HungUp(why.to_owned())),
        }
    }
}

/// Answers the upgrade with these bytes; the desktop must leave.
async fn upgrade_with(siege: &mut Siege, answer: &[u8]) -> anyhow::Result<Evidence> {
    let config = siege.config();
    let mut shell = siege.shell(config).await?;
    let mut request = vec![0; 4096];
    timeout(ANSWER_TIMEOUT, shell.stream.read(&mut request)).await.context("no request")??;
    let _ = timeout(Duration::from_secs(3), shell.stream.write_all(answer)).await;
    left(&mut shell, "instead of the upgrade").await
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    let mut all = channels();
    all.extend(settings());
    all.extend(upgrades());
    all
}

fn channels() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "twenty channels of each kind, opened by the server",
            promise: CHANNELS,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let ssh = siege.fresh_line().await?.ssh.clone();
                    let (mut confirmed, mut refused) = (0_usize, 0_usize);
                    let mut count = |opened: Result<_, russh::Error>| match opened {
                        Ok(_) => confirmed += 1,
                        Err(_) => refused += 1,
                    };
                    let opening = async {
                        for _ in 0..20 {
                            count(ssh.channel_open_session().await.map(drop));
                            count(ssh.channel_open_agent().await.map(drop));
                            count(ssh.channel_open_x11("127.0.0.1", 6000).await.map(drop));
                            count(ssh.channel_open_direct_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await.map(drop));
                            count(ssh.channel_open_forwarded_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await.map(drop));
                            count(ssh.channel_open_direct_streamlocal("/run/x").await.map(drop));
                            count(ssh.channel_open_forwarded_streamlocal("/run/x").await.map(drop));
                        }
                    };
                    let answered = timeout(ANSWER_TIMEOUT, opening).await.is_ok();
                    holds!(confirmed == 0, "the desktop confirmed {confirmed} channels");
                    if !answered {
                        siege.line().await?;
                    }
                    Ok(Evidence::Answered(format!("{refused} refused")))
                })
            },
        },
        Behaviour {
            name: "a hundred channels at once, without waiting for answers",
            promise: CHANNELS,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let ssh = siege.fresh_line().await?.ssh.clone();
                    let opening = futures_util::future::join_all((0..100).map(|_| ssh.channel_open_session()));
                    let opened = timeout(ANSWER_TIMEOUT, opening).await.unwrap_or_default();
                    let confirmed = opened.iter().filter(|opened| opened.is_ok()).count();
                    holds!(confirmed == 0, "the desktop confirmed {confirmed} channels");
                    siege.line().await?.read_it().await
                })
            },
        },
        Behaviour {
            name: "five hundred requests to forward ports",
            promise: CHANNELS,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let line = siege.fresh_line().await?;
                    let ssh = line.ssh.clone();
                    let mut granted = 0;
                    for port in 1..=500 {
                        match timeout(ANSWER_TIMEOUT, ssh.forward_tcpip("0.0.0.0".to_owned(), port)).await {
                            Ok(Ok(_)) => granted += 1,
                            Ok(Err(())) => {}
                            Err(_) => break,
                        }
                    }
                    holds!(granted == 0, "the desktop granted {granted} of them");
                    line.read_it().await
                })
            },
        },
        Behaviour {
            name: "signals, exit codes, floods on the error channel",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let config = siege.config();
                    let shell = siege.shell(config).await?;
                    let (ssh, id) = (shell.ssh.clone(), shell.channel);
                    let (ssh_handle, socket, serving) = shell.upgrade().await?;
                    let mut greeting = Greeting { ssh: ssh_handle, socket, serving };
                    for _ in 0..64 {
                        let _ = timeout(ANSWER_TIMEOUT, ssh.extended_data(id, 1, vec![b'x'; 16 * 1024])).await?;
                        let _ = ssh.xon_xoff_request(id, true).await;
                        let _ = ssh.channel_failure(id).await;
                        let _ = ssh.exit_status_request(id, 255).await;
                    }
                    greeting.send(&challenge(&siege.gateway_id)).await?;
                    match greeting.next().await {
                        Ok(Some(_)) => Ok(Evidence::Answered("a hello behind it".to_owned())),
                        Ok(None) => Ok(Evidence::HungUp("the channel".to_owned())),
                        Err(_) => Ok(Evidence::HungUp("after its own time".to_owned())),
                    }
                })
            },
        },
        Behaviour {
            name: "the end of the channel, and frames behind it",
            promise: "nothing is read after the end of a channel",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let config = siege.config();
                    let mut shell = siege.shell(config).await?;
                    let _ = shell.ssh.eof(shell.channel).await;
                    let _ = shell.ssh.data(shell.channel, b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec()).await;
                    left(&mut shell, "at the end of the channel").await
                })
            },
        },
        Behaviour {
            name: "a disconnect with escapes as its reason",
            promise: "what a gateway writes reaches no terminal raw",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let line = siege.fresh_line().await?;
                    let reason = (ESCAPES.to_owned(), "\u{1b}[2J".to_owned());
                    let _ = line.ssh.disconnect(Disconnect::ByApplication, reason.0, reason.1).await;
                    let said = siege.desktop_says("next_attempt_at").await;
                    match said {
                        Ok(said) => Ok(Evidence::Said(said)),
                        // It may have dialled again already.
                        Err(_) => siege.visitor().await.map(|_| Evidence::HungUp("and dialled again".to_owned())),
                    }
                })
            },
        },
        Behaviour {
            name: "a refused channel, with escapes as the reason",
            promise: "what a gateway writes reaches no terminal raw",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let socket = siege.visitor().await?;
                    let config = siege.config();
                    let _shell = Shell::begin(socket, config, Manner::RefusesChannels).await?;
                    Ok(Evidence::Said(siege.desktop_says("disconnected").await?))
                })
            },
        },
        Behaviour {
            name: "a banner of escapes at the sign-in",
            promise: "what a gateway writes reaches no terminal raw",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let socket = siege.visitor().await?;
                    let config = siege.config();
                    let shell = Shell::open_as(socket, config, Manner::Banner).await?;
                    let _upgraded = shell.upgrade().await?;
                    Ok(Evidence::Answered("the upgrade behind it".to_owned()))
                })
            },
        },
        Behaviour {
            name: "a sign-in that is never answered",
            promise: "silence ends the attempt",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let socket = siege.visitor().await?;
                    let config = siege.config();
                    let _serving = Shell::begin(socket, config, Manner::NeverAdmits).await?;
                    // It gives up by itself, and dials again.
                    siege.door.visitor().await.context("the desktop waits for ever")?;
                    Ok(Evidence::HungUp("after its own time".to_owned()))
                })
            },
        },
    ]
}

fn settings() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a new exchange of keys after every kilobyte",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut config = siege.config();
                    config.limits = Limits::new(1024, 1024, Duration::from_secs(3600));
                    let mut line = line_with(siege, config).await?;
                    for _ in 0..200 {
                        line.send(json!({ "frame": "ping" })).await;
                    }
                    line.read_it().await
                })
            },
        },
        Behaviour {
            name: "a window that never opens",
            promise: "a peer that does not read is left",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let config = Config { window_size: 0, ..siege.config() };
                    let mut shell = siege.shell(config).await?;
                    left(&mut shell, "after its own time").await
                })
            },
        },
        Behaviour {
            name: "a window and packets of 2^32-1",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let config = Config { window_size: u32::MAX, maximum_packet_size: u32::MAX, ..siege.config() };
                    line_with(siege, config).await?.read_it().await
                })
            },
        },
        Behaviour {
            name: "keepalives every millisecond",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let config = Config {
                        keepalive_interval: Some(Duration::from_millis(1)),
                        keepalive_max: usize::MAX,
                        ..siege.config()
                    };
                    match line_with(siege, config).await {
                        Ok(mut line) => {
                            line.heard_for(Duration::from_secs(2)).await;
                            line.read_it().await
                        }
                        Err(why) => Ok(Evidence::HungUp(why.to_string())),
                    }
                })
            },
        },
        Behaviour {
            name: "another host key than the paired one",
            promise: PINNED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let other = Ed25519Keypair::from_seed(&[9; 32]);
                    let config = super::shell::config(&PrivateKey::from(other));
                    let socket = siege.visitor().await?;
                    match Shell::open(socket, config).await {
                        Ok(_) => Err(effect("the desktop opened its channel")),
                        Err(_) => Ok(Evidence::Said(siege.desktop_says("host key").await?)),
                    }
                })
            },
        },
        Behaviour {
            name: "a gateway that reads nothing, while the desktop has much to say",
            promise: "a peer that does not read is left",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let config = Config { window_size: 4096, ..siege.config() };
                    let shell = siege.shell(config).await?;
                    let (ssh, socket, serving) = shell.upgrade().await?;
                    let mut greeting = Greeting { ssh, socket, serving };
                    greeting.send(&challenge(&siege.gateway_id)).await?;
                    greeting.next().await?.context("no hello")?;
                    let mut hurried = welcome(&siege.device_id, siege.epoch);
                    hurried["policy"]["heartbeat_ms"] = 1000.into();
                    greeting.send(&hurried).await?;
                    // Stops of runs that are not: each is answered, and no answer is read.
                    for _ in 0..2000 {
                        let stop = json!({ "frame": "control", "operation_id": deskgate_protocol::OperationId::new(),
                            "kind": "run.stop", "run_id": super::offers::run_id() });
                        match timeout(Duration::from_secs(5), greeting.send(&stop)).await {
                            Ok(Ok(())) => {}
                            _ => break,
                        }
                    }
                    greeting.hung_up("after two heartbeats").await
                })
            },
        },
    ]
}

fn upgrades() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "an upgrade that is answered 500 with a page of escapes",
            promise: UPGRADE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let page = format!("HTTP/1.1 500 {ESCAPES}\r\nX-A: {ESCAPES}\r\nContent-Length: 3\r\n\r\nbad");
                    upgrade_with(siege, page.as_bytes()).await
                })
            },
        },
        Behaviour {
            name: "an upgrade with the wrong proof",
            promise: UPGRADE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(upgrade_with(
                    siege,
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
                ))
            },
        },
        Behaviour {
            name: "an upgrade that asks for the password of a proxy",
            promise: UPGRADE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(upgrade_with(
                    siege,
                    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
                ))
            },
        },
        Behaviour {
            name: "an upgrade whose headers never end",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let endless = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
                    let endless = [endless, b"X-A: aaaaaaaaaaaaaaaa\r\n".repeat(400_000)].concat();
                    upgrade_with(siege, &endless).await
                })
            },
        },
    ]
}
