//! The connection's settings: one mode in force, and a draft for each mode.
//!
//! Editing changes a draft only; saving puts a draft in force; discarding deletes it. Saved fields of one mode never
//! change because another mode was edited.

use std::path::PathBuf;

use deskgate_protocol::secret::SecretKind;
use deskgate_store::Setting;
use serde::{Deserialize, Serialize};

use crate::account::GatewayAddress;
use crate::link::{FollowedKeysFile, HostPin, PinnedFingerprint, Ssh};
pub use crate::power::KeepAwake;

/// The settings of desktop notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notifications {
    /// Whether a call that waits for a decision shows a notification.
    pub on: bool,
    /// Whether it names no service, tool or path.
    pub hide_details: bool,
}

impl Default for Notifications {
    fn default() -> Self {
        Self { on: true, hide_details: false }
    }
}

/// Where the gateway is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// In this process, on loopback.
    #[default]
    #[serde(rename = "builtin")]
    BuiltIn,
    /// On a server, over SSH.
    Remote,
    /// On a gateway of another operator, over its public address, with an account.
    Hosted,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BuiltIn => "builtin",
            Self::Remote => "remote",
            Self::Hosted => "hosted",
        })
    }
}

/// The fields of the built-in mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltIn {
    /// The API's address on loopback; port 0 takes a free one and keeps it.
    pub listen: String,
}

impl Default for BuiltIn {
    fn default() -> Self {
        Self { listen: "127.0.0.1:0".to_owned() }
    }
}

/// The fields of the remote mode. The control token is in its own file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// What to dial, `host` or `host:port`; without a port it is 22.
    pub ssh_address: String,
    /// The user on the server.
    pub ssh_user: String,
    /// The control socket's path on the server.
    pub control_socket: String,
    /// The fingerprint that the server's host key must have.
    pub host_key: Option<String>,
    /// Or a known-hosts file that must hold it.
    pub known_hosts: Option<PathBuf>,
    /// How often the owner has pinned, the same key or another one: each time ends what a server announced before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pin_count: u32,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Default for Remote {
    fn default() -> Self {
        Self {
            ssh_address: String::new(),
            ssh_user: "deskgate".to_owned(),
            control_socket: "/run/deskgate/control.sock".to_owned(),
            host_key: None,
            known_hosts: None,
            pin_count: 0,
        }
    }
}

/// The fields of the hosted mode. The sign-in is stored elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hosted {
    /// The gateway's address, such as `https://gateway.example.com`.
    pub gateway_address: String,
}

impl Hosted {
    /// The gateway's address.
    ///
    /// # Errors
    /// The field is not a valid address.
    pub fn address(&self) -> Result<GatewayAddress, InvalidSettings> {
        GatewayAddress::parse(&self.gateway_address)
            .map_err(|why| InvalidSettings(vec![format!("gateway-address: {why}")]))
    }
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::BuiltIn, Self::Remote, Self::Hosted];
}

/// The fields of every mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeFields {
    /// The built-in mode's.
    pub builtin: BuiltIn,
    /// The remote mode's.
    pub remote: Remote,
    /// The hosted mode's.
    #[serde(default)]
    pub hosted: Hosted,
}

/// Everything about the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionSettings {
    /// The mode in force.
    pub mode: Mode,
    /// The saved fields of each mode.
    pub saved: ModeFields,
    /// The unsaved draft of the built-in mode.
    pub builtin_draft: Option<BuiltIn>,
    /// The unsaved draft of the remote mode.
    pub remote_draft: Option<Remote>,
    /// The unsaved draft of the hosted mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted_draft: Option<Hosted>,
    /// Whether access is to be paused at the gateway as soon as it is reached.
    pub pause_access: bool,
}

/// A change to the fields of one mode; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionEdit {
    /// See [`BuiltIn::listen`].
    pub listen: Option<String>,
    /// See [`Remote::ssh_address`].
    pub ssh_address: Option<String>,
    /// See [`Remote::ssh_user`].
    pub ssh_user: Option<String>,
    /// See [`Remote::control_socket`].
    pub control_socket: Option<String>,
    /// See [`Remote::host_key`]; replaces a known-hosts file. Empty: none.
    pub host_key: Option<String>,
    /// See [`Remote::known_hosts`]; replaces a fingerprint. Empty: none.
    pub known_hosts: Option<PathBuf>,
    /// See [`Hosted::gateway_address`].
    #[serde(default)]
    pub gateway_address: Option<String>,
    /// Whether the owner pins: the fingerprint counts alone from then on, also if it is the pinned one already.
    #[serde(default)]
    pub pins: bool,
}

