//! What `deskgate --help` shows: every command in a group, and examples.

use deskgate_program::help::Help;

pub(super) const HELP: Help = Help {
    groups: &[
        ("Begin", &["quickstart", "start", "stop", "restart", "status", "open"]),
        ("Your gateway", &["pair", "connection", "identity", "access"]),
        ("Who may call", &["app", "key", "hook"]),
        ("What callers can use", &["service", "provider", "mcp", "budget"]),
        ("What they ask for", &["run", "approval", "conversation", "spending", "find"]),
        ("What they are told", &["callback", "allowlist", "delivery", "listen"]),
        ("When something is wrong", &["doctor", "log", "bundle", "upgrade-check"]),
        ("What can be proved", &["audit", "verify-receipt"]),
        (
            "This program",
            &["settings", "notification", "autostart", "uninstall", "version", "completions", "man", "exit-codes"],
        ),
    ],
    examples: &[
        ("deskgate quickstart ~/notes", "from nothing to a finished run"),
        ("deskgate approval list", "what waits for your decision"),
        ("deskgate run list --state running", "what is under way"),
        ("deskgate service try NAME --input 'Hello' --wait 60s", "call a service yourself"),
        ("deskgate doctor", "what is wrong, and what to do"),
    ],
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;
    use deskgate_program::printed;

    use super::super::Cli;
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut root = Cli::command();
        root.build();
        assert_eq!(HELP.problems(&root), Vec::<String>::new());
    }

    #[test]
    fn every_command_that_is_printed_works_as_printed() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut all, mut count) = (Vec::new(), 0);
        for place in ["src", "templates", "../program/src/records", "../docs", "../README.md", "../deploy/README.md"] {
            let (found, problems) = printed::check(&Cli::command(), &here.join(place));
            count += found;
            all.extend(problems);
        }
        assert!(count > 250, "{count} are found");
        assert!(all.is_empty(), "{}", all.join("\n"));
    }
}
