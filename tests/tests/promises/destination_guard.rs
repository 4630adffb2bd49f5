//! The destination guard (specification, section 6; A14): addresses that callbacks, Fetch and the reading of an issuer's
//! keys never connect to, seen where connections arrive.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_definition::ToolName;
use deskgate_definition::tool::ToolOutput;
use deskgate_gateway::callbacks::send::{CallbackSender, SendResult};
use deskgate_gateway::config::{Algorithm, HostedSettings};
use deskgate_gateway::domain::destinations::Destination;
use deskgate_gateway::hosted::{JwksTimings, TokenVerifier};
use deskgate_gateway::networks::destinations::AddressRules;
use deskgate_protocol::delivery::DeliveryErrorCode;
use deskgate_tests::netns::{self, DnsServer};
use deskgate_tests::receiver::{ReceivedRequest, Receiver};
use deskgate_tools::Toolbox;
use deskgate_tools::workspace::WorkspaceOptions;
use tokio_util::sync::CancellationToken;

/// Addresses that look public.
const PUBLIC_V4: &str = "93.184.216.34";
const PUBLIC_V6: &str = "2606:2800:220:1::34";

/// Private, local and reserved addresses: those of the special-purpose registries, and addresses that embed one of them
/// (RFC 6890 and its updates).
const PRIVATE_ADDRESSES: [&str; 76] = [
    "0.0.0.0",
    "0.0.0.1",
    "0.255.255.255",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.0.0.2",
    "127.1.2.3",
    "127.255.255.255",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.17.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.9",
    "192.0.0.170",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.1.1",
    "192.168.255.255",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::2",
    "::127.0.0.1",
    "::10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::10.0.0.1",
    "100::1",
    "100:0:0:1::1",
    "2001::1",
    "2001:0:7f00:1::1",
    "2001:1::1",
    "2001:2::1",
    "2001:3::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a00:1::1",
    "2002:a9fe:a9fe::1",
    "2620:4f:8000::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fd12::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
];

/// URLs that lead, by one parser or another, to this machine, to another port, or past the host check.
const HOSTILE_URLS: [&str; 78] = [
    "http://hooks.example.com/",
    "HTTP://hooks.example.com/",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:25/",
    "data:,x",
    "javascript:alert(1)",
    "ws://hooks.example.com/",
    "wss://hooks.example.com/",
    "hooks.example.com",
    "//hooks.example.com/",
    "https:hooks.example.com",
    "https:/hooks.example.com",
    "https:///hooks.example.com",
    "https://",
    "https:///",
    "https://?x",
    "https://#",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0x7F.1/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://0/",
    "https://0.0.0.0/",
    "https://00000127.0.0.1/",
    "https://127.0.0.1./",
    "https://127.0.0.1:443/",
    "https://%31%32%37.0.0.1/",
    "https://１２７.０.０.１/",
    "https://①②⑦.0.0.1/",
    "https://127。0。0。1/",
    "https://[::1]/",
    "https://[::]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[fe80::1%25lo]/",
    "https://[fe80::1%lo]/",
    "https://[2606:2800:220:1::34]/",
    "https://93.184.216.34/",
    "https://1572395042/",
    "https://localhost/",
    "https://LOCALHOST/",
    "https://localhost./",
    "https://localhost:443/",
    "https://ｌocalhost/",
    "https://a.localhost/",
    "https://loc\u{ad}alhost/",
    "https://machine.local/",
    "https://metadata.google.internal/",
    "https://x.home.arpa/",
    "https://x.onion/",
    "https://intranet/",
    "https://metadata/",
    "https://hooks.example.com./",
    "https://hooks.example.com:8443/",
    "https://hooks.example.com:22/",
    "https://hooks.example.com:0/",
    "https://user@hooks.example.com/",
    "https://user:secret@hooks.example.com/",
    "https://@hooks.example.com/",
    "https://hooks.example.com@127.0.0.1/",
    "https://127.0.0.1@hooks.example.com/",
    "https://hooks.example.com\\@127.0.0.1/",
    "https://127.0.0.1\\.hooks.example.com/",
    "https://hooks.example.com\t/",
    "https://hooks.example.com\r\nHost: localhost/",
    " https://hooks.example.com/",
    "https://hooks.example.com/#x",
    "https://*.example.com/",
    "https://hooks..example.com/",
];

async fn post(sender: &CallbackSender, url: &str) -> SendResult {
    let to = Destination::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    sender.post(&to, HeaderMap::new(), "{}".into()).await
}

fn answered(status: u16) -> Response {
    Response::builder().status(status).body(Body::empty()).expect("an answer")
}

