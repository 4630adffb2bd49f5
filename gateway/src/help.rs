//! What `deskgate-gateway --help` shows: every command in a group, and examples.

use deskgate_program::help::Help;

/// The program's help.
pub const HELP: Help = Help {
    groups: &[
        ("Run it", &["serve", "reload", "status", "ready", "healthcheck"]),
        ("As its administrator", &["admin"]),
        ("Before a start, and when something is wrong", &["check", "doctor", "bundle"]),
        ("The database", &["migrate", "backup"]),
        ("Upgrades and configuration", &["upgrade-check", "config", "version"]),
        ("Documents", &["openapi", "man", "completions", "exit-codes"]),
    ],
    examples: &[
        ("deskgate-gateway check", "whether it would start"),
        ("sudo deskgate-gateway admin device add laptop.json", "pair a device by its identity file"),
        ("sudo deskgate-gateway admin run list --state queued", "what waits"),
        ("sudo deskgate-gateway backup create FOLDER", "a backup of everything in its database"),
        ("sudo deskgate-gateway doctor", "what is wrong, also from outside"),
    ],
};
