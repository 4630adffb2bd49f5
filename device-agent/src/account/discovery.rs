//! Discovery of a gateway's issuer: the gateway's metadata (RFC 9728), then the issuer's (RFC 8414, OpenID).

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::issuer::{document, issuer_away};
use super::{AccountError, GatewayAddress};
use deskgate_outbound::is_guarded;

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

/// The metadata of an issuer.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    token_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
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
    #[serde(with = "as_text")]
    pub(super) token: Url,
    /// The device authorization endpoint.
    #[serde(with = "as_text")]
    pub(super) device: Url,
    /// The revocation endpoint, if there is one.
    #[serde(default, with = "perhaps_as_text")]
    pub(super) revocation: Option<Url>,
}

mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(url: &reqwest::Url, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(url.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<reqwest::Url, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

mod perhaps_as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(url: &Option<reqwest::Url>, serializer: S) -> Result<S::Ok, S::Error> {
        url.as_ref().map(reqwest::Url::as_str).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<reqwest::Url>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

impl Issuer {
    /// Queries the gateway, and then the issuer that it names.
    pub(super) async fn of(gateway: &GatewayAddress) -> Result<Self, AccountError> {
        let not_hosted = || AccountError::NotHosted(gateway.to_string());
        let url = gateway.metadata().ok_or_else(not_hosted)?;
        let resource: Resource = document(&url).await?.ok_or_else(not_hosted)?;
        if resource.resource.trim_end_matches('/') != gateway.as_str() {
            let other: String = resource.resource.chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(issuer_away(&url, &format!("the gateway there calls itself {other}: use that address")));
        }
        let (Some(issuer), Some(client_id)) = (resource.authorization_servers.first(), resource.deskgate_client_id)
        else {
            return Err(not_hosted());
        };
        let issuer_url = Url::parse(issuer).ok().filter(is_guarded);
        let issuer_url =
            issuer_url.ok_or_else(|| issuer_away(&url, "it names an issuer that is not asked over https"))?;
        let audience = resource.deskgate_audience.unwrap_or(resource.resource);
        // Otherwise a gateway would get tokens that are valid at another one.
        if Url::parse(&audience).is_ok_and(|audience| audience.origin() != url.origin()) {
            return Err(issuer_away(&url, "it asks for tokens that are made for another address"));
        }
        let metadata = metadata(&issuer_url).await?;
        if metadata.issuer != *issuer {
            return Err(issuer_away(&issuer_url, "it calls itself otherwise than the gateway does"));
        }
        let place = |text: Option<String>, what: &str| {
            let url = text.and_then(|text| Url::parse(&text).ok()).filter(is_guarded);
            url.ok_or_else(|| issuer_away(&issuer_url, &format!("it offers no {what}")))
        };
        Ok(Self {
            client_id,
            audience,
            scope: resource.scopes_supported.join(" "),
            token: place(metadata.token_endpoint, "token endpoint")?,
            device: place(metadata.device_authorization_endpoint, "sign-in for devices (RFC 8628)")?,
            revocation: metadata.revocation_endpoint.and_then(|text| Url::parse(&text).ok()).filter(is_guarded),
            issuer: metadata.issuer,
        })
    }

    /// The audience as a `resource` parameter (RFC 8707), which must be an address.
    pub(super) fn resource(&self) -> Option<(&'static str, &str)> {
        Url::parse(&self.audience).is_ok().then_some(("resource", self.audience.as_str()))
    }
}

/// After the host (RFC 8414, section 3.1), or after the whole address (OpenID Connect Discovery).
async fn metadata(issuer: &Url) -> Result<Metadata, AccountError> {
    let path = issuer.path().trim_end_matches('/').to_owned();
    for place in
        [format!("/.well-known/oauth-authorization-server{path}"), format!("{path}/.well-known/openid-configuration")]
    {
        let mut url = issuer.clone();
        url.set_path(&place);
        if let Some(metadata) = document(&url).await? {
            return Ok(metadata);
        }
    }
    Err(issuer_away(issuer, "it says nothing of itself at either of the two places where issuers do"))
}
