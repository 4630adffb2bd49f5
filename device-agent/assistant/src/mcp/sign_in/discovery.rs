//! From an MCP server to where one signs in for it: its own metadata (RFC 9728), then the authorization server's.

use std::time::Duration;

use deskgate_oauth::{IssuerAway, IssuerClient, IssuerMetadata, Lookup};
use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

use super::SignInError;

/// The timeout of the request that the server is to refuse.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// The way of PKCE without which nobody signs in.
const PKCE_METHOD: &str = "S256";
/// The scope that asks for a refresh token, where an authorization server knows it.
const OFFLINE_SCOPE: &str = "offline_access";

/// What a server says of itself as a protected resource.
#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// What a server says when it lets nobody in (RFC 6750, RFC 9728).
#[derive(Debug, Default, PartialEq, Eq)]
struct Challenge {
    resource_metadata: Option<String>,
    scope: Option<String>,
}

/// How a resource includes a server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceReach {
    /// It is the address.
    Own,
    /// It is one above it, and includes others too.
    Parent,
}

/// Where one signs in for a server, and for what.
#[derive(Clone, Debug)]
pub(super) struct SignInPlace {
    /// The authorization server's identifier.
    pub(super) issuer: String,
    /// Whether it names itself in the answer that the browser brings back (RFC 9207).
    pub(super) names_itself: bool,
    /// The resource that tokens are asked for, as the server has it.
    pub(super) resource: String,
    /// The scope to ask for.
    pub(super) scope: Option<String>,
    /// Where the owner signs in.
    pub(super) authorization: Url,
    /// Where tokens are asked for.
    pub(super) token: Url,
    /// Where a program registers itself, if that is possible.
    pub(super) registration: Option<Url>,
    /// Where tokens are revoked, if that is possible.
    pub(super) revocation: Option<Url>,
}

/// Asks the server, and then the authorization server that it names.
pub(super) async fn find(issuers: IssuerClient<'_>, client: &Client, server: &Url) -> Result<SignInPlace, SignInError> {
    let challenge = challenge(client, server).await?;
    let (at, resource) = resource_metadata(issuers, server, challenge.resource_metadata).await?;
    let (at, resource) = vouched(issuers, server, (at, resource)).await?;
    let issuer = resource.authorization_servers.first();
    let issuer = issuer.ok_or_else(|| SignInError::NotOffered(format!("{at} names no authorization server")))?;
    let metadata = issuers.metadata(issuer).await?;
    if !metadata.code_challenge_methods_supported.iter().any(|method| method == PKCE_METHOD) {
        return Err(SignInError::NoPkce(metadata.issuer));
    }
    let scope = challenge.scope.or_else(|| joined(&resource.scopes_supported));
    let place = |text: &Option<String>| text.as_deref().and_then(|text| issuers.address(text));
    let needed = |text: &Option<String>, what: &str| {
        place(text).ok_or_else(|| IssuerAway::new(&at, &format!("its authorization server offers no {what}")))
    };
    Ok(SignInPlace {
        authorization: needed(&metadata.authorization_endpoint, "authorization endpoint")?,
        token: needed(&metadata.token_endpoint, "token endpoint")?,
        registration: place(&metadata.registration_endpoint),
        revocation: place(&metadata.revocation_endpoint),
        names_itself: metadata.authorization_response_iss_parameter_supported,
        scope: with_offline(scope, &metadata),
        resource: resource.resource,
        issuer: metadata.issuer,
    })
}

/// Sends a request without a token, which calls no tool, and reads why it is refused.
async fn challenge(client: &Client, server: &Url) -> Result<Challenge, SignInError> {
    let asked = json!({ "jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {} });
    let request = client.post(server.clone()).header(ACCEPT, "application/json, text/event-stream").json(&asked);
    let response = match request.timeout(PROBE_TIMEOUT).send().await {
        Ok(response) => response,
        Err(error) if deskgate_outbound::is_distrusted(&error) => {
            return Err(IssuerAway::new(server, "its certificate is not trusted on this computer").into());
        }
        Err(_) => return Err(IssuerAway::new(server, "it cannot be reached").into()),
    };
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(Challenge::default());
    }
    let headers = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|header| header.to_str().ok());
    let found = headers.map(Challenge::of).find(|challenge| *challenge != Challenge::default());
    Ok(found.unwrap_or_default())
}

