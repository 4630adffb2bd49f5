//! The pages on a port of their own, with a signed-in browser.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use deskgate::account::TokenManager;
use deskgate::identity::DeviceKey;
use deskgate::local::commands::AgentCommand;
use deskgate::local::handler::RequestHandler;
use deskgate::local::health_memory::HealthMonitor;
use deskgate::local::launch::LaunchCodes;
use deskgate::pages::{self, Pages, WallClock};
use deskgate::services::CheckProgress;
use deskgate::settings::{ConnectionSettings, KeepAwake};
use deskgate_assistant::mcp::McpServers;
use deskgate_assistant::mcp::connections::Connections;
use deskgate_assistant::providers::Providers;
use deskgate_protocol::Timestamp;
use deskgate_store::Store;
use jiff::SignedDuration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// An agent's pages, without a link: dial commands are counted, and answered as done.
pub(crate) struct PagesFixture {
    folder: TempDir,
    pub(crate) store: Store,
    address: std::net::SocketAddr,
    /// The path below which the pages lie, as `/…`.
    mount: String,
    cookie: String,
    token: String,
    /// By how many seconds the clock of its sessions is ahead.
    ahead_s: Arc<AtomicI64>,
    launch: LaunchCodes,
    dialled: Arc<AtomicUsize>,
    _stop: DropGuard,
}

/// The answer of a page.
pub(crate) struct PageResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl PageResponse {
    /// The target of a redirect.
    pub(crate) fn leads_to(&self) -> &str {
        self.header("location")
    }

    /// A header; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next().unwrap_or_default()
    }

    /// The value of a form's field.
    pub(crate) fn field(&self, name: &str) -> &str {
        let input = self.body.split("<input ").find(|input| input.contains(&format!("name=\"{name}\"")));
        let value = input.and_then(|input| input.split('>').next()?.split_once("value=\""));
        value.and_then(|(_, rest)| Some(rest.split_once('"')?.0)).unwrap_or_default()
    }
}

impl PagesFixture {
    pub(crate) async fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let store = Store::open(at("home/deskgate.db")).await.expect("opens");
        let (_, engine) = watch::channel(None);
        let (orders, mut ordered) = mpsc::channel(4);
        let (launch, dialled) = (LaunchCodes::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&dialled);
        tokio::spawn(async move {
            while let Some(order) = ordered.recv().await {
                if let AgentCommand::Reconnect(done) = order {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let _ = done.send(());
                }
            }
        });
        let fixture = RequestHandler {
            store: store.clone(),
            key: DeviceKey::load_or_create(&at("home/identity_ed25519")).expect("made"),
            token_file: at("home/control_token"),
            host_keys_file: at("home/host_keys"),
            known_gateways_file: at("home/known_gateways"),
            home: None,
            providers: Providers::new(at("home/providers")),
            mcp_servers: McpServers::new(Connections::new(at("home/mcp"))),
            token_manager: TokenManager::new(at("home/accounts"), Default::default()),
            key_preference: Default::default(),
            own_folder: at("home"),
            active_connection: engine,
            commands: orders,
            launch: launch.clone(),
            health: HealthMonitor::default(),
            pending_decisions: Default::default(),
            pairing: Default::default(),
            publication_turn: Default::default(),
            checking: CheckProgress::default(),
            keep_awake: watch::Sender::new(KeepAwake::default()),
            access_changes: watch::Sender::new(()),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stop = CancellationToken::new();
        let ahead_s = Arc::new(AtomicI64::new(0));
        let ahead = Arc::clone(&ahead_s);
        let wall: WallClock = Arc::new(move || {
            let ahead = SignedDuration::from_secs(ahead.load(Ordering::SeqCst));
            Timestamp(Timestamp::now().0 + ahead)
        });
        let router = pages::router(Pages::new(fixture, address, wall, stop.clone()).await.expect("made"));
        let served = stop.clone();
        tokio::spawn(async move { served.run_until_cancelled(axum::serve(listener, router).into_future()).await });
        let mut room = Self {
            folder,
            store,
            address,
            mount: String::new(),
            cookie: String::new(),
            token: String::new(),
            ahead_s,
            launch,
            dialled,
            _stop: stop.drop_guard(),
        };
        room.sign_in().await;
        room
    }

