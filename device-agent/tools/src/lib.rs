//! The tools that come with the agent, confined to the working directory, and one that reads pages of public hosts.
//!
//! ```text
//! Toolbox::open(tools, skills, ground)   once for each run
//!    specs()                what the model is told it may call
//!    kind(name)             whether a call may change something; None: there is no such tool here
//!    plan(name, arguments)  what a call would do, for the rules and for the person who decides
//!    call(name, arguments)  runs it; what it says goes back to the model, also when it is an error
//! ```
//!
//! | part | contents |
//! |---|---|
//! | `deskgate_definition::tool` | the contract of a tool |
//! | [`toolbox`] | the known tools, and those of one run |
//! | `read`, `grep`, `glob`, `edit`, `write`, `bash`, [`fetch`], [`deliver`], `skill` | one file or folder for each tool |
//! | `reader`, `writer`, `blocking` | code shared by tools that read, tools that write, and both |
//! | [`engine`] | files by handle: resolving paths, protected paths, walking, searching, replacing |
//! | [`sandbox`] | confined commands |

mod bash;
pub mod blocking;
pub mod deliver;
mod edit;
pub mod engine;
pub mod fetch;
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

pub use bash::spec as bash_spec;
pub use engine::workspace;
pub use toolbox::{Toolbox, ToolboxError};
