//! A raw device, with a service that exists only as a digest. Its caller sends every frame.

use std::time::Duration;

use deskgate_protocol::EndpointId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{DeviceFrame, GatewayFrame, ManagementResult};
use deskgate_protocol::management::{AskedBy, CreateApplication, ManagementCall, PublishEndpoint, SetAccess};
use deskgate_tests::GatewayProcess;
use deskgate_tests::raw::{RawConnection, RawIdentity};
use tokio::time::timeout;

/// How long to wait for a frame.
const FRAME_TIMEOUT: Duration = Duration::from_secs(5);

/// The device, and how its service is called.
pub(crate) struct RawDevice {
    pub(crate) persona: RawIdentity,
    pub(crate) endpoint_id: EndpointId,
    pub(crate) key: String,
}

impl RawDevice {
    /// Pairs it and publishes its service.
    pub(crate) async fn open(gateway: &GatewayProcess) -> Self {
        let (persona, endpoint_id) = (RawIdentity::new(77), EndpointId::new());
        persona.pair(gateway, "stray").await.ok();
        let (mut line, _) = persona.connect(gateway, Vec::new()).await;
        let created = ask(&mut line, CreateApplication { name: "stray".to_owned() }).await;
        let publication = PublishEndpoint {
            app_id: created.application.app_id,
            endpoint_id,
            version: 1,
            name: "stray".to_owned(),
            description: String::new(),
            definition_sha256: Sha256Digest::of(b"anything"),
            data: Default::default(),
        };
        ask(&mut line, publication).await;
        ask(&mut line, SetAccess { enabled: true }).await;
        Self { persona, endpoint_id, key: created.key.text }
    }
}

async fn ask<C: ManagementCall>(line: &mut RawConnection, call: C) -> C::Reply {
    line.send(&DeviceFrame::Request { request_id: 1, by: AskedBy::Agent, request: call.into() }).await;
    let reply = awaited(line, |frame| match frame {
        GatewayFrame::Reply { result, .. } => Some(result),
        _ => None,
    });
    match reply.await {
        Some(ManagementResult::Ok(value)) => serde_json::from_value(value).expect("the reply that belongs to it"),
        other => panic!("{other:?}"),
    }
}

/// The first wanted frame; pings before it are answered. `None` if it does not arrive.
pub(crate) async fn awaited<T>(line: &mut RawConnection, wanted: impl Fn(GatewayFrame) -> Option<T>) -> Option<T> {
    let comes = async {
        loop {
            match line.next().await? {
                GatewayFrame::Ping => line.send(&DeviceFrame::Pong).await,
                frame => {
                    if let Some(found) = wanted(frame) {
                        return Some(found);
                    }
                }
            }
        }
    };
    timeout(FRAME_TIMEOUT, comes).await.ok().flatten()
}
