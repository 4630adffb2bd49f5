//! An impostor server that admits every client, and a device that is directed to it. The device must not authenticate
//! to it: when the impostor's key was announced and the owner has pinned the right one again since, when the gateway's own
//! key is pinned, and when no key is known.

use std::path::Path;

use deskgate_protocol::identity::IdentityFile;
use deskgate_tests::sshd::Sshd;
use deskgate_tests::{GatewayProcess, TestDevice, until};

/// What sshd logs when it has admitted a client.
const ACCEPTED_LOG_PREFIX: &str = "Accepted ";
/// What it logs when a client leaves before that.
const PREAUTH_LOG_MARK: &str = "[preauth]";

/// The impostor server and its device.
pub(crate) struct Impostor {
    sshd: Sshd,
    device: TestDevice,
    /// How many clients it admitted before it was an impostor.
    own_guests: usize,
}

/// The key by which the impostor is an impostor.
const FORGED_KEY: &str = "forged";

impl Impostor {
    /// Directs a device of this gateway to it, and waits until it has tried to connect in each way.
    pub(crate) async fn open(gateway: &GatewayProcess) -> Self {
        let device = TestDevice::for_remote().await;
        let paired = device.pair(gateway, &[]).await;
        let file = std::fs::read(device.folder().join("identity.json")).expect("it was exported");
        let identity: IdentityFile = serde_json::from_slice(&file).expect("an identity");
        let sshd = Sshd::start(&format!("{}\n", identity.public_key)).await;
        let mut impostor = Self { sshd, device, own_guests: 0 };
        impostor.takes_over_an_honest_server(gateway).await;
        let pinned = paired["details"]["host_key_fingerprint"].as_str().expect("it is complete");
        impostor.leads(gateway, &["--host-key", pinned]).await;
        let nobody = impostor.device.folder().join("known-hosts");
        std::fs::write(&nobody, "# Nobody is known.\n").expect("writable");
        impostor.leads(gateway, &["--known-hosts", nobody.to_str().expect("a plain name")]).await;
        impostor
    }

    /// At first it is an honest server that leads to the gateway. Whoever holds it announces a key of their own, and has
    /// only that one when the owner has pinned the right one again.
    async fn takes_over_an_honest_server(&mut self, gateway: &GatewayProcess) {
        self.sshd.restart_with_keys(&["host", FORGED_KEY]).await;
        let (right, forged) = (self.sshd.fingerprint("host"), self.sshd.fingerprint(FORGED_KEY));
        let (token, socket) = (gateway.control_token_file(), gateway.control_socket());
        let plain = |path: &Path| path.to_str().expect("a plain name").to_owned();
        let (address, user, token, socket) = (self.sshd.address(), self.sshd.user(), plain(&token), plain(&socket));
        let fields = ["--ssh-address", &address, "--ssh-user", &user, "--control-socket", &socket];
        let pin = ["--token-file", &token, "--host-key", &right];
        self.device.save(&[&fields[..], &pin].concat()).await.ok();
        until("the device to follow the announced key", async || {
            let status = self.device.status().await;
            let followed = status["followed_host_keys"].as_array();
            let knows = followed.is_some_and(|keys| keys.iter().any(|key| key["fingerprint"] == forged.as_str()));
            if knows { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        self.sshd.stop().await;
        self.device.save(&["--host-key", &right]).await.ok();
        self.own_guests = self.admissions().len();
        self.sshd.restart_with_keys(&[FORGED_KEY]).await;
        self.device.cli(&["connection", "test", "--mode", "remote"]).await;
        until("the device to see the announced key", async || {
            let status = self.device.status().await;
            let shown = status["line"]["host_keys"]["presented"] == forged.as_str();
            if shown || self.admissions().len() > self.own_guests { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    async fn leads(&self, gateway: &GatewayProcess, pin: &[&str]) {
        let token = gateway.control_token_file();
        let (address, user, before) = (self.sshd.address(), self.sshd.user(), self.visits());
        let fields = ["--ssh-address", &address, "--ssh-user", &user, "--token-file"];
        self.device.save(&[&fields[..], &[token.to_str().expect("a plain name")], pin].concat()).await.ok();
        until(
            "the device to try the other server",
            async || {
                if self.visits() > before { Ok(()) } else { Err(self.sshd.log()) }
            },
        )
        .await;
    }

    fn visits(&self) -> usize {
        let log = self.sshd.log();
        log.lines().filter(|line| line.contains(PREAUTH_LOG_MARK) || line.contains(ACCEPTED_LOG_PREFIX)).count()
    }

    /// What it logged when it admitted a client that was not its own.
    pub(crate) fn let_in(&self) -> Vec<String> {
        self.admissions().split_off(self.own_guests)
    }

    fn admissions(&self) -> Vec<String> {
        self.sshd.log().lines().filter(|line| line.contains(ACCEPTED_LOG_PREFIX)).map(str::to_owned).collect()
    }
}
