//! Who may know whom. A new room is entered here, with whom it may know; without that the test fails.

/// One half of the product, or the protocol between them.
pub(crate) struct Part {
    /// Its folder.
    pub(crate) folder: &'static str,
    /// Its name as a crate.
    pub(crate) own_crate: &'static str,
    /// Its rooms: name, and what else of the same part each may name. An entry like
    /// `domain::devices` allows that much only.
    pub(crate) rooms: &'static [(&'static str, &'static [&'static str])],
    /// Crates that only some rooms may name.
    pub(crate) keepers: &'static [Keeper],
}

/// Crates that stay in few rooms, so that exchanging one touches those rooms only.
pub(crate) struct Keeper {
    /// Names of crates, or of one module of a crate; the first keeper that fits a name decides.
    pub(crate) crates: &'static [&'static str],
    pub(crate) rooms: &'static [&'static str],
    pub(crate) rule: &'static str,
}

/// The roots of a crate: they know all and are known by none. `root` is what `lib` is made of.
pub(crate) const ROOTS: [&str; 3] = ["lib", "main", "root"];

pub(crate) const DOORS: [&str; 5] = ["http", "control", "admin", "callbacks", "upkeep"];

pub(crate) const PARTS: [Part; 4] = [
    Part {
        folder: "gateway",
        own_crate: "deskgate_gateway",
        rooms: &[
            // The doors. They decide nothing: domain does, and store keeps what was decided. They hold
            // the store's handle and pass its values on.
            ("http", &["domain", "store", "wake", "config", "networks", "tls", "meters", "hosted"]),
            ("control", &["domain", "store", "wake", "config", "seal", "hosted", "tunnel::HostKeys"]),
            (
                "admin",
                &[
                    "domain",
                    "store",
                    "config",
                    "tls",
                    "addresses",
                    "descriptors",
                    "pulse",
                    "seal",
                    "tunnel::HostKey",
                    "tunnel::HostKeys",
                ],
            ),
            ("callbacks", &["domain", "store", "wake", "config", "seal", "signing", "meters", "tls"]),
            ("upkeep", &["domain", "store", "config", "pulse"]),
            ("ops", &["domain", "store", "config", "meters", "pulse", "tls"]),
            ("domain", &["store", "wake", "meters", "networks", "seal", "signing"]),
            ("store", &["wake", "meters"]),
            ("tunnel", &["domain::devices"]),
            ("acme", &["store", "config", "tls", "seal"]),
            ("hosted", &["domain::accounts", "config", "tls"]),
            // The leaves. The configuration speaks of limits in domain's own words.
            ("config", &["domain", "networks", "tls", "seal"]),
            ("networks", &[]),
            ("meters", &[]),
            ("pulse", &[]),
            ("seal", &[]),
            ("signing", &[]),
            ("signals", &[]),
            ("tls", &[]),
            ("wake", &[]),
            ("addresses", &[]),
            ("descriptors", &[]),
            ("log", &[]),
            ("manager", &[]),
        ],
        keepers: &[
            Keeper {
                crates: &["tokio_postgres", "deadpool_postgres", "postgres_types", "tokio_postgres_rustls"],
                rooms: &["store"],
                rule: "only store names the Postgres crates",
            },
            Keeper { crates: &["russh"], rooms: &["tunnel"], rule: "only tunnel names russh" },
            Keeper {
                crates: &["instant_acme", "x509_cert"],
                rooms: &["acme"],
                rule: "only acme speaks with a certificate authority",
            },
            Keeper {
                crates: &["rcgen"],
                rooms: &["acme", "callbacks"],
                rule: "only acme makes certificates, and callbacks those of the receivers it is tested with",
            },
            Keeper { crates: &["governor"], rooms: &["domain"], rule: "only domain counts requests" },
            Keeper {
                crates: &["axum", "tower"],
                // The composition root serves what ops answers by http's accept loop.
                rooms: &["http", "ops"],
                rule: "only http and ops name axum",
            },
            Keeper {
                crates: &["hyper", "http", "http_body_util"],
                rooms: &["http", "ops", "callbacks", "hosted"],
                rule: "only http and ops answer in HTTP, and only callbacks and hosted ask in it",
            },
            Keeper {
                crates: &["askama", "utoipa", "utoipa_axum"],
                rooms: &["http"],
                rule: "only http writes pages and the OpenAPI document",
            },
        ],
    },
    Part {
        folder: "device-agent",
        own_crate: "deskgate",
        rooms: &[
            // The command line asks on local's socket; services, settings and accounts are the words it asks in.
            (
                "cli",
                // Without an agent to ask, a bundle is what the disk says.
                &[
                    "local",
                    "health",
                    "services",
                    "settings",
                    "assistant::accounts",
                    "mcp::connections",
                    "met",
                    "config",
                ],
            ),
            // The pages ask what the command line asks, and keep who is signed in.
            ("pages", &["local", "services", "settings", "store"]),
            // Local shows the line and tests a connection, signs the identity file, keeps the settings.
            (
                "local",
                &[
                    "dispatcher",
                    "health",
                    "services",
                    // To compare a call's plan with the disk.
                    "tools",
                    "account",
                    "assistant::accounts",
                    "mcp",
                    "settings",
                    "link",
                    "identity",
                    "store",
                    "secrets",
                    "power",
                    "notices",
                    "autostart",
                    "config",
                ],
            ),
            // Health judges what it is given, and tries what a run would need.
            (
                "health",
                &[
                    "dispatcher",
                    "link",
                    "power",
                    "services",
                    "account",
                    "assistant::accounts",
                    "store",
                    // Whether the gateway is built in.
                    "settings",
                    "config",
                ],
            ),
            ("dispatcher", &["link", "executor", "store", "services", "identity", "power", "config"]),
            // The executor writes down what begins before it begins.
            ("executor", &["tools", "assistant", "mcp", "services", "store", "config"]),
            ("assistant", &["tools", "services", "secrets", "config"]),
            ("tools", &["services", "config"]),
            ("mcp", &["tools", "secrets", "services", "config"]),
            ("services", &["store", "tools", "assistant", "mcp", "config"]),
            // Of tools the store keeps what a call would do.
            ("store", &["services", "settings", "health", "tools", "secrets", "config"]),
            ("link", &["identity", "account", "secrets::write_private", "config"]),
            ("account", &["secrets", "config"]),
            ("settings", &["link", "account", "power", "secrets", "config"]),
            ("identity", &["secrets", "config"]),
            ("secrets", &["config"]),
            ("power", &[]),
            ("notices", &[]),
            ("met", &["link"]),
            ("autostart", &[]),
            ("config", &[]),
        ],
        keepers: &[
            Keeper { crates: &["rusqlite"], rooms: &["store"], rule: "only store names SQLite" },
            Keeper { crates: &["russh"], rooms: &["link"], rule: "only link names russh" },
            // The room is finer than the walls can say: of tools only its sandbox names them.
            Keeper {
                crates: &["seccompiler", "libc"],
                rooms: &["tools"],
                rule: "only the sandbox of commands speaks of system calls by their numbers",
            },
            Keeper { crates: &["rmcp"], rooms: &["mcp"], rule: "only mcp names the protocol's SDK" },
            Keeper {
                crates: &["reqwest"],
                rooms: &["assistant", "mcp", "account", "link", "cli"],
                rule: "only assistant, mcp, account and link name the HTTP client, and the command that posts to this computer",
            },
            Keeper {
                crates: &["zbus"],
                rooms: &["power", "notices", "secrets"],
                rule: "only power asks about sleep, only notices shows something, only secrets opens the keyring",
            },
            Keeper {
                crates: &["askama", "axum", "hyper", "http", "http_body_util", "tower"],
                rooms: &["pages"],
                rule: "only pages writes pages and names status codes",
            },
            Keeper {
                crates: &["deskgate_program::crash"],
                rooms: &["store", "link"],
                rule: "store and link have points at which the fault harness lets the agent die",
            },
            Keeper {
                crates: &["deskgate_gateway::tunnel"],
                rooms: &["lib", "link", "identity"],
                rule: "link and identity share the gateway's SSH suite and key file",
            },
            Keeper {
                crates: &[
                    "deskgate_program::exit",
                    "deskgate_program::output",
                    "deskgate_program::man",
                    "deskgate_program::confirmation",
                    "deskgate_program::disabling",
                    "deskgate_program::duration",
                ],
                rooms: &["lib", "main", "cli"],
                rule: "both command lines share exit codes and output",
            },
            Keeper {
                crates: &["deskgate_program::socket"],
                rooms: &["lib", "local", "cli"],
                rule: "both daemons share the private socket",
            },
            Keeper {
                crates: &["deskgate_program::support", "deskgate_program::redaction"],
                rooms: &["lib", "health"],
                rule: "both halves write the same kind of bundle, and nothing in it that could be a secret",
            },
            Keeper {
                crates: &["deskgate_program::token"],
                rooms: &["lib", "local"],
                rule: "both halves keep the control token in the same kind of file",
            },
            Keeper {
                crates: &["deskgate_gateway"],
                rooms: &["lib"],
                rule: "the gateway is a byte stream to everyone but lib, which starts the built-in one",
            },
        ],
    },
    Part { folder: "protocol", own_crate: "deskgate_protocol", rooms: &[], keepers: &[] },
    // What both programs are made with. It knows the protocol and neither half.
    Part { folder: "program", own_crate: "deskgate_program", rooms: &[], keepers: &[] },
];

