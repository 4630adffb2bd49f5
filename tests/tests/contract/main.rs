//! What callers are told of the API, held against the real programs: the guides' examples are run, a
//! generated client does the whole journey, and a machine looks for what the document does not say.

mod client;
mod fixture;
mod guides;
mod schemathesis;
