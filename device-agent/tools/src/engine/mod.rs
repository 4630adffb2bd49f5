//! File access by handle: the confinement under all tools.
//!
//! | file | part |
//! |---|---|
//! | [`workspace`], `resolved_path`, `access` | from a path to a handle that the kernel resolved, or why not |
//! | `places` | the working directory, and the files that the run was given |
//! | `guard` | the paths that tools must not touch |
//! | `journal_room` | the room on the disk that they must leave |
//! | `walk`, `ignore_rules`, `bounded_reader`, `hits` | searching many files |
//! | `seen_files`, `change`, `replace`, `temporary`, `attributes` | from a read file to its atomic replacement |
//! | `text`, `display`, `output`, `diff`, `nearest` | text for models and for people |

pub mod access;
pub(crate) mod attributes;
pub(crate) mod bounded_reader;
pub(crate) mod change;
pub(crate) mod diff;
pub(crate) mod display;
pub(crate) mod guard;
pub(crate) mod hits;
pub mod identity;
pub(crate) mod ignore_rules;
pub(crate) mod journal_room;
pub(crate) mod nearest;
pub(crate) mod output;
pub(crate) mod places;
pub(crate) mod replace;
pub(crate) mod resolved_path;
pub(crate) mod seen_files;
pub(crate) mod temporary;
pub(crate) mod text;
pub(crate) mod walk;
pub mod workspace;
