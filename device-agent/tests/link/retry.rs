//! Reconnecting again and again.

use std::time::Duration;

use deskgate::link::{Connector, DisconnectReason, Link, LinkStatus, RetryPolicy, Ssh};
use deskgate_protocol::control::{ByeCode, GatewayFrame, RefusedCode, SessionRefusal};
use deskgate_protocol::{Timestamp, VERSION};
use tokio::sync::watch;

use crate::session::{pipe, somebody};
use crate::support::gateway::FakeGateway;
use crate::support::server::SshServer;
use crate::support::{pinned, soon};

async fn until(status: &mut watch::Receiver<LinkStatus>, wanted: impl Fn(&LinkStatus) -> bool) -> LinkStatus {
    soon("the status", status.wait_for(|now| wanted(now))).await.expect("the link lives").clone()
}

async fn nothing() -> Vec<deskgate_protocol::control::InFlightRun> {
    Vec::new()
}

#[tokio::test]
async fn after_a_cut_line_it_connects_again_at_once() {
    let mut server = SshServer::start().await;
    let gateway = server.gateway.clone();
    // Any wait at all would exceed the time limit of this test.
    let pace =
        RetryPolicy { initial: Duration::from_secs(3600), max: Duration::from_secs(3600), ..RetryPolicy::default() };
    let mut link = Link::new(Connector::Ssh(server.ssh()), server.credentials()).with_retry_policy(pace);
    let status = link.handle().status();
    for _ in 0..2 {
        let arriving = async {
            let arrival = server.arrival().await;
            gateway.greet(arrival.stream).await.expect("let in")
        };
        let (mut session, side) = soon("it connects", async { tokio::join!(link.connect(nothing), arriving) }).await;
        assert!(matches!(*status.borrow(), LinkStatus::Connected { epoch: 1, .. }));
        drop(side);
        assert_eq!(soon("the line is lost", session.next()).await, None);
    }
}

#[tokio::test]
async fn a_line_that_breaks_again_and_again_is_dialled_soon_and_one_that_was_taken_over_is_not() {
    let gateway = FakeGateway::new();
    let (connector, mut streams) = pipe();
    let long = Duration::from_secs(3600);
    let pace =
        RetryPolicy { initial: long, max: long, max_after_break: Duration::from_millis(1), ..RetryPolicy::default() };
    let mut link = Link::new(connector, somebody(&gateway)).with_retry_policy(pace);
    let mut status = link.handle().status();
    for round in 0..5 {
        let dialled = async { gateway.greet(streams.recv().await.expect("dialled")).await.expect("let in") };
        let (mut session, mut side) = soon("welcomed", async { tokio::join!(link.connect(nothing), dialled) }).await;
        if round == 4 {
            side.send(&GatewayFrame::Bye { code: ByeCode::Replaced, message: "a newer session".to_owned() }).await;
        }
        drop(side);
        while soon("the line is lost", session.next()).await.is_some() {}
    }
    let waiting = tokio::spawn(async move { link.connect(nothing).await });
    let shown =
        until(&mut status, |now| matches!(now, LinkStatus::Disconnected { why, .. } if why.contains("replaced"))).await;
    let LinkStatus::Disconnected { next_attempt_at: Some(next), .. } = shown else { panic!("{shown:?}") };
    assert!(next.0.duration_since(Timestamp::now().0).as_secs() > 1000, "{next:?}");
    waiting.abort();
}

#[tokio::test]
async fn a_gateway_that_comes_up_later_is_found_and_the_next_attempt_is_shown() {
    let mut server = SshServer::start().await;
    server.echo();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let pace =
        RetryPolicy { initial: Duration::from_millis(10), max: Duration::from_millis(20), ..RetryPolicy::default() };
    let connector = Connector::Ssh(Ssh { port: nobody, ..server.ssh() });
    let mut link = Link::new(connector, server.credentials()).with_retry_policy(pace);
    let mut status = link.handle().status();
    let waiting = tokio::spawn(async move { link.connect(nothing).await.welcome().epoch });
    let shown = until(&mut status, |now| {
        matches!(now, LinkStatus::Disconnected { why, next_attempt_at: Some(_), .. } if why.contains("refuses the connection"))
    })
    .await;
    assert!(matches!(shown, LinkStatus::Disconnected { why, .. } if why.contains(&nobody.to_string())));

    let listener = tokio::net::TcpListener::bind(("127.0.0.1", nobody)).await.expect("still free");
    let upstream = server.port;
    let relay = tokio::spawn(async move {
        let (mut device, _) = listener.accept().await.expect("dialled");
        let mut server = tokio::net::TcpStream::connect(("127.0.0.1", upstream)).await.expect("there");
        let _ = tokio::io::copy_bidirectional(&mut device, &mut server).await;
    });
    assert_eq!(soon("it gets through", waiting).await.expect("no panic"), 1);
    relay.abort();
}