    /// Signs in with a fresh code, as a new browser.
    pub(crate) async fn sign_in(&mut self) {
        self.mount.clear();
        self.cookie.clear();
        let entered = self.enter(&self.code()).await;
        self.mount = entered.leads_to().trim_end_matches('/').to_owned();
        self.cookie = entered.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        self.token = self.get("/settings").await.field("token").to_owned();
        assert!(!self.token.is_empty(), "signed in");
    }

    /// A fresh launch code.
    pub(crate) fn code(&self) -> String {
        self.launch.issue().to_string()
    }

    /// Sends a launch code.
    pub(crate) async fn enter(&self, code: &str) -> PageResponse {
        let form = format!("code={code}");
        let outside = self.request("POST", "/sign-in", "", &form).replacen(&self.mount, "", 1);
        self.exchange(&outside).await
    }

    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }

    /// Sets the clock by which sessions end, ahead of the real one.
    pub(crate) fn set_clock_ahead(&self, seconds: i64) {
        self.ahead_s.store(seconds, Ordering::SeqCst);
    }

    /// The path below which the pages lie, as `/…`.
    pub(crate) fn mount(&self) -> &str {
        &self.mount
    }

    /// The agent's folder.
    pub(crate) fn home(&self) -> std::path::PathBuf {
        self.folder.path().join("home")
    }

    /// A file of the agent's folder; `None` if there is none.
    pub(crate) fn file(&self, name: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.home().join(name)).ok()
    }

    /// How often a connection was requested.
    pub(crate) fn dialled(&self) -> usize {
        self.dialled.load(Ordering::SeqCst)
    }

    pub(crate) async fn connection(&self) -> ConnectionSettings {
        self.store.settings().get::<ConnectionSettings>().await.expect("readable")
    }

    pub(crate) async fn get(&self, path: &str) -> PageResponse {
        self.send("GET", path, "").await
    }

    /// Sends a form of this session.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> PageResponse {
        let token = ("token", self.token.as_str());
        self.post_without_token(path, &[&[token], fields].concat()).await
    }

    /// Sends a form without the session's token.
    pub(crate) async fn post_without_token(&self, path: &str, fields: &[(&str, &str)]) -> PageResponse {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let form: Vec<_> = fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        self.send("POST", path, &form.join("&")).await
    }

    /// Fetches a page as the script of an open one does, without its person.
    pub(crate) async fn refresh(&self, path: &str) -> PageResponse {
        self.send_as("GET", path, "Sec-Fetch-Mode: cors\r\n", "").await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> PageResponse {
        self.send_as(method, path, "", body).await
    }

    /// Sends a request to a page, with further headers. In the answer, addresses are as within the pages' path.
    async fn send_as(&self, method: &str, path: &str, headers: &str, body: &str) -> PageResponse {
        let mut response = self.exchange(&self.request(method, path, headers, body)).await;
        if !self.mount.is_empty() {
            for part in [&mut response.head, &mut response.body] {
                *part = part.replace(&self.mount, "");
            }
        }
        response
    }

    /// The request for a page, as its browser writes it.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let Self { address, mount, cookie, .. } = self;
        format!(
            "{method} {mount}{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nCookie: {cookie}\r\n\
             Sec-Fetch-Site: same-origin\r\n{headers}Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// Asks for a path below another one, with any cookie, and gives the answer as it came.
    pub(crate) async fn raw(&self, below: &str, path: &str, cookie: &str) -> PageResponse {
        let address = self.address;
        let cookie = if cookie.is_empty() { String::new() } else { format!("Cookie: {cookie}\r\n") };
        let head = format!("GET {below}{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{cookie}\r\n");
        self.exchange(&head).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the pages are up")
    }

    async fn exchange(&self, request: &str) -> PageResponse {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answered");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        PageResponse { status, head: head.to_owned(), body: body.to_owned() }
    }
}
