//! The API's documentation against the real programs: the guides' examples are run, a generated client does the whole
//! journey, and a tool searches for behaviour that the document does not describe.

mod client;
mod fixture;
mod guides;
mod schemathesis;
