//! `settings`: what is chosen about the agent itself.

use clap::{Subcommand, ValueEnum};
use deskgate_gateway::exit::{Exit, Failure};
use deskgate_gateway::output::Output;

use super::no_secret;
use super::socket::Agent;
use crate::local::{ChangeSettings, Chosen, GetSettings, Place, SettingsView};

/// `deskgate settings …`
#[derive(Debug, Subcommand)]
pub(super) enum Settings {
    /// What is chosen, and where secrets are kept
    Show,
    /// Choose one of them
    Set {
        /// Which
        name: What,
        /// What
        value: String,
    },
}

/// What can be chosen.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum What {
    /// The name that people know this computer by
    DeviceName,
    /// Runs at the same time; counts from the next start on
    Slots,
    /// How the pages look: system, light or dark
    Theme,
    /// The pages' port; counts from the next start on
    PagesPort,
    /// When runs keep the computer awake: always, on-ac or never
    KeepAwake,
    /// Where keys of providers and MCP servers are kept: file or keyring. Moves them
    Secrets,
}

pub(super) async fn run(agent: Agent, command: Settings, out: Output) -> Result<(), Failure> {
    let settings = match command {
        Settings::Show => agent.ask(GetSettings {}).await?,
        Settings::Set { name, value } => agent.ask(change(name, value)?).await?,
    };
    out.result("settings/1", &settings, || show(&settings));
    Ok(())
}

fn change(name: What, value: String) -> Result<ChangeSettings, Failure> {
    no_secret("VALUE", &value)?;
    let wrong = |why: String| Failure::new(Exit::Usage, why);
    let none = ChangeSettings::default();
    Ok(match name {
        What::DeviceName => ChangeSettings { device_name: Some(value), ..none },
        What::Theme => ChangeSettings { theme: Some(value.parse().map_err(wrong)?), ..none },
        What::KeepAwake => ChangeSettings { keep_awake: Some(value.parse().map_err(wrong)?), ..none },
        What::Slots => {
            let slots = value.parse().map_err(|_| wrong(format!("slots: {value:?} is no number of runs")))?;
            ChangeSettings { slots: Some(slots), ..none }
        }
        What::Secrets => {
            let place = value.parse().map_err(|why| wrong(format!("secrets: {why}")))?;
            ChangeSettings { key_place: Some(place), ..none }
        }
        What::PagesPort => {
            let port = value.parse().map_err(|_| wrong(format!("pages-port: {value:?} is no port")))?;
            ChangeSettings { pages_port: Some(port), ..none }
        }
    })
}

/// Where new keys of providers and servers are kept, before what is kept in files.
fn keys(place: Place) -> &'static str {
    match place {
        Place::File => "",
        Place::Keyring => "new keys of providers and servers in the desktop's keyring; ",
    }
}

fn show(settings: &SettingsView) -> String {
    let mut text = format!(
        "device-name  {}\nslots        {}\ntheme        {}\npages-port   {}\nkeep-awake   {} (during runs)\nsecrets      {}files of mode 0600:",
        settings.device_name,
        chosen(settings.slots),
        settings.theme.as_str(),
        chosen(settings.pages_port),
        settings.keep_awake.as_str(),
        keys(settings.key_place),
    );
    for place in settings.secrets.iter().filter(|place| place.saved) {
        let keyring = match place.in_keyring {
            0 => String::new(),
            keys => format!(", {keys} in the desktop's keyring"),
        };
        text += &format!("\n             {} ({}{keyring})", place.path.display(), place.what);
    }
    text += &format!("\nversion      {}; what the gateway makes of it: deskgate status", settings.version);
    text + "\ntelemetry    none: nothing about you or your use is sent anywhere"
}

fn chosen<T: PartialEq + std::fmt::Display>(choice: Chosen<T>) -> String {
    match (choice.waits(), &choice.in_force) {
        (true, Some(now)) => {
            format!("{} (now {now}; counts from the next start: deskgate stop, deskgate start)", choice.chosen)
        }
        _ => choice.chosen.to_string(),
    }
}
