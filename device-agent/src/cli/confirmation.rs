//! The confirmation before what cannot be undone, shared with the gateway's command line.

pub(super) use deskgate_program::confirmation::Confirmation;
