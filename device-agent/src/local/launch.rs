//! Launch codes for the management pages: each is valid once, for a minute, and issued only on the private socket.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::secret::SecretKind;
use zeroize::Zeroizing;

/// The lifetime of a code.
const CODE_TTL: Duration = Duration::from_secs(60);
/// At most this many codes are valid at once; the oldest is dropped.
const MAX_CODES: usize = 8;
/// How many random bytes a code has.
const CODE_BYTES: usize = 18;

/// Whether a launch link may lead to this path: one of the management pages, without characters that need escaping
/// except the `#` of a fragment.
pub fn is_page(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.?=#".contains(&byte);
    path.starts_with('/') && !path.starts_with("//") && path.bytes().all(plain)
}

/// The address of the pages, and the valid codes.
#[derive(Clone, Debug, Default)]
pub struct LaunchCodes(Arc<LaunchState>);

#[derive(Debug, Default)]
struct LaunchState {
    address: OnceLock<SocketAddr>,
    codes: Mutex<Vec<(Sha256Digest, Instant)>>,
}

impl LaunchCodes {
    /// Sets the address of the pages. Only the first call counts: the pages keep their address as long as the agent
    /// runs.
    pub fn set_address(&self, address: SocketAddr) {
        let _ = self.0.address.set(address);
    }

    /// The address of the pages; `None` until they are available.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.address.get().copied()
    }

    /// A link that signs one browser in and leads to a page, for which [`is_page`] holds; `None` until the pages are
    /// available.
    pub fn link(&self, page: Option<&str>) -> Option<String> {
        let to = page.map(|page| format!("&to={}", page.replace('#', "%23"))).unwrap_or_default();
        Some(format!("http://{}/sign-in?code={}{to}", self.address()?, self.issue().as_str()))
    }

    /// Issues a code, which begins with `dgl_`. Only its digest is kept.
    pub fn issue(&self) -> Zeroizing<String> {
        self.issue_at(Instant::now())
    }

    /// Whether a code is valid; it is used up by this.
    pub fn redeem(&self, code: &str) -> bool {
        self.redeem_at(code, Instant::now())
    }

    fn issue_at(&self, now: Instant) -> Zeroizing<String> {
        let random = Zeroizing::new(URL_SAFE_NO_PAD.encode(rand::random::<[u8; CODE_BYTES]>()));
        let code = Zeroizing::new([SecretKind::LaunchLink.prefix(), &random].concat());
        let mut codes = self.codes(now);
        if codes.len() == MAX_CODES {
            codes.remove(0);
        }
        codes.push((Sha256Digest::of(code.as_bytes()), now));
        code
    }

    fn redeem_at(&self, code: &str, now: Instant) -> bool {
        let digest = Sha256Digest::of(code.trim().as_bytes());
        let mut codes = self.codes(now);
        // Digests are compared, so the time it takes reveals nothing about a code.
        let found = codes.iter().position(|(known, _)| *known == digest);
        found.map(|at| codes.remove(at)).is_some()
    }

    /// The valid ones.
    fn codes(&self, now: Instant) -> std::sync::MutexGuard<'_, Vec<(Sha256Digest, Instant)>> {
        let mut codes = self.0.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|(_, issued)| now.duration_since(*issued) < CODE_TTL);
        codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let (launch, now) = (LaunchCodes::default(), Instant::now());
        let (first, second) = (launch.issue_at(now), launch.issue_at(now));
        assert!(!launch.redeem_at("", now) && !launch.redeem_at("something else", now));
        let bare = first.strip_prefix("dgl_").expect("it says what it is");
        assert!(!launch.redeem_at(bare, now), "without its kind");
        assert!(launch.redeem_at(&format!(" {}\n", first.as_str()), now), "as it was pasted");
        assert!(!launch.redeem_at(&first, now), "once");
        assert!(!launch.redeem_at(&second, now + CODE_TTL), "a minute");
    }

    #[test]
    fn a_link_leads_to_pages_of_ours_and_to_nothing_else() {
        for page in ["/", "/approvals#apr_0123", "/runs?state=failed", "/services/svc_1#try"] {
            assert!(is_page(page), "{page}");
        }
        for other in
            ["", "approvals", "//evil.example/", "/\\evil.example", "http://evil.example/", "/a\"b", "/a b", "/a\r\nb"]
        {
            assert!(!is_page(other), "{other}");
        }
        let launch = LaunchCodes::default();
        assert_eq!(launch.link(None), None, "there is no address yet");
        launch.set_address(SocketAddr::from(([127, 0, 0, 1], 7420)));
        let link = launch.link(Some("/approvals#apr_0123")).expect("there is an address");
        assert!(
            link.starts_with("http://127.0.0.1:7420/sign-in?code=dgl_") && link.ends_with("&to=/approvals%23apr_0123")
        );
    }

    #[test]
    fn of_many_codes_the_newest_are_good() {
        let (launch, now) = (LaunchCodes::default(), Instant::now());
        let codes: Vec<_> = (0..=MAX_CODES).map(|_| launch.issue_at(now)).collect();
        assert!(!launch.redeem_at(&codes[0], now));
        assert!(codes[1..].iter().all(|code| launch.redeem_at(code, now)));
    }
}
