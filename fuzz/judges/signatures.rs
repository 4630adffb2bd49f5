//! Signatures of incoming webhooks: accepted if and only if the secret made the signature over exactly this request.
//!
//! The judge computes the right signature with other libraries than the product, and parses headers itself.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use deskgate_gateway::domain::webhooks::{Headers, verify};
use deskgate_protocol::management::{HashAlgorithm, PlainHmac, SignatureEncoding, WebhookScheme};
use hmac::{Hmac, KeyInit, Mac};

use super::line;

const SECRET: &[u8] = b"a secret of twenty-four b";
const OLD: &[u8] = b"the one of before the roll";
const STRANGE: &[u8] = b"a secret of somebody else";
/// A secret whose signatures no input has.
const NOBODYS: &[u8] = b"a secret that nobody uses";
const NOW: i64 = 1_800_000_000;
const WINDOW: i64 = 300;

/// A received request.
struct Request<'a> {
    scheme: WebhookScheme,
    headers: Vec<(String, String)>,
    body: &'a [u8],
}

/// Judges a request: the scheme and its clock offset, headers, an empty line, the body. `{hex}`, `{base64}`, `{old}`
/// and `{strange}` stand for the right signature, that of the previous secret, and that of a foreign secret.
pub fn judge(bytes: &[u8]) {
    let Some(request) = read(bytes) else { return };
    let accepted = accepts(&request, &[SECRET, OLD]);
    assert_eq!(accepted, is_genuine(&request), "{:?} {:?}", request.scheme, request.headers);
    if !accepted {
        return;
    }
    assert!(!accepts(&request, &[NOBODYS]) && !accepts(&request, &[]), "without the secret");
    for place in [0, request.body.len() / 2, request.body.len().saturating_sub(1)] {
        let mut body = request.body.to_vec();
        if let Some(byte) = body.get_mut(place) {
            *byte ^= 1 << (bytes.len() % 8);
            assert!(!accepts(&Request { body: &body, ..copy(&request) }, &[SECRET, OLD]), "another body");
        }
    }
    let longer = [request.body, b"\n"].concat();
    assert!(!accepts(&Request { body: &longer, ..copy(&request) }, &[SECRET, OLD]), "a longer body");
    let beside: &[&str] = match request.scheme {
        WebhookScheme::StandardWebhooks {} => &["webhook-timestamp", "webhook-id"],
        _ => &[],
    };
    for (at, (name, value)) in request.headers.iter().enumerate() {
        let mut bent = copy(&request);
        bent.headers[at].1 = format!("{value}0");
        let is_signed = beside.iter().any(|signed| name.eq_ignore_ascii_case(signed));
        assert!(!is_signed || !accepts(&bent, &[SECRET, OLD]), "another {name}");
    }
}

fn copy<'a>(request: &Request<'a>) -> Request<'a> {
    Request { scheme: request.scheme.clone(), headers: request.headers.clone(), body: request.body }
}

fn accepts(request: &Request<'_>, secrets: &[&[u8]]) -> bool {
    let headers: Headers<'_> = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    verify(&request.scheme, secrets, &headers, request.body, NOW).is_ok()
}

fn read(bytes: &[u8]) -> Option<Request<'_>> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n")?;
    let (head, body) = (std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 2..]);
    let (first, lines) = line(head);
    let mut words = first.split(' ');
    let scheme = match words.next()? {
        "standard" => WebhookScheme::StandardWebhooks {},
        "github" => WebhookScheme::Github {},
        "stripe" => WebhookScheme::Stripe {},
        algorithm => WebhookScheme::Hmac(PlainHmac {
            algorithm: match algorithm {
                "sha1" => HashAlgorithm::Sha1,
                "sha512" => HashAlgorithm::Sha512,
                _ => HashAlgorithm::Sha256,
            },
            encoding: if words.next()? == "hex" { SignatureEncoding::Hex } else { SignatureEncoding::Base64 },
            header: words.next()?.to_owned(),
            prefix: words.next()?.to_owned(),
            event_id: None,
            event_type: None,
        }),
    };
    let off: i64 = words.next().unwrap_or("0").parse().ok()?;
    let time = NOW.checked_add(off)?.to_string();
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        (name.to_owned(), value.replace("{time}", &time))
    };
    let mut request = Request { scheme, headers: lines.lines().map(header).collect(), body };
    let signed = signed(&request).unwrap_or_default();
    let of = |secret: &[u8]| mac(algorithm(&request.scheme), secret, &signed);
    let codes = [
        ("{hex}", hex(&of(SECRET))),
        ("{base64}", BASE64_STANDARD.encode(of(SECRET))),
        ("{old}", hex(&of(OLD))),
        ("{old64}", BASE64_STANDARD.encode(of(OLD))),
        ("{strange}", hex(&of(STRANGE))),
        ("{strange64}", BASE64_STANDARD.encode(of(STRANGE))),
    ];
    for (_, value) in &mut request.headers {
        codes.iter().for_each(|(place, code)| *value = value.replace(place, code));
    }
    Some(request)
}

