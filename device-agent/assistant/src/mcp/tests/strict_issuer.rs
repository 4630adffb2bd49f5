//! An MCP server that lets nobody in without a token, and its authorization server, which refuses whatever the
//! specifications let it refuse: a missing or wrong verifier, another resource, another redirect, a code or a refresh token
//! that was used before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::server::{FakeMcpServer, SeenRequest, ServerReply, http, modern, result};
use super::*;

type Form = BTreeMap<String, String>;

/// What a code or a token was given for.
#[derive(Clone, Debug)]
struct Granted {
    client_id: String,
    redirect: String,
    challenge: String,
}

/// What the authorization server knows, and how it behaves.
#[derive(Debug, Default)]
pub(super) struct IssuerBook {
    base: String,
    /// Clients with their redirects; one without was made by hand, and takes any on this computer.
    pub(super) clients: BTreeMap<String, Option<String>>,
    codes: BTreeMap<String, Granted>,
    refresh_tokens: BTreeMap<String, Granted>,
    /// The access tokens that are taken.
    pub(super) access_tokens: BTreeSet<String>,
    /// The tokens that were revoked.
    pub(super) revoked: Vec<String>,
    given: usize,
    /// Changes of the authorization server's metadata; `null` takes a member away.
    pub(super) metadata: Value,
    /// Changes of the server's own metadata.
    pub(super) resource: Value,
    /// Changes of what the server's host has at its own place; with none it has nothing.
    pub(super) host: Value,
    /// Whether a web page is shown wherever there is nothing else.
    pub(super) shows_pages: bool,
    /// Changes of what a registration gives.
    pub(super) registration: Value,
    /// Changes of what comes with tokens.
    pub(super) tokens: Value,
    /// How long the next tokens last, in seconds.
    pub(super) expires_in: Option<u64>,
    /// Whether refresh tokens are given.
    pub(super) is_refreshing: bool,
    /// Whether a refresh gives no other refresh token.
    pub(super) keeps_refresh_token: bool,
    /// How long the token endpoint takes.
    pub(super) token_delay: Duration,
    /// Whether the token endpoint fails.
    pub(super) is_failing: bool,
    /// Whether the token endpoint gives tokens, and its answer is lost.
    pub(super) loses_tokens: bool,
    /// Whether the refusal of the server points to no metadata.
    pub(super) is_silent: bool,
    /// Whether the server takes no token at all.
    pub(super) is_closed: bool,
}

/// The two servers, which are one program here.
pub(super) struct StrictIssuer {
    pub(super) server: FakeMcpServer,
    book: Arc<std::sync::Mutex<IssuerBook>>,
}

