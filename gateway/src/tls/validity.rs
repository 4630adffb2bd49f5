//! Whom a certificate is for, and until when: the end is read from its DER without a full parser (RFC 5280, section 4.1).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};

const SEQUENCE_TAG: u8 = 0x30;
const VERSION_TAG: u8 = 0xa0;
const UTC_TIME_TAG: u8 = 0x17;
const GENERALIZED_TIME_TAG: u8 = 0x18;

/// Whether a certificate is for this host.
pub fn is_for(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| {
        ServerName::try_from(host).is_ok_and(|name| rustls::client::verify_server_name(&parsed, &name).is_ok())
    })
}

/// When a certificate expires. `None`: the data is not a certificate.
pub fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    let (_, fields) = issuer_and_rest(certificate)?;
    let (validity, _) = inside(fields, SEQUENCE_TAG)?;
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// Whether a certificate names itself as its issuer.
pub fn is_self_issued(certificate: &[u8]) -> bool {
    let names = || {
        let (issuer, fields) = issuer_and_rest(certificate)?;
        let (_, rest) = inside(fields, SEQUENCE_TAG)?;
        let (subject, _) = inside(rest, SEQUENCE_TAG)?;
        Some(issuer == subject)
    };
    names().unwrap_or(false)
}

/// The issuer's name, and the fields after it: the validity, the subject.
fn issuer_and_rest(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = inside(certificate, SEQUENCE_TAG)?;
    let (mut fields, _) = inside(certificate, SEQUENCE_TAG)?;
    if fields.first() == Some(&VERSION_TAG) {
        fields = element(fields)?.2;
    }
    // Serial number, algorithm.
    for _ in 0..2 {
        fields = element(fields)?.2;
    }
    inside(fields, SEQUENCE_TAG)
}

fn time(tag: u8, text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z')?;
    let whole = match tag {
        // Two digits of a year: of the last century from 50 on.
        UTC_TIME_TAG => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME_TAG => text.to_owned(),
        _ => return None,
    };
    let moment = DateTime::strptime("%Y%m%d%H%M%S", whole).ok()?;
    moment.to_zoned(TimeZone::UTC).ok().map(|moment| moment.timestamp())
}

/// The content of an element of this kind, and the rest after it.
fn inside(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// The first element: its kind, its content, and the rest after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // So many bytes of length follow; no certificate has more than three of them.
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_time_are_read() {
        let moment = |text: &str| Some(text.parse::<Timestamp>().expect("a time"));
        assert_eq!(time(UTC_TIME_TAG, "261122083000Z"), moment("2026-11-22T08:30:00Z"));
        assert_eq!(time(UTC_TIME_TAG, "991231235959Z"), moment("1999-12-31T23:59:59Z"));
        assert_eq!(time(GENERALIZED_TIME_TAG, "40960101000000Z"), moment("4096-01-01T00:00:00Z"));
        assert_eq!(time(GENERALIZED_TIME_TAG, "nonsense"), None);
    }

    #[test]
    fn nothing_that_is_no_certificate_is_read_as_one() {
        for bytes in [&b""[..], b"\x30", b"\x30\x83\xff\xff\xff", b"\x30\x02\x30\x00", b"-----BEGIN"] {
            assert_eq!(not_after(bytes), None);
        }
    }
}
