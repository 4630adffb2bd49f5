//! `mcp`: MCP servers whose tools services may use.

use std::time::Duration;

use clap::{Args, Subcommand};
use deskgate_assistant::mcp::connections::McpServerConfig;
use deskgate_definition::McpServer;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::records::{self, Noun};
use deskgate_program::{terminal, visible};

use super::ctrl_c::CtrlC;
use super::key_file::KeyFileArgs;
use super::socket::AgentClient;
use super::{no_secret, provider};
use crate::config::Home;
use crate::local::{
    AcceptMcpTools, CancelMcpSignIn, GetMcpSignIn, ListMcpServers, LookAtMcpServer, McpSignInPrompt, McpSignInStatus,
    McpSignOut, RemoveMcpServer, ReviewMcpServers, SetMcpServer, SignInMcpServer, SignInView, SignOutMcpServer, opener,
};
use crate::services::tool_pins::{PinState, ServerView, ToolChange};

const SERVERS: Noun = Noun { singular: "MCP server", plural: "MCP servers", list: "deskgate mcp list" };

/// `deskgate mcp …`
#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Add an MCP server, or change it; its key stays on this computer
    Set(McpSetArgs),
    /// The MCP servers of this device, and whether what they offered last is what is pinned
    List,
    /// Ask an MCP server for its tools, and show what has changed since they were pinned. Calls none of them
    Show {
        /// Its name
        name: String,
    },
    /// Take an MCP server's changed tools over into the drafts that name it, after showing what has changed
    Accept {
        /// Its name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Sign in where an MCP server wants that, in a browser on this computer
    SignIn(McpSignInArgs),
    /// Sign out of an MCP server: what came of the sign-in is revoked and deleted
    SignOut {
        /// Its name
        name: String,
    },
    /// Remove an MCP server and its key or sign-in; services that name it cannot run any more
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// `deskgate mcp set`
#[derive(Debug, Args)]
pub(super) struct McpSetArgs {
    /// What services name it by, such as crm
    name: String,
    /// Its address, https:// only
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    key: KeyFileArgs,
    /// The header that the key travels in [default: Authorization, behind the word Bearer]
    #[arg(long, requires = "key_file")]
    header: Option<String>,
}

/// `deskgate mcp sign-in`
#[derive(Debug, Args)]
pub(super) struct McpSignInArgs {
    /// The MCP server's name
    name: String,
    /// Deskgate's client identifier at the authorization server, where programs cannot register themselves
    #[arg(long)]
    client_id: Option<String>,
    /// Only print the address, and open no browser
    #[arg(long)]
    print: bool,
    /// Do not wait for the answer; see what came of it with: deskgate mcp list
    #[arg(long)]
    no_wait: bool,
}

pub(super) async fn run(agent: AgentClient, command: McpCommand, out: Output) -> Result<(), Failure> {
    match command {
        McpCommand::Set(set) => {
            let changed = agent.request(request(set)?).await?;
            out.result("mcp-server/1", &changed, || {
                let McpServerConfig { name, url, .. } = &changed.server;
                let next = format!("Next: deskgate service edit SERVICE --mcp {name}");
                let ended = ended(changed.sign_out.as_ref());
                format!("Saved: {name} at {url}, {}.{ended}\n{next}", key_of(&changed.server))
            });
        }
        McpCommand::List => {
            let servers = agent.request(ReviewMcpServers {}).await?;
            out.result("mcp-servers/1", &serde_json::json!({ "servers": servers }), || list(&servers));
        }
        McpCommand::Show { name } => {
            let server = looked_at(&agent, name).await?;
            out.result("mcp-server-tools/1", &server, || show(&server));
        }
        McpCommand::Accept { name, confirmation } => accept(&agent, name, confirmation, out).await?,
        McpCommand::SignIn(args) => sign_in(&agent, args, out).await?,
        McpCommand::SignOut { name } => {
            let done = agent.request(SignOutMcpServer { name }).await?;
            out.result("mcp-sign-out/1", &done, || match &done.not_told {
                None => format!("Signed out of {}. {}", done.name, told(&done)),
                Some(_) => format!("Signed out of {} here. {}", done.name, told(&done)),
            });
        }
        McpCommand::Remove { name, confirmation } => {
            let servers = agent.request(ReviewMcpServers {}).await?;
            let view = SERVERS.only(&name, servers.into_iter().filter(|view| view.server.name == name))?;
            let services: Vec<_> = view.users.into_iter().map(|user| user.service).collect();
            confirmation.confirm(&provider::removal("MCP server", &name, &services))?;
            let removed = agent.request(RemoveMcpServer { name }).await?;
            out.result("mcp-server-removed/1", &removed, || {
                let ended = ended(removed.sign_out.as_ref());
                format!("{} and its key are gone from this computer.{ended}", removed.name)
            });
        }
    }
    Ok(())
}

/// Whether the authorization server knows of the end of a sign-in.
fn told(done: &McpSignOut) -> String {
    match &done.not_told {
        None => "The authorization server was told.".to_owned(),
        Some(why) => format!("The authorization server was not told: {}", visible::line(why)),
    }
}

/// A sentence about a sign-in that another command has ended, if it has.
fn ended(done: Option<&McpSignOut>) -> String {
    done.map(|done| format!(" The sign-in is over. {}", told(done))).unwrap_or_default()
}

/// The servers of these names as configured now. One that the definition has already keeps its list of tools.
pub(super) async fn named(agent: &AgentClient, names: &[String], now: &[McpServer]) -> Result<Vec<McpServer>, Failure> {
    if names.is_empty() || names == ["none"] {
        return Ok(Vec::new());
    }
    let configured = agent.request(ListMcpServers {}).await?;
    let server = |name: &String| {
        let found = configured.iter().find(|server| server.name == *name).map(|server| server.in_definition(now));
        SERVERS.only(name, found)
    };
    names.iter().map(server).collect()
}

/// How often the agent is polled for the owner's sign-in.
const SIGN_IN_POLL_INTERVAL: Duration = Duration::from_millis(500);

async fn sign_in(agent: &AgentClient, args: McpSignInArgs, out: Output) -> Result<(), Failure> {
    let McpSignInArgs { name, client_id, print, no_wait } = args;
    no_secret("--client-id", client_id.as_deref().unwrap_or_default())?;
    let prompt = agent.request(SignInMcpServer { name: name.clone(), client_id }).await?;
    if no_wait {
        out.result("mcp-sign-in/1", &prompt, || asked(&prompt));
        return Ok(());
    }
    if !out.json {
        terminal::print(&format!("{}\nWaiting for you until {}; Ctrl-C stops.", asked(&prompt), prompt.expires_at));
    }
    if !print && let Ok(home) = Home::find() {
        // The address is printed: whoever has no browser here opens it there.
        let _ = opener::open(&home.opener(), prompt.address.clone()).await;
    }
    match waited(agent, &name).await? {
        McpSignInStatus::SignedIn(view) => {
            out.result("mcp-sign-in-status/1", &McpSignInStatus::SignedIn(view.clone()), || {
                format!("Signed in for {name}{}.\nNext: deskgate mcp show {name}", at(&view))
            });
            Ok(())
        }
        McpSignInStatus::Failed { why } => Err(Failure::new(Exit::NotAuthorised, visible::line(&why))),
        McpSignInStatus::SignedOut | McpSignInStatus::Waiting { .. } => {
            Err(Failure::new(Exit::Refused, "Nobody was signed in."))
        }
    }
}

/// The status of a sign-in when it waits no longer. Ctrl-C cancels it.
async fn waited(agent: &AgentClient, name: &str) -> Result<McpSignInStatus, Failure> {
    let mut ctrl_c = CtrlC::answered()?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(SIGN_IN_POLL_INTERVAL) => {}
            () = ctrl_c.pressed() => {
                agent.request(CancelMcpSignIn { name: name.to_owned() }).await?;
                return Ok(McpSignInStatus::SignedOut);
            }
        }
        match agent.request(GetMcpSignIn { name: name.to_owned() }).await? {
            McpSignInStatus::Waiting { .. } => {}
            status => return Ok(status),
        }
    }
}

