//! Discovery of a gateway's issuer: the gateway's metadata (RFC 9728), then the issuer's (RFC 8414, OpenID).

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::{AccountError, GatewayAddress, ISSUERS};
use deskgate_oauth::{IssuerAway, Lookup};

/// The metadata of a hosted gateway.
#[derive(Deserialize)]
struct Resource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    deskgate_audience: Option<String>,
    deskgate_client_id: Option<String>,
}

/// The facts about an issuer that one gateway needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Issuer {
    /// The issuer's identifier.
    pub(super) issuer: String,
    /// This program's client identifier there.
    pub(super) client_id: String,
    /// The audience that tokens are requested for.
    pub(super) audience: String,
    /// The requested scope.
    pub(super) scope: String,
    /// The token endpoint.
    #[serde(with = "deskgate_oauth::url_text")]
    pub(super) token: Url,
    /// The device authorization endpoint.
    #[serde(with = "deskgate_oauth::url_text")]
    pub(super) device: Url,
    /// The revocation endpoint, if there is one.
    #[serde(default, with = "deskgate_oauth::url_text::optional")]
    pub(super) revocation: Option<Url>,
}

impl Issuer {
    /// Queries the gateway, and then the issuer that it names.
    pub(super) async fn of(gateway: &GatewayAddress) -> Result<Self, AccountError> {
        let not_hosted = || AccountError::NotHosted(gateway.to_string());
        let url = gateway.metadata().ok_or_else(not_hosted)?;
        let Lookup::Document(resource) = ISSUERS.document::<Resource>(&url).await? else { return Err(not_hosted()) };
        if resource.resource.trim_end_matches('/') != gateway.as_str() {
            let other: String = resource.resource.chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(
                IssuerAway::new(&url, &format!("the gateway there calls itself {other}: use that address")).into()
            );
        }
        let (Some(issuer), Some(client_id)) = (resource.authorization_servers.first(), resource.deskgate_client_id)
        else {
            return Err(not_hosted());
        };
        let issuer_url = ISSUERS.address(issuer);
        let issuer_url =
            issuer_url.ok_or_else(|| IssuerAway::new(&url, "it names an issuer that is not asked over https"))?;
        let audience = resource.deskgate_audience.unwrap_or(resource.resource);
        // Otherwise a gateway would get tokens that are valid at another one.
        if Url::parse(&audience).is_ok_and(|audience| audience.origin() != url.origin()) {
            return Err(IssuerAway::new(&url, "it asks for tokens that are made for another address").into());
        }
        let metadata = ISSUERS.metadata(issuer).await?;
        let place = |text: Option<String>, what: &str| {
            let url = text.and_then(|text| ISSUERS.address(&text));
            url.ok_or_else(|| IssuerAway::new(&issuer_url, &format!("it offers no {what}")))
        };
        Ok(Self {
            client_id,
            audience,
            scope: resource.scopes_supported.join(" "),
            token: place(metadata.token_endpoint, "token endpoint")?,
            device: place(metadata.device_authorization_endpoint, "sign-in for devices (RFC 8628)")?,
            revocation: metadata.revocation_endpoint.and_then(|text| ISSUERS.address(&text)),
            issuer: metadata.issuer,
        })
    }

    /// The audience as a `resource` parameter (RFC 8707), which must be an address.
    pub(super) fn resource(&self) -> Option<(&'static str, &str)> {
        Url::parse(&self.audience).is_ok().then_some(("resource", self.audience.as_str()))
    }
}
