//! See `judges/schemas.rs`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| deskgate_fuzz::schemas::judge(bytes));