fn asked(prompt: &McpSignInPrompt) -> String {
    format!(
        "Open this address in a browser on this computer, and sign in at {}:\n{}",
        visible::line(&prompt.issuer),
        prompt.address
    )
}

fn at(view: &SignInView) -> String {
    format!(" at {} since {}", visible::line(&view.issuer), view.since)
}

/// A server with its current tools.
async fn looked_at(agent: &AgentClient, name: String) -> Result<ServerView, Failure> {
    let server = agent.request(LookAtMcpServer { name }).await?;
    match &server.problem {
        None => Ok(server),
        Some(problem) => {
            let message = format!("{} gave no list of tools: {problem}", server.server.name);
            Err(Failure::new(Exit::CannotReach, message))
        }
    }
}

async fn accept(agent: &AgentClient, name: String, confirmation: Confirmation, out: Output) -> Result<(), Failure> {
    let server = looked_at(agent, name.clone()).await?;
    let (Some(offer), true) = (&server.offer, server.is_acceptable()) else {
        let message = "nothing to take over: no draft is pinned to another list than the one that is offered";
        return Err(Failure::new(Exit::Refused, message));
    };
    let changed = server.users.iter().filter(|user| matches!(user.draft, Some(PinState::Changed { .. })));
    let services: Vec<_> = changed.map(|user| user.service.as_str()).collect();
    let services = services.join(", ");
    confirmation
        .confirm(&format!("{}\nThe drafts of these services are pinned to this list: {services}", show(&server)))?;
    let accepted = agent.request(AcceptMcpTools { name, tools_sha256: offer.tools_sha256 }).await?;
    out.result("mcp-server-tools/1", &accepted, || {
        format!(
            "Taken over into the drafts of: {services}\n\
             Next, for each: deskgate service check SERVICE, deskgate service publish SERVICE"
        )
    });
    Ok(())
}