#[test]
fn a_hundred_and_fifty_hostile_destinations_get_no_connection() {
    netns::run_test("destination_guard::a_hundred_and_fifty_hostile_destinations_get_no_connection", async || {
        let names = DnsServer::start().await;
        let receiver = Receiver::start(&["*.example.com"], async |_| answered(200)).await;
        let sender = CallbackSender::new(Some(&receiver.ca_file()), AddressRules::default()).expect("a root");
        for url in HOSTILE_URLS {
            assert!(Destination::parse(url).is_err(), "{url}");
        }
        for (place, address) in PRIVATE_ADDRESSES.iter().enumerate() {
            let (alone, beside) = (format!("h{place}.example.com"), format!("m{place}.example.com"));
            names.set_addresses(&alone, &[address]);
            names.set_addresses(&beside, &[PUBLIC_V4, address, PUBLIC_V6]);
            for name in [alone, beside] {
                let sent = post(&sender, &format!("https://{name}/")).await;
                assert_eq!(sent.answer, Err(DeliveryErrorCode::HostNotPublic), "{name} leads to {address}");
            }
        }
        let sent = post(&sender, "https://unknown.example.com/").await;
        assert_eq!(sent.answer, Err(DeliveryErrorCode::DnsFailed));
        assert_eq!(receiver.connections(), 0);

        // Any connection would have been seen.
        names.set_addresses("hooks.example.com", &[PUBLIC_V4, PUBLIC_V6]);
        assert_eq!(post(&sender, "https://hooks.example.com/in").await.answer.map(|answer| answer.status), Ok(200));
        let got = receiver.requests();
        assert_eq!((receiver.connections(), got.len()), (1, 1));
        assert!([PUBLIC_V4, PUBLIC_V6].contains(&got[0].address.to_string().as_str()), "{}", got[0].address);
        assert_eq!((got[0].host.as_str(), got[0].line.as_str()), ("hooks.example.com", "POST /in"));
        drop(tokio::net::TcpStream::connect(("10.0.0.1", 443)).await.expect("everything is here"));
        deskgate_tests::until("it to be counted", async || match receiver.connections() {
            2 => Ok(()),
            other => Err(format!("{other} connections")),
        })
        .await;
    });
}

async fn fetch(tools: &Toolbox, url: &str) -> ToolOutput {
    let call = tools.call("Fetch", serde_json::json!({ "url": url }), CancellationToken::new());
    call.await.expect("it never ends a run")
}

#[test]
fn a_page_is_fetched_from_no_address_that_is_not_public() {
    netns::run_test("destination_guard::a_page_is_fetched_from_no_address_that_is_not_public", async || {
        let names = DnsServer::start().await;
        let receiver = Receiver::start(&["*.example.com"], async |_| answered(200)).await;
        let folder = tempfile::tempdir().expect("a folder");
        let ground = WorkspaceOptions::of(folder.path(), "/nonexistent".as_ref());
        let tools = Toolbox::open(&[ToolName::Fetch], &[], ground).expect("opens");
        for url in HOSTILE_URLS.into_iter().filter(|url| !url.ends_with("/#x")) {
            assert!(fetch(&tools, url).await.is_error, "{url}");
        }
        for (place, address) in PRIVATE_ADDRESSES.iter().enumerate() {
            let (alone, beside) = (format!("h{place}.example.com"), format!("m{place}.example.com"));
            names.set_addresses(&alone, &[address]);
            names.set_addresses(&beside, &[PUBLIC_V4, address, PUBLIC_V6]);
            for name in [alone, beside] {
                let output = fetch(&tools, &format!("https://{name}/")).await;
                assert!(output.is_error && output.text.contains("not public"), "{name}, {address}: {}", output.text);
            }
        }
        assert_eq!(receiver.connections(), 0);

        // Any connection would have been seen. Its certificate is one that this computer does not trust.
        names.set_addresses("docs.example.com", &[PUBLIC_V4]);
        let output = fetch(&tools, "https://docs.example.com/").await;
        assert!(output.is_error && output.text.contains("certificate"), "{}", output.text);
        assert_eq!((receiver.connections(), receiver.requests().len()), (1, 0));
    });
}

#[test]
fn a_name_that_turns_inward_is_connected_to_where_it_was_checked_or_not_at_all() {
    netns::run_test(
        "destination_guard::a_name_that_turns_inward_is_connected_to_where_it_was_checked_or_not_at_all",
        async || {
            let names = DnsServer::start().await;
            let receiver = Receiver::start(&["*.example.com"], async |_| answered(200)).await;
            let sender = CallbackSender::new(Some(&receiver.ca_file()), AddressRules::default()).expect("a root");
            // A second look-up before the connection would lead to this machine.
            names.set_address_sequence("hooks.example.com", &[&[PUBLIC_V4], &["127.0.0.1"]]);
            assert_eq!(post(&sender, "https://hooks.example.com/").await.answer.map(|answer| answer.status), Ok(200));
            let sent = post(&sender, "https://hooks.example.com/").await;
            assert_eq!(sent.answer, Err(DeliveryErrorCode::HostNotPublic), "it is looked up for each attempt");
            let addresses: Vec<_> = receiver.requests().iter().map(|got| got.address.to_string()).collect();
            assert_eq!((receiver.connections(), addresses), (1, vec![PUBLIC_V4.to_owned()]));
        },
    );
}

