//! Answers on the administrator's socket, inside the running gateway.

use std::path::PathBuf;
use std::time::Duration;

use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::management::{
    ApplicationState, CompleteDisabling, DisableApplication, ManagementError, ManagementErrorCode,
};
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::service::check_name;
use deskgate_protocol::{DeviceId, VERSION};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use super::state::AdminService;
use super::{
    AdminErrorCode, AdminReply, AdminRequest, DeviceView, GatewayStatus, PairedDevice, PairingDetails, applications,
    deliveries, host_key, invitations, no, runs, storage,
};
use crate::domain::devices::{PairError, pair};
use crate::domain::health::HealthSnapshot;
use crate::domain::lookup;
use crate::store;
use crate::store::devices::{Device, Presence};
use crate::tls::ServerTls;
use deskgate_program::{socket, token};

/// Answers until `stop`. Root and the gateway's own user have access, and when the socket belongs to a group of its own
/// (`group_may`), the users whom its mode lets in.
pub async fn serve(listener: UnixListener, group_may: bool, service: AdminService, stop: CancellationToken) {
    socket::serve(listener, group_may, stop, move |ask: AdminRequest, _| {
        let service = service.clone();
        async move { service.answer(ask).await.unwrap_or_else(|no| no) }
    })
    .await;
}

impl AdminService {
    async fn answer(&self, ask: AdminRequest) -> Result<AdminReply, AdminReply> {
        match ask {
            AdminRequest::Status => Ok(AdminReply::Status(Box::new(self.status().await))),
            AdminRequest::DeviceAdd { file } => self.add(&file).await,
            AdminRequest::DeviceList { limit: None, .. } => {
                let devices = self.store.devices().await?;
                Ok(AdminReply::Devices { devices: devices.into_iter().map(view).collect(), next: None })
            }
            AdminRequest::DeviceList { limit: Some(limit), before } => {
                let limit = limit.clamp(1, 100) as usize;
                let mut devices = self.store.devices_before(before, limit as i64 + 1).await?;
                let has_more = devices.len() > limit;
                devices.truncate(limit);
                let next = devices.last().filter(|_| has_more).map(|last| last.device_id);
                Ok(AdminReply::Devices { devices: devices.into_iter().map(view).collect(), next })
            }
            AdminRequest::DeviceRevoke { device_id, disable_applications } => {
                self.revoke(device_id, disable_applications).await
            }
            AdminRequest::DeviceRename { device_id, name } => {
                check_name(&name).map_err(|message| no(AdminErrorCode::Invalid, message))?;
                found(self.store.rename_device(device_id, &name).await?, device_id)
            }
            AdminRequest::TokenRotate { to_file: false, .. } if self.token_file.is_none() => {
                let message = "this gateway's token was given to it from outside, so there is no file to keep a new one in: \
                               name one with --to FILE, and configure it then. No changes were made";
                Err(no(AdminErrorCode::Refused, message))
            }
            AdminRequest::TokenRotate { overlap_s, .. } => self.rotate(Duration::from_secs(overlap_s)).await,
            AdminRequest::Reload => self.reload(),
            AdminRequest::PrivateCluster => Ok(AdminReply::PrivateCluster { url: self.private_cluster.clone() }),
            AdminRequest::TrialTicket => Ok(AdminReply::TrialTicket { ticket: self.trials.ticket() }),
            AdminRequest::Invitation(ask) => invitations::answer(self, ask).await,
            AdminRequest::HostKey(ask) => host_key::answer(self, ask).await,
            AdminRequest::Storage(ask) => storage::answer(self, ask).await,
            AdminRequest::FindByEnd(sought) => {
                let found = lookup::by_end(&self.store, None, &sought).await?;
                found.map(AdminReply::Found).ok_or_else(|| no(AdminErrorCode::Invalid, lookup::NO_END))
            }
            AdminRequest::App(ask) => applications::answer(self, ask).await,
            AdminRequest::Run(ask) => runs::answer(self, ask).await,
            ask => deliveries::answer(&self.store, ask).await,
        }
    }

    async fn status(&self) -> GatewayStatus {
        let seen = HealthSnapshot::now(&self.store, &self.storage, self.queue.age()).await;
        GatewayStatus {
            version: VERSION.to_owned(),
            address: format!("{}/api/v1", self.addresses.public_url),
            ssh: self.addresses.ssh_public.clone(),
            certificate: self.tls.as_ref().map(ServerTls::status),
            database: seen.migration.is_some(),
            devices_connected: seen.connected(),
            devices_paired: seen.census.len(),
            runs_waiting: seen.waiting(),
            runs_started: seen.started(),
            callbacks: seen.callbacks,
            migration: seen.migration,
            private_cluster: self.private_cluster.is_some(),
            problems: seen.problems(),
        }
    }

    async fn add(&self, file: &str) -> Result<AdminReply, AdminReply> {
        let file = IdentityFile::read(file).map_err(|error| no(AdminErrorCode::Invalid, error.to_string()))?;
        let device = pair(&self.store, &file).await.map_err(|error| match error {
            PairError::Name(_) => no(AdminErrorCode::Invalid, error.to_string()),
            PairError::Revoked | PairError::Account(_) => no(AdminErrorCode::Refused, error.to_string()),
            PairError::Store(error) => error.into(),
        })?;
        tracing::info!(device_id = %device.device_id, "device paired");
        let details = paired_details(self);
        Ok(AdminReply::Paired(Box::new(PairedDevice { device: view(device), details })))
    }

