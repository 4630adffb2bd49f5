//! The destination guard (specification, section 6; A14): addresses that callbacks and Fetch never connect to, seen
//! where connections arrive.

use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use deskgate_definition::tool::ToolOutput;
use deskgate_definition::{Network, ToolName};
use deskgate_gateway::callbacks::send::{CallbackSender, SendResult};
use deskgate_gateway::domain::destinations::Destination;
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
        let sender = CallbackSender::new(Some(&receiver.ca_file())).expect("a root");
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
        let ground = WorkspaceOptions {
            directory: folder.path(),
            own_folder: "/nonexistent".as_ref(),
            protected: &[],
            network: Network::None,
        };
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
            let sender = CallbackSender::new(Some(&receiver.ca_file())).expect("a root");
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
        let sender = CallbackSender::new(Some(&receiver.ca_file())).expect("a root");
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
