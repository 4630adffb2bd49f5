//! `settings`: the agent's own settings.

use clap::{Subcommand, ValueEnum};
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::{Output, table};
use deskgate_protocol::words::UnknownWord;
use deskgate_store::RetentionSettings;

use super::no_secret;
use super::socket::AgentClient;
use crate::local::{
    Amount, ChangeSettings, GetSettings, KeyPlace, Retention, ReviewRetention, SetRetention, SettingValue, SettingsView,
};

/// `deskgate settings …`
#[derive(Debug, Subcommand)]
pub(super) enum SettingsCommand {
    /// What is chosen, and where secrets are kept
    Show,
    /// Choose one of them
    Set {
        /// Which
        name: SettingName,
        /// What
        value: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// How much of what is over is kept, and how much would go now with other times
    Retention {
        /// Days that ended runs are kept in the built-in gateway
        #[arg(long, value_name = "DAYS")]
        keep_runs: Option<u32>,
        /// Days that a conversation's transcript is kept after its last message
        #[arg(long, value_name = "DAYS")]
        keep_conversations: Option<u32>,
        /// Days that answers of ended runs are kept in the journal
        #[arg(long, value_name = "DAYS")]
        keep_journal: Option<u32>,
        /// Days that tool calls of ended runs are kept, with their arguments and outputs
        #[arg(long, value_name = "DAYS")]
        keep_calls: Option<u32>,
        /// Days that lines of the agent's log are kept
        #[arg(long, value_name = "DAYS")]
        keep_log: Option<u32>,
    },
}

/// What can be chosen.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SettingName {
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
    /// Days that ended runs are kept in the built-in gateway. Fewer delete after a question
    KeepRuns,
    /// Days that a conversation's transcript is kept after its last message; likewise
    KeepConversations,
    /// Days that answers of ended runs are kept in the journal; likewise
    KeepJournal,
    /// Days that tool calls of ended runs are kept, with their arguments and outputs; likewise
    KeepCalls,
    /// Days that lines of the agent's log are kept; likewise
    KeepLog,
}

pub(super) async fn run(agent: AgentClient, command: SettingsCommand, out: Output) -> Result<(), Failure> {
    let settings = match command {
        SettingsCommand::Show => agent.request(GetSettings {}).await?,
        SettingsCommand::Set { name, value, confirmation } => {
            no_secret("VALUE", &value)?;
            let now = agent.request(GetSettings {}).await?;
            match keep(name, &value, now.keep)? {
                Some(keep) => {
                    shorten(&agent, keep, confirmation).await?;
                    agent.request(GetSettings {}).await?
                }
                None => agent.request(change(name, value)?).await?,
            }
        }
        SettingsCommand::Retention { keep_runs, keep_conversations, keep_journal, keep_calls, keep_log } => {
            let now = agent.request(GetSettings {}).await?.keep;
            let keep = RetentionSettings {
                runs: keep_runs.unwrap_or(now.runs),
                conversations: keep_conversations.unwrap_or(now.conversations),
                journal: keep_journal.unwrap_or(now.journal),
                calls: keep_calls.unwrap_or(now.calls),
                log: keep_log.unwrap_or(now.log),
            };
            let kept = agent.request(ReviewRetention { keep: Some(keep) }).await?;
            out.result("retention/1", &kept, || amounts(&kept, keep));
            return Ok(());
        }
    };
    out.result("settings/1", &settings, || show(&settings));
    Ok(())
}

/// The new retention times, if the setting is one of them.
fn keep(name: SettingName, value: &str, now: RetentionSettings) -> Result<Option<RetentionSettings>, Failure> {
    let mut keep = now;
    let (part, word) = match name {
        SettingName::KeepRuns => (&mut keep.runs, "keep-runs"),
        SettingName::KeepConversations => (&mut keep.conversations, "keep-conversations"),
        SettingName::KeepJournal => (&mut keep.journal, "keep-journal"),
        SettingName::KeepCalls => (&mut keep.calls, "keep-calls"),
        SettingName::KeepLog => (&mut keep.log, "keep-log"),
        _ => return Ok(None),
    };
    *part = value.parse().map_err(|_| Failure::new(Exit::Usage, format!("{word}: {value:?} is no number of days")))?;
    Ok(Some(keep))
}

