//! The confirmation before what cannot be undone, for both command lines.

use std::io::IsTerminal;

use crate::exit::{Exit, Failure};
use crate::terminal;
use clap::Args;

/// Whether a person is asked.
#[derive(Clone, Copy, Debug, Args)]
pub struct Confirmation {
    /// Do it without asking
    #[arg(long)]
    yes: bool,
    /// Never ask; without --yes nothing is done
    #[arg(long)]
    no_input: bool,
}

impl Confirmation {
    /// Continues if the person confirms, or has confirmed by an option. Without a terminal to ask at, it refuses.
    ///
    /// # Errors
    /// The person declined, or cannot be asked.
    pub fn confirm(self, question: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if self.no_input || !std::io::stdin().is_terminal() {
            return Err(Failure::new(
                Exit::Failed,
                format!("{question}\naborted, no changes made; to go on without a question, add --yes"),
            ));
        }
        terminal::report(question);
        let mut answer = String::new();
        let read = terminal::prompt("Type yes to go on: ").and_then(|()| std::io::stdin().read_line(&mut answer));
        match read {
            Ok(_) if answer.trim() == "yes" => Ok(()),
            _ => Err(Failure::new(Exit::Failed, "aborted, no changes made")),
        }
    }
}
