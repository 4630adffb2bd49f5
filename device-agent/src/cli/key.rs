//! `key`: application keys.

use clap::{Args, Subcommand, ValueEnum};
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::{Cell, Tone};
use deskgate_program::output::Output;
use deskgate_program::records::given::GivenId;
use deskgate_program::records::{self, Noun};
use deskgate_protocol::management::{
    CreateKey, GetAccess, KeyRecord as Record, KeyWarning, ListApplications, ListKeys, RevokeKey, RollKey, Scope,
};
use deskgate_protocol::{KeyId, Timestamp};

use super::identity::{WithFingerprint, fingerprint};
use super::socket::AgentClient;
use super::{app, service};

const KEYS: Noun = Noun { singular: "key", plural: "keys", list: "deskgate key list --app APP" };

/// `deskgate key …`
#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create one more key, which is shown this once
    Create(KeyCreateArgs),
    /// An application's keys
    List {
        /// Its name or identifier
        #[arg(long)]
        app: String,
    },
    /// Replace a key by a new one with the same rights, which is shown this once
    Roll {
        /// Its identifier, or the end of it as `key list` shows it
        key: GivenId<KeyId>,
        /// Hours for which the old one stays active
        #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=720))]
        overlap: u32,
    },
    /// End a key at once and for good
    Revoke {
        /// Its identifier, or the end of it as `key list` shows it
        key: GivenId<KeyId>,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// `deskgate key create`
#[derive(Debug, Args)]
pub(super) struct KeyCreateArgs {
    /// What it is for
    name: String,
    /// The application's name or identifier
    #[arg(long)]
    app: String,
    /// The clients that it is for: shows how they are set up
    #[arg(long = "for", value_name = "CLIENTS")]
    clients: Option<ClientKind>,
    /// What it may do; may be repeated [default: everything, or what the clients use]
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<Scope>,
    /// The services it is limited to, by name or identifier; may be repeated [default: all of the application's]
    #[arg(long, alias = "endpoint", value_name = "SERVICE")]
    service: Vec<String>,
    /// The one subject it may name [default: any, or with --for the name of the key]
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// When it ends, as in 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,
    /// A range of addresses it may be used from, as in 10.0.0.0/8; may be repeated [default: everywhere]
    #[arg(long, value_name = "RANGE")]
    allow: Vec<String>,
}

/// The kinds of clients that a key is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClientKind {
    /// Assistants and editors that call tools of MCP servers.
    Mcp,
}

impl ClientKind {
    /// What the clients use.
    fn scopes(self) -> Vec<Scope> {
        match self {
            Self::Mcp => vec![
                Scope::EndpointsRead,
                Scope::RunsWrite,
                Scope::RunsRead,
                Scope::RunsControl,
                Scope::ConversationsWrite,
            ],
        }
    }

    /// How they are set up, at a gateway whose API is at `address`. The key itself is in no command, where other programs of the
    /// computer could read it.
    fn setup(self, address: &str) -> String {
        match self {
            Self::Mcp => {
                let url = format!("{}/mcp", address.trim_end_matches("/api/v1"));
                let settings = |key: &str| {
                    let server = serde_json::json!({
                        "type": "http", "url": url, "headers": { "Authorization": format!("Bearer {key}") },
                    });
                    server.to_string()
                };
                let (claude, cursor, code) =
                    (settings("${DESKGATE_KEY}"), settings("${env:DESKGATE_KEY}"), settings("${input:deskgate}"));
                format!(
                    "\n\nClaude Code, which reads the key from its environment as DESKGATE_KEY:\n\
                     claude mcp add-json deskgate '{claude}'\n\n\
                     Cursor, in ~/.cursor/mcp.json, which reads it from there too:\n\
                     {{\"mcpServers\":{{\"deskgate\":{cursor}}}}}\n\n\
                     VS Code, in .vscode/mcp.json, which asks for it once:\n\
                     {{\"inputs\":[{{\"type\":\"promptString\",\"id\":\"deskgate\",\"description\":\"Deskgate's key\",\
                     \"password\":true}}],\"servers\":{{\"deskgate\":{code}}}}}\n\n\
                     Any other client of MCP: {url}, Streamable HTTP, with the key as the header Authorization: Bearer …",
                )
            }
        }
    }
}