#[test]
fn a_redirect_inward_is_an_answer_like_any_other() {
    netns::run_test("destination_guard::a_redirect_inward_is_an_answer_like_any_other", async || {
        let names = DnsServer::start().await;
        let inward = Arc::new(["https://127.0.0.1/", "https://inside.example.com/", "//localhost/", "/again"]);
        let redirect = move |got: ReceivedRequest| {
            let inward = inward.clone();
            async move {
                let place: usize = got.line.rsplit('/').next().and_then(|text| text.parse().ok()).unwrap_or_default();
                let mut answer = answered([301, 302, 307, 308][place]);
                answer.headers_mut().insert("location", inward[place].parse().expect("a header"));
                answer
            }
        };
        let receiver = Receiver::start(&["*.example.com"], redirect).await;
        let sender = CallbackSender::new(Some(&receiver.ca_file()), AddressRules::default()).expect("a root");
        names.set_addresses("hooks.example.com", &[PUBLIC_V4]);
        names.set_addresses("inside.example.com", &["10.0.0.1"]);
        for (place, status) in [301, 302, 307, 308].into_iter().enumerate() {
            let sent = post(&sender, &format!("https://hooks.example.com/{place}")).await;
            assert_eq!(sent.answer.map(|answer| answer.status), Ok(status));
        }
        let got = receiver.requests();
        assert_eq!(got.len(), 4);
        assert!(got.iter().all(|got| got.address.to_string() == PUBLIC_V4), "{got:?}");
        assert!(receiver.connections() <= 4, "nobody connected without asking anything");
    });
}

/// A range that is public, and belongs to this test's administrator.
const REFUSED_V4: &str = "93.184.0.0/16";
/// A prefix of a translator (RFC 6052) in the public range.
const NAT64_PREFIX: &str = "2606:2800:64::/96";

#[test]
fn a_callback_goes_neither_to_a_refused_range_nor_through_a_translator_to_what_is_not_public() {
    netns::run_test(
        "destination_guard::a_callback_goes_neither_to_a_refused_range_nor_through_a_translator_to_what_is_not_public",
        async || {
            let names = DnsServer::start().await;
            let receiver = Receiver::start(&["*.example.com"], async |_| answered(200)).await;
            let rules = AddressRules {
                refused: REFUSED_V4.parse().expect("a range"),
                nat64: NAT64_PREFIX.parse().expect("a prefix"),
                ..AddressRules::default()
            };
            let sender = CallbackSender::new(Some(&receiver.ca_file()), rules).expect("a root");
            for (name, addresses) in [
                ("refused.example.com", &[PUBLIC_V4][..]),
                ("beside.example.com", &["8.8.8.8", PUBLIC_V4]),
                ("private.example.com", &["2606:2800:64::10.0.0.1"]),
                ("metadata.example.com", &["2606:2800:64::169.254.169.254"]),
                ("translated.example.com", &["2606:2800:64::93.184.216.34"]),
            ] {
                names.set_addresses(name, addresses);
                let sent = post(&sender, &format!("https://{name}/")).await;
                assert_eq!(sent.answer, Err(DeliveryErrorCode::HostNotPublic), "{name}");
            }
            assert_eq!(receiver.connections(), 0);

            names.set_addresses("hooks.example.com", &["2606:2800:64::8.8.8.8"]);
            assert_eq!(post(&sender, "https://hooks.example.com/").await.answer.map(|answer| answer.status), Ok(200));
            let got: Vec<_> = receiver.requests().iter().map(|got| got.address.to_string()).collect();
            assert_eq!(got, ["2606:2800:64::808:808"]);
        },
    );
}

/// Metadata of an issuer whose keys are at this URL.
fn issuer_answers(jwks_uri: &str, got: &ReceivedRequest) -> Response {
    let body = match got.line.as_str() {
        "GET /.well-known/oauth-authorization-server" => {
            serde_json::json!({ "issuer": "https://id.example.com", "jwks_uri": jwks_uri })
        }
        _ => serde_json::json!({ "keys": [] }),
    };
    Response::builder().status(200).body(Body::from(body.to_string())).expect("an answer")
}

