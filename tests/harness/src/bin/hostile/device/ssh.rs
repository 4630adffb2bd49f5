//! The gateway's SSH listener before and after a paired device has signed in.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use deskgate_gateway::tunnel::HostKey;
use deskgate_tests::device::{CommandOutput, run};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::camp::Camp;
use super::line::ANSWER_TIMEOUT;
use crate::behaviour::{Behaviour, Evidence, NOTHING, effect, holds};

const ONE_CHANNEL: &str = "a device gets its control channel and nothing else";
const UNPROVEN: &str = "who proves no key costs little and nobody's place";

/// Stock OpenSSH with the paired key of the hostile device, or another key.
fn command(camp: &Camp, seed: Option<u8>, arguments: &[&str]) -> anyhow::Result<std::process::Command> {
    let folder = camp.honest.folder().join("hostile");
    std::fs::create_dir_all(&folder)?;
    let (key, known) = (key_file(camp, seed)?, folder.join("known_hosts"));
    let host_key = HostKey::load_or_create(&camp.gateway.state_dir().join("ssh_host_ed25519_key"))?;
    let address = camp.gateway.ssh().get();
    std::fs::write(&known, format!("[127.0.0.1]:{} {}\n", address.port(), host_key.public_key()))?;
    let mut ssh = std::process::Command::new("ssh");
    ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes"])
        .args(["-o", "IdentityAgent=none", "-o", "GlobalKnownHostsFile=/dev/null", "-o", "ConnectTimeout=10"])
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known.display()))
        .arg("-i")
        .arg(key)
        .args(["-p", &address.port().to_string()])
        .args(arguments)
        .stdin(Stdio::null());
    Ok(ssh)
}

fn key_file(camp: &Camp, seed: Option<u8>) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = camp.honest.folder().join(format!("hostile/key-{}", seed.unwrap_or(0)));
    let bytes = seed.map_or(camp.hostile.key.to_bytes(), |seed| [seed; 32]);
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&bytes));
    std::fs::write(&path, key.to_openssh(LineEnding::LF)?.as_bytes())?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(path)
}

/// Runs it; it must fail without output.
async fn gets_nothing(camp: &mut Camp, seed: Option<u8>, arguments: &[&str]) -> anyhow::Result<Evidence> {
    let CommandOutput { exit, stdout, stderr, .. } = run(command(camp, seed, arguments)?).await;
    holds!(exit != 0 && stdout.is_empty(), "ssh {} got {exit}: {stdout}", arguments.join(" "));
    let last = stderr.lines().last().unwrap_or_default().to_owned();
    anyhow::ensure!(!last.is_empty(), "ssh says nothing");
    Ok(Evidence::Answered(last))
}

/// Writes bytes to the listener; it must hang up.
async fn says(camp: &mut Camp, bytes: Vec<u8>) -> anyhow::Result<Evidence> {
    let mut socket = TcpStream::connect(camp.gateway.ssh().get()).await?;
    let mut greeting = [0; 8];
    timeout(ANSWER_TIMEOUT, socket.read_exact(&mut greeting)).await.context("no greeting")??;
    let _ = timeout(ANSWER_TIMEOUT, socket.write_all(&bytes)).await?;
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(60), socket.read_to_end(&mut rest)).await;
    ended.map(|_| ()).map_err(|_| effect("the gateway holds it for more than a minute"))?;
    Ok(Evidence::HungUp(format!("after {} bytes", rest.len())))
}

