//! TLS to the database: libpq's six `sslmode`s and its `sslrootcert`, with libpq's meaning.
//!
//! | mode | encrypts | checks |
//! |---|---|---|
//! | `disable` | never | nothing |
//! | `allow` | if the server refuses a connection without | nothing, or the issuer if `sslrootcert` is named |
//! | `prefer`, the default | if the server can | the same |
//! | `require` | always | the same |
//! | `verify-ca` | always | the issuer |
//! | `verify-full` | always | the issuer, and that the certificate is for this host |
//!
//! Two things are this program's own. Without `sslrootcert`, `verify-ca` and `verify-full` trust the system's
//! certificates, where libpq refuses. And `database.ca_file`, which is no parameter of libpq, makes every mode that
//! encrypts a `verify-full`, unless it is `verify-ca`. Sockets of this computer are never encrypted, as in libpq.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::DatabaseOpenError;
use super::connecting::DialModes;

deskgate_protocol::words! {
    /// libpq's `sslmode`.
    #[derive(Default)]
    pub(super) enum LibpqSslMode {
        /// Never encrypted.
        Disable = "disable",
        /// Encrypted if the server refuses a connection without.
        Allow = "allow",
        /// Encrypted if the server can.
        #[default]
        Prefer = "prefer",
        /// Always encrypted.
        Require = "require",
        /// And issued by a trusted authority.
        VerifyCa = "verify-ca",
        /// And for this host.
        VerifyFull = "verify-full",
    }
}

/// What is checked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateCheck {
    Nothing,
    Issuer,
    IssuerAndHost,
}

/// The certificates that are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TrustedRoots {
    System,
    File(PathBuf),
}

/// How a connection to the database is encrypted, and how the server is recognised.
#[derive(Clone, Debug)]
pub(super) struct TlsMode {
    mode: LibpqSslMode,
    check: CertificateCheck,
    roots: TrustedRoots,
}

/// The value of `sslrootcert` for the system's certificates.
const SYSTEM_ROOTS: &str = "system";
/// The files in which systems keep their trusted certificates.
const SYSTEM_ROOT_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

impl TlsMode {
    /// From the parameters of an address; `ca_file` is the gateway's own setting.
    pub(super) fn new(
        sslmode: Option<&str>,
        sslrootcert: Option<&str>,
        ca_file: Option<&PathBuf>,
    ) -> Result<Self, DatabaseOpenError> {
        let wrong = |why: String| DatabaseOpenError::Url(why);
        let is_system = sslrootcert == Some(SYSTEM_ROOTS);
        let mode = match sslmode {
            Some(text) => text.parse().map_err(|_| {
                wrong(format!("sslmode {text:?} is none of disable, allow, prefer, require, verify-ca and verify-full"))
            })?,
            None if is_system => LibpqSslMode::VerifyFull,
            None => LibpqSslMode::default(),
        };
        if is_system && mode != LibpqSslMode::VerifyFull {
            let why = "sslrootcert=system goes with sslmode=verify-full only: anybody can have a certificate from a \
                       public authority";
            return Err(wrong(why.to_owned()));
        }
        let named = sslrootcert.filter(|text| !text.is_empty() && !is_system).map(PathBuf::from);
        let roots = named.as_ref().or(ca_file).cloned().map_or(TrustedRoots::System, TrustedRoots::File);
        let check = match mode {
            LibpqSslMode::VerifyFull => CertificateCheck::IssuerAndHost,
            LibpqSslMode::VerifyCa => CertificateCheck::Issuer,
            _ if named.is_some() => CertificateCheck::Issuer,
            _ if ca_file.is_some() => CertificateCheck::IssuerAndHost,
            _ => CertificateCheck::Nothing,
        };
        Ok(Self { mode, check, roots })
    }

    /// The modes to try, one after the other. `is_local`: only sockets of this computer are dialled.
    pub(super) fn dial_modes(&self, is_local: bool) -> DialModes {
        let (first, second) = match self.mode {
            _ if is_local => (SslMode::Disable, None),
            LibpqSslMode::Disable => (SslMode::Disable, None),
            LibpqSslMode::Allow => (SslMode::Disable, Some(SslMode::Require)),
            LibpqSslMode::Prefer => (SslMode::Prefer, Some(SslMode::Disable)),
            LibpqSslMode::Require | LibpqSslMode::VerifyCa | LibpqSslMode::VerifyFull => (SslMode::Require, None),
        };
        DialModes { first, second }
    }

