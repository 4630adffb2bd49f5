//! Reports the gateway's state to the service manager: sd_notify(3), a datagram to the socket that it named.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The service manager's socket. Clones share it.
#[derive(Clone, Debug)]
pub struct ServiceNotifier(Arc<NotifySocket>);

#[derive(Debug)]
struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
    /// The watchdog interval.
    watchdog: Option<Duration>,
}

impl ServiceNotifier {
    /// The service manager that started this process, if it wants reports; `variable` reads the environment.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let name = variable("NOTIFY_SOCKET")?;
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            [b'/', ..] => SocketAddr::from_pathname(&name),
            _ => return None,
        };
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables are inherited; they are meant for one process.
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_meant).map(Duration::from_micros);
        let socket = UnixDatagram::unbound().ok()?;
        // A manager that does not read must not block the gateway.
        socket.set_nonblocking(true).ok()?;
        Some(Self(Arc::new(NotifySocket { socket, address: address.ok()?, watchdog })))
    }

    /// The interval in which the manager expects a sign of life.
    pub fn watchdog(&self) -> Option<Duration> {
        self.0.watchdog
    }

    /// Reports that the gateway is ready, at first or after a reload.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// Reports its state in one line that `systemctl status` shows.
    pub fn status(&self, status: &str) {
        self.say(&format!("STATUS={}", status.replace('\n', " ")));
    }

    /// Reports that it is alive.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// Reports that it reads its settings again, until `ready` is called.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Reports that it is stopping, and first finishes what is under way.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=stopping; what is under way is finished");
    }

    fn say(&self, state: &str) {
        if let Err(error) = self.0.socket.send_to_addr(state.as_bytes(), &self.0.address) {
            tracing::debug!(%error, "the service manager was not told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_manager_that_named_its_socket_is_told_and_a_watchdog_of_another_process_is_none_of_ours() {
        let folder = tempfile::tempdir().expect("new");
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).expect("bound");
        let variables = |pid: String| {
            let path = path.clone();
            move |name: &str| match name {
                "NOTIFY_SOCKET" => Some(path.clone().into_os_string()),
                "WATCHDOG_USEC" => Some("30000000".into()),
                "WATCHDOG_PID" => Some(pid.clone().into()),
                _ => None,
            }
        };
        assert!(ServiceNotifier::find(|_| None).is_none());
        let manager = ServiceNotifier::find(variables("1".to_owned())).expect("named");
        assert_eq!(manager.watchdog(), None);
        let manager = ServiceNotifier::find(variables(std::process::id().to_string())).expect("named");
        assert_eq!(manager.watchdog(), Some(Duration::from_secs(30)));
        manager.status("1 device\nconnected");
        let mut heard = [0; 64];
        let length = listener.recv(&mut heard).expect("heard");
        assert_eq!(&heard[..length], b"STATUS=1 device connected");
    }

    #[test]
    fn an_abstract_socket_is_told_too() {
        let name = format!("deskgate-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("bound");
        let manager = ServiceNotifier::find(|asked| (asked == "NOTIFY_SOCKET").then(|| format!("@{name}").into()));
        manager.expect("named").ready();
        let mut heard = [0; 16];
        assert_eq!(listener.recv(&mut heard).expect("heard"), 7);
    }
}
