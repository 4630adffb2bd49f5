//! The API's documentation against the real programs: the guides' examples are run, also while the gateway is in trouble, the
//! reference and the guides' diagrams are looked at in a browser, a generated client does the whole journey, and a tool searches for behaviour that the document does not describe.

mod client;
mod commands;
mod diagrams;
mod examples;
mod fixture;
mod guides;
mod reference;
mod retries;
mod schemathesis;
mod stand_in;
