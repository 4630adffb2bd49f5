//! Tests of signatures, for every scheme.

use deskgate_protocol::management::{HashAlgorithm, PlainHmac, SignatureEncoding};
use proptest::prelude::*;
use ring::hmac;
use serde_json::json;

use super::*;
use crate::signing::{SigningSecret, sign};

const NOW_S: i64 = 1_800_000_000;
const OTHER_SECRET: &[u8] = b"another secret of 24 byte";
const TEST_SECRET: &[u8] = b"a secret of twenty-four b";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac_of(body: &[u8]) -> String {
    hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, TEST_SECRET), body).as_ref())
}

/// Every scheme, with the headers of a body that is signed so at a moment.
fn schemes(body: &[u8], at: i64) -> Vec<(WebhookScheme, Vec<(String, String)>)> {
    let owned = |headers: &[(&str, String)]| headers.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
    let secret = SigningSecret::from_bytes(TEST_SECRET.to_vec());
    let stripe = hmac_of(&[format!("{at}.").as_bytes(), body].concat());
    let plain = |algorithm, encoding, prefix: &str| {
        WebhookScheme::Hmac(PlainHmac {
            header: "X-Signature".to_owned(),
            algorithm,
            encoding,
            prefix: prefix.to_owned(),
            event_id: Some("$.id".to_owned()),
            event_type: Some("X-Type".to_owned()),
        })
    };
    let mac = |algorithm| hmac::sign(&hmac::Key::new(algorithm, TEST_SECRET), body);
    let base64 = |bytes: &[u8]| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(bytes)
    };
    vec![
        (
            WebhookScheme::StandardWebhooks {},
            owned(&[
                ("webhook-id", "msg_1".to_owned()),
                ("webhook-timestamp", at.to_string()),
                ("webhook-signature", sign(&[&secret], "msg_1", at, body)),
            ]),
        ),
        (WebhookScheme::Github {}, owned(&[("X-Hub-Signature-256", format!("sha256={}", hmac_of(body)))])),
        (WebhookScheme::Stripe {}, owned(&[("Stripe-Signature", format!("t={at},v0=00,v1={stripe}"))])),
        (
            plain(HashAlgorithm::Sha1, SignatureEncoding::Hex, "sha1="),
            owned(&[("x-signature", format!("sha1={}", hex(mac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY).as_ref())))]),
        ),
        (
            plain(HashAlgorithm::Sha512, SignatureEncoding::Base64, ""),
            owned(&[("x-signature", base64(mac(hmac::HMAC_SHA512).as_ref()))]),
        ),
    ]
}

fn check(
    scheme: &WebhookScheme,
    secrets: &[&[u8]],
    headers: &[(String, String)],
    body: &[u8],
    now: i64,
) -> Result<(), SignatureError> {
    let headers: Headers<'_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    verify(scheme, secrets, &headers, body, now).map(drop)
}

#[test]
fn a_signed_body_is_genuine_with_the_new_and_with_the_old_secret() {
    for (scheme, headers) in schemes(b"{}", NOW_S) {
        for secrets in [&[TEST_SECRET][..], &[OTHER_SECRET, TEST_SECRET], &[TEST_SECRET, OTHER_SECRET]] {
            assert_eq!(check(&scheme, secrets, &headers, b"{}", NOW_S), Ok(()), "{scheme:?}");
        }
        for secrets in [&[][..], &[OTHER_SECRET]] {
            assert_eq!(check(&scheme, secrets, &headers, b"{}", NOW_S), Err(SignatureError::Wrong), "{scheme:?}");
        }
    }
}

#[test]
fn what_was_signed_more_than_five_minutes_ago_is_not_accepted_again() {
    for (scheme, headers) in schemes(b"{}", NOW_S) {
        let timed = matches!(scheme, WebhookScheme::StandardWebhooks {} | WebhookScheme::Stripe {});
        for (off, good) in [(300, true), (-300, true), (301, !timed), (-301, !timed), (i64::MAX - NOW_S, !timed)] {
            let found = check(&scheme, &[TEST_SECRET], &headers, b"{}", NOW_S + off);
            assert_eq!(found.is_ok(), good, "{scheme:?} {off}: {found:?}");
        }
    }
    assert_eq!(
        SignatureError::OutOfTime(700).to_string(),
        "it was signed 11 minutes ago, and five minutes are allowed"
    );
    assert_eq!(
        SignatureError::OutOfTime(-400).to_string(),
        "it was signed 400 seconds from now, and five minutes are allowed"
    );
}

