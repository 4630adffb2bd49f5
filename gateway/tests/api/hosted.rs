//! Devices that connect over the public address with an account's access token: which are admitted, and for how long.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_gateway::domain::devices::{PairError, SessionTimings, pair};
use deskgate_gateway::{DatabaseSettings, Gateway, Settings, hosted};
use deskgate_protocol::control::{ByeCode, Challenge, DeviceFrame, GatewayFrame, Hello, RefusedCode, Welcome};
use deskgate_protocol::frame;
use deskgate_protocol::identity::{HelloProof, IdentityFile, PublicKey, RecognisedServer};
use deskgate_protocol::secret::AccessToken;
use deskgate_protocol::{PROTOCOL_RANGE, Timestamp, VERSION};
use ed25519_dalek::SigningKey;
use futures_util::{SinkExt, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::http::{HeaderMap, Request};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::call::TestRequest;
use crate::support::cluster::TestDatabase;
use crate::support::issuer::{IssuerKey, TestIssuer, unsigned};
use crate::support::until;

const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// Longer than anything here takes.
const GENEROUS_TIMEOUT: Duration = Duration::from_secs(60);

/// A hosted gateway, its issuer, and the issuer's key.
struct HostedGateway {
    gateway: Gateway,
    issuer: TestIssuer,
    key: IssuerKey,
    _database: TestDatabase,
    _dir: TempDir,
}

impl HostedGateway {
    async fn new() -> Self {
        let pause = Duration::from_millis(200);
        Self::with(hosted::JwksTimings { pause, ..hosted::JwksTimings::default() }).await
    }

    async fn with(issuer_clocks: hosted::JwksTimings) -> Self {
        let key = IssuerKey::ec("first");
        let issuer = TestIssuer::with(&[&key]).await;
        let (database, dir) = (TestDatabase::new().await, tempfile::tempdir().expect("a temporary directory"));
        let mut settings = Settings::built_in(dir.path().to_owned(), ([127, 0, 0, 1], 0).into());
        let url = database.url();
        settings.database = Some(DatabaseSettings { url, listen_url: None, ca_file: None, migrate: true });
        settings.clocks = SessionTimings { heartbeat: Duration::from_secs(2), ..SessionTimings::default() };
        (settings.hosted, settings.issuer_clocks) = (Some(issuer.hosted()), issuer_clocks);
        let gateway = Gateway::start(settings).await.expect("the gateway starts");
        Self { gateway, issuer, key, _database: database, _dir: dir }
    }

    fn claims(&self, subject: &str) -> Value {
        self.issuer.claims(subject, &self.gateway.addresses().public_url, TOKEN_LIFETIME)
    }

    /// A good token of this account.
    fn token(&self, subject: &str) -> String {
        self.key.token(&self.claims(subject))
    }

    /// A connection attempt: the answer to an upgrade with this token.
    async fn knock(&self, token: &str) -> Result<WebSocketStream<TcpStream>, (u16, HeaderMap)> {
        let address = self.gateway.addresses().http;
        let stream = TcpStream::connect(address).await.expect("it listens");
        let request = Request::builder()
            .uri(format!("ws://{address}/control"))
            .header("Host", address.to_string())
            .header("Connection", "keep-alive, Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key())
            .header("Authorization", format!("Bearer {token}"))
            .body(())
            .expect("well-formed");
        match client_async(request, stream).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => Err((response.status().as_u16(), response.headers().clone())),
            Err(error) => panic!("neither let in nor refused: {error}"),
        }
    }

    /// Why a token is not good, as the challenge in the answer says it.
    async fn refusal(&self, token: &str) -> String {
        let (status, headers) = self.knock(token).await.expect_err("refused");
        assert_eq!(status, 401);
        let challenge = headers["www-authenticate"].to_str().expect("text").to_owned();
        let metadata = format!("resource_metadata=\"{}/.well-known/oauth-protected-resource\"", self.url());
        assert!(challenge.starts_with("Bearer ") && challenge.ends_with(&metadata), "{challenge}");
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        challenge.split("error_description=\"").nth(1).expect("why").split('"').next().expect("closed").to_owned()
    }

    fn url(&self) -> String {
        self.gateway.addresses().public_url.clone()
    }

    /// Says hello with this key on a connection that this token opened.
    async fn enter(&self, device: &SigningKey, token: &str) -> DeviceSocket {
        let socket = self.knock(token).await.expect("the token is good");
        let mut line = DeviceSocket(socket);
        let Some(GatewayFrame::Challenge(challenge)) = line.next().await else { panic!("no challenge") };
        line.send(hello(device, &challenge, &self.url())).await;
        line
    }

    /// Connects, which must work.
    async fn come_in(&self, device: &SigningKey, token: &str) -> (DeviceSocket, Welcome) {
        let mut line = self.enter(device, token).await;
        match line.next().await {
            Some(GatewayFrame::Welcome(welcome)) => (line, welcome),
            other => panic!("not let in: {other:?}"),
        }
    }

    /// The refusal of a device with a good token.
    async fn turned_away(&self, device: &SigningKey, token: &str) -> RefusedCode {
        match self.enter(device, token).await.next().await {
            Some(GatewayFrame::Refused(refused)) => {
                assert!(!refused.should_retry, "only a person can help: {refused:?}");
                refused.code
            }
            other => panic!("not refused: {other:?}"),
        }
    }
}

/// A device's end of a connection.
struct DeviceSocket(WebSocketStream<TcpStream>);

impl DeviceSocket {
    async fn send(&mut self, frame: DeviceFrame) {
        let text = frame::encode(&frame).expect("small enough");
        self.0.send(Message::text(text)).await.expect("sent");
    }

    /// The next frame after pings, which are answered. `None`: the connection ended.
    async fn next(&mut self) -> Option<GatewayFrame> {
        loop {
            let message = timeout(GENEROUS_TIMEOUT, self.0.next()).await.expect("something comes")?.ok()?;
            let Message::Text(text) = message else { continue };
            match frame::decode(text.as_str()).expect("a frame") {
                GatewayFrame::Ping => self.send(DeviceFrame::Pong).await,
                frame => return Some(frame),
            }
        }
    }

    async fn goodbye(&mut self) -> (ByeCode, String) {
        match self.next().await {
            Some(GatewayFrame::Bye { code, message }) => (code, message),
            other => panic!("no goodbye: {other:?}"),
        }
    }

    /// Checks that the connection stays for two of the gateway's pings.
    async fn stays(&mut self) {
        for _ in 0..2 {
            loop {
                let message =
                    timeout(GENEROUS_TIMEOUT, self.0.next()).await.expect("it pings").expect("up").expect("whole");
                let Message::Text(text) = message else { continue };
                match frame::decode::<GatewayFrame>(text.as_str()).expect("a frame") {
                    GatewayFrame::Ping => break self.send(DeviceFrame::Pong).await,
                    other => panic!("it says {other:?}"),
                }
            }
        }
    }

    async fn present(&mut self, token: &str) {
        self.send(DeviceFrame::Token { access_token: AccessToken::new(token) }).await;
    }
}

fn device() -> SigningKey {
    SigningKey::from_bytes(&std::array::from_fn(|_| rand::random()))
}

fn hello(device: &SigningKey, challenge: &Challenge, origin: &str) -> DeviceFrame {
    let server = RecognisedServer::Origin(origin.to_owned());
    let proof = HelloProof {
        gateway_id: challenge.gateway_id,
        nonce: &challenge.nonce,
        gateway_version: &challenge.gateway_version,
        device_version: VERSION,
        server: &server,
    };
    DeviceFrame::Hello(Hello {
        public_key: PublicKey::of(device),
        device_version: VERSION.to_owned(),
        protocol: PROTOCOL_RANGE,
        signature: proof.sign(device),
        server: Some(server.clone()),
        device_name: Some("Ada's laptop".to_owned()),
        nonce: None,
        journal_id: None,
        in_flight: Vec::new(),
    })
}

#[tokio::test]
async fn a_device_learns_where_to_sign_in_and_a_gateway_that_is_not_hosted_has_no_such_place() {
    let host = HostedGateway::new().await;
    let address = host.gateway.addresses().http;
    let path = "/.well-known/oauth-protected-resource";
    let reply = TestRequest::new(address, "GET", path).send().await;
    let document: Value = reply.json();
    assert_eq!(document["resource"], host.url().as_str());
    assert_eq!(document["authorization_servers"], json!([host.issuer.url()]));
    assert_eq!(document["deskgate_client_id"], crate::support::issuer::CLIENT_ID);
    let (status, headers) = {
        let reply = TestRequest::new(address, "GET", "/control").send().await;
        (reply.status, reply.header("www-authenticate").unwrap_or_default().to_owned())
    };
    assert_eq!(status, 401);
    assert_eq!(headers, format!("Bearer resource_metadata=\"{}{path}\"", host.url()));
    let reply = TestRequest::new(address, "GET", "/control").key(&host.token("ada")).send().await;
    assert_eq!(reply.status, 426, "a good token without an upgrade");

    let test_gateway = crate::support::gateway::TestGateway::new().await;
    for path in [path, "/control"] {
        assert_eq!(test_gateway.call("GET", path).send().await.status, 404);
    }
    test_gateway.stop().await;
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_device_with_a_good_token_is_let_in_and_belongs_to_its_account_from_then_on() {
    let host = HostedGateway::new().await;
    let laptop = device();
    let (line, welcome) = host.come_in(&laptop, &host.token("ada")).await;
    drop(line);
    let kept = host.gateway.store().device(welcome.device_id).await.expect("read").expect("paired");
    assert_eq!(kept.account.expect("an account").subject, "ada");
    assert_eq!(kept.name, "Ada's laptop");
    // Again, and as another account.
    let (_line, again) = host.come_in(&laptop, &host.token("ada")).await;
    assert_eq!((again.device_id, again.epoch), (welcome.device_id, welcome.epoch + 1));
    assert_eq!(host.turned_away(&laptop, &host.token("eve")).await, RefusedCode::OtherAccount);
    host.gateway.stop().await;
}

#[tokio::test]
async fn an_account_has_so_many_devices_and_no_more_also_when_they_come_at_once() {
    let host = HostedGateway::new().await;
    let token = host.token("ada");
    let devices: [SigningKey; 6] = std::array::from_fn(|_| device());
    let coming = devices.iter().map(|device| async {
        let mut line = host.enter(device, &token).await;
        match line.next().await {
            Some(GatewayFrame::Welcome(_)) => true,
            Some(GatewayFrame::Refused(refused)) => {
                assert_eq!(refused.code, RefusedCode::TooManyDevices);
                false
            }
            other => panic!("neither: {other:?}"),
        }
    });
    let let_in = futures_util::future::join_all(coming).await.into_iter().filter(|let_in| *let_in).count();
    assert_eq!(let_in, 2);
    host.come_in(&device(), &host.token("bob")).await;
    host.gateway.stop().await;
}

#[tokio::test]
async fn what_the_administrator_paired_no_account_takes_and_the_other_way_round() {
    let host = HostedGateway::new().await;
    let store = host.gateway.store();
    let (by_hand, by_account) = (device(), device());
    store.pair_device("by hand", &PublicKey::of(&by_hand)).await.expect("paired");
    assert_eq!(host.turned_away(&by_hand, &host.token("ada")).await, RefusedCode::OtherAccount);
    host.come_in(&by_account, &host.token("ada")).await;
    let file = IdentityFile::sign(&by_account, "by account", Timestamp::now());
    let error = pair(store, &file).await.expect_err("it has an account");
    assert!(matches!(&error, PairError::Account(account) if account.subject == "ada"), "{error}");
    let lease = Duration::from_secs(60);
    let begun = store.begin_session(&PublicKey::of(&by_account), None, VERSION, lease).await.expect("asked");
    assert!(begun.is_none(), "over a private line it is nobody");
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_revoked_device_stays_out_whatever_account_it_comes_with() {
    let host = HostedGateway::new().await;
    let laptop = device();
    let (mut line, welcome) = host.come_in(&laptop, &host.token("ada")).await;
    host.gateway.store().revoke_device(welcome.device_id, TOKEN_LIFETIME).await.expect("revoked");
    assert_eq!(line.goodbye().await.0, ByeCode::Revoked);
    assert_eq!(host.turned_away(&laptop, &host.token("ada")).await, RefusedCode::RevokedDevice);
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_token_for_somebody_else_is_refused() {
    let host = HostedGateway::new().await;
    let with = |claim: &str, value: Value| {
        let mut claims = host.claims("ada");
        claims[claim] = value;
        host.key.token(&claims)
    };
    let now = jiff::Timestamp::now().as_second();
    for (claim, value, why) in [
        ("aud", json!("https://other.example.com"), "not for this gateway"),
        ("iss", json!("https://evil.example.com"), "another issuer"),
        ("client_id", json!("another-program"), "another client"),
        ("exp", json!(now - 60), "expired"),
        ("nbf", json!(now + 600), "not valid yet"),
    ] {
        let said = host.refusal(&with(claim, value)).await;
        assert!(said.contains(why), "{claim}: {said}");
    }
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_token_that_the_issuer_did_not_sign_as_it_is_is_refused() {
    // The issuer is asked about each key, so that what it does not publish is known to be none of its own.
    let host =
        HostedGateway::with(hosted::JwksTimings { pause: Duration::ZERO, ..hosted::JwksTimings::default() }).await;
    host.come_in(&device(), &host.token("ada")).await;
    let claims = host.claims("ada");
    // Changed behind the signature.
    let good = host.token("ada");
    let (header, rest) = good.split_once('.').expect("three parts");
    let (_, signature) = rest.split_once('.').expect("three parts");
    let forged = URL_SAFE_NO_PAD.encode(host.claims("eve").to_string());
    assert!(host.refusal(&format!("{header}.{forged}.{signature}")).await.contains("signature"));
    // By another key with the issuer's name for it.
    assert!(host.refusal(&IssuerKey::ec("first").token(&claims)).await.contains("signature"));
    // By a key that the issuer does not publish.
    assert!(host.refusal(&IssuerKey::ec("other").token(&claims)).await.contains("key"));
    // Unsigned.
    for alg in ["none", "None", "NONE", ""] {
        let unsigned = unsigned(&json!({ "alg": alg, "typ": "at+jwt", "kid": "first" }), &claims);
        assert!(host.refusal(&format!("{unsigned}.")).await.contains("algorithm"), "{alg}");
    }
    // With the public key taken for a shared secret, in every form in which it is public.
    let public = host.key.public();
    for secret in [public.to_string(), public["x"].as_str().expect("a point").to_owned()] {
        let signed = unsigned(&json!({ "alg": "HS256", "typ": "at+jwt", "kid": "first" }), &claims);
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
        mac.update(signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        assert!(host.refusal(&format!("{signed}.{signature}")).await.contains("algorithm"));
    }
    // With an algorithm that exists and is not accepted here, or is another one than the key's.
    for (alg, why) in [("ES384", "algorithm"), ("PS256", "algorithm"), ("RS256", "key"), ("EdDSA", "key")] {
        let header = json!({ "alg": alg, "typ": "at+jwt", "kid": "first" });
        let said = host.refusal(&host.key.token_with(&header, &claims)).await;
        assert!(said.contains(why), "{alg}: {said}");
    }
    // An ID token is none, and a key that the token brings along is not looked at.
    let header = json!({ "alg": "ES256", "typ": "JWT", "kid": "first" });
    assert!(host.refusal(&host.key.token_with(&header, &claims)).await.contains("type"));
    let own = IssuerKey::ec("first");
    let header =
        json!({ "alg": "ES256", "typ": "at+jwt", "kid": "first", "jwk": own.public(), "jku": "http://127.0.0.1:9/" });
    assert!(host.refusal(&own.token_with(&header, &claims)).await.contains("signature"));
    assert!(host.refusal("dgt_nothing").await.contains("JWT"));
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_key_that_the_issuer_begins_to_use_is_found_and_one_that_it_withdraws_is_not_good_any_more() {
    let pause = Duration::from_millis(100);
    let host = HostedGateway::with(hosted::JwksTimings {
        pause,
        fresh: Duration::from_millis(300),
        ..hosted::JwksTimings::default()
    })
    .await;
    host.come_in(&device(), &host.token("ada")).await;
    let second = IssuerKey::ed("second");
    host.issuer.publish(&[&host.key, &second]);
    let (laptop, token) = (device(), second.token(&host.claims("bob")));
    until("the new key is known", async || host.knock(&token).await.is_ok()).await;
    host.come_in(&laptop, &token).await;
    host.issuer.publish(&[&second]);
    let old = host.token("ada");
    let refused = async || host.knock(&old).await.is_err_and(|(status, _)| status == 401);
    until("the old key is none of the issuer's", refused).await;
    host.gateway.stop().await;
}

#[tokio::test]
async fn keys_that_somebody_made_up_make_no_load_at_the_issuer() {
    let host =
        HostedGateway::with(hosted::JwksTimings { pause: TOKEN_LIFETIME, ..hosted::JwksTimings::default() }).await;
    host.come_in(&device(), &host.token("ada")).await;
    let asked = host.issuer.asked();
    let claims = host.claims("eve");
    let tokens: Vec<_> = (0..50).map(|number| IssuerKey::ed(&number.to_string()).token(&claims)).collect();
    let knocks = futures_util::future::join_all(tokens.iter().map(|token| host.knock(token))).await;
    let statuses: Vec<_> = knocks.into_iter().map(|knock| knock.expect_err("not let in").0).collect();
    assert!(statuses.iter().all(|status| *status == 503), "one of them may be new: {statuses:?}");
    assert_eq!(host.issuer.asked(), asked);
    // Known accounts connect all the while.
    host.come_in(&device(), &host.token("ada")).await;
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_stranger_who_tries_and_tries_is_turned_away_before_his_tokens_are_read() {
    let host = HostedGateway::new().await;
    let mut statuses = Vec::new();
    for _ in 0..130 {
        statuses.push(host.knock("a.b.c").await.expect_err("refused").0);
    }
    assert_eq!((statuses[0], statuses.last()), (401, Some(&429)));
    host.gateway.stop().await;
}

#[tokio::test]
async fn an_issuer_that_is_away_ends_no_line_and_keeps_nobody_out_whose_key_is_known() {
    let host = HostedGateway::with(hosted::JwksTimings {
        pause: Duration::from_millis(10),
        fresh: Duration::from_millis(20),
        ..hosted::JwksTimings::default()
    })
    .await;
    let (mut line, _) = host.come_in(&device(), &host.token("ada")).await;
    host.issuer.away(true);
    line.stays().await;
    host.come_in(&device(), &host.token("bob")).await;
    line.present(&host.token("ada")).await;
    line.stays().await;
    // An unknown key cannot be checked now; that is not a refusal.
    let unknown = IssuerKey::ed("new").token(&host.claims("cleo"));
    assert_eq!(host.knock(&unknown).await.expect_err("not let in").0, 503);
    host.gateway.stop().await;
}

#[tokio::test]
async fn keys_are_not_believed_for_ever_while_the_issuer_is_away() {
    let (pause, stale) = (Duration::from_millis(10), Duration::from_millis(400));
    let host = HostedGateway::with(hosted::JwksTimings { pause, fresh: pause, stale }).await;
    host.come_in(&device(), &host.token("ada")).await;
    host.issuer.away(true);
    let token = host.token("ada");
    until("the keys are too old", async || matches!(host.knock(&token).await, Err((503, _)))).await;
    host.issuer.away(false);
    until("they are read again", async || host.knock(&token).await.is_ok()).await;
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_line_ends_with_its_token_unless_a_newer_one_came() {
    let host = HostedGateway::new().await;
    let lasts = |seconds| host.issuer.claims("ada", &host.url(), Duration::from_secs(seconds));
    let (laptop, desktop) = (device(), device());
    let (mut ends, _) = host.come_in(&laptop, &host.key.token(&lasts(3))).await;
    let (mut goes_on, _) = host.come_in(&desktop, &host.key.token(&lasts(3))).await;
    goes_on.present(&host.token("ada")).await;
    let (code, message) = ends.goodbye().await;
    assert_eq!(code, ByeCode::SignInExpired, "{message}");
    goes_on.stays().await;
    host.gateway.stop().await;
}

#[tokio::test]
async fn a_newer_token_that_is_not_good_or_not_the_accounts_ends_the_line() {
    let host = HostedGateway::new().await;
    let mut expired = host.claims("ada");
    expired["exp"] = json!(jiff::Timestamp::now().as_second() - 60);
    for newer in [host.key.token(&expired), host.token("eve"), "nonsense".to_owned()] {
        let (mut line, _) = host.come_in(&device(), &host.token(&newer[newer.len() - 6..])).await;
        line.present(&newer).await;
        let (code, message) = line.goodbye().await;
        assert_eq!(code, ByeCode::SignInExpired, "{message}");
        assert!(!message.contains(&newer), "{message}");
    }
    host.gateway.stop().await;
}
