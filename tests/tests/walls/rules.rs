//! Who may know whom. A new room is entered here, with whom it may know; without that the test fails.

/// One half of the product, or the protocol between them.
pub(crate) struct CrateRules {
    /// Its folder.
    pub(crate) folder: &'static str,
    /// Its name as a crate.
    pub(crate) own_crate: &'static str,
    /// Its rooms: name, and what else of the same part each may name. An entry like
    /// `domain::devices` allows that much only.
    pub(crate) rooms: &'static [(&'static str, &'static [&'static str])],
    /// Crates that only some rooms may name.
    pub(crate) owned_crates: &'static [CrateOwnership],
}

/// Crates that stay in few rooms, so that exchanging one touches those rooms only.
pub(crate) struct CrateOwnership {
    /// Names of crates, or of one module of a crate; the first keeper that fits a name decides.
    pub(crate) crates: &'static [&'static str],
    pub(crate) rooms: &'static [&'static str],
    pub(crate) rule: &'static str,
}

/// The roots of a crate: they know all and are known by none. `root` is what `lib` is made of.
pub(crate) const ROOT_MODULES: [&str; 3] = ["lib", "main", "root"];

pub(crate) const ENTRY_MODULES: [&str; 5] = ["http", "control", "admin", "callbacks", "upkeep"];

