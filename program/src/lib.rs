//! What the programs of the gateway and the desktop have in common: a command line, a daemon behind a private socket,
//! and long-running tasks.
//!
//! | module | what it does |
//! |---|---|
//! | [`exit`], [`output`], [`visible`] | how a command ends, what it prints, and how foreign text is shown |
//! | [`confirmation`], [`duration`], [`disabling`] | confirms what cannot be undone; reads times and waits |
//! | [`man`] | manual pages, generated from the commands' help |
//! | [`socket`], [`token`] | the private socket between command line and daemon; the control token's file |
//! | [`tasks`] | long-running tasks, and what happens when one panics |
//! | [`support`], [`redaction`] | the support bundle, and text without secrets |
//! | [`crash`] | points at which the fault harness kills a program |
//!
//! It depends on the protocol and on neither program.

pub mod confirmation;
pub mod crash;
pub mod disabling;
pub mod duration;
pub mod exit;
pub mod man;
pub mod output;
pub mod redaction;
pub mod socket;
pub mod support;
pub mod tasks;
pub mod token;
pub mod visible;