    /// What somebody on the way to the server can do, if anything.
    pub(super) fn weakness(&self) -> Option<&'static str> {
        match (self.mode, self.check) {
            (LibpqSslMode::VerifyCa | LibpqSslMode::VerifyFull, _)
            | (LibpqSslMode::Require, CertificateCheck::Issuer | CertificateCheck::IssuerAndHost) => None,
            (LibpqSslMode::Require, CertificateCheck::Nothing) => Some(
                "is encrypted, but the server's certificate is not checked: somebody in between could pose as it. Add \
                 sslmode=verify-full, and sslrootcert=FILE for an authority that the system does not trust",
            ),
            (LibpqSslMode::Disable | LibpqSslMode::Allow | LibpqSslMode::Prefer, _) => Some(
                "may be read on the way, because nothing demands that it is encrypted. Add sslmode=verify-full, and \
                 sslrootcert=FILE for an authority that the system does not trust",
            ),
        }
    }

    /// `sslmode` and `sslrootcert` for PostgreSQL's own programs.
    pub(super) fn for_libpq(&self) -> (LibpqSslMode, Option<PathBuf>) {
        use LibpqSslMode::{Allow, Prefer, Require, VerifyCa, VerifyFull};
        let roots = match &self.roots {
            TrustedRoots::File(path) => Some(path.clone()),
            // libpq knows the word since 16 only.
            TrustedRoots::System => SYSTEM_ROOT_FILES.map(PathBuf::from).into_iter().find(|path| path.exists()),
        };
        match (self.mode, self.check) {
            (mode @ (VerifyCa | VerifyFull), _) => (mode, roots),
            (Require, CertificateCheck::IssuerAndHost) => (VerifyFull, roots),
            (mode @ (Allow | Prefer | Require), CertificateCheck::Issuer | CertificateCheck::IssuerAndHost) => {
                (mode, roots)
            }
            (mode, _) => (mode, None),
        }
    }

    /// The client's side of TLS.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, DatabaseOpenError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (roots, known) = match &self.roots {
            _ if self.check == CertificateCheck::Nothing => (RootCertStore::empty(), Vec::new()),
            TrustedRoots::System => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                (roots, Vec::new())
            }
            TrustedRoots::File(path) => read_roots(path)?,
        };
        let chain = match self.check {
            CertificateCheck::Nothing => None,
            _ => {
                let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
                Some(built.map_err(|error| DatabaseOpenError::Url(format!("TLS: {error}")))?)
            }
        };
        let verifier = DatabaseVerifier { check: self.check, chain, known, provider: Arc::clone(&provider) };
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring offers the default protocol versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(config))
    }
}

/// The certificates of a file, also as they are.
fn read_roots(path: &PathBuf) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), DatabaseOpenError> {
    let problem = |problem: String| DatabaseOpenError::CaFile { path: path.clone(), problem };
    let (mut roots, mut known) = (RootCertStore::empty(), Vec::new());
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| problem(error.to_string()))? {
        let certificate = certificate.map_err(|error| problem(error.to_string()))?;
        roots.add(certificate.clone()).map_err(|error| problem(error.to_string()))?;
        known.push(certificate);
    }
    if roots.is_empty() {
        return Err(problem("it holds no certificate".to_owned()));
    }
    Ok((roots, known))
}