/// The signed bytes: the body after the scheme's prefix.
fn signed(request: &Request<'_>) -> Option<Vec<u8>> {
    let before = match &request.scheme {
        WebhookScheme::StandardWebhooks {} => {
            format!("{}.{}.", only(request, "webhook-id")?, only(request, "webhook-timestamp")?)
        }
        WebhookScheme::Stripe {} => format!("{}.", stripes_time(only(request, "stripe-signature")?)?),
        _ => String::new(),
    };
    Some([before.as_bytes(), request.body].concat())
}

/// The value of a header that occurs once.
fn only<'a>(request: &'a Request<'_>, name: &str) -> Option<&'a str> {
    let mut all = request.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
    let first = all.next()?;
    all.next().is_none().then(|| first.1.trim())
}

fn stripes_time(header: &str) -> Option<&str> {
    let mut times = header.split(',').filter_map(|part| part.strip_prefix("t="));
    times.next().filter(|_| times.next().is_none())
}

fn in_time(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|time| (i128::from(time) - i128::from(NOW)).abs() <= i128::from(WINDOW))
}

fn is_genuine(request: &Request<'_>) -> bool {
    genuine(request).unwrap_or(false)
}

fn genuine(request: &Request<'_>) -> Option<bool> {
    let signed = signed(request)?;
    let codes = [SECRET, OLD].map(|secret| mac(algorithm(&request.scheme), secret, &signed));
    let is_hex = |text: &str| codes.iter().any(|code| hex(code) == text.to_ascii_lowercase());
    let is_base64 = |text: &str| codes.iter().any(|code| BASE64_STANDARD.encode(code) == text);
    Some(match &request.scheme {
        WebhookScheme::Github {} => is_hex(only(request, "x-hub-signature-256")?.strip_prefix("sha256=")?),
        WebhookScheme::Stripe {} => {
            let header = only(request, "stripe-signature")?;
            // Only readable signatures count, and only the first ones are checked.
            let is_code =
                |code: &&str| code.len().is_multiple_of(2) && code.bytes().all(|byte| byte.is_ascii_hexdigit());
            let given = header.split(',').filter_map(|part| part.strip_prefix("v1="));
            in_time(stripes_time(header)?) && given.filter(is_code).take(16).any(is_hex)
        }
        WebhookScheme::StandardWebhooks {} => {
            let id = only(request, "webhook-id")?;
            let given = only(request, "webhook-signature")?.split(' ').take(16);
            !id.is_empty()
                && !id.contains('.')
                && in_time(only(request, "webhook-timestamp")?)
                && given.filter_map(|one| one.strip_prefix("v1,")).any(is_base64)
        }
        WebhookScheme::Hmac(plain) => {
            let given = only(request, &plain.header)?.strip_prefix(&plain.prefix)?;
            if plain.encoding == SignatureEncoding::Hex { is_hex(given) } else { is_base64(given) }
        }
    })
}

fn algorithm(scheme: &WebhookScheme) -> HashAlgorithm {
    if let WebhookScheme::Hmac(plain) = scheme { plain.algorithm } else { HashAlgorithm::Sha256 }
}

fn mac(algorithm: HashAlgorithm, secret: &[u8], signed: &[u8]) -> Vec<u8> {
    fn of<M: Mac + KeyInit>(secret: &[u8], signed: &[u8]) -> Vec<u8> {
        let mac = <M as KeyInit>::new_from_slice(secret).expect("any length");
        mac.chain_update(signed).finalize().into_bytes().to_vec()
    }
    match algorithm {
        HashAlgorithm::Sha1 => of::<Hmac<sha1::Sha1>>(secret, signed),
        HashAlgorithm::Sha256 => of::<Hmac<sha2::Sha256>>(secret, signed),
        HashAlgorithm::Sha512 => of::<Hmac<sha2::Sha512>>(secret, signed),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
