//! What the programs that break and measure Deskgate share.
//!
//! | program | what it does |
//! |---|---|
//! | `faults` | breaks everything on purpose, and judges by independent witnesses |
//! | `hostile` | plays a hostile gateway and a hostile device, and shows what had an effect |
//! | `load` | puts much on it at once, and checks that nothing was lost |
//! | `bench` | measures it against references on the same machine |
//!
//! | module | what it is |
//! |---|---|
//! | [`island`] | starts a program again in a network of its own |
//! | [`site`] | the settings of gateways under load |
//! | [`schedule`] | when each request of a load is due |
//! | [`statistics`] | medians and percentiles |
//! | [`usage`] | memory and CPU time of processes |
//! | [`report`] | the folder of a program's reports, and the machine they were made on |

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "reports go to the terminal")]

pub mod island;
pub mod report;
pub mod schedule;
pub mod site;
pub mod statistics;
pub mod usage;