/// Checks as much of the server's certificate as its mode says.
#[derive(Debug)]
struct DatabaseVerifier {
    check: CertificateCheck,
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The trusted certificates: a server may have one of them itself.
    known: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl DatabaseVerifier {
    /// A certificate that signed itself, as PostgreSQL's manual makes them, is its own authority.
    fn is_known(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
        let now = i64::try_from(now.as_secs()).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        let is_valid = crate::tls::not_after(certificate).zip(now).is_some_and(|(until, now)| now < until);
        is_valid && crate::tls::is_self_issued(certificate) && self.known.iter().any(|known| known == certificate)
    }
}

impl ServerCertVerifier for DatabaseVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if self.is_known(certificate, now) {
            if self.check == CertificateCheck::IssuerAndHost {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is compared last, when everything else was in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == CertificateCheck::Issuer => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes `sslmode` and `sslrootcert` out of an address, whose parser knows three modes and no file.
pub(super) fn split_address(address: &str) -> (String, Option<String>, Option<String>) {
    let (mut sslmode, mut sslrootcert) = (None, None);
    let mut take = |name: &str, value: &str| {
        let place = match name {
            "sslmode" => &mut sslmode,
            "sslrootcert" => &mut sslrootcert,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    };
    let rest = match address.split_once("://") {
        Some(_) => {
            let (before, query) = address.split_once('?').unwrap_or((address, ""));
            let kept = query.split('&').filter(|part| {
                // A plus is no blank here, as in libpq.
                let part = part.replace('+', "%2B");
                let read = url::form_urlencoded::parse(part.as_bytes()).next();
                !part.is_empty() && !read.is_some_and(|(name, value)| take(&name, &value))
            });
            let kept: Vec<_> = kept.collect();
            if kept.is_empty() { before.to_owned() } else { format!("{before}?{}", kept.join("&")) }
        }
        None => without_keywords(address, take),
    };
    (rest, sslmode, sslrootcert)
}

/// An address of keywords without those that `take` takes. What is no such address is left to its parser.
fn without_keywords(address: &str, mut take: impl FnMut(&str, &str) -> bool) -> String {
    let mut kept = String::new();
    let mut rest = address;
    while let Some(equals) = rest.find('=') {
        let name = rest[..equals].trim();
        let behind = rest[equals + 1..].trim_start();
        let is_quoted = behind.starts_with('\'');
        let (mut value, mut escaped, mut end) = (String::new(), false, behind.len());
        for (place, letter) in behind.char_indices().skip(usize::from(is_quoted)) {
            let ends = if is_quoted { letter == '\'' } else { letter.is_whitespace() };
            match letter {
                _ if escaped => {
                    value.push(letter);
                    escaped = false;
                }
                '\\' => escaped = true,
                _ if ends => {
                    end = place + usize::from(is_quoted);
                    break;
                }
                _ => value.push(letter),
            }
        }
        if !take(name, &value) {
            kept += &format!("{name}={} ", &behind[..end]);
        }
        rest = &behind[end..];
    }
    kept + rest.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: (&str, Option<&str>, Option<&str>)) -> (String, Option<String>, Option<String>) {
        (texts.0.to_owned(), texts.1.map(str::to_owned), texts.2.map(str::to_owned))
    }

    #[test]
    fn both_forms_of_an_address_give_up_what_libpq_alone_knows_and_keep_the_rest() {
        for (address, expected) in [
            ("postgres://u:p@h/db", ("postgres://u:p@h/db", None, None)),
            ("postgres://h/db?sslmode=verify-ca", ("postgres://h/db", Some("verify-ca"), None)),
            (
                "postgresql://h/db?connect_timeout=3&sslrootcert=%2Fetc%2Fa+b.pem&sslmode=verify-full&options=-c%20a",
                ("postgresql://h/db?connect_timeout=3&options=-c%20a", Some("verify-full"), Some("/etc/a+b.pem")),
            ),
            (
                "host=h sslmode = 'verify-full' password='it\\'s' sslrootcert='/a \\'b\\'.pem' dbname=db",
                ("host=h password='it\\'s' dbname=db", Some("verify-full"), Some("/a 'b'.pem")),
            ),
            ("host=h sslmode=disable", ("host=h ", Some("disable"), None)),
            ("no address", ("no address", None, None)),
        ] {
            let (found, expected) = (split_address(address), owned(expected));
            assert_eq!((&found.1, &found.2), (&expected.1, &expected.2), "{address}");
            let blanks = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(blanks(&found.0), blanks(&expected.0), "{address}");
        }
    }

    #[test]
    fn a_mode_checks_what_libpq_checks_and_the_gateways_own_setting_more() {
        let file = PathBuf::from("/etc/ca.pem");
        let of = |mode: &str, root: Option<&str>, own: Option<&PathBuf>| {
            TlsMode::new(Some(mode), root, own).expect("a mode").check
        };
        for mode in ["allow", "prefer", "require"] {
            assert_eq!(of(mode, None, None), CertificateCheck::Nothing, "{mode}");
            assert_eq!(of(mode, Some("/etc/ca.pem"), None), CertificateCheck::Issuer, "{mode}");
            assert_eq!(of(mode, None, Some(&file)), CertificateCheck::IssuerAndHost, "{mode}");
        }
        assert_eq!(of("verify-ca", None, Some(&file)), CertificateCheck::Issuer);
        assert_eq!(of("verify-full", Some("/etc/ca.pem"), None), CertificateCheck::IssuerAndHost);
        assert_eq!(TlsMode::new(None, None, None).expect("the default").mode, LibpqSslMode::Prefer);
        assert_eq!(TlsMode::new(None, Some("system"), None).expect("stricter").mode, LibpqSslMode::VerifyFull);
        for weak in ["disable", "allow", "prefer", "require", "verify-ca"] {
            assert!(TlsMode::new(Some(weak), Some("system"), None).is_err(), "{weak}");
        }
        let error = TlsMode::new(Some("perhaps"), None, None).expect_err("no mode").to_string();
        assert!(error.contains("\"perhaps\" is none of disable, allow"), "{error}");
    }

    #[test]
    fn postgresqls_own_programs_are_told_the_same() {
        let told = |mode: &str, root: Option<&str>| TlsMode::new(Some(mode), root, None).expect("a mode").for_libpq();
        assert_eq!(told("require", None), (LibpqSslMode::Require, None));
        assert_eq!(told("verify-ca", Some("/ca.pem")), (LibpqSslMode::VerifyCa, Some("/ca.pem".into())));
        assert_eq!(told("prefer", Some("/ca.pem")), (LibpqSslMode::Prefer, Some("/ca.pem".into())));
        let own = TlsMode::new(Some("require"), None, Some(&"/ca.pem".into())).expect("a mode").for_libpq();
        assert_eq!(own, (LibpqSslMode::VerifyFull, Some("/ca.pem".into())));
    }
}
