//! The secrets of each scheme, and how one is generated.

use deskgate_protocol::management::WebhookScheme;
use deskgate_protocol::secret::SecretKind;
use zeroize::Zeroizing;

use crate::signing::{InvalidSigningSecret, SigningSecret};

/// Why a text is not a secret for a scheme. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWebhookSecret {
    /// Not one of Standard Webhooks.
    #[error(transparent)]
    Standard(#[from] InvalidSigningSecret),
    /// Stripe chooses it.
    #[error(
        "Stripe chooses the secret of an endpoint: give the one that its dashboard shows, which starts with whsec_"
    )]
    Stripes,
    /// Another kind of secret.
    #[error("this is {0}, which must not leave where it belongs")]
    Other(SecretKind),
    /// Too easily guessed, or too long.
    #[error("a secret has 8 to 255 bytes; better 32 or more, at random")]
    Length,
}

/// The bytes of a given secret.
///
/// # Errors
/// See [`InvalidWebhookSecret`].
pub fn read(scheme: &WebhookScheme, text: &str) -> Result<Zeroizing<Vec<u8>>, InvalidWebhookSecret> {
    let text = text.trim();
    match (scheme, SecretKind::of(text)) {
        (WebhookScheme::StandardWebhooks {}, _) => Ok(Zeroizing::new(SigningSecret::parse(text)?.bytes().to_vec())),
        (_, Some(kind)) if kind != SecretKind::WebhookSecret => Err(InvalidWebhookSecret::Other(kind)),
        (WebhookScheme::Stripe {}, None) => Err(InvalidWebhookSecret::Stripes),
        _ if (8..=255).contains(&text.len()) => Ok(Zeroizing::new(text.as_bytes().to_vec())),
        _ => Err(InvalidWebhookSecret::Length),
    }
}

/// A placeholder for a secret that the other side chooses later, because it first has to know the webhook's address. It
/// is unknown to everybody, so no event is genuine until then.
pub fn decoy_secret() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(SigningSecret::generate().reveal().as_bytes().to_vec())
}

/// A new secret: its text for people, and its bytes.
///
/// # Errors
/// The other side chooses it.
pub fn generate(scheme: &WebhookScheme) -> Result<(Zeroizing<String>, Zeroizing<Vec<u8>>), InvalidWebhookSecret> {
    let made = SigningSecret::generate().reveal();
    let text = match scheme {
        WebhookScheme::Stripe {} => return Err(InvalidWebhookSecret::Stripes),
        WebhookScheme::StandardWebhooks {} => made,
        // The same text, used as it is.
        WebhookScheme::Github {} | WebhookScheme::Hmac(_) => made,
    };
    let bytes = read(scheme, &text)?;
    Ok((text, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_takes_what_its_senders_use() {
        let (standard, github) = (WebhookScheme::StandardWebhooks {}, WebhookScheme::Github {});
        assert_eq!(read(&standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap().len(), 24);
        assert!(read(&standard, "a password").is_err());
        assert_eq!(read(&github, "It's a Secret").unwrap().as_slice(), b"It's a Secret");
        assert_eq!(read(&github, "short").unwrap_err(), InvalidWebhookSecret::Length);
        assert_eq!(read(&WebhookScheme::Stripe {}, "whsec_abc123").unwrap().as_slice(), b"whsec_abc123");
        assert_eq!(read(&WebhookScheme::Stripe {}, "rk_live_abc").unwrap_err(), InvalidWebhookSecret::Stripes);
        assert!(generate(&WebhookScheme::Stripe {}).is_err());
        let (text, bytes) = generate(&github).unwrap();
        assert_eq!(text.as_bytes(), bytes.as_slice());
        let token = deskgate_protocol::secret::ControlToken::generate();
        let error = read(&github, token.reveal()).unwrap_err().to_string();
        assert!(error.contains("control token") && !error.contains(token.reveal()), "{error}");
    }
}