#[test]
fn a_header_that_comes_twice_or_not_at_all_is_refused() {
    for (scheme, headers) in schemes(b"{}", NOW_S) {
        for place in 0..headers.len() {
            let twice = [&headers[..], &headers[place..=place]].concat();
            assert!(
                matches!(check(&scheme, &[TEST_SECRET], &twice, b"{}", NOW_S), Err(SignatureError::Repeated(_))),
                "{scheme:?}"
            );
            let mut without = headers.clone();
            without.remove(place);
            assert!(
                matches!(check(&scheme, &[TEST_SECRET], &without, b"{}", NOW_S), Err(SignatureError::Missing(_))),
                "{scheme:?}"
            );
        }
    }
    let twice = vec![("Stripe-Signature".to_owned(), format!("t={NOW_S},t={NOW_S},v1=00"))];
    let found = check(&WebhookScheme::Stripe {}, &[TEST_SECRET], &twice, b"{}", NOW_S);
    assert_eq!(found, Err(SignatureError::Repeated("t".to_owned())));
}

#[test]
fn an_event_says_what_it_is_where_its_scheme_says_it() {
    let body = json!({ "id": "evt_7", "type": "invoice.paid" });
    let text = body.to_string();
    let headers = [("X-GitHub-Delivery", &b"d-1"[..]), ("X-GitHub-Event", b"issues"), ("X-Type", b"order")];
    let headers: Headers<'_> = headers.into_iter().collect();
    for (scheme, _) in schemes(b"", NOW_S) {
        let proof = Proof { id: Some("msg_1") };
        let found = event(&scheme, proof, &headers, text.as_bytes(), body.clone()).expect("readable");
        let expected = match scheme {
            WebhookScheme::StandardWebhooks {} => ("msg_1", "invoice.paid"),
            WebhookScheme::Github {} => ("d-1", "issues"),
            WebhookScheme::Stripe {} => ("evt_7", "invoice.paid"),
            WebhookScheme::Hmac(_) => ("evt_7", "order"),
        };
        assert_eq!((found.id.as_str(), found.kind.as_deref()), (expected.0, Some(expected.1)));
    }
    let found = event(&WebhookScheme::Github {}, Proof::default(), &Headers::default(), b"[]", json!([])).unwrap();
    assert_eq!((found.id, found.kind), (format!("body:{}", Sha256Digest::of(b"[]")), None));
}

proptest! {
    #[test]
    fn any_changed_byte_is_refused(
        body in proptest::collection::vec(any::<u8>(), 1..200),
        place in any::<proptest::sample::Index>(),
        change in 1u8..,
    ) {
        for (scheme, headers) in schemes(&body, NOW_S) {
            prop_assert_eq!(check(&scheme, &[TEST_SECRET], &headers, &body, NOW_S), Ok(()));
            let mut changed = body.clone();
            changed[place.index(body.len())] ^= change;
            prop_assert_eq!(check(&scheme, &[TEST_SECRET], &headers, &changed, NOW_S), Err(SignatureError::Wrong));
            prop_assert!(check(&scheme, &[TEST_SECRET], &headers, &body[1..], NOW_S).is_err());
            prop_assert!(check(&scheme, &[TEST_SECRET], &headers, &[&body[..], b" "].concat(), NOW_S).is_err());
        }
    }

    #[test]
    fn any_changed_character_of_a_header_is_refused(place in any::<proptest::sample::Index>(), change in 1u8..8) {
        for (scheme, headers) in schemes(b"{\"a\":1}", NOW_S) {
            for header in 0..headers.len() {
                let mut changed = headers.clone();
                // Other parts of Stripe's header are ignored.
                changed[header].1 = changed[header].1.replace("v0=00,", "");
                let mut bytes = changed[header].1.clone().into_bytes();
                bytes[place.index(changed[header].1.len())] ^= change;
                changed[header].1 = String::from_utf8(bytes).expect("still ASCII");
                prop_assert!(check(&scheme, &[TEST_SECRET], &changed, b"{\"a\":1}", NOW_S).is_err(), "{:?}", changed[header]);
            }
        }
    }

    #[test]
    fn arbitrary_headers_never_panic(text: String) {
        for (scheme, headers) in schemes(b"{}", NOW_S) {
            for header in 0..headers.len() {
                let mut changed = headers.clone();
                changed[header].1 = text.clone();
                let _ = check(&scheme, &[TEST_SECRET], &changed, b"{}", NOW_S);
            }
        }
    }
}
