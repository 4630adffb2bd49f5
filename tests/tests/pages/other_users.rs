//! Other users of this computer, who reach the port as everybody does.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use deskgate_tests::TestDevice;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::raw_http::RawSession;

/// The user without any rights.
const NOBODY_ID: u32 = 65534;
/// More than the listener has places.
const IDLE_CONNECTIONS: u32 = 300;

/// A shell of another user; `None` where that takes rights that this test does not have.
fn shell_of_nobody(script: &str) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can become another user");
        return None;
    }
    if !cfg!(target_os = "linux") {
        println!("SKIPPED: only Linux says whose a connection is");
        return None;
    }
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", script]).current_dir("/").uid(NOBODY_ID).gid(NOBODY_ID).stdin(Stdio::piped());
    Some(shell)
}

/// What another user is answered.
async fn asked(hand: &RawSession, request: &str) -> Option<String> {
    let script =
        format!("exec 3<>/dev/tcp/{}/{} && printf '%b' \"$0\" >&3 && cat <&3", hand.address.ip(), hand.address.port());
    let mut shell = shell_of_nobody(&script)?;
    shell.arg(request);
    let output = tokio::task::spawn_blocking(move || shell.output()).await.expect("no panic").expect("bash is there");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[tokio::test]
async fn another_user_is_refused_before_anything_of_the_request_counts() {
    let device = TestDevice::built_in().await;
    let hand = RawSession::signed_in(&device).await;
    let RawSession { address, mount, cookie, .. } = &hand;
    let link = device.page_link().await;
    let code = link.split_once("code=").expect("the link has a code").1;
    // With all that there is to know.
    let get = |path: &str| format!("GET {path} HTTP/1.1\\r\\nHost: {address}\\r\\nCookie: {cookie}\\r\\n\\r\\n");
    let form = format!(
        "POST /sign-in HTTP/1.1\\r\\nHost: {address}\\r\\nOrigin: http://{address}\\r\\nContent-Length: {}\\r\\n\
         Content-Type: application/x-www-form-urlencoded\\r\\n\\r\\ncode={code}",
        "code=".len() + code.len()
    );
    for request in [get(&format!("{mount}/access")), get("/style.css"), get("/sign-in"), form, "nonsense".to_owned()] {
        let Some(answer) = asked(&hand, &request).await else { return };
        assert!(answer.starts_with("HTTP/1.1 403 "), "{request}: {answer}");
        assert!(answer.contains("Connection: close") && answer.contains("Not yours"), "{request}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("set-cookie") && !answer.contains("<nav"), "{request}: {answer}");
    }
    let entered = RawSession::stranger(*address, "").post("/sign-in", &hand.own(), &format!("code={code}")).await;
    assert_eq!(entered.status, 303, "the code was not used up");
    assert_eq!(hand.get("/access").await.status, 200);
}

#[tokio::test]
async fn another_users_idle_connections_leave_the_owner_room() {
    let device = TestDevice::built_in().await;
    let hand = RawSession::signed_in(&device).await;
    let (ip, port) = (hand.address.ip(), hand.address.port());
    let script =
        format!("for i in $(seq {IDLE_CONNECTIONS}); do exec {{fd}}<>/dev/tcp/{ip}/{port}; done; echo open; read");
    let Some(mut shell) = shell_of_nobody(&script) else { return };
    let mut shell = tokio::process::Command::from({
        shell.stdout(Stdio::piped());
        shell
    });
    let mut crowd = shell.kill_on_drop(true).spawn().expect("bash is there");
    let mut said = BufReader::new(crowd.stdout.take().expect("it is a pipe")).lines();
    assert_eq!(said.next_line().await.expect("readable").as_deref(), Some("open"));
    assert_eq!(hand.get("/access").await.status, 200);
    drop(crowd.stdin.take());
    crowd.wait().await.expect("it ends");
}
