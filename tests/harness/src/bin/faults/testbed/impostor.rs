//! An impostor server that admits every client, and a device that is directed to it. The device must not authenticate
//! to it: first the gateway's own key is pinned, and then no key is known.

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
}

impl Impostor {
    /// Directs a device of this gateway to it, and waits until it has connected in both ways.
    pub(crate) async fn open(gateway: &GatewayProcess) -> Self {
        let device = TestDevice::for_remote().await;
        let paired = device.pair(gateway, &[]).await;
        let file = std::fs::read(device.folder().join("identity.json")).expect("it was exported");
        let identity: IdentityFile = serde_json::from_slice(&file).expect("an identity");
        let sshd = Sshd::start(&format!("{}\n", identity.public_key)).await;
        let impostor = Self { sshd, device };
        let pinned = paired["invitation"]["host_key_fingerprint"].as_str().expect("it is complete");
        impostor.leads(gateway, &["--host-key", pinned]).await;
        let nobody = impostor.device.folder().join("known-hosts");
        std::fs::write(&nobody, "# Nobody is known.\n").expect("writable");
        impostor.leads(gateway, &["--known-hosts", nobody.to_str().expect("a plain name")]).await;
        impostor
    }

    async fn leads(&self, gateway: &GatewayProcess, pin: &[&str]) {
        let token = gateway.control_token_file();
        let (address, user, before) = (self.sshd.address(), self.sshd.user(), self.visits());
        let fields = ["--ssh-address", &address, "--ssh-user", &user, "--token-file"];
        self.device.save(&[&fields[..], &[token.to_str().expect("a plain name")], pin].concat()).await.ok();
        until("the device to try the other server", async || {
            if self.visits() > before { Ok(()) } else { Err(self.sshd.process().log.all()) }
        })
        .await;
    }

    fn visits(&self) -> usize {
        let log = self.sshd.process().log.all();
        log.lines().filter(|line| line.contains(PREAUTH_LOG_MARK) || line.contains(ACCEPTED_LOG_PREFIX)).count()
    }

    /// What it logged when it admitted a client.
    pub(crate) fn let_in(&self) -> Vec<String> {
        self.sshd
            .process()
            .log
            .all()
            .lines()
            .filter(|line| line.contains(ACCEPTED_LOG_PREFIX))
            .map(str::to_owned)
            .collect()
    }
}
