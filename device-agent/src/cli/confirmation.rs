//! Asking before what cannot be undone, as the gateway's command line does.

pub(super) use deskgate_program::confirmation::Confirmation;
