//! `callback`: where an application's events are sent.

use std::time::Duration;

use clap::{Args, Subcommand};
use deskgate_program::duration;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records::{self, Detail, deliveries};
use deskgate_protocol::ApplicationId;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryState};
use deskgate_protocol::management::{
    Callback as Record, CallbackFormat, CallbackOff, CallbackWithSecret, ListCallbacks, RollCallbackSecret,
    SetCallback, ShowCallback, ShowDelivery, TestCallback,
};

use super::app;
use super::socket::AgentClient;

/// `deskgate callback …`
#[derive(Debug, Subcommand)]
pub(super) enum CallbackCommand {
    /// Every application's callback
    List,
    /// One application's callback
    Show {
        /// The application: its name or identifier
        app: String,
    },
    /// Set where an application's events are sent, or change it; what is not named stays as it is
    Set(CallbackSetArgs),
    /// Send a test now, and say what came of it
    Test {
        /// The application: its name or identifier
        app: String,
        /// Wait at most so long for the first answer
        #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
        wait: Duration,
    },
    /// Replace the secret that signs; the new one is shown this once
    #[command(alias = "secret")]
    RollSecret {
        /// The application: its name or identifier
        app: String,
        /// Hours for which the old one signs too
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap: u32,
    },
    /// Send nothing more; what was queued waits
    Disable {
        /// The application: its name or identifier
        app: String,
    },
    /// Send again
    Enable {
        /// The application: its name or identifier
        app: String,
    },
}

/// `deskgate callback set …`
#[derive(Debug, Args)]
pub(super) struct CallbackSetArgs {
    /// The application: its name or identifier
    app: String,
    /// The address: https, a name, no port; its host must be on the gateway's list (deskgate allowlist)
    #[arg(long)]
    url: Option<String>,
    /// An event to tell of, as in run.succeeded; may be repeated [default: the ends of runs]
    #[arg(long, value_name = "EVENT")]
    event: Vec<CallbackEvent>,
    /// Whether to keep the first KiB of each answer
    #[arg(long, value_name = "BOOL")]
    keep_answers: Option<bool>,
    /// How ends of runs are written: deskgate, with the run's record, or openai, as OpenAI's webhooks [default: deskgate]
    #[arg(long)]
    format: Option<CallbackFormat>,
}

pub(super) async fn run(agent: AgentClient, command: CallbackCommand, out: Output) -> Result<(), Failure> {
    match command {
        CallbackCommand::List => {
            let callbacks = agent.manage(ListCallbacks {}).await?;
            out.result("callbacks/1", &serde_json::json!({ "callbacks": callbacks }), || list(&callbacks));
        }
        CallbackCommand::Show { app } => {
            let app_id = app::find(&agent, &app).await?;
            let callback = agent.manage(ShowCallback { app_id }).await?;
            out.result("callback/1", &serde_json::json!({ "callback": callback }), || {
                callback.as_ref().map_or_else(none, describe)
            });
        }
        CallbackCommand::Set(set) => {
            let app_id = app::find(&agent, &set.app).await?;
            let types = Some(set.event).filter(|events| !events.is_empty());
            let change = SetCallback {
                app_id,
                url: set.url,
                types,
                enabled: None,
                keep_answers: set.keep_answers,
                format: set.format,
            };
            show(&agent.manage(change).await?, out);
        }
        CallbackCommand::Test { app, wait } => {
            let app_id = app::find(&agent, &app).await?;
            return test(&agent, app_id, wait, out).await;
        }
        CallbackCommand::RollSecret { app, overlap } => {
            let app_id = app::find(&agent, &app).await?;
            let overlap_s = overlap.saturating_mul(3600);
            show(&agent.manage(RollCallbackSecret { app_id, overlap_s }).await?, out);
        }
        CallbackCommand::Disable { app } => switch(&agent, &app, false, out).await?,
        CallbackCommand::Enable { app } => switch(&agent, &app, true, out).await?,
    }
    Ok(())
}

async fn switch(agent: &AgentClient, app: &str, enabled: bool, out: Output) -> Result<(), Failure> {
    let app_id = app::find(agent, app).await?;
    let change =
        SetCallback { app_id, url: None, types: None, enabled: Some(enabled), keep_answers: None, format: None };
    show(&agent.manage(change).await?, out);
    Ok(())
}

async fn test(agent: &AgentClient, app_id: ApplicationId, wait: Duration, out: Output) -> Result<(), Failure> {
    let queued = agent.manage(TestCallback { app_id }).await?;
    let wait_s = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
    let delivery_id = queued.delivery.delivery_id;
    let detail = agent.manage(ShowDelivery { delivery_id, wait_s, seen: 0 }).await?;
    out.result("delivery/1", &detail, || deliveries::detail(&detail));
    match (detail.delivery.delivery.state, detail.attempts.is_empty()) {
        (DeliveryState::Delivered, _) => Ok(()),
        (_, true) => Err(Failure::new(Exit::Pending, "it was not attempted yet; it stays queued")),
        _ => Err(Failure::new(Exit::Failed, "the receiver did not confirm it; it is attempted again by the schedule")),
    }
}

fn show(set: &CallbackWithSecret, out: Output) {
    out.result("callback-set/1", set, || {
        let secret = set.secret.as_ref().map(|secret| {
            format!("Signing secret, shown this once; keep it in the receiver's credential store:\n{secret}")
        });
        describe(&set.callback) + &secret.unwrap_or_default()
    });
}

fn none() -> String {
    "It has no callback. Set one with: deskgate callback set APP --url https://…".to_owned()
}

fn describe(callback: &Record) -> String {
    let events: Vec<_> = callback.types.iter().map(|kind| kind.as_str()).collect();
    let not_allowed = "its host is not allowed, so every attempt fails; see: deskgate allowlist show";
    Detail::new(&callback.url)
        .field("events", events.join(" "))
        .field("state", state(callback))
        .fields("list", (!callback.host_allowed).then_some(not_allowed))
        .fields("form", (callback.format != CallbackFormat::Deskgate).then_some(callback.format))
        .fields("answers", callback.keep_answers.then_some("the first KiB of each is kept"))
        .fields("secret", callback.old_secret_until.map(|until| format!("the old one signs too until {until}")))
        .field("pending", callback.pending)
        .text()
}

fn state(callback: &Record) -> String {
    let since = callback.off_since.map(|since| format!(" since {since}")).unwrap_or_default();
    match callback.off {
        None => match callback.failing_since {
            None => "on".to_owned(),
            Some(since) => format!("on; every attempt failed since {since}"),
        },
        Some(CallbackOff::Owner) => format!("off{since}"),
        Some(CallbackOff::Gone) => format!("off{since}: the receiver answered 410, it is gone"),
        Some(CallbackOff::Failing) => format!("off{since}: five days of nothing but failures"),
        Some(CallbackOff::Application) => format!("off{since}: its application was disabled"),
    }
}

fn list(callbacks: &[Record]) -> String {
    records::list(
        callbacks,
        "No application has a callback.",
        &["APPLICATION", "ADDRESS", "PENDING", "STATE"],
        |callback| {
            let (url, pending) = (callback.url.clone(), callback.pending.to_string());
            vec![Cell::id(callback.app_id), url.into(), pending.into(), state(callback).into()]
        },
    )
}
