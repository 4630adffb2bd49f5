//! The checks of MCP servers: they answer, and the list of their tools is pinned.

use std::path::Path;

use deskgate_assistant::mcp::{self, McpServers};
use deskgate_definition::{Check, Definition, McpServer};

use super::checks::{CheckObserver, Findings, fail, pass, skip};
use super::tool_pins;

/// How many names of tools a check shows.
const TOOL_NAMES_SHOWN: usize = 20;

/// The names of the checks that [`pin`] makes for a definition.
pub(super) fn names(definition: &Definition) -> Vec<String> {
    let of = |server: &McpServer| ["https", "answers", "tools are pinned"].map(|what| name(server, what));
    definition.mcp.iter().flat_map(of).collect()
}

fn name(server: &McpServer, what: &str) -> String {
    format!("mcp {}: {what}", server.name)
}

/// Queries every server of a definition, and pins its list of tools if none was pinned. `tell` is called with each
/// check.
pub(super) async fn pin(
    definition: &mut Definition,
    servers: &McpServers,
    store: &deskgate_store::Services,
    tell: &CheckObserver<'_>,
) -> Result<Vec<Check>, deskgate_store::Error> {
    let mut checks = Findings::new(tell);
    for server in &mut definition.mcp {
        // The address was checked for https:// when it was saved; others cannot be saved.
        checks.push(pass(&name(server, "https"), &server.url));
        checks.extend(look(server, servers, store).await?);
    }
    let folder = definition.working_directory.clone();
    let found = tokio::task::spawn_blocking(move || in_project(&folder)).await;
    checks.extend(found.unwrap_or_default());
    Ok(checks.all)
}

async fn look(
    server: &mut McpServer,
    servers: &McpServers,
    store: &deskgate_store::Services,
) -> Result<[Check; 2], deskgate_store::Error> {
    let (answers, pinned) = (name(server, "answers"), name(server, "tools are pinned"));
    let listing = match servers.look(server).await {
        Ok(listing) => listing,
        Err(error) => {
            let next = "see to the server or its key, or leave it out: deskgate mcp list";
            return Ok([fail(&answers, &error.to_string(), next), skip(&pinned, "it gave no list of tools")]);
        }
    };
    tool_pins::remember(store, &server.name, &server.url, &listing).await?;
    let names = listing.names();
    let shown = names.iter().take(TOOL_NAMES_SHOWN).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > TOOL_NAMES_SHOWN { ", …" } else { "" };
    let answered = pass(&answers, &format!("it lists {} tools", names.len()));
    // The model reads the tools' descriptions: the owner has to review another list, so a check must not accept it.
    if *server.tools_sha256.get_or_insert(listing.digest()) != listing.digest() {
        let next = format!("see what has changed, and take it over: deskgate mcp accept {}", server.name);
        return Ok([answered, fail(&pinned, "the list is another one than the draft is pinned to", &next)]);
    }
    Ok([answered, pass(&pinned, &format!("each tool call asks you first unless a rule says otherwise: {shown}{more}"))])
}

/// Servers that the project's own file names are shown, and not used.
fn in_project(folder: &Path) -> Vec<Check> {
    let shown = |found: mcp::project::ProjectServer| skip(&format!(".mcp.json: {}", found.name), &found.why);
    mcp::project::find_servers(folder).into_iter().map(shown).collect()
}
