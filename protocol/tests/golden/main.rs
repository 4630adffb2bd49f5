//! Golden files: everything the two halves send each other, as it is on the wire.
//!
//! Each file in `golden/` is one JSON object with one sample per line, in canonical JSON (RFC 8785). A sample must read
//! back as the value it was made from, and the value must be written byte for byte as in the file. So a renamed member,
//! a lost variant or a changed default shows as a difference to review: an older half sends exactly these texts.
//!
//! A new variant does not compile until a sample is listed for it. Then `DESKGATE_REWRITE_GOLDEN=1 cargo test -p
//! deskgate-protocol --test golden` rewrites the files; read the difference before committing it. A changed line breaks
//! halves of other versions, an added line does not.

/// Lists samples for every variant of an enum; a variant without one does not compile.
macro_rules! every {
    ($file:ident, $kind:ident { $($variant:ident: $($sample:expr),+;)* }) => {{
        fn _is_listed(value: &$kind) {
            match value {
                $($kind::$variant { .. } => {})*
            }
        }
        $(for (number, sample) in [$($sample),+].into_iter().enumerate() {
            assert!(matches!(sample, $kind::$variant { .. }), "a sample of {} stands elsewhere", stringify!($variant));
            let number = if number == 0 { String::new() } else { format!(" {}", number + 1) };
            $file.sample(concat!(stringify!($kind), " ", stringify!($variant)).to_owned() + &number, sample);
        })*
    }};
}

mod file;
mod frames;
mod management;
mod records;
mod samples;
mod words;