impl StrictIssuer {
    pub(super) async fn start() -> Self {
        let book = IssuerBook { is_refreshing: true, expires_in: Some(3600), ..IssuerBook::default() };
        let book = Arc::new(std::sync::Mutex::new(book));
        let kept = Arc::clone(&book);
        let server = FakeMcpServer::start(move |seen| kept.lock().expect("no panic").answer(seen)).await;
        book.lock().expect("no panic").base = server.url.trim_end_matches("/mcp").to_owned();
        Self { server, book }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, IssuerBook> {
        self.book.lock().expect("no panic")
    }

    /// The requests at a path, in order.
    pub(super) fn seen_at(&self, path: &str) -> Vec<SeenRequest> {
        let at = |seen: &SeenRequest| seen.line.split(' ').nth(1).is_some_and(|target| target == path);
        self.server.seen().into_iter().filter(at).collect()
    }

    /// How many tokens were asked for with a refresh token.
    pub(super) fn refreshes(&self) -> usize {
        self.seen_at("/token").iter().filter(|seen| seen.text.contains("grant_type=refresh_token")).count()
    }

    /// What a browser does with the address: the owner agrees, and the answer is brought back.
    pub(super) async fn agree(&self, address: &str) {
        let back = self.book().authorized(&query_of(address)).expect("a request that is right");
        bring_back(&back).await;
    }
}

/// Opens an address on this computer.
pub(super) async fn bring_back(address: &str) {
    let client = deskgate_outbound::builder().no_proxy().build().expect("a client");
    let answered = client.get(address).send().await.expect("somebody listens");
    assert_eq!(answered.status(), 200);
}

/// The parameters of an address.
pub(super) fn query_of(address: &str) -> Form {
    reqwest::Url::parse(address).expect("a URL").query_pairs().into_owned().collect()
}

fn form_of(text: &str) -> Form {
    query_of(&format!("https://form/?{text}"))
}

/// A document with changes.
fn changed(mut document: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().into_iter().flatten() {
        document[name] = value.clone();
    }
    document.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    document
}

/// Whether tokens are given for this resource: the server, or its host, without a slash behind either.
fn is_resource(resource: Option<&String>, base: &str) -> bool {
    resource.is_some_and(|resource| resource == base || *resource == format!("{base}/mcp"))
}

fn document(status: &str, document: &Value) -> ServerReply {
    http(status, "content-type: application/json\r\n", &document.to_string())
}

fn refused(error: &str) -> ServerReply {
    document("400 Bad Request", &json!({ "error": error, "error_description": "as it has to be" }))
}

impl IssuerBook {
    fn answer(&mut self, seen: &SeenRequest) -> ServerReply {
        let host = seen.head.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
        let base = format!("https://{host}");
        let mut words = seen.line.split(' ');
        match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
            ("POST", "/mcp") => self.served(seen, &base),
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                let own = json!({ "resource": format!("{base}/mcp"), "authorization_servers": [base],
                    "scopes_supported": ["notes"] });
                document("200 OK", &changed(own, &self.resource))
            }
            ("GET", "/.well-known/oauth-protected-resource") if self.host.is_object() => {
                let own = json!({ "resource": base, "authorization_servers": [base] });
                document("200 OK", &changed(own, &self.host))
            }
            ("GET", "/.well-known/openid-configuration") => {
                let own = json!({ "issuer": base, "authorization_endpoint": format!("{base}/authorize?tenant=1"),
                    "token_endpoint": format!("{base}/token"), "registration_endpoint": format!("{base}/register"),
                    "revocation_endpoint": format!("{base}/revoke"), "code_challenge_methods_supported": ["plain", "S256"],
                    "scopes_supported": ["notes", "offline_access"] });
                document("200 OK", &changed(own, &self.metadata))
            }
            ("POST", "/register") => self.registered(seen),
            ("POST", "/token") if self.is_failing => http("503 Service Unavailable", "", ""),
            ("POST", "/token") => match form_of(&seen.text) {
                form if !is_resource(form.get("resource"), &base) => refused("invalid_target"),
                form => {
                    let reply = self.exchanged(&form).unwrap_or_else(refused);
                    let reply = if self.loses_tokens { ServerReply::Cut } else { reply };
                    ServerReply::Late(self.token_delay, Box::new(reply))
                }
            },
            ("POST", "/revoke") => {
                let token = form_of(&seen.text).remove("token").unwrap_or_default();
                self.refresh_tokens.remove(&token);
                self.access_tokens.remove(&token);
                self.revoked.push(token);
                http("200 OK", "", "")
            }
            ("GET", _) if self.shows_pages => {
                http("200 OK", "content-type: text/html; charset=utf-8\r\n", "<!doctype html>")
            }
            _ => http("404 Not Found", "", ""),
        }
    }

    /// The MCP server.
    fn served(&self, seen: &SeenRequest, base: &str) -> ServerReply {
        if self.is_closed || !seen.bearer.as_ref().is_some_and(|token| self.access_tokens.contains(token)) {
            let place = format!("resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
            let header = match self.is_silent {
                true => String::new(),
                false => format!("www-authenticate: Bearer error=\"invalid_token\", {place}, scope=\"notes tags\"\r\n"),
            };
            return http("401 Unauthorized", &header, "");
        }
        match seen.method.as_str() {
            "tools/call" => result(seen, json!({ "resultType": "complete", "content": says("Noted.")["content"] })),
            _ => modern(seen, tools()),
        }
    }

    fn registered(&mut self, seen: &SeenRequest) -> ServerReply {
        let redirect = seen.body["redirect_uris"][0].as_str().unwrap_or_default().to_owned();
        let is_right = seen.body["application_type"] == "native"
            && seen.body["token_endpoint_auth_method"] == "none"
            && seen.body["grant_types"] == json!(["authorization_code", "refresh_token"])
            && redirect.starts_with("http://127.0.0.1:");
        if !is_right {
            return refused("invalid_client_metadata");
        }
        let client_id = format!("client-{}", self.clients.len());
        self.clients.insert(client_id.clone(), Some(redirect));
        let own = json!({ "client_id": client_id, "token_endpoint_auth_method": "none" });
        document("201 Created", &changed(own, &self.registration))
    }

    /// Where the browser is sent when the owner agrees.
    pub(super) fn authorized(&mut self, query: &Form) -> Result<String, &'static str> {
        let get = |name: &str| query.get(name).cloned().ok_or("something is missing");
        let (client_id, redirect, challenge) = (get("client_id")?, get("redirect_uri")?, get("code_challenge")?);
        let registered = self.clients.get(&client_id).ok_or("an unknown client")?;
        if registered.as_ref().is_some_and(|registered| *registered != redirect) {
            return Err("another redirect");
        }
        if get("response_type")? != "code" || get("code_challenge_method")? != "S256" || challenge.len() != 43 {
            return Err("no PKCE");
        }
        let is_scope = get("scope")? == "notes tags offline_access";
        if !is_resource(query.get("resource"), &self.base) || !is_scope || get("tenant")? != "1" {
            return Err("another resource or scope");
        }
        let state = get("state")?;
        let code = self.fresh("code");
        self.codes.insert(code.clone(), Granted { client_id, redirect: redirect.clone(), challenge });
        Ok(format!("{redirect}?code={code}&state={state}"))
    }

    fn exchanged(&mut self, form: &Form) -> Result<ServerReply, &'static str> {
        let get = |name: &str| form.get(name).cloned().ok_or("invalid_request");
        let granted = match get("grant_type")?.as_str() {
            "authorization_code" => {
                let granted = self.codes.remove(&get("code")?).ok_or("invalid_grant")?;
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")?));
                if challenge != granted.challenge || get("redirect_uri")? != granted.redirect {
                    return Err("invalid_grant");
                }
                granted
            }
            "refresh_token" => match self.keeps_refresh_token {
                true => self.refresh_tokens.get(&get("refresh_token")?).cloned(),
                false => self.refresh_tokens.remove(&get("refresh_token")?),
            }
            .ok_or("invalid_grant")?,
            _ => return Err("unsupported_grant_type"),
        };
        if get("client_id")? != granted.client_id {
            return Err("invalid_client");
        }
        let access = self.fresh("access");
        self.access_tokens.insert(access.clone());
        let mut tokens = json!({ "access_token": access, "token_type": "bearer" });
        if let Some(seconds) = self.expires_in {
            tokens["expires_in"] = seconds.into();
        }
        if self.is_refreshing && !(self.keeps_refresh_token && form.contains_key("refresh_token")) {
            let refresh = self.fresh("refresh");
            self.refresh_tokens.insert(refresh.clone(), granted);
            tokens["refresh_token"] = refresh.into();
        }
        Ok(document("200 OK", &changed(tokens, &self.tokens)))
    }

    /// Ends every refresh token.
    pub(super) fn end_refreshing(&mut self) {
        self.refresh_tokens.clear();
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.given += 1;
        format!("{kind}-Canary-{}", self.given)
    }
}
