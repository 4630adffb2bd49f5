//! Standard Webhooks: identifier, time and body are signed (<https://www.standardwebhooks.com>, version 1).

use super::{Headers, SignatureError, within_window};
use crate::signing::{SigningSecret, is_signed};

/// The header with the event's identifier.
pub(super) const ID_HEADER: &str = "webhook-id";
const TIMESTAMP_HEADER: &str = "webhook-timestamp";
const SIGNATURE_HEADER: &str = "webhook-signature";

/// The event's identifier, if the signature is good.
pub(super) fn verify<'a>(
    secrets: &[&[u8]],
    headers: &Headers<'a>,
    body: &[u8],
    now_s: i64,
) -> Result<&'a str, SignatureError> {
    let (id, timestamp) = (headers.needed(ID_HEADER)?, headers.needed(TIMESTAMP_HEADER)?);
    let signatures = headers.needed(SIGNATURE_HEADER)?;
    let secrets: Vec<_> = secrets.iter().map(|bytes| SigningSecret::from_bytes(bytes.to_vec())).collect();
    let signed = is_signed(signatures, &secrets.iter().collect::<Vec<_>>(), id, timestamp, body);
    // The dot separates the signed parts, so no part may contain one.
    if !signed || id.is_empty() || id.contains('.') {
        return Err(SignatureError::Wrong);
    }
    within_window(timestamp, now_s)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's repository.
    const EXAMPLE_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const EXAMPLE_TIMESTAMP: i64 = 1_614_265_330;
    const EXAMPLE_BODY: &[u8] = br#"{"test": 2432232314}"#;
    const EXAMPLE_SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn secret() -> Vec<u8> {
        SigningSecret::parse(EXAMPLE_SECRET).expect("a secret").bytes().to_vec()
    }

    fn headers<'a>(id: &'a str, timestamp: &'a str, signatures: &'a str) -> Headers<'a> {
        let all = [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signatures)];
        all.into_iter().map(|(name, value)| (name, value.as_bytes())).collect()
    }

    #[test]
    fn the_example_of_the_specification_is_accepted_within_five_minutes() {
        let headers = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", EXAMPLE_SIGNATURE);
        let secret = secret();
        for (now, accepted) in [
            (EXAMPLE_TIMESTAMP, true),
            (EXAMPLE_TIMESTAMP + 300, true),
            (EXAMPLE_TIMESTAMP - 300, true),
            (EXAMPLE_TIMESTAMP + 301, false),
            (EXAMPLE_TIMESTAMP - 301, false),
        ] {
            let found = verify(&[&secret], &headers, EXAMPLE_BODY, now);
            assert_eq!(found.is_ok(), accepted, "{found:?} at {now}");
        }
    }

    #[test]
    fn one_of_several_signatures_and_one_of_two_secrets_is_enough() {
        let signatures = format!("v1,AAAA v2,{} {EXAMPLE_SIGNATURE}", &EXAMPLE_SIGNATURE[3..]);
        let headers = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", &signatures);
        let (new, old) = (SigningSecret::generate(), secret());
        assert!(verify(&[new.bytes(), &old], &headers, EXAMPLE_BODY, EXAMPLE_TIMESTAMP).is_ok());
        assert_eq!(verify(&[new.bytes()], &headers, EXAMPLE_BODY, EXAMPLE_TIMESTAMP), Err(SignatureError::Wrong));
    }
}
