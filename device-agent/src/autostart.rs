//! Starting at login: a unit of this user's own systemd.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::config::Home;

/// The unit's name.
const UNIT_NAME: &str = "deskgate.service";
/// The first words of the agent's own unit. Another one is left unchanged.
const UNIT_HEADER: &str = "# Written by `deskgate autostart enable`; `deskgate autostart disable` removes it.\n";

/// The unit for starting at login, and the paths it needs.
#[derive(Clone, Debug)]
pub struct Autostart {
    /// The folder of this user's units.
    pub units: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// The agent's folder, `DESKGATE_HOME`.
    pub home: PathBuf,
    /// The `systemctl` program.
    pub systemctl: PathBuf,
}

/// Whether the agent starts at login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutostartState {
    /// Whether it is enabled.
    pub enabled: bool,
    /// The unit's file.
    pub unit: PathBuf,
    /// Why it would not start, for a person.
    pub problem: Option<String>,
}

/// Why starting at login cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum AutostartError {
    /// This computer has no systemd for users.
    #[error(
        "this computer has no systemd that starts a user's programs ({0}). Have `deskgate start` run at login in your desktop's own way"
    )]
    NoManager(String),
    /// Where the unit or the program is cannot be said.
    #[error("no folder for units is known: {0}")]
    NoPlace(String),
    /// The unit was not written by the agent.
    #[error("{0} was not written by this command, so it is left alone. Move it away, and repeat this")]
    Foreign(PathBuf),
    /// A path cannot be written in a unit.
    #[error("{0:?} cannot stand in a systemd unit")]
    Unwritable(PathBuf),
    /// The file cannot be written or removed.
    #[error("{path}: {source}")]
    Io {
        /// The unit's file.
        path: PathBuf,
        /// Why it cannot be written or removed.
        source: io::Error,
    },
    /// systemd refused.
    #[error("systemctl --user {0}: {1}")]
    Refused(&'static str, String),
}

impl Autostart {
    /// That of this program for an agent's folder.
    ///
    /// # Errors
    /// [`AutostartError::NoPlace`]: the program's own path, or the folder of this user's units, is not known.
    pub fn of(home: &Path) -> Result<Self, AutostartError> {
        let program = std::env::current_exe().map_err(|error| AutostartError::NoPlace(error.to_string()))?;
        let units = Home::user_units().ok_or_else(|| AutostartError::NoPlace("set HOME".to_owned()))?;
        Ok(Self { units, program, home: home.to_owned(), systemctl: PathBuf::from("systemctl") })
    }

    /// The current state. Blocks for systemd, as the other two methods do.
    pub fn state(&self) -> AutostartState {
        let unit = self.unit();
        let there = std::fs::read_to_string(&unit).ok();
        let wanted = self.units.join("default.target.wants").join(UNIT_NAME);
        // The link alone decides whether it starts; it is examined without following it.
        let enabled = there.is_some() && wanted.symlink_metadata().is_ok();
        let problem = match (&there, self.systemctl("show-environment", &[])) {
            (Some(text), _) if !text.starts_with(UNIT_HEADER) => {
                Some(AutostartError::Foreign(unit.clone()).to_string())
            }
            (_, Err(why)) => Some(AutostartError::NoManager(why).to_string()),
            (Some(text), _) if enabled && self.text().is_ok_and(|ours| ours != *text) => Some(
                "It starts another program or another agent's folder. Enable it anew to start this one.".to_owned(),
            ),
            _ => None,
        };
        AutostartState { enabled, unit, problem }
    }

    /// Enables starting at login. It does not start the agent now: the caller is the running agent.
    ///
    /// # Errors
    /// [`AutostartError::Unwritable`]: a path is not UTF-8 or contains a control character.
    /// [`AutostartError::Foreign`]: there is a unit that the agent did not write. [`AutostartError::NoManager`]: no
    /// systemd of this user answers. [`AutostartError::Io`]: the unit cannot be written. [`AutostartError::Refused`]:
    /// systemd does not reload or enable it.
    pub fn enable(&self) -> Result<AutostartState, AutostartError> {
        let (text, unit) = (self.text()?, self.unit());
        self.is_ours()?;
        self.systemctl("show-environment", &[]).map_err(AutostartError::NoManager)?;
        let io = |source| AutostartError::Io { path: unit.clone(), source };
        std::fs::create_dir_all(&self.units).and_then(|()| std::fs::write(&unit, text)).map_err(io)?;
        for (verb, names) in [("daemon-reload", &[][..]), ("enable", &[UNIT_NAME][..])] {
            self.systemctl(verb, names).map_err(|why| AutostartError::Refused(verb, why))?;
        }
        Ok(self.state())
    }

    /// Has it not started any more. An agent that runs goes on.
    ///
    /// # Errors
    /// [`AutostartError::Foreign`]: there is a unit that the agent did not write. [`AutostartError::Refused`]: systemd
    /// does not disable it or reload. [`AutostartError::Io`]: the unit cannot be removed.
    pub fn disable(&self) -> Result<AutostartState, AutostartError> {
        let unit = self.unit();
        self.is_ours()?;
        if unit.exists() {
            self.systemctl("disable", &[UNIT_NAME]).map_err(|why| AutostartError::Refused("disable", why))?;
            std::fs::remove_file(&unit).map_err(|source| AutostartError::Io { path: unit, source })?;
            self.systemctl("daemon-reload", &[]).map_err(|why| AutostartError::Refused("daemon-reload", why))?;
        }
        Ok(self.state())
    }

