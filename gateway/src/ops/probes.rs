//! Probes: liveness and readiness. Ready means able to accept work. A connected device is not part of that: accepting
//! while the desktop is away is the point.

use std::fmt::Write;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use super::Ops;
use crate::domain::health::QUEUE_LOOP_TIMEOUT;
use crate::store::migrate;

/// `GET /readyz`: 200 or 503; with `?verbose`, a line for each condition.
pub(super) async fn readyz(State(ops): State<Ops>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    // Together: a database that hangs is waited for once.
    let (database, migrations) = tokio::join!(ops.store.ping(), migrations(&ops));
    let conditions = [
        ("admission", admission(&ops)),
        ("database", database.map_err(|error| error.to_string())),
        ("disk", ops.store.disk().hinders().map_or(Ok(()), Err)),
        ("migrations", migrations),
        ("queue", queue(&ops)),
    ];
    let ready = conditions.iter().all(|(_, met)| met.is_ok());
    let mut text = String::new();
    if query.is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some("verbose"))) {
        for (name, met) in &conditions {
            // Writing to a String cannot fail.
            let _ = match met {
                Ok(()) => writeln!(text, "[+] {name}"),
                Err(why) => writeln!(text, "[-] {name}: {why}"),
            };
        }
        // Not a condition: an authority reaches a gateway without a certificate only through a load balancer that
        // believes it to be ready.
        if let Some(tls) = &ops.tls {
            let _ = writeln!(text, "[i] certificate: {}", tls.status());
        }
    }
    text.push_str(if ready { "ready\n" } else { "not ready\n" });
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

fn admission(ops: &Ops) -> Result<(), String> {
    if ops.draining.is_cancelled() { Err("this gateway is stopping".to_owned()) } else { Ok(()) }
}

async fn migrations(ops: &Ops) -> Result<(), String> {
    let applied = ops.store.applied_migration().await.map_err(|error| error.to_string())?;
    // A newer schema is one that this program still runs on, or it would not have been applied.
    if applied >= migrate::newest() {
        return Ok(());
    }
    Err(format!("the database is at migration {applied}, this program needs {}", migrate::newest()))
}

fn queue(ops: &Ops) -> Result<(), String> {
    let age = ops.queue.age();
    if age <= QUEUE_LOOP_TIMEOUT { Ok(()) } else { Err(format!("nobody has looked after it for {} s", age.as_secs())) }
}