pub(crate) const CRATES: [CrateRules; 13] = [
    CrateRules {
        folder: "gateway",
        own_crate: "deskgate_gateway",
        rooms: &[
            // The doors. They decide nothing: domain does, and store keeps what was decided. They hold
            // the store's handle and pass its values on.
            ("http", &["domain", "store", "networks", "proxy_protocol", "tls", "metrics", "hosted"]),
            ("control", &["domain", "store", "notify", "encryption", "hosted", "tunnel::HostKeys"]),
            (
                "admin",
                &[
                    "domain",
                    "store",
                    "config",
                    "tls",
                    "addresses",
                    "descriptors",
                    "heartbeat",
                    "encryption",
                    "storage",
                    "tunnel::HostKey",
                    "tunnel::HostKeys",
                ],
            ),
            ("callbacks", &["domain", "store", "networks", "tls"]),
            ("upkeep", &["store", "storage", "heartbeat"]),
            ("ops", &["domain", "store", "storage", "metrics", "heartbeat", "tls"]),
            ("domain", &["store", "storage", "notify", "metrics", "networks", "encryption", "signing"]),
            ("store", &["notify", "metrics", "tls"]),
            ("tunnel", &["networks", "proxy_protocol"]),
            ("acme", &["store", "config", "tls", "encryption"]),
            ("hosted", &["domain::accounts", "config", "networks", "tls"]),
            // The leaves. The configuration speaks of limits in domain's own words.
            ("config", &["domain", "networks", "tls", "encryption", "storage"]),
            ("networks", &[]),
            ("proxy_protocol", &["networks"]),
            ("metrics", &[]),
            ("heartbeat", &[]),
            ("help", &[]),
            ("encryption", &[]),
            ("signing", &[]),
            ("storage", &[]),
            ("signals", &[]),
            ("tls", &[]),
            ("notify", &[]),
            ("addresses", &[]),
            ("descriptors", &[]),
            ("log", &[]),
            ("sd_notify", &[]),
        ],
        owned_crates: &[
            CrateOwnership {
                crates: &["tokio_postgres", "deadpool_postgres", "postgres_types", "tokio_postgres_rustls"],
                rooms: &["store"],
                rule: "only store names the Postgres crates",
            },
            CrateOwnership {
                crates: &["object_store"],
                rooms: &["storage"],
                rule: "only storage knows where the bytes of files lie",
            },
            CrateOwnership { crates: &["russh"], rooms: &["tunnel"], rule: "only tunnel names russh" },
            CrateOwnership {
                crates: &["instant_acme", "x509_cert"],
                rooms: &["acme"],
                rule: "only acme speaks with a certificate authority",
            },
            CrateOwnership {
                crates: &["rcgen"],
                rooms: &["acme", "callbacks"],
                rule: "only acme makes certificates, and callbacks those of the receivers it is tested with",
            },
            CrateOwnership { crates: &["governor"], rooms: &["domain"], rule: "only domain counts requests" },
            CrateOwnership {
                crates: &["axum", "tower"],
                // The composition root serves what ops answers by http's accept loop.
                rooms: &["http", "ops"],
                rule: "only http and ops name axum",
            },
            CrateOwnership {
                crates: &["hyper", "http", "http_body_util"],
                rooms: &["http", "ops", "callbacks", "hosted"],
                rule: "only http and ops answer in HTTP, and only callbacks and hosted ask in it",
            },
            CrateOwnership {
                crates: &["askama", "utoipa", "utoipa_axum"],
                rooms: &["http"],
                rule: "only http writes pages and the OpenAPI document",
            },
        ],
    },
    CrateRules {
        folder: "device-agent",
        own_crate: "deskgate",
        rooms: &[
            // The command line asks on local's socket; services, settings and accounts are the words it asks in.
            // Without an agent to ask, a bundle is what the disk says: health.
            ("cli", &["local", "services", "settings", "gateway_version", "config"]),
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
                    "transfers",
                ],
            ),
            // Health judges what it is given, and tries what a run would need. Settings say whether the gateway is built in.
            ("health", &["dispatcher", "link", "power", "services", "account", "settings", "config"]),
            ("dispatcher", &["link", "executor", "services", "transfers", "power"]),
            ("executor", &["transfers"]),
            // Streams beside the session, by the same route.
            ("transfers", &["link"]),
            // What is done with services. What a service is, is a crate of its own.
            ("services", &[]),
            ("link", &["identity", "account"]),
            ("account", &[]),
            ("settings", &["link", "account", "power"]),
            ("identity", &[]),
            ("power", &[]),
            ("notices", &[]),
            ("gateway_version", &["link"]),
            ("autostart", &["config"]),
            ("config", &[]),
        ],
        owned_crates: &[
            CrateOwnership { crates: &["russh"], rooms: &["link"], rule: "only link names russh" },
            CrateOwnership {
                crates: &["reqwest"],
                rooms: &["account", "link", "cli"],
                rule: "only account and link name the HTTP client, and the command that posts to this computer",
            },
            CrateOwnership {
                crates: &["zbus"],
                rooms: &["power", "notices"],
                rule: "only power asks about sleep, and only notices shows something",
            },
            CrateOwnership {
                crates: &["askama", "axum", "hyper", "http", "http_body_util", "tower"],
                rooms: &["pages"],
                rule: "only pages writes pages and names status codes",
            },
            CrateOwnership {
                crates: &["deskgate_tools"],
                rooms: &["lib", "executor", "services", "local"],
                rule: "only the executor runs tools, services tries them, and local compares a call's plan with the disk",
            },
            CrateOwnership {
                crates: &["deskgate_assistant"],
                rooms: &["lib", "executor", "services", "local", "health", "cli"],
                rule: "models are asked by the executor and by checks; others know which providers and servers there are",
            },
            CrateOwnership {
                crates: &["deskgate_secrets"],
                rooms: &["lib", "account", "link", "local"],
                rule: "other people's keys are opened by whoever uses them, and moved by local",
            },
            CrateOwnership {
                crates: &["deskgate_program::crash"],
                rooms: &["link"],
                rule: "of the agent, link has points at which the fault harness lets it die",
            },
            CrateOwnership {
                crates: &["deskgate_gateway::tunnel"],
                rooms: &["lib", "link", "identity"],
                rule: "link and identity share the gateway's SSH suite and key file",
            },
            CrateOwnership {
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
            CrateOwnership {
                crates: &["deskgate_program::socket"],
                rooms: &["lib", "local", "cli"],
                rule: "the private socket is local's, and the command line's that asks on it",
            },
            CrateOwnership {
                crates: &["deskgate_program::support", "deskgate_program::redaction"],
                rooms: &["lib", "health"],
                rule: "only health writes bundles, and nothing in them that could be a secret",
            },
            CrateOwnership {
                crates: &["deskgate_program::token"],
                rooms: &["lib", "local"],
                rule: "the control token's file is local's",
            },
            CrateOwnership {
                crates: &["deskgate_gateway"],
                rooms: &["lib"],
                rule: "the gateway is a byte stream to everyone but lib, which starts the built-in one",
            },
        ],
    },
    // The agent's lower floors are crates of their own: the compiler keeps the walls between them.
    CrateRules { folder: "device-agent/definition", own_crate: "deskgate_definition", rooms: &[], owned_crates: &[] },
    CrateRules { folder: "device-agent/media", own_crate: "deskgate_media", rooms: &[], owned_crates: &[] },
    CrateRules { folder: "device-agent/oauth", own_crate: "deskgate_oauth", rooms: &[], owned_crates: &[] },
    CrateRules { folder: "device-agent/outbound", own_crate: "deskgate_outbound", rooms: &[], owned_crates: &[] },
    CrateRules {
        folder: "device-agent/secrets",
        own_crate: "deskgate_secrets",
        rooms: &[],
        owned_crates: &[CrateOwnership {
            crates: &["zbus"],
            rooms: &["keyring"],
            rule: "only the keyring is asked over D-Bus",
        }],
    },
    CrateRules { folder: "device-agent/store", own_crate: "deskgate_store", rooms: &[], owned_crates: &[] },
    CrateRules {
        folder: "device-agent/tools",
        own_crate: "deskgate_tools",
        rooms: &[
            (
                "toolbox",
                &["bash", "deliver", "edit", "engine", "fetch", "glob", "grep", "read", "sandbox", "skill", "write"],
            ),
            ("bash", &["blocking", "sandbox"]),
            ("deliver", &["blocking", "engine"]),
            ("edit", &["engine", "writer"]),
            ("fetch", &["blocking", "engine"]),
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
            ("tests", &["deliver", "engine", "toolbox"]),
        ],
        owned_crates: &[
            CrateOwnership {
                crates: &["seccompiler", "libc"],
                // And the tests, which take system calls away.
                rooms: &["sandbox", "tests"],
                rule: "only the sandbox of commands speaks of system calls by their numbers",
            },
            CrateOwnership {
                crates: &["deskgate_outbound", "reqwest", "html5gum", "encoding_rs", "flate2"],
                rooms: &["fetch"],
                rule: "only Fetch asks the Internet and reads what comes from there",
            },
        ],
    },
    CrateRules {
        folder: "device-agent/assistant",
        own_crate: "deskgate_assistant",
        rooms: &[],
        owned_crates: &[CrateOwnership {
            crates: &["rmcp", "sse_stream"],
            rooms: &["mcp"],
            rule: "only mcp names the protocol's SDK",
        }],
    },
    // What typed data may be. It knows nobody, and both halves may know it.
    CrateRules { folder: "schema", own_crate: "deskgate_schema", rooms: &[], owned_crates: &[] },
    CrateRules { folder: "protocol", own_crate: "deskgate_protocol", rooms: &[], owned_crates: &[] },
    // What both programs are made with. It knows the protocol and neither half.
    CrateRules { folder: "program", own_crate: "deskgate_program", rooms: &[], owned_crates: &[] },
];

