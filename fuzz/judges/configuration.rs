//! Configuration: the nearest source wins, unknown settings are refused, values that pass the check work, and a
//! password is neither taken from a file nor shown.

use deskgate::settings::{ConnectionSettings, Mode};
use deskgate_gateway::config::{Config, ConfigError, SETTINGS};

use super::folder;

/// Judges a file, variables after a line `---`, and flags after another one; and the file as a device's connection.
pub fn judge(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(3, "---\n");
    let (file, variables, flags) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    connection(file);
    let variables: Vec<_> = variables.lines().filter_map(|line| line.split_once('=')).collect();
    // It would lead to files of this machine.
    if variables.iter().any(|(name, _)| *name == "CREDENTIALS_DIRECTORY") {
        return;
    }
    let flags: Vec<_> = flags.lines().map(str::to_owned).collect();
    let folder = folder();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file).expect("written");
    let load = || {
        let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::load(Some(&path), owned, &flags)
    };
    match load() {
        Ok(config) => {
            nearest_wins(&config, &variables, &flags);
            shown(&config);
            checked(&config);
            assert_eq!(load().map(|again| again.show()).ok(), Some(config.show()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    passwords(file, &flags, load());
}

fn nearest_wins(config: &Config, variables: &[(&str, &str)], flags: &[String]) {
    for setting in SETTINGS {
        let by_flag = flags.iter().rev().find_map(|flag| {
            let (key, value) = flag.split_once('=').unwrap_or((flag, ""));
            (key.trim() == setting.key).then_some(value.trim())
        });
        let is_it = |name: &str| match name.strip_prefix("DESKGATE_") {
            Some(rest) => rest != "CONFIG" && rest.to_lowercase().replace("__", ".") == setting.key,
            None => name == "DATABASE_URL" && setting.key == "database.url",
        };
        let by_variable = variables.iter().rev().find(|(name, _)| is_it(name)).map(|(_, value)| *value);
        if let Some(value) = by_flag.or(by_variable) {
            assert_eq!(config.text(setting.key), value, "{}", setting.key);
        }
    }
}

fn shown(config: &Config) {
    let rows = config.show();
    assert_eq!(rows.len(), SETTINGS.len());
    let (_, shown, _) = rows.iter().find(|(key, ..)| *key == "database.url").expect("every setting is shown");
    if has_password(config.text("database.url")) {
        assert!(shown.starts_with('('), "a password is shown: {shown}");
    }
}

fn checked(config: &Config) {
    if config.check().is_err() {
        return;
    }
    let listen = config.listen().expect("it was checked");
    let guarded = config.tls_files().is_ok_and(|files| files.is_some())
        || config.acme().is_ok_and(|acme| acme.is_some())
        || config.trusted_proxies().is_ok_and(|proxies| !proxies.is_empty());
    assert!(listen.ip().is_loopback() || guarded, "plain HTTP on {listen}");
    let clocks = config.session_timings().expect("it was checked");
    assert!(clocks.lease >= clocks.heartbeat * 2 && !clocks.heartbeat.is_zero() && !clocks.offer.is_zero());
    let limits = config.limits().expect("it was checked");
    assert!(limits.bodies_per_key > 0 && limits.body_bytes_per_key > 0);
}

/// Whether a database client would find a password in a text.
fn has_password(url: &str) -> bool {
    url.parse::<tokio_postgres::Config>().is_ok_and(|config| config.get_password().is_some())
}

fn passwords(file: &str, flags: &[String], loaded: Result<Config, ConfigError>) {
    let in_file = file.parse::<toml::Table>().ok();
    let in_file = in_file.as_ref().and_then(|table| table.get("database")?.get("url")?.as_str());
    let in_flag = flags.iter().filter_map(|flag| flag.split_once('=')).filter(|(key, _)| key.trim() == "database.url");
    for url in in_flag.map(|(_, url)| url.trim()).chain(in_file) {
        assert!(!has_password(url) || loaded.is_err(), "a password in a file or a flag is taken: {url}");
    }
}

/// The device's own connection settings, as they are in its database.
fn connection(text: &str) {
    let Ok(read) = serde_json::from_str::<ConnectionSettings>(text) else { return };
    let written = serde_json::to_string(&read).expect("it is JSON");
    assert_eq!(serde_json::from_str::<ConnectionSettings>(&written).ok().as_ref(), Some(&read));
    for mode in [Mode::BuiltIn, Mode::Remote, Mode::Hosted] {
        let mut saved = read.clone();
        if saved.save(mode).is_err() {
            assert_eq!(saved, read, "a failed save changed something");
            continue;
        }
        assert_eq!(saved.mode, mode);
        assert!(saved.pause_access || read.mode == mode, "another gateway, and access goes on");
        match mode {
            Mode::BuiltIn => assert!(saved.saved.builtin.address().is_ok_and(|address| address.ip().is_loopback())),
            Mode::Remote => {
                let (host, port) = saved.saved.remote.host_and_port().expect("it was saved");
                assert!(!host.is_empty() && !host.contains(['/', '@', ' ']) && port > 0, "{host}:{port}");
            }
            Mode::Hosted => {
                let address = saved.saved.hosted.address().expect("it was saved");
                assert_eq!(saved.saved.hosted.gateway_address, address.to_string(), "kept as it was understood");
            }
        }
        let once = saved.clone();
        saved.save(mode).expect("what was saved can be saved");
        assert_eq!(saved, once);
    }
}
