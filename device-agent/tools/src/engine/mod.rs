//! Files by handle, whatever tool asks: the confinement that all tools stand on.
//!
//! | file | part |
//! |---|---|
//! | [`workspace`], `spot`, `access` | from a path to a handle that the kernel resolved, or why not |
//! | `guard` | what is left alone although it is inside |
//! | `walk`, `ignores`, `pieces`, `hits` | looking through many files |
//! | `known`, `change`, `replace`, `temporary`, `attributes` | from what a run has read to a file that was replaced whole |
//! | `text`, `display`, `output`, `diff`, `nearest` | text for models and for people |

pub mod access;
pub(crate) mod attributes;
pub(crate) mod bounded_reader;
pub(crate) mod change;
pub(crate) mod diff;
pub(crate) mod display;
pub(crate) mod guard;
pub(crate) mod hits;
pub(crate) mod ignore_rules;
pub(crate) mod nearest;
pub(crate) mod output;
pub(crate) mod replace;
pub(crate) mod resolved_path;
pub(crate) mod seen_files;
pub(crate) mod temporary;
pub(crate) mod text;
pub(crate) mod walk;
pub mod workspace;