/// The reason for which the gateway does not take a token of that issuer; nobody signed the token.
async fn refused_token(ca_file: &Path, addresses: AddressRules) -> String {
    let hosted = HostedSettings {
        issuer: "https://id.example.com".parse().expect("a URL"),
        issuer_text: "https://id.example.com".to_owned(),
        audience: "https://gateway.example.com".to_owned(),
        client_id: "deskgate".to_owned(),
        scopes: Vec::new(),
        algorithms: vec![Algorithm::EdDsa],
        plain_tokens: false,
        devices_per_account: 1,
        ca_file: Some(ca_file.to_owned()),
        addresses,
    };
    let verifier = TokenVerifier::new(hosted, "", JwksTimings::default()).expect("a root");
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(serde_json::json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": "1" }));
    let claims = part(serde_json::json!({ "iss": "https://id.example.com", "aud": "https://gateway.example.com",
        "sub": "ada", "client_id": "deskgate", "exp": 4_000_000_000_u32 }));
    let token = format!("{head}.{claims}.{}", URL_SAFE_NO_PAD.encode("signature"));
    verifier.grant(&token).await.expect_err("nobody signed it").to_string()
}

#[test]
fn the_keys_of_an_issuer_are_fetched_from_no_address_that_is_not_public() {
    netns::run_test(
        "destination_guard::the_keys_of_an_issuer_are_fetched_from_no_address_that_is_not_public",
        async || {
            let names = DnsServer::start().await;
            let keys_at = Arc::new(std::sync::Mutex::new(String::new()));
            let told = Arc::clone(&keys_at);
            let receiver = Receiver::start(&["*.example.com", "localhost", "10.0.0.1"], move |got| {
                let answer = issuer_answers(&told.lock().expect("whole"), &got);
                async move { answer }
            })
            .await;
            let ca_file = receiver.ca_file();
            names.set_addresses("id.example.com", &[PUBLIC_V4]);
            let asked = async |jwks_uri: &str, rules: AddressRules| {
                jwks_uri.clone_into(&mut keys_at.lock().expect("whole"));
                let before = receiver.requests().len();
                let why = refused_token(&ca_file, rules).await;
                let asked: Vec<_> = receiver.requests()[before..].iter().map(|got| got.address.to_string()).collect();
                (why, asked)
            };
            for (place, address) in PRIVATE_ADDRESSES.iter().enumerate() {
                let (alone, beside) = (format!("h{place}.example.com"), format!("m{place}.example.com"));
                names.set_addresses(&alone, &[address]);
                names.set_addresses(&beside, &[PUBLIC_V4, address]);
                for name in [alone, beside] {
                    let (why, asked) = asked(&format!("https://{name}/keys"), AddressRules::default()).await;
                    assert!(why.contains("not public") && why.contains("hosted.allowed_networks"), "{address}: {why}");
                    assert_eq!(asked, [PUBLIC_V4], "{address}: nothing but the metadata was asked for");
                }
            }
            for url in ["https://10.0.0.1/keys", "https://127.1/keys", "https://localhost/keys", "https://[::1]/keys"] {
                let (why, asked) = asked(url, AddressRules::default()).await;
                assert!(why.contains("not public"), "{url}: {why}");
                assert_eq!(asked, [PUBLIC_V4], "{url}");
            }
            for (url, because) in [
                ("http://localhost/keys", "https"),
                ("http://id.example.com/keys", "https"),
                ("https://id.example.com:22/keys", "port 443"),
                ("https://ada:x@id.example.com/keys", "user"),
            ] {
                let (why, asked) = asked(url, AddressRules::default()).await;
                assert!(why.contains(because), "{url}: {why}");
                assert_eq!(asked, [PUBLIC_V4], "{url}");
            }

            // Where the administrator allows it, and at public addresses, the keys are asked for.
            let allowed =
                || AddressRules { allowed: "10.0.0.0/8".parse().expect("a range"), ..AddressRules::default() };
            let (_, asked_there) = asked("https://10.0.0.1/keys", allowed()).await;
            assert_eq!(asked_there, [PUBLIC_V4, "10.0.0.1"]);
            let (why, asked_there) = asked("https://127.0.0.1/keys", allowed()).await;
            assert!(why.contains("not public") && asked_there == [PUBLIC_V4], "{why}");
            names.set_addresses("keys.example.com", &["8.8.8.8"]);
            let (_, asked_there) = asked("https://keys.example.com/keys", AddressRules::default()).await;
            assert_eq!(asked_there, [PUBLIC_V4, "8.8.8.8"]);

            // The issuer itself is held to the same rules.
            names.set_addresses("id.example.com", &["192.168.1.1"]);
            let (why, asked_there) = asked("https://keys.example.com/keys", AddressRules::default()).await;
            assert!(why.contains("not public") && asked_there.is_empty(), "{why}");
        },
    );
}
