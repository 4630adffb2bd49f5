//! `hook`: incoming webhooks, whose signed events become runs and messages.

mod options;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::{Cell, Tone};
use deskgate_program::output::Output;
use deskgate_program::records::{self, Detail, Noun};
use deskgate_protocol::management::{
    ChangeWebhook, CreateWebhook, EnableWebhook, ListWebhooks, RemoveWebhook, RollWebhookSecret, SecretText,
    ShowWebhook, TestWebhook, TrialOutcome, Webhook, WebhookDetail, WebhookReceipt, WebhookSample, WebhookTrial,
    WebhookWithSecret,
};
use deskgate_protocol::{HookId, ReceiptId};

use super::key_file::text_of;
use super::socket::AgentClient;
use super::{app, no_secret};
use deskgate_program::visible::{block, line};
use options::{HookOptions, SchemeName};

const WEBHOOKS: Noun = Noun { singular: "webhook", plural: "webhooks", list: "deskgate hook list" };

/// `deskgate hook …`
#[derive(Debug, Subcommand)]
pub(super) enum HookCommand {
    /// Create a webhook; its secret, if it is made here, is shown this once
    Create(Box<HookCreateArgs>),
    /// Webhooks that were not removed
    List {
        /// Only of this application: its name or identifier
        #[arg(long, value_name = "APP")]
        app: Option<String>,
    },
    /// One webhook, with what it last received and why each was accepted, ignored or refused
    Show {
        /// Its name or identifier
        hook: String,
    },
    /// Change what is chosen about a webhook; what is not named stays
    Set {
        /// Its name or identifier
        hook: String,
        #[command(flatten)]
        chosen: Box<HookOptions>,
    },
    /// What an event would become, as a webhook is or as it would be; nothing is submitted, no signature is looked at
    #[command(after_help = "Ends with 10 if the event would be refused.")]
    Test(Box<HookTestArgs>),
    /// Give a webhook another secret
    #[command(alias = "secret")]
    RollSecret {
        /// Its name or identifier
        hook: String,
        /// Hours for which the old one stays active
        #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=720))]
        overlap: u32,
        #[command(flatten)]
        secret: SecretFileArgs,
    },
    /// Let events make runs again
    Enable {
        /// Its name or identifier
        hook: String,
    },
    /// Ignore all events; senders are told that all is well
    Disable {
        /// Its name or identifier
        hook: String,
    },
    /// Remove a webhook, its secret and what it received, for good
    Remove {
        /// Its name or identifier
        hook: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// `deskgate hook create`
#[derive(Debug, Args)]
pub(super) struct HookCreateArgs {
    /// What it is for
    name: String,
    /// The application's name or identifier
    #[arg(long)]
    app: String,
    /// How the other system signs
    #[arg(long, value_enum)]
    scheme: SchemeName,
    #[command(flatten)]
    chosen: HookOptions,
    #[command(flatten)]
    secret: SecretFileArgs,
}

/// `deskgate hook test`
#[derive(Debug, Args)]
pub(super) struct HookTestArgs {
    /// Its name or identifier
    #[arg(required_unless_present = "scheme")]
    hook: Option<String>,
    /// Without a webhook: how the other system would sign
    #[arg(long, value_enum, conflicts_with_all = ["hook", "receipt"])]
    scheme: Option<SchemeName>,
    /// An event that it received, whose body was kept
    #[arg(long, value_name = "RECEIPT", group = "sample", required_unless_present = "body")]
    receipt: Option<ReceiptId>,
    /// A file with an event's body; - for standard input
    #[arg(long, value_name = "FILE", group = "sample")]
    body: Option<PathBuf>,
    /// A header of that event, as in "X-GitHub-Event: issues"; may be repeated
    #[arg(long = "with-header", value_name = "HEADER", requires = "body", value_parser = header)]
    headers: Vec<(String, String)>,
    #[command(flatten)]
    chosen: HookOptions,
}

/// Where a given secret is.
#[derive(Debug, Args)]
pub(super) struct SecretFileArgs {
    /// A file with the secret that the other system chose; - for standard input [default: a new one, which is shown]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretFileArgs {
    fn read(&self) -> Result<Option<SecretText>, Failure> {
        let text = self.secret_file.as_deref().map(text_of).transpose()?;
        Ok(text.map(|text| SecretText::from(text.trim().to_owned())))
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written as \"Name: value\"")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) async fn run(agent: AgentClient, command: HookCommand, out: Output) -> Result<(), Failure> {
    match command {
        HookCommand::Create(create) => {
            let HookCreateArgs { name, app, scheme, chosen, secret } = *create;
            no_secret("name", &name)?;
            let app_id = app::find(&agent, &app).await?;
            let (settings, secret) = (chosen.for_create(&agent, name, scheme).await?.into(), secret.read()?);
            let given = secret.is_some();
            let made = agent.manage(CreateWebhook { app_id, settings, secret }).await?;
            out.result("hook-created/1", &made, || created(&made, given));
        }
        HookCommand::List { app } => {
            let app_id = app::find_given(&agent, app).await?;
            let hooks = agent.manage(ListWebhooks { app_id }).await?;
            out.result("hooks/1", &serde_json::json!({ "webhooks": hooks }), || list(&hooks));
        }
        HookCommand::Show { hook } => {
            let hook_id = find(&agent, &hook).await?;
            let detail = agent.manage(ShowWebhook { hook_id }).await?;
            out.result("hook/1", &detail, || describe(&detail));
        }
        HookCommand::Set { hook, chosen } => {
            let hook_id = find(&agent, &hook).await?;
            let before = agent.manage(ShowWebhook { hook_id }).await?.webhook.settings;
            let changed = agent
                .manage(ChangeWebhook { hook_id, settings: chosen.for_update(&agent, before).await?.into() })
                .await?;
            out.result("hook-changed/1", &changed, || {
                format!("Changed {}. It holds within a second.", changed.hook_id)
            });
        }
        HookCommand::Test(test) => return trial(agent, *test, out).await,
        HookCommand::RollSecret { hook, overlap, secret } => {
            let hook_id = find(&agent, &hook).await?;
            let request = RollWebhookSecret { hook_id, overlap_s: overlap * 3600, secret: secret.read()? };
            let rolled = agent.manage(request).await?;
            out.result("hook-secret/1", &rolled, || {
                format!("The old secret stays active for {overlap} more hours.\n{}", shown_once(&rolled))
            });
        }
        HookCommand::Enable { hook } => enable(agent, &hook, true, out).await?,
        HookCommand::Disable { hook } => enable(agent, &hook, false, out).await?,
        HookCommand::Remove { hook, confirmation } => {
            let hook_id = find(&agent, &hook).await?;
            confirmation
                .confirm(&format!("Remove the webhook {hook:?}? Its address and its secret are gone for good."))?;
            let removed = agent.manage(RemoveWebhook { hook_id }).await?;
            out.result("hook-removed/1", &removed, || format!("{} is removed.", line(&removed.settings.name)));
        }
    }
    Ok(())
}

async fn enable(agent: AgentClient, hook: &str, enabled: bool, out: Output) -> Result<(), Failure> {
    let hook_id = find(&agent, hook).await?;
    let hook = agent.manage(EnableWebhook { hook_id, enabled }).await?;
    out.result("hook-enabled/1", &hook, || {
        format!("{} is {}.", line(&hook.settings.name), if enabled { "enabled" } else { "disabled" })
    });
    Ok(())
}

async fn trial(agent: AgentClient, test: HookTestArgs, out: Output) -> Result<(), Failure> {
    let sample = match (test.receipt, test.body) {
        (Some(receipt_id), _) => WebhookSample::Receipt { receipt_id },
        (None, body) => {
            let body = body.as_deref().map(text_of).transpose()?.unwrap_or_default();
            WebhookSample::Given { headers: test.headers.into_iter().collect::<BTreeMap<_, _>>(), body }
        }
    };
    let (hook_id, settings) = match (&test.hook, test.scheme) {
        (Some(hook), _) => {
            let hook_id = find(&agent, hook).await?;
            let saved = agent.manage(ShowWebhook { hook_id }).await?.webhook.settings;
            (Some(hook_id), test.chosen.for_update(&agent, saved).await?)
        }
        (None, Some(scheme)) => (None, test.chosen.for_test(scheme)?),
        (None, None) => {
            return Err(Failure::new(Exit::Usage, "say which webhook, or --scheme of one that is not there yet"));
        }
    };
    let trial = agent.manage(TestWebhook { hook_id, settings: Some(settings.into()), sample }).await?;
    out.result("hook-trial/1", &trial, || tried(&trial));
    match trial.outcome {
        TrialOutcome::Refused { .. } => Err(Failure::new(Exit::CheckFailed, "")),
        _ => Ok(()),
    }
}

/// A webhook by its identifier or its name.
async fn find(agent: &AgentClient, wanted: &str) -> Result<HookId, Failure> {
    no_secret("webhook", wanted)?;
    if let Ok(hook_id) = wanted.parse() {
        return Ok(hook_id);
    }
    let hooks = agent.manage(ListWebhooks { app_id: None }).await?;
    let hook = WEBHOOKS.named(wanted, hooks, |hook| hook.settings.name.clone(), |hook| hook.hook_id.to_string())?;
    Ok(hook.hook_id)
}

fn created(made: &WebhookWithSecret, given: bool) -> String {
    let Webhook { hook_id, address, .. } = &made.webhook;
    let secret = match (given, &made.secret) {
        (false, None) => format!(
            "Then it shows a secret, without which nothing counts. Give it here:\n  \
             deskgate hook roll-secret {hook_id} --overlap 0 --secret-file -"
        ),
        _ => shown_once(made),
    };
    format!("Created {hook_id}. Register this address with the other system:\n{address}\n{secret}")
}

fn shown_once(made: &WebhookWithSecret) -> String {
    match &made.secret {
        Some(secret) => format!("Secret, shown this once; the other system signs with it:\n{}", secret.0.as_str()),
        None => "The given secret is kept, sealed.".to_owned(),
    }
}

fn list(hooks: &[Webhook]) -> String {
    records::list(
        hooks,
        "A webhook makes runs of another system's signed events. Create one: deskgate hook create --help",
        &["NAME", "SCHEME", "STATE", "SERVICE", "ID"],
        |hook| {
            let (name, scheme) = (line(&hook.settings.name), hook.settings.scheme.as_str());
            vec![
                name.into(),
                scheme.into(),
                Cell::toned(state(hook), if hook.enabled { Tone::Good } else { Tone::Quiet }),
                Cell::id(hook.settings.endpoint_id),
                Cell::id(hook.hook_id),
            ]
        },
    )
}

fn describe(detail: &WebhookDetail) -> String {
    let WebhookDetail { webhook: hook, receipts } = detail;
    let settings = &hook.settings;
    let mapping = &settings.mapping;
    let detail = Detail::new(format!("{} ({}): {}", settings.name, hook.hook_id, state(hook)))
        .field("address", &hook.address)
        .field("service", settings.endpoint_id)
        .field("scheme", settings.scheme.as_str())
        .fields("types", Some(settings.filter.event_types.join(", ")).filter(|types| !types.is_empty()))
        .fields("condition", settings.filter.condition.as_ref())
        .fields("subject", mapping.subject.as_ref())
        .fields("subject path", mapping.subject_path.as_ref())
        .fields("conversation", mapping.conversation_key.as_ref())
        .fields("on busy", mapping.conversation_key.as_ref().map(|_| mapping.on_busy))
        .fields("label", mapping.metadata.iter().map(|(label, path)| format!("{label} = {path}")))
        .fields("data", mapping.data.iter().map(|(name, path)| format!("{name} = {path}")))
        .field("rate", format!("{} a second", settings.requests_per_second))
        .field("bodies", if settings.keep_bodies { "kept with the last events" } else { "not kept" })
        .fields("old secret", hook.old_secret_until.map(|until| format!("active until {until}")));
    let text = block(&mapping.text, "  | ");
    format!("{}text\n{text}\n{}", detail.text(), received(receipts))
}

fn state(hook: &Webhook) -> &'static str {
    if hook.enabled { "enabled" } else { "disabled" }
}

fn received(receipts: &[WebhookReceipt]) -> String {
    records::list(
        receipts,
        "Nothing was received yet.",
        &["RECEIVED", "OUTCOME", "TYPE", "EVENT", "RUN OR REASON", "ID"],
        |receipt| {
            let text = |value: &Option<String>| value.as_deref().map(line).unwrap_or_default();
            let became = receipt.run_id.map_or_else(|| text(&receipt.reason).into(), Cell::id);
            vec![
                receipt.received_at.into(),
                receipt.outcome.to_string().into(),
                text(&receipt.event_type).into(),
                text(&receipt.event_id).into(),
                became,
                Cell::id(receipt.receipt_id),
            ]
        },
    )
}

fn tried(trial: &WebhookTrial) -> String {
    match &trial.outcome {
        TrialOutcome::Ignored { reason } => format!("Ignored: {}.", line(reason)),
        TrialOutcome::Refused { reason } => format!("Refused: {}.", line(reason)),
        TrialOutcome::Submitted(mapped) => {
            let mut text = format!("Submitted for {}\n", line(&mapped.subject));
            if let Some(key) = &mapped.conversation_key {
                text += &format!("as a message in the conversation {}\n", line(key));
            }
            for (label, value) in &mapped.metadata {
                text += &format!("with the label {}\n", line(&format!("{label} = {value}")));
            }
            for (name, value) in mapped.data.iter().flatten() {
                text += &format!("with the data {}\n", line(&format!("{name} = {value}")));
            }
            text + &block(&mapped.text, "  | ")
        }
    }
}
