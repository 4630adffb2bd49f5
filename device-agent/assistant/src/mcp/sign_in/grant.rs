//! The authorization code grant with PKCE (RFC 6749, RFC 7636), for a program that keeps no secret of its own.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_oauth::{IssuerAway, IssuerClient, IssuerResponse, Tokens};
use rand::TryRng;
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::SignInError;
use super::discovery::SignInPlace;
use super::redirect::RedirectAnswer;

/// How many random bytes a verifier and a state have.
const RANDOM_BYTES: usize = 32;
/// The longest client identifier.
const MAX_CLIENT_ID_BYTES: usize = 2000;

/// A client as an authorization server has registered it (RFC 7591).
#[derive(Deserialize)]
struct RegisteredClient {
    client_id: String,
    token_endpoint_auth_method: Option<String>,
}

/// A sign-in that was begun: what its answer has to fit to.
pub(super) struct Grant {
    pub(super) place: SignInPlace,
    pub(super) client_id: String,
    redirect: String,
    state: Zeroizing<String>,
    verifier: Zeroizing<String>,
}

impl Grant {
    /// A sign-in whose answer is to come to `redirect`. Without a client identifier this program registers itself.
    pub(super) async fn begin(
        issuers: IssuerClient<'_>,
        place: SignInPlace,
        client_id: Option<String>,
        redirect: String,
    ) -> Result<Self, SignInError> {
        let client_id = match client_id {
            Some(given) => given,
            None => register(issuers, &place, &redirect).await?,
        };
        Ok(Self { place, client_id, redirect, state: random(), verifier: random() })
    }

    /// The text by which the answer is known.
    pub(super) fn state(&self) -> &Zeroizing<String> {
        &self.state
    }

    /// The address that the owner opens. It holds nothing that lets anybody but this program have the tokens.
    pub(super) fn address(&self) -> Url {
        let mut url = self.place.authorization.clone();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", &self.redirect)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", &self.state)
            .append_pair("resource", &self.place.resource)
            .extend_pairs(self.place.scope.iter().map(|scope| ("scope", scope)));
        url
    }

    /// Exchanges what the browser brought back for tokens.
    pub(super) async fn finish(
        &self,
        issuers: IssuerClient<'_>,
        answer: RedirectAnswer,
    ) -> Result<Tokens, SignInError> {
        let is_from_there = match answer.issuer {
            Some(issuer) => issuer == self.place.issuer,
            None => !self.place.names_itself,
        };
        if !is_from_there {
            return Err(SignInError::NotSignedIn("the answer came from another authorization server".to_owned()));
        }
        if let Some(refusal) = answer.refusal {
            return Err(SignInError::NotSignedIn(format!("{} refuses: {}", self.place.issuer, refusal.words())));
        }
        let code = answer.code.ok_or_else(|| SignInError::NotSignedIn("the answer holds no code".to_owned()))?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", self.redirect.as_str()),
            ("client_id", self.client_id.as_str()),
            ("code_verifier", self.verifier.as_str()),
            ("resource", self.place.resource.as_str()),
        ];
        match issuers.ask::<Tokens>(&self.place.token, &form).await? {
            IssuerResponse::Granted(tokens) => Ok(tokens),
            IssuerResponse::Refused(refusal) => {
                Err(SignInError::NotSignedIn(format!("{} gives no token: {}", self.place.issuer, refusal.words())))
            }
        }
    }
}

/// Registers this program for one redirect.
async fn register(issuers: IssuerClient<'_>, place: &SignInPlace, redirect: &str) -> Result<String, SignInError> {
    let at = place.registration.as_ref().ok_or_else(|| SignInError::NoRegistration(place.issuer.clone()))?;
    let mut this = json!({
        "client_name": "Deskgate",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    // RFC 7591 knows no null.
    if let Some(scope) = &place.scope {
        this["scope"] = scope.as_str().into();
    }
    match issuers.register::<RegisteredClient>(at, &this).await? {
        IssuerResponse::Granted(client) => {
            if client.token_endpoint_auth_method.is_some_and(|method| method != "none") {
                return Err(SignInError::SecretClient(place.issuer.clone()));
            }
            if client.client_id.is_empty() || client.client_id.len() > MAX_CLIENT_ID_BYTES {
                return Err(IssuerAway::new(at, "it gives no usable client identifier").into());
            }
            Ok(client.client_id)
        }
        IssuerResponse::Refused(refusal) => {
            Err(SignInError::RegistrationRefused { issuer: place.issuer.clone(), why: refusal.words() })
        }
    }
}

fn random() -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0u8; RANDOM_BYTES]);
    rand::rngs::SysRng
        .try_fill_bytes(bytes.as_mut())
        .expect("the operating system gives random bytes; without them nothing here is safe");
    Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_ref()))
}