/// The metadata that the server's refusal points to, or that is at a well-known place: of the server's whole address, or
/// of its host.
async fn resource_metadata(
    issuers: IssuerClient<'_>,
    server: &Url,
    named: Option<String>,
) -> Result<(Url, ResourceMetadata), SignInError> {
    let places = match named {
        Some(named) => {
            let away = || IssuerAway::new(server, "it names a place for its metadata that is not asked over https");
            vec![issuers.address(&named).ok_or_else(away)?]
        }
        None => well_known(server),
    };
    let check = |metadata: &ResourceMetadata| match reach(&metadata.resource, server) {
        Some(_) => Ok(()),
        None => Err("it speaks for another address than the server's"),
    };
    match issuers.first_document(&places, check).await? {
        Lookup::Document(found) => Ok(found),
        Lookup::Nothing(found) => Err(SignInError::NotOffered(found)),
    }
}

/// The places of a server's metadata, in the order that the protocol has: of its whole address, and of its host.
fn well_known(server: &Url) -> Vec<Url> {
    let mut host = server.clone();
    host.set_path("/");
    let mut places = vec![well_known_place(server), well_known_place(&host)];
    places.dedup();
    places
}

/// The place of a resource's metadata (RFC 9728, section 3.1).
fn well_known_place(resource: &Url) -> Url {
    let mut place = resource.clone();
    place.set_path(&format!("/.well-known/oauth-protected-resource{}", resource.path().trim_end_matches('/')));
    place
}

/// Metadata that may say what it says: as it is for the server's own address. For a resource above it, what is at that
/// resource's own place, if it has the same resource.
///
/// By RFC 9728, section 3.3, the resource must be identical to the address that was asked, or to the one that the place
/// of the metadata was derived from: otherwise one of several servers on a host gets tokens that open all of them. The
/// protocol's revisions 2025-11-25 and 2026-07-28 add the host's place for servers with a path, and its official clients
/// take every resource of the same origin whose path the server's begins with (`checkResourceAllowed` in the TypeScript
/// SDK), as servers in use need it. Both are had by asking the place that only who runs the host can write to (RFC 8615):
/// the resource is then the one that this place belongs to.
async fn vouched(
    issuers: IssuerClient<'_>,
    server: &Url,
    (at, metadata): (Url, ResourceMetadata),
) -> Result<(Url, ResourceMetadata), SignInError> {
    let place = Url::parse(&metadata.resource).map(|resource| well_known_place(&resource)).ok();
    let Some(place) = place.filter(|_| reach(&metadata.resource, server) != Some(ResourceReach::Own)) else {
        return Ok((at, metadata));
    };
    if place == at {
        return Ok((at, metadata));
    }
    let named = metadata.resource.trim_end_matches('/');
    let same = |other: &ResourceMetadata| match other.resource.trim_end_matches('/') == named {
        true => Ok(()),
        false => Err("it is the place of another resource"),
    };
    match issuers.first_document(&[place], same).await? {
        Lookup::Document(found) => Ok(found),
        Lookup::Nothing(found) => {
            let why = format!("it speaks for more than the server's address, which only its own place may ({found})");
            Err(IssuerAway::new(&at, &why).into())
        }
    }
}

/// How a resource includes a server's address, if it does: on the same origin, with the same path or one that it begins
/// with. A slash at the end makes no difference: the protocol has both forms.
fn reach(resource: &str, server: &Url) -> Option<ResourceReach> {
    let resource = Url::parse(resource).ok()?;
    let is_anonymous = resource.username().is_empty() && resource.password().is_none();
    let is_plain = is_anonymous && resource.query().is_none() && resource.fragment().is_none();
    if !is_plain || resource.origin() != server.origin() {
        return None;
    }
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    match path(server).strip_prefix(path(&resource).as_str())? {
        "" => Some(ResourceReach::Own),
        rest => rest.starts_with('/').then_some(ResourceReach::Parent),
    }
}

fn joined(scopes: &[String]) -> Option<String> {
    (!scopes.is_empty()).then(|| scopes.join(" "))
}

/// The scope, with what a refresh token needs.
fn with_offline(scope: Option<String>, metadata: &IssuerMetadata) -> Option<String> {
    let is_known = metadata.scopes_supported.iter().any(|scope| scope == OFFLINE_SCOPE);
    match scope {
        Some(scope) if is_known && !scope.split(' ').any(|one| one == OFFLINE_SCOPE) => {
            Some(format!("{scope} {OFFLINE_SCOPE}"))
        }
        None if is_known => Some(OFFLINE_SCOPE.to_owned()),
        scope => scope,
    }
}

