//! The tools that come with the agent, confined to the working directory.
//!
//! ```text
//! Toolbox::open(tools, skills, ground)   once for each run
//!    specs()                what the model is told it may call
//!    kind(name)             whether a call may change something; None: there is no such tool here
//!    plan(name, arguments)  what a call would do, for the rules and for the person who decides
//!    call(name, arguments)  runs it; what it says goes back to the model, also when it is an error
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | `deskgate_definition::tool` | the contract: what a tool is |
//! | [`toolbox`] | which tools there are, and those of one run |
//! | `read`, `grep`, `glob`, `edit`, `write`, `bash`, `skill` | one file for each tool |
//! | `reader`, `writer`, `blocking` | what tools that look, tools that change, and both have in common |
//! | [`engine`] | files by handle: resolving paths, what is left alone, walking, searching, replacing |
//! | [`sandbox`] | commands, kept in |

mod bash;
pub mod blocking;
mod edit;
pub mod engine;
mod glob;
mod grep;
mod read;
mod reader;
pub mod sandbox;
mod skill;
#[cfg(test)]
mod tests;
pub mod toolbox;
mod write;
mod writer;

pub use engine::workspace;
pub use toolbox::{Toolbox, ToolboxError};