pub(super) async fn run(agent: AgentClient, command: KeyCommand, out: Output) -> Result<(), Failure> {
    match command {
        KeyCommand::Create(create) => {
            let app_id = app::find(&agent, &create.app).await?;
            let mut endpoints = Vec::new();
            for service in &create.service {
                endpoints.push(service::endpoint_of(&agent, service).await?);
            }
            let scopes = match (create.scope.is_empty(), create.clients) {
                (false, _) => create.scope,
                (true, Some(clients)) => clients.scopes(),
                (true, None) => Scope::ALL.to_vec(),
            };
            let fixed_subject = create.subject.or_else(|| create.clients.map(|_| as_subject(&create.name)));
            let request = CreateKey {
                app_id,
                name: create.name,
                scopes,
                endpoints,
                fixed_subject,
                expires_at: create.expires_at,
                allowed_cidrs: create.allow,
            };
            let fingerprint = fingerprint(&agent).await?;
            // Asked for before a key is made, which is shown once.
            let setup = match create.clients {
                Some(clients) => clients.setup(&agent.manage(GetAccess {}).await?.address),
                None => String::new(),
            };
            let created = agent.manage(request).await?;
            let shown = WithFingerprint::of(&created, fingerprint);
            out.result("key-created/1", &shown, || {
                format!(
                    "Created {}. Shown this once; keep it in the backend's credential store:\n{}{}{setup}",
                    created.key.key_id,
                    created.text,
                    shown.line()
                )
            });
        }
        KeyCommand::List { app } => {
            let app_id = app::find(&agent, &app).await?;
            let keys = agent.manage(ListKeys { app_id }).await?;
            out.result("keys/1", &serde_json::json!({ "keys": keys }), || list(&keys));
        }
        KeyCommand::Roll { key, overlap } => {
            let key_id = find(&agent, key).await?;
            let rolled = agent.manage(RollKey { key_id, overlap_s: overlap * 3600 }).await?;
            out.result("key-rolled/1", &rolled, || {
                format!(
                    "Created {}; the old key ends in {overlap} hours. Shown this once; keep it in the backend's credential \
                     store:\n{}",
                    rolled.key.key_id, rolled.text
                )
            });
        }
        KeyCommand::Revoke { key, confirmation } => {
            let key = find(&agent, key).await?;
            confirmation.confirm(&revocation(&agent, key).await?)?;
            let key = agent.manage(RevokeKey { key_id: key }).await?;
            out.result("key/1", &key, || format!("{} is revoked. Calls with it end within a second.", key.name));
        }
    }
    Ok(())
}

/// The name of a key as a subject: visible ASCII characters only.
fn as_subject(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_graphic() { letter } else { '-' }).collect()
}

/// A key by its identifier, or by the end of it.
async fn find(agent: &AgentClient, given: GivenId<KeyId>) -> Result<KeyId, Failure> {
    let by_end = async |end: &str| {
        let mut all = Vec::new();
        for application in agent.manage(ListApplications {}).await? {
            let keys = agent.manage(ListKeys { app_id: application.app_id }).await?;
            all.extend(keys.into_iter().map(|key| key.key_id).filter(|id| id.to_string().ends_with(end)));
        }
        Ok(all)
    };
    given.resolve(&KEYS, by_end).await
}

/// The question before a key is revoked.
async fn revocation(agent: &AgentClient, key_id: KeyId) -> Result<String, Failure> {
    for application in agent.manage(ListApplications {}).await? {
        let keys = agent.manage(ListKeys { app_id: application.app_id }).await?;
        let Some(key) = keys.into_iter().find(|key| key.key_id == key_id) else { continue };
        let used = key.last_used_at.map_or("never".to_owned(), |at| at.to_string());
        return Ok(format!(
            "Revoke {:?} (…{}) of {:?}? It cannot be restored.\n  Last used: {used}\n  Calls with it are refused within a \
             second. Runs that it submitted go on.",
            key.name, key.last4, application.name
        ));
    }
    Err(Failure::new(Exit::Failed, format!("there is no key {key_id}; see: deskgate key list --app APP")))
}

fn list(keys: &[Record]) -> String {
    let heading = ["NAME", "ENDS IN", "STATE", "ENDS", "LAST USED", "FROM", "LOOK AT", "SCOPES", "ID"];
    records::list(keys, "It has no key. Create one: deskgate key create NAME --app APP", &heading, |key| {
        let state = match (key.revoked_at, key.expires_at) {
            (Some(_), _) => Cell::toned("revoked", Tone::Quiet),
            (None, Some(at)) if at <= Timestamp::now() => Cell::toned("expired", Tone::Quiet),
            (None, _) => Cell::toned("active", Tone::Good),
        };
        let ended = key.revoked_at.or(key.expires_at);
        let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.as_str()).collect();
        let used = key.last_used_at.map_or(Cell::from("never"), Cell::from);
        let from = key.last_address.clone().unwrap_or_default();
        let look: Vec<_> = key.warnings.iter().map(|warning| warned(*warning)).collect();
        let [name, ends, from, look, scopes] =
            [key.name.clone(), format!("…{}", key.last4), from, look.join(", "), scopes.join(" ")].map(Cell::from);
        vec![name, ends, state, ended.into(), used, from, look, scopes, Cell::id(key.key_id)]
    })
}

fn warned(warning: KeyWarning) -> &'static str {
    match warning {
        KeyWarning::NewAddress => "used from a new address",
        KeyWarning::Unused => "not used for 90 days",
    }
}