macro_rules! openssh {
    ($name:literal, $arguments:expr) => {
        Behaviour {
            name: $name,
            promise: ONE_CHANNEL,
            allowed: NOTHING,
            act: |camp: &mut Camp| Box::pin(gets_nothing(camp, None, $arguments)),
        }
    };
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Camp>> {
    let mut all = vec![
        openssh!("a shell", &["x@127.0.0.1"]),
        openssh!("a command", &["x@127.0.0.1", "id"]),
        openssh!("a terminal with an environment", &["-tt", "-o", "SetEnv=LD_PRELOAD=/tmp/x", "x@127.0.0.1"]),
        openssh!("file transfer", &["-s", "x@127.0.0.1", "sftp"]),
        openssh!("a connection to a port of the server", &["-W", "127.0.0.1:22", "x@127.0.0.1"]),
        openssh!(
            "a port on the server that leads back",
            &["-N", "-o", "ExitOnForwardFailure=yes", "-R", "127.0.0.1:0:127.0.0.1:9", "x@127.0.0.1"]
        ),
        openssh!(
            "a socket on the server that leads back",
            &["-N", "-o", "ExitOnForwardFailure=yes", "-R", "/tmp/deskgate-hostile.sock:127.0.0.1:9", "x@127.0.0.1"]
        ),
        openssh!("another socket of the server", &["-W", "/run/docker.sock", "x@127.0.0.1"]),
        openssh!("agent and X11 forwarding with a command", &["-A", "-X", "x@127.0.0.1", "id"]),
        openssh!("a tunnel device", &["-w", "0:0", "-o", "ExitOnForwardFailure=yes", "x@127.0.0.1", "id"]),
    ];
    all.extend(unproven());
    all
}

fn unproven() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "a key that is not paired",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| Box::pin(gets_nothing(camp, Some(201), &["x@127.0.0.1", "id"])),
        },
        Behaviour {
            name: "passwords and questions",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(gets_nothing(
                    camp,
                    Some(202),
                    &[
                        "-o",
                        "PreferredAuthentications=password,keyboard-interactive,hostbased,gssapi-with-mic",
                        "x@127.0.0.1",
                    ],
                ))
            },
        },
        Behaviour {
            name: "a name of two kilobytes",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let login = "a".repeat(2000);
                    gets_nothing(camp, Some(203), &["-l", &login, "127.0.0.1", "id"]).await
                })
            },
        },
        Behaviour {
            name: "random bytes instead of a greeting",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    says(camp, (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()).await
                })
            },
        },
        Behaviour {
            name: "a greeting of sixteen megabytes",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move { says(camp, [b"SSH-2.0-".to_vec(), vec![b'a'; 16 << 20]].concat()).await })
            },
        },
        Behaviour {
            name: "a packet of 4 GiB in the clear",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| Box::pin(async move { says(camp, [b"SSH-2.0-x\r\n".to_vec(), vec![0xff; 64]].concat()).await }),
        },
        Behaviour {
            name: "the success of a sign-in, told to the server in the clear",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let success = [0, 0, 0, 12, 10, 52, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                    says(camp, [b"SSH-2.0-x\r\n".to_vec(), success.repeat(8)].concat()).await
                })
            },
        },
        Behaviour {
            name: "three hundred connections that say nothing",
            promise: UNPROVEN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let address = camp.gateway.ssh().get();
                    let mut held = Vec::new();
                    for _ in 0..300 {
                        held.push(TcpStream::connect(address).await?);
                    }
                    let mut given_up = 0;
                    for socket in &mut held {
                        let mut byte = [0; 256];
                        let mut gone = false;
                        while let Ok(read) = timeout(Duration::from_millis(30), socket.read(&mut byte)).await {
                            if !matches!(read, Ok(1..)) {
                                gone = true;
                                break;
                            }
                        }
                        given_up += usize::from(gone);
                    }
                    holds!(given_up >= 200, "the gateway holds {} of 300", 300 - given_up);
                    Ok(Evidence::HungUp(format!("on {given_up} of 300")))
                })
            },
        },
        Behaviour {
            name: "the honest device comes back while others of its address hold connections open",
            promise: "idle connections keep no device out",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let address = camp.gateway.ssh().get();
                    let mut held = Vec::new();
                    for _ in 0..6 {
                        held.push(TcpStream::connect(address).await?);
                    }
                    let sessions = || camp.honest.log().own().matches("connected to the gateway").count();
                    let (before, began) = (sessions(), std::time::Instant::now());
                    camp.honest.proxy().reset();
                    let back = async {
                        while sessions() == before {
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    };
                    let came = timeout(Duration::from_secs(20), back).await.is_ok();
                    camp.honest.proxy().heal();
                    drop(held);
                    holds!(came, "the honest device is kept out");
                    Ok(Evidence::Answered(format!("back after {} ms", began.elapsed().as_millis())))
                })
            },
        },
    ]
}