#[tokio::test]
async fn in_a_long_outage_it_dials_every_few_seconds_while_the_owner_is_there_and_rarely_otherwise() {
    let server = SshServer::start().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let long = Duration::from_secs(3600);
    let pace = RetryPolicy {
        initial: long,
        max: long,
        recent_window: Duration::ZERO,
        max_while_person: Duration::from_millis(50),
        ..RetryPolicy::default()
    };
    let connector = Connector::Ssh(Ssh { port: nobody, ..server.ssh() });
    let mut link = Link::new(connector, server.credentials()).with_retry_policy(pace);
    let (handle, mut status) = (link.handle(), link.handle().status());
    let waiting = tokio::spawn(async move { link.connect(nothing).await.welcome().epoch });
    let next_in = |now: &LinkStatus| match now {
        LinkStatus::Disconnected { next_attempt_at: Some(next), .. } => {
            Some(next.0.duration_since(Timestamp::now().0).as_secs())
        }
        _ => None,
    };
    until(&mut status, |now| next_in(now).is_some_and(|seconds| seconds > 1000)).await;
    handle.note_person();
    until(&mut status, |now| next_in(now).is_some_and(|seconds| seconds < 10)).await;
    for _ in 0..3 {
        until(&mut status, |now| *now == LinkStatus::Connecting).await;
        until(&mut status, |now| next_in(now).is_some_and(|seconds| seconds < 10)).await;
    }
    waiting.abort();
}

#[tokio::test]
async fn an_address_that_hangs_up_is_dialled_briskly_at_first_and_ever_more_rarely_later() {
    let server = SshServer::start().await;
    let forwarder = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = forwarder.local_addr().expect("it is bound").port();
    let forwarding = tokio::spawn(async move { while forwarder.accept().await.is_ok() {} });
    let brisk = Duration::from_millis(20);
    let pace = RetryPolicy { initial: brisk, max_while_recent: brisk, ..RetryPolicy::default() };
    let dialling = |pace| {
        let connector = Connector::Ssh(Ssh { port, ..server.ssh() });
        let mut link = Link::new(connector, server.credentials()).with_retry_policy(pace);
        let status = link.handle().status();
        (status, tokio::spawn(async move { link.connect(nothing).await.welcome().epoch }))
    };
    let next_in = |now: &LinkStatus| match now {
        LinkStatus::Disconnected { next_attempt_at: Some(next), .. } => {
            Some(next.0.duration_since(Timestamp::now().0).as_millis())
        }
        _ => None,
    };
    let (mut status, waiting) = dialling(pace);
    // By then a wait that doubles would be an hour.
    for _ in 0..18 {
        let shown = until(&mut status, |now| next_in(now).is_some()).await;
        assert!(next_in(&shown).is_some_and(|wait| wait <= brisk.as_millis().cast_signed()), "{shown:?}");
        until(&mut status, |now| *now == LinkStatus::Connecting).await;
    }
    waiting.abort();
    let (mut status, waiting) = dialling(RetryPolicy { hung_up_window: Duration::ZERO, ..pace });
    until(&mut status, |now| next_in(now).is_some_and(|wait| wait > 500)).await;
    waiting.abort();
    forwarding.abort();
}

#[tokio::test]
async fn a_changed_host_key_is_not_tried_again_until_a_person_says_so() {
    let mut server = SshServer::start().await;
    server.echo();
    let pin = pinned("SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g");
    let pace =
        RetryPolicy { initial: Duration::from_millis(1), max: Duration::from_millis(1), ..RetryPolicy::default() };
    let mut link = Link::new(Connector::Ssh(Ssh { pin, ..server.ssh() }), server.credentials()).with_retry_policy(pace);
    let (handle, mut status) = (link.handle(), link.handle().status());
    let waiting = tokio::spawn(async move { link.connect(nothing).await.welcome().epoch });
    let blocked = |now: &LinkStatus| matches!(now, LinkStatus::Disconnected { why, next_attempt_at: None, .. } if why.contains("pinned"));
    until(&mut status, blocked).await;
    status.mark_unchanged();
    let quiet = tokio::time::timeout(Duration::from_millis(200), status.changed()).await;
    assert!(quiet.is_err(), "no attempt by itself: {:?}", *status.borrow());
    handle.kick();
    until(&mut status, |now| *now == LinkStatus::Connecting).await;
    until(&mut status, blocked).await;
    waiting.abort();
}