impl Challenge {
    /// Reads a header: schemes, each with parameters between commas. Only the scheme `Bearer` counts.
    fn of(header: &str) -> Self {
        let (mut challenge, mut is_bearer) = (Self::default(), false);
        for part in parts(header) {
            let (name, value) = part.split_once('=').unwrap_or((&part, ""));
            let name = match name.trim().rsplit_once(char::is_whitespace) {
                Some((scheme, name)) => {
                    is_bearer = scheme.trim().eq_ignore_ascii_case("bearer");
                    name
                }
                None => name.trim(),
            };
            let place = match name.to_ascii_lowercase().as_str() {
                "resource_metadata" => &mut challenge.resource_metadata,
                "scope" => &mut challenge.scope,
                _ => continue,
            };
            if is_bearer && place.is_none() {
                *place = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            }
        }
        challenge
    }
}

/// The parts between the commas that stand in no quotes, without the quotes.
fn parts(header: &str) -> Vec<String> {
    let (mut parts, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for c in header.chars() {
        match c {
            '\\' if is_quoted && !is_escaped => {
                is_escaped = true;
                continue;
            }
            '"' if !is_escaped => is_quoted = !is_quoted,
            ',' if !is_quoted => parts.push(String::new()),
            c => parts.last_mut().expect("there is a first").push(c),
        }
        is_escaped = false;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(metadata: Option<&str>, scope: Option<&str>) -> Challenge {
        Challenge { resource_metadata: metadata.map(str::to_owned), scope: scope.map(str::to_owned) }
    }

    #[test]
    fn a_refusal_is_read_whatever_stands_beside_it() {
        let place = "https://a.example/.well-known/oauth-protected-resource?a=1,2";
        for header in [
            format!("Bearer resource_metadata=\"{place}\", scope=\"a b\""),
            format!("bearer realm=\"x\\\", y\", error=\"invalid_token\",scope=\"a b\" , Resource_Metadata=\"{place}\""),
            format!(
                "Basic realm=\"x\", scope=\"no\", Bearer scope=\"a b\", resource_metadata=\"{place}\", DPoP scope=\"c\""
            ),
        ] {
            assert_eq!(Challenge::of(&header), challenge(Some(place), Some("a b")), "{header}");
        }
        assert_eq!(
            Challenge::of("Bearer resource_metadata=https://a.example"),
            challenge(Some("https://a.example"), None)
        );
        for header in ["", "Bearer", "Basic scope=x", "Bearer scope=\"\"", "resource_metadata=\"https://a.example\""] {
            assert_eq!(Challenge::of(header), challenge(None, None), "{header}");
        }
    }

    #[test]
    fn a_resource_is_the_servers_own_address_or_one_above_it_on_the_same_origin() {
        let reach = |resource: &str| reach(resource, &Url::parse("https://a.example/team/mcp").expect("a URL"));
        for own in ["https://a.example/team/mcp", "https://a.example/team/mcp/", "https://A.example:443/team/mcp"] {
            assert_eq!(reach(own), Some(ResourceReach::Own), "{own}");
        }
        for parent in ["https://a.example/team", "https://a.example/team/", "https://a.example", "https://a.example/"] {
            assert_eq!(reach(parent), Some(ResourceReach::Parent), "{parent}");
        }
        for bad in [
            "http://a.example/team/mcp",
            "https://b.example/team/mcp",
            "https://a.example:444/team/mcp",
            "https://a.example/team/mc",
            "https://a.example/team/mcp/x",
            "https://a.example/team/mcp?x",
            "https://a.example/team/mcp#x",
            "https://me@a.example/team/mcp",
            "https://:canary@a.example/team/mcp",
            "urn:x",
            "team/mcp",
        ] {
            assert_eq!(reach(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_place_of_metadata_is_that_of_the_whole_address_and_then_that_of_the_host() {
        let places = |server: &str| -> Vec<_> {
            well_known(&Url::parse(server).expect("a URL")).iter().map(|place| place.to_string()).collect()
        };
        let root = "https://a.example/.well-known/oauth-protected-resource";
        assert_eq!(places("https://a.example/team/mcp/"), [format!("{root}/team/mcp"), root.to_owned()]);
        assert_eq!(places("https://a.example"), [root]);
    }
}