fn request(set: McpSetArgs) -> Result<SetMcpServer, Failure> {
    for (what, text) in [("NAME", Some(&set.name)), ("--url", set.url.as_ref()), ("--header", set.header.as_ref())] {
        no_secret(what, text.map(String::as_str).unwrap_or_default())?;
    }
    let (key, key_place) = (set.key.read("an MCP server")?, set.key.place());
    Ok(SetMcpServer { name: set.name, url: set.url, header: set.header, key, key_place })
}

fn list(servers: &[ServerView]) -> String {
    records::list(
        servers,
        "No MCP server yet. Add one: deskgate mcp set NAME --url https://… --key-file -",
        &["NAME", "ADDRESS", "KEY", "TOOLS", "USED BY"],
        |view| {
            let McpServerConfig { name, url, header, key_place, sign_in } = view.server.clone();
            let key = match (sign_in, header.zip(key_place)) {
                (Some(SignInView { over: None, .. }), _) => "signed in".to_owned(),
                (Some(_), _) => "sign-in is over".to_owned(),
                (None, Some((header, place))) => format!("{}, sent in {header}", place.as_str()),
                (None, None) => "none".to_owned(),
            };
            vec![name, url, key, tools(view), users(view)]
        },
    )
}

/// Where a server's key is kept, and the header that carries it; or its sign-in.
fn key_of(server: &McpServerConfig) -> String {
    if let Some(view) = &server.sign_in {
        return match &view.over {
            None => format!("signed in{}", at(view)),
            Some(why) => {
                let again = format!("sign in again: deskgate mcp sign-in {}", server.name);
                format!("with a sign-in that is over ({}); {again}", visible::line(why))
            }
        };
    }
    match (&server.header, server.key_place) {
        (Some(header), Some(place)) => format!("with a key {}, sent in {header}", place.words()),
        _ => "without a key".to_owned(),
    }
}

fn tools(view: &ServerView) -> String {
    let changed = if view.has_changed() { ", changed" } else { "" };
    let count = |count: usize| format!("{count}{changed}");
    view.offer.as_ref().map_or_else(|| "not looked at".to_owned(), |offer| count(offer.tools.len()))
}

fn users(view: &ServerView) -> String {
    let users: Vec<_> = view.users.iter().map(|user| user.service.as_str()).collect();
    if users.is_empty() { "no service".to_owned() } else { users.join(", ") }
}

fn show(view: &ServerView) -> String {
    let mut text = format!("{} at {}, {}\n", view.server.name, view.server.url, key_of(&view.server));
    for tool in view.offer.iter().flat_map(|offer| &offer.tools) {
        text += &format!("  {}: {}\n", visible::line(&tool.name), visible::line(&tool.description));
        text += &format!("{}\n", visible::block(&tool.arguments(), "      ").trim_end());
    }
    for user in &view.users {
        let pins = [("published", &user.published), ("draft", &user.draft)];
        for (what, pin) in pins.into_iter().filter_map(|(what, pin)| Some((what, pin.as_ref()?))) {
            text += &format!("{} ({what}): {}\n", user.service, stands(view, pin));
        }
    }
    // A difference that several lists share is shown once.
    let mut told: Vec<&ToolChange> = Vec::new();
    for change in view.others.iter().filter_map(|other| other.changes.as_ref()).flatten() {
        if !told.contains(&change) {
            told.push(change);
        }
    }
    told.into_iter().for_each(|change| text += &difference(change));
    text
}

fn stands(view: &ServerView, pin: &PinState) -> &'static str {
    match pin {
        PinState::Moved => "saved with another address; take it over: deskgate service edit SERVICE --mcp NAME",
        PinState::Unpinned => "not pinned yet: deskgate service check SERVICE",
        PinState::NotCompared => "pinned, and not compared yet",
        PinState::Same => "pinned to these tools",
        PinState::Changed { .. } if view.changes(pin).is_some() => "pinned to another list",
        PinState::Changed { .. } => "pinned to another list, which was not kept",
    }
}

/// A tool before and after a change.
fn difference(change: &ToolChange) -> String {
    let mut text = format!("changed: {}\n", visible::line(&change.tool));
    let [old, new] = change.texts();
    for (mark, words) in [("-", old), ("+", new)] {
        let words = words.map(|words| visible::block(&words, &format!("  {mark} ")));
        text += &words.map(|words| format!("{}\n", words.trim_end())).unwrap_or_default();
    }
    text
}
