//! Tool pins: the servers' current lists of tools, the lists that services are pinned to, and their differences.
//!
//! A pin is a digest. The lists behind the digests are stored, so that the owner sees the differences before accepting
//! another list. A published version keeps its pin: another list takes effect with the next publication only.

use deskgate_assistant::mcp::connections::McpServerConfig;
use deskgate_assistant::mcp::{ListedTool, Listing, McpServers};
use deskgate_definition::tool::ToolSpec;
use deskgate_definition::{Definition, McpServer, Service};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::ids::DraftId;
use deskgate_store::tool_lists::StoredToolList;
use serde::{Deserialize, Serialize};

use super::Error;

/// A server, its last list of tools, and the services that use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerView {
    /// The server's configuration.
    #[serde(flatten)]
    pub server: McpServerConfig,
    /// Its tools; absent until it has sent a list.
    pub offer: Option<OfferedToolList>,
    /// Why it sent none just now; absent when it was not queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The services that name it.
    pub users: Vec<ServerUser>,
    /// The other lists that services are pinned to, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OutdatedToolList>,
}

/// A list that services are pinned to and that the server no longer offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutdatedToolList {
    /// The digest that pins the list.
    pub tools_sha256: Sha256Digest,
    /// The differences from the offered list; absent when this one was not stored.
    pub changes: Option<Vec<ToolChange>>,
}

/// A list of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedToolList {
    /// The digest that pins the list.
    pub tools_sha256: Sha256Digest,
    /// When the server last sent it.
    pub seen_at: Timestamp,
    /// The tools, by name.
    pub tools: Vec<ListedTool>,
}

/// A service that names a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUser {
    /// The service's draft.
    pub draft_id: DraftId,
    /// The service's name.
    pub service: String,
    /// The state of its draft's pin; absent when the draft does not name the server.
    pub draft: Option<PinState>,
    /// The state of its published version's pin, likewise.
    pub published: Option<PinState>,
}

/// How a definition's pin relates to its server's current list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PinState {
    /// The server has another address now.
    Moved,
    /// There is no pin yet: the draft was not checked.
    Unpinned,
    /// Pinned, and the server has sent no list for comparison since.
    NotCompared,
    /// Pinned to the current list.
    Same,
    /// Pinned to another list.
    Changed {
        /// The digest of the pinned list.
        tools_sha256: Sha256Digest,
    },
}

/// A changed tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChange {
    /// The tool's name.
    pub tool: String,
    /// The pinned tool; absent if it is new.
    pub old: Option<ListedTool>,
    /// The offered tool; absent if it is gone.
    pub new: Option<ListedTool>,
}

impl ToolChange {
    /// The tool before and after: its description, and its schema if that differs too.
    pub fn texts(&self) -> [Option<String>; 2] {
        let schema = |tool: &Option<ListedTool>| tool.as_ref().map(|tool| tool.schema.clone());
        let same = schema(&self.old) == schema(&self.new);
        [&self.old, &self.new].map(|tool| {
            let tool = tool.as_ref()?;
            Some(if same { tool.description.clone() } else { format!("{}\n{}", tool.description, tool.arguments()) })
        })
    }
}

impl ServerView {
    /// Whether a service is pinned to another list than the current one.
    pub fn has_changed(&self) -> bool {
        self.pins().any(|pin| matches!(pin, PinState::Changed { .. }))
    }

    /// Whether there is a draft that could accept another list.
    pub fn is_acceptable(&self) -> bool {
        self.users.iter().any(|user| matches!(user.draft, Some(PinState::Changed { .. })))
    }

    /// The differences between the current list and a definition's pin, if known.
    pub fn changes(&self, pin: &PinState) -> Option<&[ToolChange]> {
        let PinState::Changed { tools_sha256 } = pin else { return None };
        self.others.iter().find(|other| other.tools_sha256 == *tools_sha256)?.changes.as_deref()
    }

    /// The pins of all its users.
    pub fn pins(&self) -> impl Iterator<Item = &PinState> {
        self.users.iter().flat_map(|user| [&user.draft, &user.published]).flatten()
    }
}

/// The state of the servers, by their last lists. Connects to none of them.
///
/// # Errors
/// The database cannot be read, or a service or a list is damaged.
pub async fn review(
    store: &deskgate_store::Services,
    servers: Vec<McpServerConfig>,
) -> Result<Vec<ServerView>, deskgate_store::Error> {
    let services = store.list().await?;
    let mut views = Vec::new();
    for server in servers {
        let lists = store.tools_of(&server.name, &server.url).await?;
        views.push(view(server, &lists, &services));
    }
    Ok(views)
}

/// The tools of a definition's servers as a model gets them, by the pinned lists. Connects to none of them.
///
/// # Errors
/// The database cannot be read.
pub async fn specs(
    store: &deskgate_store::Services,
    definition: &Definition,
) -> Result<Vec<ToolSpec>, deskgate_store::Error> {
    let mut specs = Vec::new();
    for McpServer { name, url, tools_sha256 } in &definition.mcp {
        let lists = store.tools_of(name, url).await?;
        let pinned = lists.iter().find(|list| Some(list.digest) == *tools_sha256).and_then(tools);
        specs.extend(pinned.iter().flatten().filter_map(|tool| tool.spec(name)));
    }
    Ok(specs)
}

