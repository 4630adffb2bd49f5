//! The checks of MCP servers: they answer, and the list of their tools is pinned.

use std::path::Path;

use super::checks::{fail, pass, skip};
use super::{Check, Definition, McpServer};
use crate::mcp::{self, Servers};

/// How many names of tools a check shows.
const SHOWN: usize = 20;

/// Looks at every server of a definition and pins its list of tools there as it is now.
pub(super) async fn pin(definition: &mut Definition, servers: &Servers) -> Vec<Check> {
    let mut checks = Vec::new();
    for server in &mut definition.mcp {
        // That it is https:// was found when it was saved: nothing else is an address here.
        checks.push(pass(&format!("mcp {}: https", server.name), &server.url));
        checks.extend(look(server, servers).await);
    }
    let folder = definition.working_directory.clone();
    let found = tokio::task::spawn_blocking(move || in_project(&folder)).await;
    checks.extend(found.unwrap_or_default());
    checks
}

async fn look(server: &mut McpServer, servers: &Servers) -> [Check; 2] {
    let (answers, pinned) = (format!("mcp {}: answers", server.name), format!("mcp {}: tools are pinned", server.name));
    let listing = match servers.look(server).await {
        Ok(listing) => listing,
        Err(error) => {
            let next = "see to the server or its key, or leave it out: deskgate mcp list";
            return [fail(&answers, &error.to_string(), next), skip(&pinned, "it gave no list of tools")];
        }
    };
    let names = listing.names();
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > SHOWN { ", …" } else { "" };
    let before = server.tools_sha256.replace(listing.digest());
    let changed = if before.is_some_and(|before| before != listing.digest()) { "the list has changed; " } else { "" };
    [
        pass(&answers, &format!("it lists {} tools", names.len())),
        pass(&pinned, &format!("{changed}each call asks you first unless a rule says otherwise: {shown}{more}")),
    ]
}

/// Servers that the project's own file names are shown, and not used.
fn in_project(folder: &Path) -> Vec<Check> {
    let shown = |found: mcp::project::Found| skip(&format!(".mcp.json: {}", found.name), &found.why);
    mcp::project::found(folder).into_iter().map(shown).collect()
}