deskgate_protocol::words! {
    /// The theme of the pages.
    #[derive(Default)]
    pub enum Theme {
        /// The system's theme.
        #[default]
        System = "system",
        /// Dark on light.
        Light = "light",
        /// Light on dark.
        Dark = "dark",
    }
}

impl Setting for ConnectionSettings {
    const NAME: &'static str = "connection";
}

impl Setting for Theme {
    const NAME: &'static str = "theme";
}

impl Setting for KeepAwake {
    const NAME: &'static str = "keep_awake";
}

impl Setting for Notifications {
    const NAME: &'static str = "notifications";
}

/// Why fields cannot be used: one sentence for each, after the field's name and a colon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct InvalidSettings(pub Vec<String>);

impl ConnectionEdit {
    /// Checks that no field holds a secret, which would be stored and shown in the wrong field.
    ///
    /// # Errors
    /// The fields that hold one.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        let known_hosts = self.known_hosts.as_deref().map(|path| path.to_string_lossy());
        let fields = [
            ("listen", self.listen.as_deref()),
            ("ssh-address", self.ssh_address.as_deref()),
            ("ssh-user", self.ssh_user.as_deref()),
            ("control-socket", self.control_socket.as_deref()),
            ("host-key", self.host_key.as_deref()),
            ("known-hosts", known_hosts.as_deref()),
            ("gateway-address", self.gateway_address.as_deref()),
        ];
        let pasted = fields.into_iter().filter_map(|(field, text)| {
            let kind = SecretKind::of(text?.trim())?;
            Some(format!("{field}: this is {kind}, which does not belong here; it was not kept"))
        });
        let pasted: Vec<_> = pasted.collect();
        if pasted.is_empty() { Ok(()) } else { Err(InvalidSettings(pasted)) }
    }
}

impl ConnectionSettings {
    /// Edits a mode's draft. A draft equal to the saved fields is dropped.
    pub fn edit(&mut self, mode: Mode, edit: ConnectionEdit) {
        match mode {
            Mode::BuiltIn => {
                let draft = self.builtin_draft.get_or_insert_with(|| self.saved.builtin.clone());
                set(&mut draft.listen, edit.listen);
                if *draft == self.saved.builtin {
                    self.builtin_draft = None;
                }
            }
            Mode::Remote => {
                let draft = self.remote_draft.get_or_insert_with(|| self.saved.remote.clone());
                set(&mut draft.ssh_address, edit.ssh_address);
                set(&mut draft.ssh_user, edit.ssh_user);
                set(&mut draft.control_socket, edit.control_socket);
                if edit.host_key.is_some() || edit.known_hosts.is_some() {
                    draft.host_key = edit.host_key.filter(|fingerprint| !fingerprint.is_empty());
                    draft.known_hosts = edit.known_hosts.filter(|file| !file.as_os_str().is_empty());
                }
                let pinned = self.saved.remote.pin_count;
                draft.pin_count = if edit.pins { pinned.saturating_add(1) } else { draft.pin_count.max(pinned) };
                if *draft == self.saved.remote {
                    self.remote_draft = None;
                }
            }
            Mode::Hosted => {
                let draft = self.hosted_draft.get_or_insert_with(|| self.saved.hosted.clone());
                set(&mut draft.gateway_address, edit.gateway_address);
                if *draft == self.saved.hosted {
                    self.hosted_draft = None;
                }
            }
        }
    }

    /// Puts a mode's draft in force. Another mode than before pauses access.
    ///
    /// # Errors
    /// A field cannot be used; everything, the draft included, stays unchanged.
    pub fn save(&mut self, mode: Mode) -> Result<(), InvalidSettings> {
        match mode {
            Mode::BuiltIn => {
                let draft = self.builtin_draft.clone().unwrap_or_else(|| self.saved.builtin.clone());
                draft.address()?;
                self.saved.builtin = draft;
                self.builtin_draft = None;
            }
            Mode::Remote => {
                let mut draft = self.remote_draft.clone().unwrap_or_else(|| self.saved.remote.clone());
                draft.check()?;
                let pinned = self.saved.remote.pin_count;
                let is_same = draft.pinned_server() == self.saved.remote.pinned_server();
                draft.pin_count = if is_same { draft.pin_count.max(pinned) } else { pinned.saturating_add(1) };
                self.saved.remote = draft;
                self.remote_draft = None;
            }
            Mode::Hosted => {
                let draft = self.hosted_draft.clone().unwrap_or_else(|| self.saved.hosted.clone());
                // Saved in normal form, without superfluous parts of an address.
                let gateway_address = draft.address()?.to_string();
                self.saved.hosted = Hosted { gateway_address };
                self.hosted_draft = None;
            }
        }
        if self.mode != mode {
            self.mode = mode;
            self.pause_access = true;
        }
        Ok(())
    }