/// What a part of the product that must not touch the world may build on.
pub(crate) struct PurityRule {
    /// The files: a path below the repository that a file's path begins with.
    pub(crate) files: &'static str,
    /// The dependencies it may name. The standard library comes with it, without [`WORLD`].
    pub(crate) crates: &'static [&'static str],
    /// The modules of its own crate it may name; everything if empty.
    pub(crate) modules: &'static [&'static str],
    pub(crate) rule: &'static str,
}

/// The part of the standard library that touches the world.
pub(crate) const IMPURE_STD_MODULES: [&str; 5] = ["fs", "net", "process", "thread", "env"];

pub(crate) const PURITY_RULES: [PurityRule; 3] = [
    PurityRule {
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
    PurityRule {
        files: "schema/src/",
        crates: &["jsonschema", "serde", "serde_json", "thiserror"],
        modules: &[],
        rule: "schema decides about what it is given: it fetches nothing",
    },
    PurityRule {
        files: "device-agent/src/executor/turn",
        // Of these the values that are asked for and answered, nothing that runs.
        crates: &[
            "deskgate_assistant",
            "deskgate_definition",
            "deskgate_protocol",
            "deskgate_schema",
            "serde",
            "serde_json",
        ],
        modules: &["executor::turn", "executor::outcome"],
        rule: "turn decides and touches nothing: drive performs what it decided",
    },
];
