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

pub(crate) const PARTS: [Part; 9] = [
    Part {
        folder: "gateway",
        own_crate: "deskgate_gateway",
        rooms: &[
            // The doors. They decide nothing: domain does, and store keeps what was decided. They hold
            // the store's handle and pass its values on.
            ("http", &["domain", "store", "networks", "tls", "meters", "hosted"]),
            ("control", &["domain", "store", "wake", "seal", "hosted", "tunnel::HostKeys"]),
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
            ("callbacks", &["domain", "store", "tls"]),
            ("upkeep", &["store", "pulse"]),
            ("ops", &["domain", "store", "meters", "pulse", "tls"]),
            ("domain", &["store", "wake", "meters", "networks", "seal", "signing"]),
            ("store", &["wake", "meters"]),
            ("tunnel", &[]),
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
            // Without an agent to ask, a bundle is what the disk says: health.
            ("cli", &["local", "services", "settings", "met", "config"]),
            // The pages ask what the command line asks, and keep who is signed in.
            ("pages", &["local", "services", "settings"]),
            // Local shows the line and tests a connection, signs the identity file, keeps the settings.
            (
                "local",
                &[
                    "dispatcher",
                    "health",
                    "services",
                    "account",
                    "settings",
                    "link",
                    "identity",
                    "power",
                    "notices",
                    "autostart",
                    "config",
                ],
            ),
            // Health judges what it is given, and tries what a run would need. Settings say whether the gateway is built in.
            ("health", &["dispatcher", "link", "power", "services", "account", "settings", "config"]),
            ("dispatcher", &["link", "executor", "services", "power"]),
            ("executor", &[]),
            // What is done with services. What a service is, is a crate of its own.
            ("services", &[]),
            ("link", &["identity", "account"]),
            ("account", &[]),
            ("settings", &["link", "account", "power"]),
            ("identity", &[]),
            ("power", &[]),
            ("notices", &[]),
            ("met", &["link"]),
            ("autostart", &[]),
            ("config", &[]),
        ],
        keepers: &[
            Keeper { crates: &["russh"], rooms: &["link"], rule: "only link names russh" },
            Keeper {
                crates: &["reqwest"],
                rooms: &["account", "link", "cli"],
                rule: "only account and link name the HTTP client, and the command that posts to this computer",
            },
            Keeper {
                crates: &["zbus"],
                rooms: &["power", "notices"],
                rule: "only power asks about sleep, and only notices shows something",
            },
            Keeper {
                crates: &["askama", "axum", "hyper", "http", "http_body_util", "tower"],
                rooms: &["pages"],
                rule: "only pages writes pages and names status codes",
            },
            Keeper {
                crates: &["deskgate_tools"],
                rooms: &["lib", "executor", "services", "local"],
                rule: "only the executor runs tools, services tries them, and local compares a call's plan with the disk",
            },
            Keeper {
                crates: &["deskgate_assistant"],
                rooms: &["lib", "executor", "services", "local", "health", "cli"],
                rule: "models are asked by the executor and by checks; others know which providers and servers there are",
            },
            Keeper {
                crates: &["deskgate_secrets"],
                rooms: &["lib", "account", "link", "local"],
                rule: "other people's keys are opened by whoever uses them, and moved by local",
            },
            Keeper {
                crates: &["deskgate_program::crash"],
                rooms: &["link"],
                rule: "of the agent, link has points at which the fault harness lets it die",
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
                rule: "how commands ask, print and end is the command line's",
            },
            Keeper {
                crates: &["deskgate_program::socket"],
                rooms: &["lib", "local", "cli"],
                rule: "the private socket is local's, and the command line's that asks on it",
            },
            Keeper {
                crates: &["deskgate_program::support", "deskgate_program::redaction"],
                rooms: &["lib", "health"],
                rule: "only health writes bundles, and nothing in them that could be a secret",
            },
            Keeper {
                crates: &["deskgate_program::token"],
                rooms: &["lib", "local"],
                rule: "the control token's file is local's",
            },
            Keeper {
                crates: &["deskgate_gateway"],
                rooms: &["lib"],
                rule: "the gateway is a byte stream to everyone but lib, which starts the built-in one",
            },
        ],
    },
    // The agent's lower floors are crates of their own: the compiler keeps the walls between them.
    Part { folder: "device-agent/definition", own_crate: "deskgate_definition", rooms: &[], keepers: &[] },
    Part {
        folder: "device-agent/secrets",
        own_crate: "deskgate_secrets",
        rooms: &[],
        keepers: &[Keeper { crates: &["zbus"], rooms: &["keyring"], rule: "only the keyring is asked over D-Bus" }],
    },
    Part { folder: "device-agent/store", own_crate: "deskgate_store", rooms: &[], keepers: &[] },
    Part {
        folder: "device-agent/tools",
        own_crate: "deskgate_tools",
        rooms: &[
            ("toolbox", &["bash", "edit", "engine", "glob", "grep", "read", "sandbox", "skill", "write"]),
            ("bash", &["blocking", "sandbox"]),
            ("edit", &["engine", "writer"]),
            ("glob", &["blocking", "engine", "reader"]),
            ("grep", &["blocking", "engine", "reader"]),
            ("read", &["blocking", "engine", "reader"]),
            ("skill", &["blocking"]),
            ("write", &["engine", "writer"]),
            ("reader", &["engine"]),
            ("writer", &["blocking", "engine"]),
            ("blocking", &["engine"]),
            ("sandbox", &["engine"]),
            ("engine", &[]),
            ("tests", &["engine", "toolbox"]),
        ],
        keepers: &[Keeper {
            crates: &["seccompiler", "libc"],
            // And the tests, which take system calls away.
            rooms: &["sandbox", "tests"],
            rule: "only the sandbox of commands speaks of system calls by their numbers",
        }],
    },
    Part {
        folder: "device-agent/assistant",
        own_crate: "deskgate_assistant",
        rooms: &[],
        keepers: &[Keeper { crates: &["rmcp"], rooms: &["mcp"], rule: "only mcp names the protocol's SDK" }],
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
        // Of these the values that are asked for and answered, nothing that runs.
        crates: &["deskgate_assistant", "deskgate_definition", "deskgate_protocol", "serde", "serde_json"],
        modules: &["executor::turn", "executor::outcome"],
        rule: "turn decides and touches nothing: drive performs what it decided",
    },
];
