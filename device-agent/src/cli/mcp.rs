//! `mcp`: MCP servers whose tools services may use.

use clap::{Args, Subcommand};
use deskgate_assistant::mcp::connections::McpServerConfig;
use deskgate_definition::McpServer;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::records::{self, Noun};
use deskgate_program::visible;

use super::key_file::KeyFileArgs;
use super::no_secret;
use super::socket::AgentClient;
use crate::local::{AcceptMcpTools, ListMcpServers, LookAtMcpServer, RemoveMcpServer, ReviewMcpServers, SetMcpServer};
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
    /// Remove an MCP server and its key; services that name it cannot run any more
    Remove {
        /// Its name
        name: String,
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

pub(super) async fn run(agent: AgentClient, command: McpCommand, out: Output) -> Result<(), Failure> {
    match command {
        McpCommand::Set(set) => {
            let server = agent.request(request(set)?).await?;
            out.result("mcp-server/1", &server, || {
                let McpServerConfig { name, url, .. } = &server;
                let next = format!("Next: deskgate service edit SERVICE --mcp {name}");
                format!("Saved: {name} at {url}, {}.\n{next}", key_of(&server))
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
        McpCommand::Remove { name } => {
            agent.request(RemoveMcpServer { name: name.clone() }).await?;
            out.result("mcp-server-removed/1", &serde_json::json!({ "name": name }), || {
                format!("{name} and its key are gone from this computer.")
            });
        }
    }
    Ok(())
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
    let (key, key_place) = (set.key.read()?, set.key.place());
    Ok(SetMcpServer { name: set.name, url: set.url, header: set.header, key, key_place })
}

fn list(servers: &[ServerView]) -> String {
    records::list(
        servers,
        "No MCP server yet. Add one: deskgate mcp set NAME --url https://… --key-file -",
        &["NAME", "ADDRESS", "KEY", "TOOLS", "USED BY"],
        |view| {
            let McpServerConfig { name, url, header, key_place } = view.server.clone();
            let key = header.zip(key_place).map(|(header, place)| format!("{}, sent in {header}", place.as_str()));
            vec![name, url, key.unwrap_or_else(|| "none".to_owned()), tools(view), users(view)]
        },
    )
}

/// Where a server's key is kept, and the header that carries it.
fn key_of(server: &McpServerConfig) -> String {
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
