//! Standard Webhooks: identifier, time and body are signed (<https://www.standardwebhooks.com>, version 1).

use super::{Headers, Unsigned, within_window};
use crate::signing::{SigningSecret, is_signed};

/// The header with the event's identifier.
pub(super) const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

/// The event's identifier, if the signature is good.
pub(super) fn verify<'a>(
    secrets: &[&[u8]],
    headers: &Headers<'a>,
    body: &[u8],
    now_s: i64,
) -> Result<&'a str, Unsigned> {
    let (id, timestamp) = (headers.needed(ID)?, headers.needed(TIMESTAMP)?);
    let signatures = headers.needed(SIGNATURE)?;
    let secrets: Vec<_> = secrets.iter().map(|bytes| SigningSecret::from_bytes(bytes.to_vec())).collect();
    let signed = is_signed(signatures, &secrets.iter().collect::<Vec<_>>(), id, timestamp, body);
    // The dot parts what is signed, so none may stand in a part.
    if !signed || id.is_empty() || id.contains('.') {
        return Err(Unsigned::Wrong);
    }
    within_window(timestamp, now_s)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's repository.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const AT: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn secret() -> Vec<u8> {
        SigningSecret::parse(SECRET).expect("a secret").bytes().to_vec()
    }

    fn headers<'a>(id: &'a str, timestamp: &'a str, signatures: &'a str) -> Headers<'a> {
        let all = [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signatures)];
        all.into_iter().map(|(name, value)| (name, value.as_bytes())).collect()
    }

    #[test]
    fn the_example_of_the_specification_is_accepted_within_five_minutes() {
        let headers = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", SIGNED);
        let secret = secret();
        for (now, accepted) in [(AT, true), (AT + 300, true), (AT - 300, true), (AT + 301, false), (AT - 301, false)] {
            let found = verify(&[&secret], &headers, BODY, now);
            assert_eq!(found.is_ok(), accepted, "{found:?} at {now}");
        }
    }

    #[test]
    fn one_of_several_signatures_and_one_of_two_secrets_is_enough() {
        let signatures = format!("v1,AAAA v2,{} {SIGNED}", &SIGNED[3..]);
        let headers = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", &signatures);
        let (new, old) = (SigningSecret::generate(), secret());
        assert!(verify(&[new.bytes(), &old], &headers, BODY, AT).is_ok());
        assert_eq!(verify(&[new.bytes()], &headers, BODY, AT), Err(Unsigned::Wrong));
    }
}
