//! The help of a program with many commands: in groups, with examples; and what a wrong word is answered with.
//!
//! clap lists all commands in one block and answers a wrong one with those that are spelt alike. Both programs need more.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, FromArgMatches};

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::terminal;

/// Commands that belong together, under a heading.
pub type Group = (&'static str, &'static [&'static str]);

/// What a program's help shows besides its options.
#[derive(Clone, Copy, Debug)]
pub struct Help {
    /// Every command, in the order in which somebody would look for it.
    pub groups: &'static [Group],
    /// Commands with what each is for, as they can be typed.
    pub examples: &'static [(&'static str, &'static str)],
}

const HEADING: &str = "\u{1b}[1m\u{1b}[4m";
const NAME: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

impl Help {
    /// The program's command with this help.
    pub fn on(&self, mut root: Command) -> Command {
        root.build();
        let template = format!(
            "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}{HEADING}Options:{PLAIN}\n{{options}}\n",
            self.body(&root)
        );
        root.help_template(template)
    }

    /// The groups and the examples. clap takes the colours away where none are wanted.
    fn body(&self, root: &Command) -> String {
        let width = root.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0);
        let mut text = String::new();
        for (heading, names) in self.groups {
            text += &format!("{HEADING}{heading}:{PLAIN}\n");
            for name in *names {
                let about = root.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
                text += &format!("  {NAME}{name:width$}{PLAIN}  {}\n", about.unwrap_or_default());
            }
            text.push('\n');
        }
        text += &format!("{HEADING}Examples:{PLAIN}\n");
        let width = self.examples.iter().map(|(example, _)| example.len()).max().unwrap_or(0);
        for (example, what) in self.examples {
            text += &format!("  {example:width$}  {what}\n");
        }
        text + "\n"
    }

    /// What is wrong with the groups: a command that stands in none or in two, or is not there.
    pub fn problems(&self, root: &Command) -> Vec<String> {
        let grouped: Vec<_> = self.groups.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let commands = root.get_subcommands().map(Command::get_name).filter(|name| *name != "help");
        let times = |name: &str| grouped.iter().filter(|grouped| **grouped == name).count();
        let uncounted = commands.map(|name| (name, times(name))).filter(|(_, times)| *times != 1);
        let mut problems: Vec<_> = uncounted.map(|(name, times)| format!("{name} is in {times} groups")).collect();
        let strange = grouped.iter().filter(|name| root.find_subcommand(name).is_none());
        problems.extend(strange.map(|name| format!("{name} is no command")));
        problems
    }

    /// Reads the program's arguments. A request for help or the version is answered, and a usage error told, here.
    pub fn parse<C: FromArgMatches>(&self, root: Command) -> C {
        let mut root = self.on(root);
        let words: Vec<OsString> = std::env::args_os().collect();
        let read = root.try_get_matches_from_mut(&words).and_then(|mut matches| C::from_arg_matches_mut(&mut matches));
        read.unwrap_or_else(|error| {
            let error = with_choice(error, &root, &words);
            let json = words.iter().any(|word| word == "--json");
            if json && error.use_stderr() {
                let message = error.to_string();
                let message = message.strip_prefix("error: ").unwrap_or(&message).trim_end().to_owned();
                let failure = Failure::new(Exit::Usage, message);
                Output { json, quiet: false }.failure(&failure);
                std::process::exit(Exit::Usage as i32);
            }
            if let Err(closed) = error.print() {
                terminal::end_if_closed(&closed);
            }
            std::process::exit(if error.use_stderr() { Exit::Usage as i32 } else { Exit::Done as i32 });
        })
    }
}

/// An unknown command is answered with all that there are in its place.
fn with_choice(mut error: clap::Error, root: &Command, words: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let mut at = root;
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        at = at.find_subcommand(word).unwrap_or(at);
    }
    let names = at.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    let alike = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(alike)) if !alike.is_empty() => {
            let name = |alias: &String| at.find_subcommand(alias).map(|command| command.get_name().to_owned());
            let names: Vec<_> = alike.iter().filter_map(name).collect();
            format!("did you mean {}?\n", names.join(" or "))
        }
        _ => String::new(),
    };
    let choice = format!("{alike}{} has the commands {}", at.get_bin_name().unwrap_or(at.get_name()), names.join(", "));
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![choice.into()]));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: Help = Help {
        groups: &[("Every day", &["run", "status"]), ("Seldom", &["token"])],
        examples: &[("tool run list", "what was asked")],
    };

    fn root() -> Command {
        let token =
            Command::new("token").about("Tokens").subcommand(Command::new("roll")).subcommand(Command::new("show"));
        let run = Command::new("run").alias("runs").about("Runs");
        Command::new("tool").about("A tool").subcommands([run, Command::new("status").about("How it is"), token])
    }

    #[test]
    fn help_has_every_command_under_its_heading_and_the_examples() {
        let text = HELP.on(root()).render_help().to_string();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing in {text}"));
        assert!(at("Every day:") < at("  run     Runs") && at("  status  How it is") < at("Seldom:"), "{text}");
        assert!(
            at("  token   Tokens") < at("Examples:\n  tool run list  what was asked") && at("--help") > at("Options:")
        );
    }

    #[test]
    fn a_command_without_a_group_and_a_group_without_its_command_are_problems() {
        assert_eq!(HELP.problems(&root()), Vec::<String>::new());
        let more = root().subcommand(Command::new("log"));
        assert_eq!(HELP.problems(&more), ["log is in 0 groups"]);
        let fewer = Command::new("tool").subcommands([Command::new("run"), Command::new("status")]);
        assert_eq!(HELP.problems(&fewer), ["token is no command"]);
    }

    #[test]
    fn an_unknown_command_is_answered_with_those_that_there_are() {
        let answer = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let mut root = HELP.on(root());
            let error = root.try_get_matches_from_mut(&words).expect_err("unknown");
            with_choice(error, &root, &words).to_string()
        };
        let top = answer(&["tool", "frobnicate"]);
        assert!(top.contains("tool has the commands run, status, token"), "{top}");
        let below = answer(&["tool", "token", "rol"]);
        assert!(answer(&["tool", "rn"]).contains("did you mean run?"), "an alias is not suggested");
        assert!(
            below.contains("did you mean roll?") && below.contains("tool token has the commands roll, show"),
            "{below}"
        );
    }
}
