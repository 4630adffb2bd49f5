//! The SSH algorithms both halves offer: current ones only, the strongest first.
//!
//! The hybrid post-quantum exchange comes first; curve25519 stays because the OpenSSH 9.2 of stable
//! distributions has nothing newer. AES-256-GCM comes before ChaCha20 because it is about twice as
//! fast where the processor helps. No compression: it costs time and leaks lengths.

use std::borrow::Cow;

use russh::keys::Algorithm;
use russh::{Preferred, cipher, compression, kex, mac};

/// The data that each half takes in one packet of a channel, in bytes (RFC 4254, section 5.1). Twice what is usual: a file then wakes
/// both halves half as often.
pub const PACKET_BYTES: u32 = 65_535;

/// The lists for either side of a connection.
pub fn preferred() -> Preferred {
    Preferred {
        kex: Cow::Borrowed(&[
            kex::MLKEM768X25519_SHA256,
            kex::CURVE25519,
            kex::CURVE25519_PRE_RFC_8731,
            kex::EXTENSION_SUPPORT_AS_CLIENT,
            kex::EXTENSION_SUPPORT_AS_SERVER,
            kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
            kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
        ]),
        key: Cow::Borrowed(&[Algorithm::Ed25519]),
        host_key_certificates: Cow::Borrowed(&[]),
        cipher: Cow::Borrowed(&[cipher::AES_256_GCM, cipher::CHACHA20_POLY1305]),
        mac: Cow::Borrowed(&[mac::HMAC_SHA512_ETM, mac::HMAC_SHA256_ETM]),
        compression: Cow::Borrowed(&[compression::NONE]),
    }
}
