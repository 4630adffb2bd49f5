//! See `judges/balancers.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| deskgate_fuzz::balancers::judge(bytes));