    async fn revoke(&self, device_id: DeviceId, disable_applications: bool) -> Result<AdminReply, AdminReply> {
        found(self.store.revoke_device(device_id, self.retention).await?, device_id)?;
        tracing::info!(%device_id, "device revoked");
        let mut applications = Vec::new();
        if disable_applications {
            // A revoked device cannot acknowledge them.
            self.store.fail_resets_of_revoked_devices().await?;
            for application in self.store.applications(device_id).await? {
                let ask = DisableApplication { app_id: application.app_id };
                let mut ended = self.desktop_of(device_id).disable_application(ask).await?;
                if ended.state == ApplicationState::Disabling {
                    // It was being disabled before, and waited for the device. Upkeep ends what it still waits for.
                    let ask = CompleteDisabling { app_id: ended.app_id };
                    ended = self.desktop_of(device_id).complete_disabling(ask).await.unwrap_or(ended);
                }
                applications.push(ended);
            }
        }
        Ok(AdminReply::Revoked { applications })
    }

    fn reload(&self) -> Result<AdminReply, AdminReply> {
        let what = (self.reload)().map_err(|error| no(AdminErrorCode::Refused, error.to_string()))?;
        Ok(AdminReply::Reloaded { what: what.to_owned() })
    }

    async fn rotate(&self, overlap: Duration) -> Result<AdminReply, AdminReply> {
        let fresh = ControlToken::generate();
        // In this order a failure in between leaves one token too many, never one too few.
        self.store.add_control_token(fresh.digest()).await?;
        if let Some(path) = &self.token_file {
            token::save(path, &fresh).map_err(|error| no(AdminErrorCode::Refused, error.to_string()))?;
        }
        self.store.end_other_control_tokens(fresh.digest(), overlap).await?;
        tracing::info!(overlap_s = overlap.as_secs(), "control token rotated");
        let kept_in = self.token_file.as_ref().map(|path| path.display().to_string());
        Ok(AdminReply::Token { text: fresh.reveal().to_owned(), kept_in })
    }
}

/// What the user of a paired device needs.
pub(super) fn paired_details(service: &AdminService) -> PairingDetails {
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    PairingDetails {
        ssh_address: service.addresses.ssh_public.clone(),
        host_key_fingerprint: service.host_keys.as_ref().map(|keys| keys.current().fingerprint()),
        control_socket: shown(&service.control_socket),
        address: format!("{}/api/v1", service.addresses.public_url),
        token_file: shown(&service.token_file),
    }
}

fn found(found: bool, device_id: DeviceId) -> Result<AdminReply, AdminReply> {
    if found {
        Ok(AdminReply::Done)
    } else {
        Err(no(AdminErrorCode::NotFound, format!("there is no device {device_id}")))
    }
}

impl From<ManagementError> for AdminReply {
    fn from(error: ManagementError) -> Self {
        let code = match error.code {
            ManagementErrorCode::Invalid => AdminErrorCode::Invalid,
            ManagementErrorCode::NotFound => AdminErrorCode::NotFound,
            ManagementErrorCode::Conflict
            | ManagementErrorCode::AdministratorOnly
            | ManagementErrorCode::QuotaReached => AdminErrorCode::Refused,
            ManagementErrorCode::Unavailable => AdminErrorCode::Unavailable,
        };
        no(code, error.message)
    }
}

impl From<store::Error> for AdminReply {
    fn from(error: store::Error) -> Self {
        tracing::warn!(%error, "the administrator could not be answered");
        no(AdminErrorCode::Unavailable, format!("{error}; nothing was changed"))
    }
}

pub(super) fn view(device: Device) -> DeviceView {
    let (state, note) = match (&device.revoked_at, device.presence, &device.refusal) {
        (Some(at), ..) => ("revoked", Some(format!("revoked at {at}"))),
        (_, Presence::Connected, _) => ("connected", None),
        (_, Presence::Paused, _) => ("paused", Some("its user paused external access".to_owned())),
        (_, Presence::Asleep, _) => ("asleep", device.asleep_since.map(|since| format!("asleep since {since}"))),
        (_, _, Some(refusal)) => (
            if device.presence == Presence::Incompatible { "incompatible" } else { "offline" },
            Some(format!(
                "seen, refused: {} against {}",
                refusal.device_version.as_deref().unwrap_or("unknown"),
                refusal.gateway_version
            )),
        ),
        (_, _, None) => ("offline", None),
    };
    DeviceView {
        device_id: device.device_id,
        fingerprint: device.public_key.fingerprint(),
        short_code: device.public_key.short_code(),
        public_key: device.public_key.to_string(),
        name: device.name,
        state: state.to_owned(),
        note,
        version: device.device_version,
        account: device.account.map(|account| account.to_string()),
        paired_at: device.paired_at,
        last_seen_at: device.last_seen_at,
    }
}
