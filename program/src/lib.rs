//! What the gateway's program and the desktop's have in common: both have a command line, a daemon behind a private
//! socket, and long tasks that somebody owns.
//!
//! | module | what it does |
//! |---|---|
//! | [`exit`], [`output`] | how a command ends, and what it prints |
//! | [`terminal`], [`visible`] | where printed bytes go, with foreign text made visible |
//! | [`confirmation`], [`duration`], [`disabling`] | asks before what cannot be undone; reads times and waits |
//! | [`man`] | manual pages, made of what the commands' help says |
//! | [`socket`], [`token`] | the private socket that a command line asks its daemon on; the control token's file |
//! | [`tasks`] | long tasks, and what happens when one panics |
//! | [`support`], [`redaction`] | the support bundle, and text without secrets |
//! | [`crash`] | points at which the fault harness lets a program die |
//!
//! It knows the protocol and nothing of either half.

#![warn(clippy::print_stdout, clippy::print_stderr)]

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
pub mod terminal;
pub mod token;
pub mod visible;
