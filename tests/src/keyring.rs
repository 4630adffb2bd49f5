//! The desktop's keyring: gnome-keyring's own daemon, on the session bus of a device.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bus::TestBus;
use crate::device::TestDevice;
use crate::process::Process;
use crate::wait::until;

/// A running keyring, unlocked as at login. Its entries outlive it.
#[derive(Debug)]
pub struct Keyring {
    bus: TestBus,
    service: Option<Process>,
}

const CONNECT_SCRIPT: &str =
    "service = dbus.SessionBus().get_object('org.freedesktop.secrets', '/org/freedesktop/secrets')
secrets = dbus.Interface(service, 'org.freedesktop.Secret.Service')
";

impl Keyring {
    /// Starts it on the device's bus.
    pub async fn start(device: &TestDevice) -> Self {
        let bus = TestBus::session(device).await;
        let service = Some(Self::service(&bus));
        let keyring = Self { bus, service };
        keyring.answers().await;
        keyring
    }

    fn service(bus: &TestBus) -> Process {
        let place = bus.home.join("keyring");
        std::fs::create_dir_all(&place).expect("writable");
        std::fs::write(place.join("password"), "of the tests").expect("writable");
        let mut command = bus.command(Path::new("/bin/sh"));
        command.env("XDG_DATA_HOME", &place).env("XDG_RUNTIME_DIR", &place).current_dir(&place);
        command.args([
            "-c",
            "exec gnome-keyring-daemon --foreground --unlock --components=secrets --control-directory=control < password",
        ]);
        Process::start(command, &bus.home.join("keyring.log"))
    }

    async fn answers(&self) {
        until("the keyring to be open", async || {
            let open = self.ask("secrets.ReadAlias('default')").await?;
            if open == "/" { Err("there is no collection yet".to_owned()) } else { Ok(()) }
        })
        .await;
    }

    /// Locks it: from now on it asks its owner.
    pub async fn lock(&self) {
        let said = self.ask("[str(path) for path in secrets.Lock([secrets.ReadAlias('default')])[0]]").await;
        assert_ne!(said.expect("it answers"), json!([]), "something was locked");
    }

    /// From now on it accepts requests and answers none.
    pub fn suspend(&self) {
        self.service.as_ref().expect("it runs").signal(Signal::STOP);
    }

    /// Answers again, including the requests received meanwhile.
    pub fn resume(&self) {
        self.service.as_ref().expect("it runs").signal(Signal::CONT);
    }

    /// Stops it and starts it unlocked, as the next login does.
    pub async fn unlock(&mut self) {
        self.service.take().expect("it runs").kill_9();
        self.service = Some(Self::service(&self.bus));
        self.answers().await;
    }

    /// How many of the agent's keys it has.
    pub async fn entries(&self) -> usize {
        let found =
            self.ask("[str(p) for part in secrets.SearchItems({'application': 'deskgate'}) for p in part]").await;
        found.expect("it answers").as_array().map_or(0, Vec::len)
    }

    async fn ask(&self, expression: &str) -> Result<Value, String> {
        self.bus.ask(CONNECT_SCRIPT, expression).await
    }
}
