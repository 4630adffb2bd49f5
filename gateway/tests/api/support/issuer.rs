//! An issuer of accounts whose keys, tokens and availability a test controls.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_gateway::config::{Algorithm, HostedSettings};
use deskgate_gateway::networks::destinations::AddressRules;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The desktops' client identifier there.
pub(crate) const CLIENT_ID: &str = "deskgate-desktop";

/// One of its keys.
pub(crate) enum IssuerKey {
    /// P-256.
    Ec(String, EcdsaKeyPair),
    /// Ed25519.
    Ed(String, Ed25519KeyPair),
}

impl IssuerKey {
    pub(crate) fn ec(kid: &str) -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("made");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random);
        Self::Ec(kid.to_owned(), pair.expect("just made"))
    }

    pub(crate) fn ed(kid: &str) -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("made");
        Self::Ed(kid.to_owned(), Ed25519KeyPair::from_pkcs8(made.as_ref()).expect("just made"))
    }

    fn kid(&self) -> &str {
        match self {
            Self::Ec(kid, _) | Self::Ed(kid, _) => kid,
        }
    }

    pub(crate) fn public(&self) -> Value {
        match self {
            Self::Ec(kid, pair) => {
                let point = pair.public_key().as_ref();
                let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": part(&point[1..33]), "y": part(&point[33..]) })
            }
            Self::Ed(kid, pair) => {
                let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "use": "sig", "x": x })
            }
        }
    }

    fn sign(&self, signed: &[u8]) -> Vec<u8> {
        match self {
            Self::Ec(_, pair) => pair.sign(&SystemRandom::new(), signed).expect("signed").as_ref().to_vec(),
            Self::Ed(_, pair) => pair.sign(signed).as_ref().to_vec(),
        }
    }

    /// A token of this key's own algorithm.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let alg = if matches!(self, Self::Ec(..)) { "ES256" } else { "EdDSA" };
        self.token_with(&json!({ "alg": alg, "typ": "at+jwt", "kid": self.kid() }), claims)
    }

    /// A token with this header, valid or not.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = URL_SAFE_NO_PAD.encode(self.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

/// Header and claims, as they are signed.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// The keys it publishes, and how often they were requested.
#[derive(Default)]
struct PublishedKeys {
    url: String,
    keys: Vec<Value>,
    away: bool,
    asked: usize,
}

/// The issuer.
pub(crate) struct TestIssuer {
    shown: Arc<Mutex<PublishedKeys>>,
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl TestIssuer {
    /// One that publishes these keys, as an OpenID provider does.
    pub(crate) async fn with(keys: &[&IssuerKey]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shown = PublishedKeys { url: format!("http://{address}"), ..PublishedKeys::default() };
        let shown = Arc::new(Mutex::new(shown));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/jwks", get(published))
            .with_state(shown.clone());
        let serving = async move { axum::serve(listener, router).await.expect("serves") };
        let issuer = Self { shown, address, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) };
        issuer.publish(keys);
        issuer
    }

    pub(crate) fn publish(&self, keys: &[&IssuerKey]) {
        self.shown().keys = keys.iter().map(|key| key.public()).collect();
    }

    /// Whether it answers with failures only from now on.
    pub(crate) fn away(&self, away: bool) {
        self.shown().away = away;
    }

    /// How often its keys were requested.
    pub(crate) fn asked(&self) -> usize {
        self.shown().asked
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The settings of a gateway that takes its accounts.
    pub(crate) fn hosted(&self) -> HostedSettings {
        HostedSettings {
            issuer: self.url().parse().expect("an address"),
            issuer_text: self.url(),
            audience: String::new(),
            client_id: CLIENT_ID.to_owned(),
            scopes: vec!["openid".to_owned(), "offline_access".to_owned()],
            algorithms: vec![Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa],
            plain_tokens: false,
            devices_per_account: 2,
            ca_file: None,
            addresses: AddressRules { allowed: "127.0.0.0/8".parse().expect("a range"), ..AddressRules::default() },
        }
    }

    /// The claims of a good token: this subject, for this gateway, for so long from now on.
    pub(crate) fn claims(&self, subject: &str, audience: &str, lasts: Duration) -> Value {
        let now = jiff::Timestamp::now().as_second();
        let lasts = i64::try_from(lasts.as_secs()).expect("not for ever");
        json!({ "iss": self.url(), "sub": subject, "aud": audience, "client_id": CLIENT_ID, "iat": now, "exp": now + lasts,
                "jti": "1", "scope": "openid" })
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, PublishedKeys> {
        self.shown.lock().expect("nobody panicked")
    }
}

async fn metadata(State(shown): State<Arc<Mutex<PublishedKeys>>>) -> Response {
    let shown = shown.lock().expect("nobody panicked");
    match shown.away {
        true => StatusCode::BAD_GATEWAY.into_response(),
        false => Json(json!({ "issuer": shown.url, "jwks_uri": format!("{}/jwks", shown.url) })).into_response(),
    }
}

async fn published(State(shown): State<Arc<Mutex<PublishedKeys>>>) -> Response {
    let mut shown = shown.lock().expect("nobody panicked");
    shown.asked += 1;
    match shown.away {
        true => StatusCode::BAD_GATEWAY.into_response(),
        false => Json(json!({ "keys": shown.keys })).into_response(),
    }
}