    /// Pins the saved fingerprint anew: it counts alone from now on.
    pub fn pin_anew(&mut self) {
        let remote = &mut self.saved.remote;
        remote.pin_count = remote.pin_count.saturating_add(1);
    }

    /// Whether both lead to the same gateway, so that active runs can stay.
    pub fn same_gateway(&self, other: &Self) -> bool {
        let of = |connection: &Self| {
            let remote = &connection.saved.remote;
            (remote.host_and_port().ok(), remote.control_socket.clone())
        };
        self.mode == other.mode
            && match self.mode {
                Mode::BuiltIn => true,
                Mode::Remote => of(self) == of(other),
                Mode::Hosted => self.saved.hosted == other.saved.hosted,
            }
    }

    /// Discards a mode's draft.
    pub fn discard(&mut self, mode: Mode) {
        match mode {
            Mode::BuiltIn => self.builtin_draft = None,
            Mode::Remote => self.remote_draft = None,
            Mode::Hosted => self.hosted_draft = None,
        }
    }
}

fn set(field: &mut String, value: Option<String>) {
    if let Some(value) = value {
        *field = value;
    }
}

impl BuiltIn {
    /// The address to listen on.
    ///
    /// # Errors
    /// The field is not an address on loopback.
    pub fn address(&self) -> Result<std::net::SocketAddr, InvalidSettings> {
        match self.listen.parse::<std::net::SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(address),
            Ok(_) => Err(InvalidSettings(vec![format!(
                "listen: the built-in gateway answers on loopback only, such as 127.0.0.1:0; not on {}",
                self.listen
            )])),
            Err(_) => Err(InvalidSettings(vec![format!(
                "listen: {:?} is no address with a port, such as 127.0.0.1:0",
                self.listen
            )])),
        }
    }
}