/// Queries a server's tools, stores its list as the newest, and returns its state. Pins nothing.
///
/// # Errors
/// The database cannot be read or written, or a service or a list is damaged. A server without a usable list is no
/// error: [`ServerView::problem`] says why.
pub async fn look(
    store: &deskgate_store::Services,
    servers: &McpServers,
    server: McpServerConfig,
) -> Result<ServerView, deskgate_store::Error> {
    let asked = McpServer { name: server.name.clone(), url: server.url.clone(), tools_sha256: None };
    let problem = match servers.look(&asked).await {
        Ok(listing) => {
            remember(store, &server.name, &server.url, &listing).await?;
            None
        }
        Err(error) => Some(error.to_string()),
    };
    let (lists, services) = (store.tools_of(&server.name, &server.url).await?, store.list().await?);
    Ok(ServerView { problem, ..view(server, &lists, &services) })
}

/// Pins the newest list of a server, which must be this one, in every draft that was pinned to another.
///
/// # Errors
/// [`Error::OtherTools`]: the newest stored list is another one, or there is none; nothing was changed.
/// [`Error::Edited`]: a draft was saved at the same time; drafts before it are pinned already. [`Error::Store`]: the
/// database cannot be read or written, or a service or a list is damaged.
pub async fn accept(
    store: &deskgate_store::Services,
    server: &McpServerConfig,
    tools: Sha256Digest,
) -> Result<(), Error> {
    let newest = store.tools_of(&server.name, &server.url).await?.into_iter().next();
    if newest.is_none_or(|list| list.digest != tools) {
        return Err(Error::OtherTools(server.name.clone()));
    }
    for service in store.list().await? {
        let mut draft = service.draft.clone();
        let pinned = draft.mcp.iter_mut().find(|used| used.name == server.name && used.url == server.url);
        let Some(pin) = pinned.and_then(|used| used.tools_sha256.as_mut()) else { continue };
        *pin = tools;
        if draft != service.draft && !store.replace_draft(service.draft_id, &service.draft, &draft).await? {
            return Err(Error::Edited(service.draft_id));
        }
    }
    Ok(())
}

/// Stores a list as the newest of a server at an address.
pub(super) async fn remember(
    store: &deskgate_store::Services,
    server: &str,
    url: &str,
    listing: &Listing,
) -> Result<(), deskgate_store::Error> {
    let services = store.list().await?;
    let used = services.iter().flat_map(definitions).filter_map(|definition| used(definition, server));
    let pinned = used.filter(|used| used.url == url).filter_map(|used| used.tools_sha256);
    let tools = serde_json::to_string(listing.tools()).expect("it was read from JSON");
    let list = StoredToolList { digest: listing.digest(), tools, seen_at: Timestamp::now() };
    store.keep_tools(server, url, list, pinned.collect()).await
}

fn view(server: McpServerConfig, lists: &[StoredToolList], services: &[Service]) -> ServerView {
    let user = |service: &Service| {
        let pin = |definition: &Definition| Some(pin(used(definition, &server.name)?, &server.url, lists));
        let (draft, published) = (pin(&service.draft), published(service).and_then(pin));
        let known = draft.is_some() || published.is_some();
        known.then(|| ServerUser { draft_id: service.draft_id, service: service.draft.name.clone(), draft, published })
    };
    let users: Vec<_> = services.iter().filter_map(user).collect();
    let offer = lists.first().and_then(|list| {
        Some(OfferedToolList { tools_sha256: list.digest, seen_at: list.seen_at, tools: tools(list)? })
    });
    let view = ServerView { server, offer, problem: None, users, others: Vec::new() };
    ServerView { others: others(&view, lists), ..view }
}

/// The other lists that its users are pinned to.
fn others(view: &ServerView, lists: &[StoredToolList]) -> Vec<OutdatedToolList> {
    let newest = lists.first().and_then(tools);
    let mut others: Vec<OutdatedToolList> = Vec::new();
    for pin in view.pins() {
        let PinState::Changed { tools_sha256 } = *pin else { continue };
        if others.iter().all(|other| other.tools_sha256 != tools_sha256) {
            let old = lists.iter().find(|list| list.digest == tools_sha256).and_then(tools);
            let changes = old.zip(newest.as_ref()).map(|(old, new)| changes(&old, new));
            others.push(OutdatedToolList { tools_sha256, changes });
        }
    }
    others
}

fn pin(used: &McpServer, url: &str, lists: &[StoredToolList]) -> PinState {
    match (used.tools_sha256, lists.first()) {
        _ if used.url != url => PinState::Moved,
        (None, _) => PinState::Unpinned,
        (Some(_), None) => PinState::NotCompared,
        (Some(pinned), Some(newest)) if pinned == newest.digest => PinState::Same,
        (Some(pinned), Some(_)) => PinState::Changed { tools_sha256: pinned },
    }
}

/// The differences between two lists, by name.
fn changes(old: &[ListedTool], new: &[ListedTool]) -> Vec<ToolChange> {
    let find = |list: &[ListedTool], name: &str| list.iter().find(|tool| tool.name == name).cloned();
    let mut names: Vec<_> = old.iter().chain(new).map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let change = |name: &str| ToolChange { tool: name.to_owned(), old: find(old, name), new: find(new, name) };
    names.into_iter().map(change).filter(|change| change.old != change.new).collect()
}

/// A stored list that cannot be parsed counts as missing.
fn tools(list: &StoredToolList) -> Option<Vec<ListedTool>> {
    serde_json::from_str(&list.tools).ok()
}

fn published(service: &Service) -> Option<&Definition> {
    service.published.as_ref().map(|version| &version.definition)
}

fn definitions(service: &Service) -> impl Iterator<Item = &Definition> {
    [Some(&service.draft), published(service)].into_iter().flatten()
}

fn used<'a>(definition: &'a Definition, server: &str) -> Option<&'a McpServer> {
    definition.mcp.iter().find(|used| used.name == server)
}
