//! Every setting, with its default and its text, and the example file made from them.

use std::fmt::Write as _;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its dotted key.
    pub key: &'static str,
    /// Its default, as text.
    pub default: &'static str,
    /// Its purpose.
    pub about: &'static str,
}

const fn setting(key: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting { key, default, about }
}

/// Every setting, in the order of the example file.
pub const SETTINGS: &[Setting] = &[
    setting(
        "state_dir",
        "/var/lib/deskgate",
        "Where the gateway keeps its keys, its control token and its private database.",
    ),
    setting("run_dir", "/run/deskgate", "Where its sockets are."),
    setting(
        "seal_file",
        "",
        "The key that seals signing secrets and private keys before they go into the database; the same on every replica. Empty: seal in state_dir, which is made.",
    ),
    setting(
        "storage.url",
        "",
        "Where the bytes of files and artifacts are: the absolute path of a folder, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix with the credentials in the environment. The same on every replica. Empty: objects in state_dir.",
    ),
    setting(
        "server.listen",
        "127.0.0.1:8484",
        "The address of the public API. Beyond loopback it needs server.tls, or proxies that do TLS in server.trusted_proxies.",
    ),
    setting(
        "server.public_url",
        "",
        "What backends use, without /api/v1, such as https://gateway.example.com. Empty: the listening address.",
    ),
    setting(
        "server.tls.cert_file",
        "",
        "The certificate and those between it and its root, PEM. Read again on SIGHUP and `deskgate-gateway reload`. Empty: plain HTTP.",
    ),
    setting("server.tls.key_file", "", "Its private key, PEM, in a file that others cannot read."),
    setting(
        "server.acme.domains",
        "",
        "The names that callers use, with commas. An authority (ACME) issues the certificate for them and finds this gateway at port 443 of each. Excludes server.tls. Empty: none.",
    ),
    setting(
        "server.acme.accept_terms",
        "false",
        "true accepts the terms of service that the authority's directory names.",
    ),
    setting("server.acme.contact", "", "An e-mail address that the authority may write to."),
    setting(
        "server.acme.directory_url",
        "https://acme-v02.api.letsencrypt.org/directory",
        "The authority's directory. The default is Let's Encrypt.",
    ),
    setting(
        "server.acme.eab_key_id",
        "",
        "The identifier of the key by which the authority knows you (external account binding), if it asks for one.",
    ),
    setting("server.acme.eab_key_file", "", "A file with that key in base64url, mode 0600."),
    setting("server.acme.ca_file", "", "The root that vouches for a private authority, PEM. Empty: the system's."),
    setting(
        "server.trusted_proxies",
        "",
        "Addresses or ranges of the proxies before this gateway, with commas. What they say in server.forwarded_header is believed. Without server.tls nobody else may connect beyond loopback.",
    ),
    setting(
        "server.forwarded_header",
        "x-forwarded-for",
        "The one header in which these proxies say for whom they speak, and that they set themselves: x-forwarded-for or forwarded.",
    ),
    setting(
        "server.balancers",
        "",
        "Addresses or ranges of the balancers before server.listen that pass TCP on, with commas. Each of their connections must begin with a PROXY header, version 2; nobody else's is read. Empty: none.",
    ),
    setting(
        "server.drain_ms",
        "1000",
        "Milliseconds between the word to stop and the end of listening. In them nothing is admitted and /readyz says no, so that a load balancer finds out.",
    ),
    setting(
        "ops.listen",
        "127.0.0.1:8485",
        "The address of /livez, /readyz and /metrics, for this machine's own people: it asks nobody who they are. Empty: none.",
    ),
    setting(
        "ssh.listen",
        "",
        "The address of the gateway's own SSH listener for devices, such as 0.0.0.0:7822. Empty: none; devices come in through the server's sshd.",
    ),
    setting("ssh.public_address", "", "What devices dial, host:port. Empty: the listening address."),
    setting(
        "ssh.balancers",
        "",
        "Addresses or ranges of the balancers before ssh.listen, with commas. Each of their connections must begin with a PROXY header, version 2; nobody else's is read. Empty: none.",
    ),
    setting("control.socket", "", "The private control socket, mode 0660. Empty: control.sock in run_dir."),
    setting(
        "control.connections",
        "2048",
        "Devices that may be connected through the control socket at once. A further one is refused, is told so, and tries again.",
    ),
    setting(
        "control.sshd_host_keys",
        "",
        "The public host keys of the sshd before the control socket, files with commas, such as /etc/ssh/ssh_host_ed25519_key.pub. A device that recognised its server by another key is refused: somebody passed its greeting on. Empty: what devices recognised there is not checked.",
    ),
    setting(
        "control.token_file",
        "",
        "A file with the private control token. Empty: the credential control_token, or control_token in state_dir, which is made.",
    ),
    setting("control.heartbeat_ms", "15000", "Milliseconds between two pings to a device."),
    setting("control.lease_ms", "45000", "Milliseconds of silence after which started runs await reconciliation."),
    setting("control.offer_ms", "15000", "Milliseconds a device has to accept an offered run."),
    setting(
        "hosted.issuer",
        "",
        "The OpenID provider or OAuth server whose accounts may bring their devices in over the public address, as it calls itself, such as https://id.example.com. Empty: none; devices come in over SSH only. See docs/hosted.md.",
    ),
    setting(
        "hosted.client_id",
        "",
        "What desktops are to the issuer: a public client that may use the device authorization grant (RFC 8628).",
    ),
    setting(
        "hosted.audience",
        "",
        "Whom access tokens must be made for (aud). Empty: server.public_url. Desktops ask the issuer for it (RFC 8707).",
    ),
    setting("hosted.scopes", "openid offline_access", "What desktops ask the issuer for, with spaces."),
    setting(
        "hosted.algorithms",
        "RS256,PS256,ES256,EdDSA",
        "What tokens may be signed with, with commas, of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA.",
    ),
    setting(
        "hosted.plain_tokens",
        "false",
        "true accepts access tokens whose type is JWT, or that name none, for issuers that do not say at+jwt (RFC 9068).",
    ),
    setting("hosted.devices_per_account", "5", "Devices that one account may have here."),
    setting(
        "hosted.ca_file",
        "",
        "PEM certificates of authorities that the issuer may be vouched for by, beside the system's.",
    ),
    setting(
        "hosted.allowed_networks",
        "",
        "Addresses or ranges, beside the public ones, at which the issuer and its keys may be fetched, with commas, such as 10.20.0.0/16. Empty: public addresses only.",
    ),
    setting("admin.socket", "", "The administrator's socket. Empty: admin.sock in run_dir."),
    setting(
        "admin.group",
        "",
        "A group whose members may administer, by name or number; the gateway must belong to it. Never one that the tunnel's account is in. Empty: root and the gateway's own user only.",
    ),
    setting(
        "callbacks.ca_file",
        "",
        "PEM certificates of authorities that receivers of callbacks may be vouched for by, beside the system's.",
    ),
    setting(
        "callbacks.refused_networks",
        "",
        "Addresses or ranges that no callback goes to though they are public, with commas, such as a public range of your own machines. The issuer's keys are not fetched from there either.",
    ),
    setting(
        "callbacks.nat64_prefixes",
        "",
        "Prefixes of this network's NAT64 (RFC 6052), with commas, such as 2001:db8:64::/96. An address inside is judged by the IPv4 address that it embeds.",
    ),
    setting(
        "database.url",
        "",
        "PostgreSQL 15 or newer, without a password. Empty: a private cluster in state_dir. DATABASE_URL is read too.",
    ),
    setting(
        "database.url_file",
        "",
        "A file with the URL, when it holds a password. The credential database_url is read too.",
    ),
    setting("database.listen_url_file", "", "A file with the URL for LISTEN, when a connection pooler stands between."),
    setting(
        "database.ca_file",
        "",
        "PEM certificates to trust for TLS to the database instead of the system's, as sslrootcert in the URL does. With it every mode that encrypts checks the host too, except verify-ca.",
    ),
    setting("limits.waiting_runs_per_application", "10000", "Runs of one application that may wait for a start."),
    setting(
        "limits.requests_per_second",
        "50",
        "Requests a second that each application key may make in the long run.",
    ),
    setting("limits.burst", "200", "Requests that a key may make at once after a while of silence."),
    setting(
        "limits.failed_authentications_per_minute",
        "120",
        "Requests a minute that one address may make without a good key. Beyond them only keys that were good there a while ago are let in.",
    ),
    setting(
        "limits.streams_per_application",
        "1000",
        "Event streams of one application that may be open on this gateway.",
    ),
    setting(
        "limits.waits_per_application",
        "1000",
        "Reads and submissions of one application that may wait on this gateway.",
    ),
    setting(
        "limits.bodies_per_key",
        "256",
        "Requests with a body of one key that may be under way on this gateway at once. Beyond them none is read.",
    ),
    setting(
        "limits.body_bytes_per_key",
        "33554432",
        "Bytes that these bodies may have together. At least 1048576, the largest body; one that does not announce its length counts as that.",
    ),
    setting(
        "limits.applications_per_device",
        "32",
        "Applications that one device may have here. Those that are disabled count until they are removed. What was there before a limit was lowered stays; this holds for all that follow.",
    ),
    setting(
        "limits.applications_per_account",
        "64",
        "The same for all devices of one account together, in hosted mode. Revoked devices do not count.",
    ),
    setting("limits.keys_per_application", "32", "Keys of one application that are neither revoked nor expired."),
    setting("limits.services_per_application", "64", "Services of one application that can be called."),
    setting("limits.services_per_device", "128", "Services of one device that can be called."),
    setting(
        "limits.services_per_account",
        "256",
        "The same for all devices of one account together, in hosted mode. Revoked devices do not count.",
    ),
    setting("limits.webhooks_per_application", "50", "Incoming webhooks of one application that are not removed."),
    setting(
        "limits.listeners_per_application",
        "8",
        "Desktops' own listeners (deskgate listen) to the events of one application.",
    ),
    setting("limits.uploads_per_key", "8", "Uploads of one key that may be under way at once."),
    setting(
        "limits.stored_bytes_per_application",
        "5368709120",
        "Bytes that the files and artifacts of one application may take together.",
    ),
    setting(
        "limits.artifact_bytes_per_device",
        "21474836480",
        "Bytes that the artifacts of one device may take together.",
    ),
    setting("limits.retention_days", "30", "Days that ended runs are kept."),
    setting(
        "limits.concurrent_commits",
        "auto",
        "Commits of submissions that may be under way at once, up to 8, and two to four of devices' reports. auto: 1 to 4, by the time of a sync, if PostgreSQL measures it (track_wal_io_timing), and otherwise 2.",
    ),
    setting(
        "log.format",
        "auto",
        "auto, text, json or journald: lines whose priority the journal reads. auto: text on a terminal, journald in a service whose log goes to the journal, otherwise json.",
    ),
    setting("log.filter", "info", "What is logged, as in info,deskgate_gateway=debug."),
];

/// The commented example file.
pub fn example() -> String {
    let mut text = "# Configuration of the Deskgate gateway. Every setting with its default.\n".to_owned();
    let mut section = "";
    for setting in SETTINGS {
        let (table, name) = setting.key.split_once('.').unwrap_or(("", setting.key));
        if table != section {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n[{table}]\n");
            section = table;
        }
        let plain = setting.default.parse::<u64>().is_ok();
        let value = if plain { setting.default.to_owned() } else { format!("{:?}", setting.default) };
        let _ = write!(text, "# {}\n#{name} = {value}\n", setting.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    #[test]
    fn the_example_file_in_deploy_is_what_the_program_prints() {
        let file = include_str!("../../../deploy/gateway.example.toml");
        assert!(file == example(), "run: deskgate-gateway config example > deploy/gateway.example.toml");
    }

    #[test]
    fn the_example_with_every_comment_removed_is_a_valid_file_of_defaults() {
        let uncommented: String = example()
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned() + "\n")
            .collect();
        let config = load(&uncommented, &[], &[]).unwrap();
        config.check().unwrap();
        for setting in SETTINGS {
            assert_eq!(config.text(setting.key), setting.default, "{}", setting.key);
        }
    }
}