/// Shows what will be deleted, and asks for confirmation.
async fn shorten(agent: &AgentClient, keep: RetentionSettings, confirmation: Confirmation) -> Result<(), Failure> {
    let kept = agent.request(ReviewRetention { keep: Some(keep) }).await?;
    if kept.takes() {
        confirmation.confirm(&format!("{}\nWhat goes cannot be brought back.", amounts(&kept, keep)))?;
    }
    agent.request(SetRetention { keep }).await?;
    Ok(())
}

/// How much is kept, and how much would be deleted.
fn amounts(kept: &Retention, keep: RetentionSettings) -> String {
    let row = |what: &str, days: u32, amount: Option<Amount>| {
        let number =
            |number: fn(&Amount) -> u64| amount.as_ref().map_or("not known".to_owned(), |a| number(a).to_string());
        vec![what.to_owned(), format!("{days} days"), number(|amount| amount.kept), number(|amount| amount.going)]
    };
    let rows = [
        row("ended runs in the built-in gateway", keep.runs, kept.runs),
        row("conversations' transcripts", keep.conversations, Some(kept.conversations)),
        row("answers in the journal", keep.journal, Some(kept.journal)),
        row("tool calls", keep.calls, Some(kept.calls)),
        row("lines of the log", keep.log, Some(kept.log)),
    ];
    table(&["WHAT", "KEPT FOR", "THERE NOW", "WOULD GO NOW"], rows.into())
}

fn change(name: SettingName, value: String) -> Result<ChangeSettings, Failure> {
    let wrong = |why: String| Failure::new(Exit::Usage, why);
    let unknown = |why: UnknownWord| {
        let name = name.to_possible_value();
        wrong(format!("{}: {why}", name.as_ref().map_or("", |name| name.get_name())))
    };
    let none = ChangeSettings::default();
    Ok(match name {
        SettingName::DeviceName => ChangeSettings { device_name: Some(value), ..none },
        SettingName::Theme => ChangeSettings { theme: Some(value.parse().map_err(unknown)?), ..none },
        SettingName::KeepAwake => ChangeSettings { keep_awake: Some(value.parse().map_err(unknown)?), ..none },
        SettingName::Slots => {
            let slots = value.parse().map_err(|_| wrong(format!("slots: {value:?} is no number of runs")))?;
            ChangeSettings { slots: Some(slots), ..none }
        }
        SettingName::Secrets => ChangeSettings { key_place: Some(value.parse().map_err(unknown)?), ..none },
        // Set in days, by another function.
        SettingName::KeepRuns
        | SettingName::KeepConversations
        | SettingName::KeepJournal
        | SettingName::KeepCalls
        | SettingName::KeepLog => none,
        SettingName::PagesPort => {
            let port = value.parse().map_err(|_| wrong(format!("pages-port: {value:?} is no port")))?;
            ChangeSettings { pages_port: Some(port), ..none }
        }
    })
}

/// Where new keys of providers and servers are kept, as the beginning of a sentence about those in files.
fn keys(place: KeyPlace) -> &'static str {
    match place {
        KeyPlace::File => "",
        KeyPlace::Keyring => "new keys of providers and MCP servers in the desktop's keyring; ",
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
    let RetentionSettings { runs, conversations, journal, calls, log } = settings.keep;
    text += &format!(
        "\nkept for     ended runs {runs} days, conversations {conversations}, answers in the journal {journal}, tool calls \
         {calls}, the log {log}"
    );
    text += &format!("\nversion      {}; what the gateway makes of it: deskgate status", settings.version);
    text + "\ntelemetry    none: nothing about you or your use is sent anywhere"
}

fn chosen<T: PartialEq + std::fmt::Display>(choice: SettingValue<T>) -> String {
    match (choice.waits(), &choice.in_force) {
        (true, Some(now)) => {
            format!("{} (now {now}; counts from the next start: deskgate restart)", choice.chosen)
        }
        _ => choice.chosen.to_string(),
    }
}
