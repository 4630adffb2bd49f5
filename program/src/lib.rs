//! What the programs of the gateway and the desktop have in common: a command line, a daemon behind a private socket,
//! long-running tasks, and which hosts are public.
//!
//! | module | what it does |
//! |---|---|
//! | [`exit`], [`output`] | how a command ends, and what it prints |
//! | [`help`], [`look`], [`printed`] | help in groups, how lists look to a person, and a test's check of every printed command |
//! | [`terminal`], [`visible`] | where printed bytes go, with foreign text made visible |
//! | [`log_buffer`] | a log that a thread of its own writes |
//! | [`records`] | records found, listed and shown, the same for every noun |
//! | [`confirmation`], [`duration`], [`text_file`] | asks before what cannot be undone; reads times, waits, and the files a command is given |
//! | [`man`] | manual pages, made of what the commands' help says |
//! | [`socket`], [`token`] | the private socket that a command line asks its daemon on; the control token's file |
//! | [`public_hosts`] | the public Internet: its names, URLs and addresses |
//! | [`tasks`] | long tasks, and what happens when one panics |
//! | [`support`], [`redaction`] | the support bundle, and text without secrets |
//! | [`crash`] | points at which the fault harness kills a program |
//!
//! It depends on the protocol and on neither program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod confirmation;
pub mod crash;
pub mod duration;
pub mod exit;
pub mod help;
pub mod log_buffer;
pub mod look;
pub mod man;
pub mod output;
pub mod printed;
pub mod public_hosts;
pub mod records;
pub mod redaction;
pub mod socket;
pub mod support;
pub mod tasks;
pub mod terminal;
pub mod text_file;
pub mod token;
pub mod visible;
