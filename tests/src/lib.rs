//! The harness of the end-to-end tests: the real binaries, real PostgreSQL, real SSH.
//!
//! Everything is in temporary folders, listens on loopback ports that the system chose, and ends when its owner is
//! dropped. A test waits for states ([`wait::until`]), never for a time. The harness panics with a sentence when a
//! precondition fails; a failed test shows the ends of all logs.
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
//! | [`preload`] | makes the system report another time to a program, fail or delay every sync, and read some files slowly |
//! | [`folder`] | a working folder with known content, and scripts for the scripted assistant |
//! | [`model`] | a third-party model provider with scripted answers |
//! | [`tool_server`] | a third-party MCP server |
//! | [`protected_tool_server`] | one that wants a sign-in, and its authorization server |
//! | [`proxy`] | a network between device and gateway: cuts, freezes, heals |
//! | [`sshd`] | Debian's own SSH server in front of a gateway |
//! | [`logind`] | the login service of a device's system, which announces sleep and takes inhibitors |
//! | [`netns`] | an isolated network in which every address is this machine's and a test controls DNS |
//! | [`network_link`] | two isolated networks with a link that loses, delays and drops packets |
//! | [`issuer`] | a third-party OpenID provider whose accounts a hosted gateway accepts |
//! | [`receiver`] | a business's own server on an island, over TLS |
//! | [`signing`] | Standard Webhooks signatures, implemented a second time |
//! | [`notifier`] | the service for notifications of a device's desktop |
//! | [`raw`] | a device that sends single frames on the private control socket |
//! | [`third_party`] | installs third-party programs |
//! | [`visitor`] | a person at the management pages, without a browser |
//! | [`process`] [`wait`] [`binaries`] | what the other modules are built from |

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
pub mod protected_tool_server;
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
pub mod vendors;
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
