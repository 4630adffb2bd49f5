//! Reloads what can change without a restart, and reports it to the service manager.

use crate::sd_notify::ServiceNotifier;
use crate::tls::{self, ServerTls, TlsError};

/// The parts that are reloaded. Clones are the same.
#[derive(Clone)]
pub(super) struct Reloader {
    pub(super) tls: Option<ServerTls>,
    pub(super) manager: Option<ServiceNotifier>,
}

impl Reloader {
    /// Reloads now. After an error, which is in the log, the old state stays.
    pub(super) fn now(&self) -> Result<&'static str, TlsError> {
        if let Some(manager) = &self.manager {
            manager.reloading();
        }
        let done = tls::reload(self.tls.as_ref());
        if let Some(manager) = &self.manager {
            manager.ready();
        }
        done
    }
}