#[tokio::test]
async fn a_refusal_is_the_status_and_a_kick_asks_again() {
    let refused = SessionRefusal {
        code: RefusedCode::UnknownDevice,
        message: "not paired".to_owned(),
        should_retry: true,
        retry_after_s: Some(60),
        gateway_version: VERSION.to_owned(),
        device_version: None,
        upgrade: None,
    };
    let refusing = FakeGateway { refuse: Some(refused.clone()), ..FakeGateway::new() };
    let welcoming = FakeGateway { refuse: None, ..refusing.clone() };
    let (connector, mut streams) = pipe();
    let mut link = Link::new(connector, somebody(&refusing));
    let (handle, mut status) = (link.handle(), link.handle().status());
    let waiting = tokio::spawn(async move { link.connect(nothing).await });
    let first = soon("dialled", streams.recv()).await.expect("a stream");
    assert!(refusing.greet(first).await.is_none());
    let shown = until(&mut status, |now| matches!(now, LinkStatus::Refused { .. })).await;
    assert!(matches!(shown, LinkStatus::Refused { refused: said, next_attempt_at: Some(_) } if said == refused));

    handle.kick();
    let second = soon("dialled again, long before the minute is over", streams.recv()).await.expect("a stream");
    let side = welcoming.greet(second).await.expect("let in");
    let session = soon("welcomed", waiting).await.expect("no panic");
    assert_eq!(session.gateway_version(), VERSION);
    drop(side);
}

#[tokio::test]
async fn a_pause_that_a_gateway_asks_for_is_shown_as_long_as_it_is_kept() {
    let refused = SessionRefusal {
        code: RefusedCode::UnknownDevice,
        message: "not paired".to_owned(),
        should_retry: true,
        retry_after_s: Some(86_400),
        gateway_version: VERSION.to_owned(),
        device_version: None,
        upgrade: None,
    };
    let refusing = FakeGateway { refuse: Some(refused), ..FakeGateway::new() };
    let (connector, mut streams) = pipe();
    let mut link = Link::new(connector, somebody(&refusing));
    let mut status = link.handle().status();
    let waiting = tokio::spawn(async move { link.connect(nothing).await });
    let first = soon("dialled", streams.recv()).await.expect("a stream");
    assert!(refusing.greet(first).await.is_none());
    let shown = until(&mut status, |now| matches!(now, LinkStatus::Refused { .. })).await;
    let LinkStatus::Refused { refused, next_attempt_at: Some(at) } = shown else {
        panic!("it is tried again: {shown:?}")
    };
    assert_eq!(refused.retry_after_s, Some(300));
    let pause = at.0.as_second() - deskgate_protocol::Timestamp::now().0.as_second();
    assert!((250..=301).contains(&pause), "{pause} s");
    waiting.abort();
}

#[tokio::test]
async fn another_way_is_gone_at_once_whether_the_line_is_up_waiting_or_being_dialled() {
    let (old, new) = (FakeGateway::new(), FakeGateway::new());
    let (connector, mut streams) = pipe();
    let (others, mut other_streams) = pipe();
    let mut link = Link::new(connector.clone(), somebody(&old));
    let handle = link.handle();
    let dialled = async { old.greet(streams.recv().await.expect("dialled")).await };
    let (mut session, _side) = soon("welcomed", async { tokio::join!(link.connect(nothing), dialled) }).await;
    handle.redirect(others.clone(), somebody(&new));
    assert_eq!(soon("the line is lost", session.next()).await, None);
    assert_eq!(session.lost(), Some(&DisconnectReason::Redirected));
    drop(session);
    let dialled = async { new.greet(other_streams.recv().await.expect("dialled there")).await };
    let (session, _other) = soon("welcomed there", async { tokio::join!(link.connect(nothing), dialled) }).await;
    drop(session);

    // A gateway that never answers does not delay another route.
    let waiting = tokio::spawn(async move { link.connect(nothing).await });
    let _silent = soon("dialled again", other_streams.recv()).await;
    handle.redirect(connector, somebody(&old));
    let stream = soon("dialled the first way", streams.recv()).await.expect("a stream");
    let _side = old.greet(stream).await.expect("let in");
    soon("welcomed", waiting).await.expect("no panic");
}

#[tokio::test]
async fn after_sleep_the_line_is_hung_up_and_dialled_anew_without_a_pause() {
    let gateway = FakeGateway::new();
    let (connector, mut streams) = pipe();
    // A wait after a lost connection would exceed the time limit of this test.
    let pace =
        RetryPolicy { initial: Duration::from_secs(3600), max: Duration::from_secs(3600), ..RetryPolicy::default() };
    let mut link = Link::new(connector, somebody(&gateway)).with_retry_policy(pace);
    let handle = link.handle();
    for _ in 0..3 {
        let dialled = async { gateway.greet(streams.recv().await.expect("dialled")).await };
        let (mut session, _side) = soon("welcomed", async { tokio::join!(link.connect(nothing), dialled) }).await;
        // The other side receives and sends nothing: this side cannot know that the connection is dead.
        handle.redial();
        assert_eq!(soon("the line is given up", session.next()).await, None);
        assert_eq!(session.lost(), Some(&DisconnectReason::Slept));
    }
}
