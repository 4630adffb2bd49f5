//! The operations listener: liveness, readiness, metrics. For the machine's operators; loopback unless it is configured
//! otherwise, never part of the public API.
//!
//! | file | what it does |
//! |---|---|
//! | `probes` | `/livez` and `/readyz` |
//! | `metrics` | `/metrics` |
//! | [`health_check`] | queries a running gateway, for `healthcheck` and `ready` |

pub mod health_check;
mod metrics;
mod probes;

use axum::Router;
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeat;
use crate::storage::ObjectStorage;
use crate::store::Store;
use crate::tls::ServerTls;

/// What the handlers need.
#[derive(Clone)]
pub struct Ops {
    /// The database, and the counters.
    pub store: Store,
    /// Where files are kept.
    pub storage: ObjectStorage,
    /// The heartbeat of the queue's upkeep.
    pub queue: Heartbeat,
    /// Cancelled when no more work is to be admitted.
    pub draining: CancellationToken,
    /// The public listener's certificate.
    pub tls: Option<ServerTls>,
}

/// Every route of the operations listener.
pub fn router(ops: Ops) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(probes::readyz))
        .route("/metrics", get(metrics::metrics))
        .with_state(ops)
}
