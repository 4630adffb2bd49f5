//! An issuer's metadata (RFC 8414, OpenID Connect Discovery).

use reqwest::Url;
use serde::Deserialize;

use super::{IssuerAway, IssuerClient, Lookup};

/// What an issuer says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct IssuerMetadata {
    /// Its identifier.
    pub issuer: String,
    /// Where a person signs in with a browser.
    pub authorization_endpoint: Option<String>,
    /// Where tokens are asked for.
    pub token_endpoint: Option<String>,
    /// Where a sign-in of a device begins (RFC 8628).
    pub device_authorization_endpoint: Option<String>,
    /// Where a program registers itself (RFC 7591).
    pub registration_endpoint: Option<String>,
    /// Where tokens are revoked (RFC 7009).
    pub revocation_endpoint: Option<String>,
    /// The ways of PKCE that it takes (RFC 7636).
    #[serde(default)]
    pub code_challenge_methods_supported: Vec<String>,
    /// The scopes that it knows.
    #[serde(default)]
    pub scopes_supported: Vec<String>,
    /// Whether it names itself in the answer that a browser brings back (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

impl IssuerClient<'_> {
    /// An issuer's metadata: after the host (RFC 8414, section 3.1), or where OpenID has it.
    ///
    /// # Errors
    /// The issuer is no address that may be asked, it does not answer, says nothing of itself, or calls itself otherwise.
    pub async fn metadata(&self, issuer: &str) -> Result<IssuerMetadata, IssuerAway> {
        let url = self.address(issuer).ok_or_else(|| IssuerAway::at(issuer, "it is not asked over https"))?;
        let path = url.path().trim_end_matches('/').to_owned();
        let mut places = vec![
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ];
        // They are the same without a path.
        places.dedup();
        let at = |place: String| {
            let mut at = url.clone();
            at.set_path(&place);
            at
        };
        let places: Vec<_> = places.into_iter().map(at).collect();
        let check = |metadata: &IssuerMetadata| match metadata.issuer == issuer {
            true => Ok(()),
            false => Err("it calls itself otherwise than whoever names it"),
        };
        match self.first_document(&places, check).await? {
            Lookup::Document((_, metadata)) => Ok(metadata),
            Lookup::Nothing(found) => {
                let why = format!("it says nothing of itself at any of the places where issuers do ({found})");
                Err(IssuerAway::new(&url, &why))
            }
        }
    }

    /// An address from metadata, if it may be asked.
    pub fn address(&self, text: &str) -> Option<Url> {
        Url::parse(text).ok().filter(|url| self.may_ask(url))
    }
}