/// What a part of the product that must not touch the world may build on.
pub(crate) struct Pure {
    /// The files: a path below the repository that a file's path begins with.
    pub(crate) files: &'static str,
    /// The dependencies it may name. The standard library comes with it, without [`WORLD`].
    pub(crate) crates: &'static [&'static str],
    /// The modules of its own crate it may name; everything if empty.
    pub(crate) modules: &'static [&'static str],
    pub(crate) rule: &'static str,
}

/// The part of the standard library that touches the world.
pub(crate) const WORLD: [&str; 5] = ["fs", "net", "process", "thread", "env"];

pub(crate) const PURE: [Pure; 2] = [
    Pure {
        files: "protocol/src/",
        crates: &[
            "base64",
            "ed25519_dalek",
            "jiff",
            "rand",
            "serde",
            "serde_json",
            "serde_json_canonicalizer",
            "sha2",
            "subtle",
            "thiserror",
            "utoipa",
            "uuid",
            "zeroize",
        ],
        modules: &[],
        rule: "protocol is what is said: no runtime, no files, no network",
    },
    Pure {
        files: "device-agent/src/executor/turn",
        crates: &["deskgate_protocol", "serde", "serde_json"],
        // Of these the values that are asked for and answered, nothing that runs.
        modules: &["executor::turn", "executor::outcome", "assistant", "tools", "services::approvals"],
        rule: "turn decides and touches nothing: drive performs what it decided",
    },
];
