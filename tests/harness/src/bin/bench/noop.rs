//! The limit of the HTTP stack: the same accept loop, with a route that reads the body and answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::routing::post;
use deskgate_gateway::http::server;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::environment;
use crate::process::ChildProcess;

/// As many bytes as the record in a 202 of the gateway.
const RESPONSE_BYTES: usize = 900;

/// Starts it as a separate process; its address is its first line.
pub(crate) async fn start(folder: &Path) -> anyhow::Result<(ChildProcess, SocketAddr)> {
    let log = folder.join("noop.log");
    // The first line of an earlier process would be an outdated address.
    std::fs::write(&log, "")?;
    let mut process = ChildProcess::start(Command::new(std::env::current_exe()?).arg("noop"), &log)?;
    let address = environment::first_line(&log, &mut process, |line| line.parse().ok()).await?;
    Ok((process, address))
}

/// The server's process, until a signal ends it. It has as many threads as the gateway.
pub(crate) fn child() -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    let answer = Bytes::from(vec![b'x'; RESPONSE_BYTES]);
    let submit = async move |_body: Bytes| {
        let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (StatusCode::ACCEPTED, json, answer.clone())
    };
    let router = Router::new().route("/api/v1/agent-endpoints/{endpoint_id}/runs", post(submit));
    server::serve(listener, server::ListenerAccess::default(), router, Default::default(), CancellationToken::new())
        .await;
    Ok(())
}
