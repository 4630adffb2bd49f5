//! The settings with which a gateway is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::secret::ControlToken;

use crate::config::{AcmeSettings, HostedSettings};
use crate::domain::CallerLimits;
use crate::domain::devices::SessionTimings;
use crate::domain::quotas::Quotas;
use crate::networks::destinations::AddressRules;
use crate::networks::{ForwardedHeader, Networks};
use crate::sd_notify::ServiceNotifier;
use crate::storage::StoragePlace;
use crate::{encryption, hosted, tls};

/// The settings with which a gateway is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of keys, the control token and the private database.
    pub state_dir: PathBuf,
    /// The key that encrypts private values in the database; created if it does not exist.
    pub seal_file: PathBuf,
    /// The public API's address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Certificate and key of the public API; without them it is plain HTTP.
    pub tls: Option<tls::CertificateFiles>,
    /// The authority that issues the certificate of the public API, when it does not come from files.
    pub acme: Option<AcmeSettings>,
    /// Proxies that are trusted to name the client's address. Without TLS, only they may connect beyond loopback.
    pub trusted_proxies: Networks,
    /// The header in which they name it.
    pub forwarded_header: ForwardedHeader,
    /// Balancers before the public API that name the client in a PROXY header.
    pub balancers: Networks,
    /// Balancers before the SSH listener that do.
    pub ssh_balancers: Networks,
    /// The address that backends use, without `/api/v1`; otherwise the listening address.
    pub public_url: Option<String>,
    /// How long the public API keeps listening, and reports that it drains, before it stops.
    pub drain: Duration,
    /// The SSH listener for devices.
    pub ssh_listen: Option<SocketAddr>,
    /// The operations listener: health and metrics.
    pub ops_listen: Option<SocketAddr>,
    /// The address that devices dial; otherwise the listening address.
    pub ssh_public_address: Option<String>,
    /// The private control socket.
    pub control_socket: Option<PathBuf>,
    /// How many connections it takes at once.
    pub control_connections: usize,
    /// The host keys of the sshd before it; empty: they are not known here.
    pub sshd_host_keys: Vec<PublicKey>,
    /// The administrator's socket.
    pub admin_socket: Option<PathBuf>,
    /// The number of the group that may administer, beside root and the gateway's own user.
    pub admin_group: Option<u32>,
    /// The control token, when it is not the gateway's own.
    pub control_token: Option<ControlToken>,
    /// The issuer whose accounts devices may come with over the public API's address.
    pub hosted: Option<HostedSettings>,
    /// The timings of fetching that issuer's keys.
    pub issuer_clocks: hosted::JwksTimings,
    /// The service manager that started this process, if it wants reports.
    pub manager: Option<ServiceNotifier>,
    /// Authorities that callbacks' certificates may come from beside the system's, PEM.
    pub callbacks_ca_file: Option<PathBuf>,
    /// Where callbacks may go.
    pub callback_addresses: AddressRules,
    /// Whether it is the built-in gateway of one desktop, whose owner is its administrator.
    pub is_built_in: bool,
    /// The database; otherwise a private cluster.
    pub database: Option<DatabaseSettings>,
    /// Where the bytes of files and artifacts are.
    pub storage: StoragePlace,
    /// The limits of callers.
    pub limits: CallerLimits,
    /// The timings of the control channel.
    pub clocks: SessionTimings,
}

/// An external database.
#[derive(Clone)]
pub struct DatabaseSettings {
    /// Its URL.
    pub url: String,
    /// The URL for LISTEN, when a pooler stands between.
    pub listen_url: Option<String>,
    /// Certificates to trust.
    pub ca_file: Option<PathBuf>,
    /// Whether to apply missing migrations instead of refusing.
    pub migrate: bool,
}

impl std::fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseSettings").field("migrate", &self.migrate).finish_non_exhaustive()
    }
}

impl Settings {
    /// A gateway inside another process: loopback, a private cluster, no sockets.
    pub fn built_in(state_dir: PathBuf, listen: SocketAddr) -> Self {
        let storage = StoragePlace::in_state_dir(&state_dir);
        Self {
            seal_file: state_dir.join(encryption::KEY_FILE_NAME),
            state_dir,
            listen,
            tls: None,
            acme: None,
            trusted_proxies: Networks::default(),
            forwarded_header: ForwardedHeader::default(),
            balancers: Networks::default(),
            ssh_balancers: Networks::default(),
            public_url: None,
            drain: Duration::ZERO,
            ssh_listen: None,
            ops_listen: None,
            ssh_public_address: None,
            control_socket: None,
            control_connections: 0,
            sshd_host_keys: Vec::new(),
            admin_socket: None,
            admin_group: None,
            control_token: None,
            hosted: None,
            issuer_clocks: hosted::JwksTimings::default(),
            manager: None,
            callbacks_ca_file: None,
            callback_addresses: AddressRules::default(),
            is_built_in: true,
            database: None,
            storage,
            limits: CallerLimits { quotas: Quotas::OF_OWN_DESKTOP, ..CallerLimits::default() },
            clocks: SessionTimings::default(),
        }
    }
}