    fn unit(&self) -> PathBuf {
        self.units.join(UNIT_NAME)
    }

    fn is_ours(&self) -> Result<(), AutostartError> {
        match std::fs::read_to_string(self.unit()) {
            Ok(text) if !text.starts_with(UNIT_HEADER) => Err(AutostartError::Foreign(self.unit())),
            _ => Ok(()),
        }
    }

    /// The unit's text. A dollar sign has no meaning in it: neither in an assignment nor in a program's name
    /// (systemd.exec(5), systemd.service(5)).
    fn text(&self) -> Result<String, AutostartError> {
        let (home, program) = (quoted(&self.home)?, quoted(&self.program)?);
        Ok(format!(
            "{UNIT_HEADER}[Unit]\nDescription=Deskgate agent\n\n[Service]\nEnvironment=\"DESKGATE_HOME={home}\"\n\
             ExecStart=\"{program}\" start --foreground\nRestart=on-failure\nRestartSec=5\n\n\
             [Install]\nWantedBy=default.target\n"
        ))
    }

    /// Calls this user's systemd; the error is in its own words.
    fn systemctl(&self, verb: &str, names: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.systemctl);
        command.args(["--user", "--no-ask-password", "--quiet", verb]).args(names).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{}: {error}", self.systemctl.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        match output.status.success() {
            true => Ok(()),
            false if said.is_empty() => Err(format!("it ended with {}", output.status)),
            false => Err(said.to_owned()),
        }
    }
}

/// A path in double quotes (systemd.syntax(7)); a percent sign begins a specifier there.
fn quoted(path: &Path) -> Result<String, AutostartError> {
    let unwritable = || AutostartError::Unwritable(path.to_owned());
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control)).ok_or_else(unwritable)?;
    Ok(text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn autostart(units: &Path) -> Autostart {
        let (program, home) = (PathBuf::from("/opt/50% \"$x\"/deskgate"), PathBuf::from("/home/a b/\\$HOME"));
        Autostart { units: units.to_owned(), program, home, systemctl: PathBuf::from("/nowhere/systemctl") }
    }

    /// A stand-in for systemctl that handles units as it does, and records its calls.
    fn with_systemd(folder: &Path) -> Autostart {
        let (units, systemctl) = (folder.join("user"), folder.join("systemctl"));
        let script = format!(
            "#!/bin/sh\ncd '{}' || exit 1\necho \"$4\" >> asked\nmkdir -p user/default.target.wants\n\
             link=user/default.target.wants/deskgate.service\n\
             case $4 in enable) ln -sf ../deskgate.service $link;; disable) rm -f $link;; esac\n",
            folder.display()
        );
        std::fs::write(&systemctl, script).expect("written");
        std::fs::set_permissions(&systemctl, PermissionsExt::from_mode(0o700)).expect("ours");
        Autostart { systemctl, ..autostart(&units) }
    }

    #[test]
    fn what_is_enabled_starts_at_login_until_it_is_disabled() {
        let folder = tempfile::tempdir().expect("a folder");
        let autostart = with_systemd(folder.path());
        assert_eq!(autostart.state(), AutostartState { enabled: false, unit: autostart.unit(), problem: None });
        assert_eq!(
            autostart.enable().expect("done"),
            AutostartState { enabled: true, unit: autostart.unit(), problem: None }
        );
        let other = Autostart { home: "/elsewhere".into(), ..autostart.clone() };
        assert!(other.state().problem.is_some_and(|why| why.contains("another agent's folder")));
        assert!(!autostart.disable().expect("done").enabled && !autostart.unit().exists());
        let asked = std::fs::read_to_string(folder.path().join("asked")).expect("noted");
        let asked: Vec<_> = asked.lines().filter(|verb| *verb != "show-environment").collect();
        assert_eq!(asked, ["daemon-reload", "enable", "disable", "daemon-reload"]);
    }

    #[test]
    fn without_systemd_nothing_is_written_and_the_reason_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let autostart = autostart(folder.path());
        assert!(matches!(autostart.enable(), Err(AutostartError::NoManager(_))));
        assert!(!autostart.unit().exists());
        assert!(autostart.state().problem.is_some_and(|why| why.contains("deskgate start")));
    }

    #[test]
    fn names_in_the_unit_mean_themselves() {
        let text = autostart(Path::new("/units")).text().expect("writable");
        assert!(text.contains("\nExecStart=\"/opt/50%% \\\"$x\\\"/deskgate\" start --foreground\n"), "{text}");
        assert!(text.contains("\nEnvironment=\"DESKGATE_HOME=/home/a b/\\\\$HOME\"\n"), "{text}");
        let two_lines = Autostart { home: "/a\nExecStartPre=/bin/x".into(), ..autostart(Path::new("/units")) };
        assert!(matches!(two_lines.text(), Err(AutostartError::Unwritable(_))));
    }

    #[test]
    fn a_unit_of_somebody_else_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let autostart = autostart(folder.path());
        std::fs::write(autostart.unit(), "[Service]\nExecStart=/bin/true\n").expect("written");
        assert!(matches!(autostart.enable(), Err(AutostartError::Foreign(_))));
        assert!(matches!(autostart.disable(), Err(AutostartError::Foreign(_))));
        let state = autostart.state();
        assert!(!state.enabled && state.problem.is_some_and(|why| why.contains("left alone")));
        assert!(std::fs::read_to_string(autostart.unit()).expect("there").contains("/bin/true"));
    }
}
