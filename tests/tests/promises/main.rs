//! What the product promises, with the real programs: one file for each group of promises.

mod demo;
