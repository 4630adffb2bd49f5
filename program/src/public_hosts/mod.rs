//! The hosts of the public Internet: which names and addresses are allowed where somebody else chooses the destination.
//!
//! Callbacks of the gateway and pages that an assistant fetches obey the same rules.
//!
//! | file | what it says |
//! |---|---|
//! | `name` | the name of a public host |
//! | `https_url` | a URL that leads to one: HTTPS, at port 443 |
//! | [`address`] | which addresses are public |
//! | [`lookup`] | the addresses of a name, once all of them were found public |

pub mod address;
mod https_url;
pub mod lookup;
mod name;

pub use https_url::{HttpsUrl, InvalidUrl};
pub use name::{HostName, InvalidHostName};
