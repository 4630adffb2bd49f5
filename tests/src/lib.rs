//! The harness of the end-to-end promises: the real binaries, real PostgreSQL, real SSH.
//!
//! Everything lives in temporary folders, listens on loopback on ports that the system chose, and
//! ends when its owner is dropped. A test waits for states ([`wait::until`]) and never for a time.
//! The harness panics with a sentence when something is not as it must be; a test that fails shows
//! the ends of the logs of everything it started.
//!
//! ```text
//! let postgres = Postgres::shared().await;                      // a database of its own
//! let gateway = GatewayProcess::start(&postgres, &["control.heartbeat_ms=500"]).await;
//! let device = Device::paired_with(&gateway).await;             // through the real command line
//! let folder = Folder::new();
//! let backend = device.publish(&gateway, "shop", &folder, &[]).await;
//! let run = backend.submit("what stands here?").await;
//! assert_eq!(backend.ended(&run).await["state"], "succeeded");
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`postgres`] | one cluster for all tests with a database for each, or a cluster of one's own to kill |
//! | [`gateway`] | a `deskgate-gateway serve` process: start, kill, restart on the same state |
//! | [`device`] | a `deskgate` agent with a home of its own, driven through its command line |
//! | [`backend`] | a business system: submits, reads, waits, and remembers every 202 |
//! | [`stream`] | a backend that follows a run by its event stream |
//! | [`conversations`] | what it asks for beyond runs: conversations, stops, resets |
//! | [`browser`] | a real browser for the device's management pages |
//! | [`disk`] | a file system of a folder's own, which can be filled |
//! | [`preload`] | what a program's system tells it: another time, and that nothing can be made durable |
//! | [`folder`] | a working folder with known content, and scripts for the scripted assistant |
//! | [`model`] | a model provider that others wrote, told what to answer |
//! | [`tool_server`] | an MCP server that others wrote |
//! | [`proxy`] | stands between device and gateway: cuts, freezes, heals |
//! | [`sshd`] | Debian's own SSH server in front of a gateway |
//! | [`logind`] | the login service of a device's system, which announces sleep and takes inhibitors |
//! | [`netns`] | a network of its own, in which every address is this machine's and names lead where a test says |
//! | [`network_link`] | two networks of their own, joined by a wire that loses, delays and swallows |
//! | [`issuer`] | an OpenID provider that others wrote, whose accounts a hosted gateway takes |
//! | [`receiver`] | a business's own server on an island, over TLS |
//! | [`signing`] | Standard Webhooks' signatures, written once more |
//! | [`notifier`] | the service for notifications of a device's desktop |
//! | [`raw`] | a device made by hand, frame by frame, on the private control socket |
//! | [`third_party`] | installs programs that others wrote |
//! | [`visitor`] | a person at the management pages, without a browser |
//! | [`process`] [`wait`] [`binaries`] | what the others are made from |

pub mod backend;
pub mod binaries;
pub mod browser;
mod bus;
pub mod conversations;
pub mod device;
pub mod disk;
pub mod folder;
pub mod gateway;
pub mod issuer;
pub mod keyring;
pub mod logind;
pub mod model;
pub mod netns;
pub mod network_link;
pub mod notifier;
pub mod postgres;
pub mod preload;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod receiver;
pub mod signing;
pub mod sshd;
pub mod stream;
#[path = "../../gateway/tests/support/template.rs"]
mod template;
pub mod third_party;
pub mod tool_server;
pub mod visitor;
pub mod wait;

pub use backend::Backend;
pub use browser::Browser;
pub use device::TestDevice;
pub use folder::Folder;
pub use gateway::GatewayProcess;
pub use logind::Logind;
pub use notifier::Notifier;
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use wait::until;
