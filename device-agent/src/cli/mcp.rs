//! `mcp`: servers elsewhere whose tools services may use.

use clap::{Args, Subcommand};
use deskgate_gateway::exit::{Exit, Failure};
use deskgate_gateway::output::{Output, table};

use super::key_file::KeyFile;
use super::no_secret;
use super::socket::Agent;
use crate::local::{ListMcpServers, RemoveMcpServer, SetMcpServer};
use crate::mcp::connections::Configured;
use crate::services::McpServer;

/// `deskgate mcp …`
#[derive(Debug, Subcommand)]
pub(super) enum Mcp {
    /// Add a server, or change it; its key stays on this computer
    Set(Set),
    /// The servers of this device
    List,
    /// Remove a server and its key; services that name it cannot run any more
    Remove {
        /// Its name
        name: String,
    },
}

/// `deskgate mcp set`
#[derive(Debug, Args)]
pub(super) struct Set {
    /// What services name it by, such as crm
    name: String,
    /// Its address, https:// only
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    key: KeyFile,
    /// The header that the key travels in [default: Authorization, behind the word Bearer]
    #[arg(long, requires = "key_file")]
    header: Option<String>,
}

pub(super) async fn run(agent: Agent, command: Mcp, out: Output) -> Result<(), Failure> {
    match command {
        Mcp::Set(set) => {
            let server = agent.ask(request(set)?).await?;
            out.result("mcp-server/1", &server, || {
                let Configured { name, url, header } = &server;
                let key =
                    header.as_ref().map_or("without a key".to_owned(), |header| format!("with a key in {header}"));
                format!("Saved: {name} at {url}, {key}.\nNext: deskgate service edit SERVICE --mcp {name}")
            });
        }
        Mcp::List => {
            let servers = agent.ask(ListMcpServers {}).await?;
            out.result("mcp-servers/1", &serde_json::json!({ "servers": servers }), || list(&servers));
        }
        Mcp::Remove { name } => {
            agent.ask(RemoveMcpServer { name: name.clone() }).await?;
            out.result("mcp-server-removed/1", &serde_json::json!({ "name": name }), || {
                format!("{name} and its key are gone from this computer.")
            });
        }
    }
    Ok(())
}

/// The servers of these names as they are configured now. One that a definition has already keeps its list of tools.
pub(super) async fn named(agent: &Agent, names: &[String], now: &[McpServer]) -> Result<Vec<McpServer>, Failure> {
    if names.is_empty() || names == ["none"] {
        return Ok(Vec::new());
    }
    let configured = agent.ask(ListMcpServers {}).await?;
    let server = |name: &String| {
        McpServer::named(name, &configured, now).ok_or_else(|| {
            let message = format!("--mcp: there is no MCP server {name:?} on this device; see: deskgate mcp list");
            Failure::new(Exit::Failed, message)
        })
    };
    names.iter().map(server).collect()
}

fn request(set: Set) -> Result<SetMcpServer, Failure> {
    for (what, text) in [("NAME", Some(&set.name)), ("--url", set.url.as_ref()), ("--header", set.header.as_ref())] {
        no_secret(what, text.map(String::as_str).unwrap_or_default())?;
    }
    let key = set.key.read()?;
    Ok(SetMcpServer { name: set.name, url: set.url, header: set.header, key })
}

fn list(servers: &[Configured]) -> String {
    if servers.is_empty() {
        return "No MCP server yet. Add one: deskgate mcp set NAME --url https://… --key-file -".to_owned();
    }
    let row = |server: &Configured| {
        vec![server.name.clone(), server.url.clone(), server.header.clone().unwrap_or_else(|| "none".to_owned())]
    };
    table(&["NAME", "ADDRESS", "KEY IN"], &servers.iter().map(row).collect::<Vec<_>>())
}
