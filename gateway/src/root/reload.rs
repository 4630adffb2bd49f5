//! Reads again what can change without a restart, and keeps the service manager told.

use crate::sd_notify::ServiceNotifier;
use crate::tls::{self, ServerTls, TlsError};

/// What is read again. Clones are the same.
#[derive(Clone)]
pub(super) struct Reloader {
    pub(super) tls: Option<ServerTls>,
    pub(super) manager: Option<ServiceNotifier>,
}

impl Reloader {
    /// Now. After an error, which the log tells, everything is as it was.
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
