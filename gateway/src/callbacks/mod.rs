//! Callbacks: what is sent to businesses' own systems.
//!
//! | file | what it does |
//! |---|---|
//! | `guard` | where a host name leads, and only if all of that is public |
//! | [`send`] | one request to one destination: to an address that was checked, within its time |

mod guard;
pub mod send;