impl Remote {
    /// Checks that every field can be used.
    ///
    /// # Errors
    /// The fields that cannot.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        let problems = [
            self.host_and_port().err(),
            (self.ssh_user.is_empty() || self.ssh_user.contains(char::is_whitespace))
                .then(|| "ssh-user: the account on the server must have a name without spaces".to_owned()),
            (!self.control_socket.starts_with('/'))
                .then(|| "control-socket: the absolute path of the socket on the server".to_owned()),
            self.pin().err(),
            (self.host_key.is_some() && self.known_hosts.is_some())
                .then(|| "known-hosts: give this file or a fingerprint, not both".to_owned()),
        ];
        let problems: Vec<_> = problems.into_iter().flatten().collect();
        if problems.is_empty() { Ok(()) } else { Err(InvalidSettings(problems)) }
    }

    /// What the owner pins: a key, for an address.
    fn pinned_server(&self) -> (Option<(String, u16)>, Option<HostPin>) {
        (self.host_and_port().ok(), self.pin().ok())
    }

    /// The SSH target of the fields; `followed`: the file for the host keys that the server announces.
    ///
    /// # Errors
    /// A field cannot be used.
    pub fn ssh(&self, followed: PathBuf) -> Result<Ssh, InvalidSettings> {
        self.check()?;
        let one = |problem: String| InvalidSettings(vec![problem]);
        let (host, port) = self.host_and_port().map_err(one)?;
        let pin = self.pin().map_err(one)?;
        let (user, socket_path) = (self.ssh_user.clone(), self.control_socket.clone());
        let followed = FollowedKeysFile { path: followed, pin_count: self.pin_count, read_only: false };
        Ok(Ssh { host, port, user, socket_path, pin, followed: Some(followed) })
    }

    /// The host and port to dial.
    ///
    /// # Errors
    /// The address cannot be parsed.
    pub fn host_and_port(&self) -> Result<(String, u16), String> {
        let text = self.ssh_address.trim();
        let wrong =
            || format!("ssh-address: {text:?} is not a host, or a host and a port, such as gateway.example.com:7822");
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                (host, rest.strip_prefix(':').or(rest.is_empty().then_some("22")).ok_or_else(wrong)?)
            }
            None if text.matches(':').count() > 1 => (text, "22"),
            None => text.split_once(':').unwrap_or((text, "22")),
        };
        let usable = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/@".contains(c));
        let port = port.parse().ok().filter(|port| *port > 0);
        usable.then_some(host.to_owned()).zip(port).ok_or_else(wrong)
    }

    /// How the server's host key is verified.
    ///
    /// # Errors
    /// The fingerprint cannot be parsed.
    pub fn pin(&self) -> Result<HostPin, String> {
        match (&self.host_key, &self.known_hosts) {
            (Some(fingerprint), _) => {
                let pinned: Result<PinnedFingerprint, _> = fingerprint.parse();
                pinned.map(HostPin::Fingerprint).map_err(|error| format!("host-key: {error}"))
            }
            (None, Some(file)) => Ok(HostPin::KnownHosts(file.clone())),
            (None, None) => Ok(HostPin::Missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(ssh_address: &str) -> ConnectionEdit {
        ConnectionEdit { ssh_address: Some(ssh_address.to_owned()), ..ConnectionEdit::default() }
    }

    #[test]
    fn editing_changes_a_draft_only_and_the_other_mode_not_at_all() {
        let mut connection = ConnectionSettings::default();
        connection.edit(Mode::Remote, edit("gateway.example.com"));
        assert_eq!((connection.mode, &connection.saved), (Mode::BuiltIn, &ModeFields::default()));
        assert!(connection.builtin_draft.is_none());
        connection.discard(Mode::Remote);
        assert_eq!(connection, ConnectionSettings::default());
    }

    #[test]
    fn a_draft_that_says_what_is_saved_is_none() {
        let mut connection = ConnectionSettings::default();
        connection.edit(Mode::Remote, edit(""));
        connection.edit(
            Mode::BuiltIn,
            ConnectionEdit { listen: Some("127.0.0.1:0".to_owned()), ..ConnectionEdit::default() },
        );
        assert_eq!(connection, ConnectionSettings::default());
        let host_key = |text: &str| ConnectionEdit { host_key: Some(text.to_owned()), ..ConnectionEdit::default() };
        connection.edit(Mode::Remote, host_key("SHA256:x"));
        assert!(connection.remote_draft.is_some());
        connection.edit(Mode::Remote, host_key(""));
        assert_eq!(connection, ConnectionSettings::default(), "an empty fingerprint is none");
    }

    #[test]
    fn a_secret_in_a_field_for_something_else_is_named_and_not_repeated() {
        let pasted = ConnectionEdit { ssh_user: Some(" dgk_canary".to_owned()), ..edit("dgt_canary") };
        let said = pasted.check().unwrap_err().to_string();
        assert!(said.starts_with("ssh-address: this is a private control token"), "{said}");
        assert!(said.contains("\nssh-user: this is an application key") && !said.contains("canary"), "{said}");
        assert_eq!(edit("gateway.example.com").check(), Ok(()));
    }

    #[test]
    fn saving_another_mode_pauses_access_and_a_failed_save_keeps_the_draft() {
        let mut connection = ConnectionSettings::default();
        connection.edit(Mode::Remote, edit("not a host"));
        let before = connection.clone();
        assert!(connection.save(Mode::Remote).unwrap_err().to_string().contains("ssh-address"));
        assert_eq!(connection, before);
        connection.edit(Mode::Remote, edit("gateway.example.com:7822"));
        connection.save(Mode::Remote).unwrap();
        assert!(connection.pause_access && connection.mode == Mode::Remote && connection.remote_draft.is_none());
        connection.pause_access = false;
        connection.save(Mode::Remote).unwrap();
        assert!(!connection.pause_access);
    }

    #[test]
    fn another_pin_or_user_is_the_same_gateway_and_another_address_or_socket_is_not() {
        let at = |change: fn(&mut Remote)| {
            let mut connection = ConnectionSettings { mode: Mode::Remote, ..ConnectionSettings::default() };
            connection.saved.remote.ssh_address = "gateway.example.com".to_owned();
            change(&mut connection.saved.remote);
            connection
        };
        let same = |change| at(|_| ()).same_gateway(&at(change));
        assert!(
            same(|remote| remote.ssh_user = "other".to_owned()) && same(|remote| remote.host_key = Some(String::new()))
        );
        assert!(same(|remote| remote.ssh_address += ":22"));
        assert!(!same(|remote| remote.ssh_address += ":23") && !same(|remote| remote.control_socket += "2"));
        assert!(!ConnectionSettings::default().same_gateway(&at(|_| ())));
    }

    fn pins(host_key: &str) -> ConnectionEdit {
        ConnectionEdit { host_key: Some(host_key.to_owned()), pins: true, ..ConnectionEdit::default() }
    }

    #[test]
    fn a_pin_counts_once_saved_also_if_the_fingerprint_is_the_same() {
        let pinned = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";
        let mut connection = ConnectionSettings::default();
        connection.edit(Mode::Remote, edit("gateway.example.com"));
        connection.edit(Mode::Remote, pins(pinned));
        connection.save(Mode::Remote).unwrap();
        assert_eq!(connection.saved.remote.pin_count, 1);
        connection.edit(Mode::Remote, pins(pinned));
        assert_eq!(connection.saved.remote.pin_count, 1, "a draft changes nothing");
        connection.save(Mode::Remote).unwrap();
        assert_eq!(connection.saved.remote.pin_count, 2);
        connection.save(Mode::Remote).unwrap();
        assert_eq!(connection.saved.remote.pin_count, 2, "nobody pinned");
    }

    #[test]
    fn a_form_that_is_sent_with_the_same_pin_pins_nothing_and_another_pin_or_address_does() {
        let pinned = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";
        let mut connection = ConnectionSettings::default();
        let mut saved = |edit: ConnectionEdit| {
            connection.edit(Mode::Remote, edit);
            connection.save(Mode::Remote).unwrap();
            connection.saved.remote.pin_count
        };
        let form = |ssh_address: &str, ssh_user: &str, host_key: &str| ConnectionEdit {
            ssh_user: Some(ssh_user.to_owned()),
            host_key: Some(host_key.to_owned()),
            known_hosts: Some(PathBuf::new()),
            ..edit(ssh_address)
        };
        assert_eq!(saved(form("gateway.example.com", "one", pinned)), 1);
        assert_eq!(saved(form("gateway.example.com:22", "two", pinned)), 1);
        assert_eq!(saved(form("gateway.example.com:23", "two", pinned)), 2);
        assert_eq!(saved(form("gateway.example.com:23", "two", "")), 3);
    }

    #[test]
    fn a_draft_from_before_a_pin_does_not_take_it_back() {
        let mut connection = ConnectionSettings::default();
        connection.edit(Mode::Remote, edit("gateway.example.com"));
        connection.save(Mode::Remote).unwrap();
        let user = |name: &str| ConnectionEdit { ssh_user: Some(name.to_owned()), ..ConnectionEdit::default() };
        connection.edit(Mode::Remote, user("other"));
        connection.pin_anew();
        let pinned = connection.saved.remote.pin_count;
        connection.save(Mode::Remote).unwrap();
        assert_eq!(connection.saved.remote.pin_count, pinned);
        connection.edit(Mode::Remote, user("third"));
        connection.pin_anew();
        connection.edit(Mode::Remote, user("other"));
        assert!(connection.remote_draft.is_none(), "it says what is saved");
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let read = |text: &str| Remote { ssh_address: text.to_owned(), ..Remote::default() }.host_and_port();
        assert_eq!(read("gw.example.com"), Ok(("gw.example.com".to_owned(), 22)));
        assert_eq!(read("gw.example.com:7822"), Ok(("gw.example.com".to_owned(), 7822)));
        assert_eq!(read("[::1]:7822"), Ok(("::1".to_owned(), 7822)));
        assert_eq!(read("::1"), Ok(("::1".to_owned(), 22)));
        for wrong in ["", "me@host", "host:", "host:0", "host:x", "a b", "[::1", "ssh://host"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_hosted_address_is_kept_as_it_was_understood_and_names_the_gateway() {
        let at = |text: &str| {
            let mut connection = ConnectionSettings::default();
            let edit = ConnectionEdit { gateway_address: Some(text.to_owned()), ..ConnectionEdit::default() };
            connection.edit(Mode::Hosted, edit);
            connection.save(Mode::Hosted).map(|()| connection)
        };
        let one = at("https://Gateway.example.com/api/v1/").unwrap();
        assert_eq!(one.saved.hosted.gateway_address, "https://gateway.example.com");
        assert!(one.same_gateway(&at("https://gateway.example.com").unwrap()));
        assert!(!one.same_gateway(&at("https://other.example.com").unwrap()));
        for wrong in ["", "http://gateway.example.com", "gateway.example.com"] {
            assert!(at(wrong).unwrap_err().to_string().starts_with("gateway-address: "), "{wrong}");
        }
    }

    #[test]
    fn what_was_saved_before_there_was_a_hosted_mode_is_read() {
        let mut before = serde_json::to_value(ConnectionSettings::default()).unwrap();
        before["saved"].as_object_mut().unwrap().remove("hosted");
        assert_eq!(serde_json::from_value::<ConnectionSettings>(before).unwrap(), ConnectionSettings::default());
    }

    #[test]
    fn the_built_in_gateway_listens_on_loopback_only() {
        let listen = |text: &str| BuiltIn { listen: text.to_owned() }.address();
        assert!(listen("127.0.0.1:0").is_ok() && listen("[::1]:80").is_ok());
        assert!(listen("0.0.0.0:80").is_err() && listen("nonsense").is_err());
    }
}
