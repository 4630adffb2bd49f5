//! Removes what could be a secret from a text.
//!
//! Neither program writes secrets into its log; this is a second safeguard where logs are shown or sent. What is known to
//! be a secret is taken out of others' words in `known`.

mod identifiers;
mod known;

use deskgate_protocol::secret::SecretKind;
pub use known::without_secret;

/// Shorter words are kept even if they begin like a secret.
const MIN_SECRET_CHARS: usize = 8;
/// Words of at least this many characters count as secrets.
const MIN_OPAQUE_CHARS: usize = 40;
/// How many characters before a word are examined for what it is.
const MAX_CONTEXT_CHARS: usize = 64;
/// What follows one of these words is a secret.
const NAMES_OF_SECRETS: [&str; 8] =
    ["bearer", "basic", "password", "api_key", "access_token", "refresh_token", "code_verifier", "client_secret"];
/// What follows one of these words and an equals sign is a secret.
const PARAMETERS: [&str; 4] = ["code", "token", "key", "password"];
/// The replacement for a secret.
const REPLACEMENT_TEXT: &str = "[removed]";

/// The text without what looks like a secret: by its beginning, by the word before it, or by its length.
pub fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let text = without_passwords(text);
    let mut rest = text.as_str();
    // Whether what comes next belongs to a word that was removed.
    let mut goes_on = false;
    while let Some(first) = rest.chars().next() {
        if let Some((c, length)) = encoded(rest) {
            goes_on &= in_a_key(c);
            if !goes_on {
                clean.push_str(&rest[..length]);
            }
            rest = &rest[length..];
            continue;
        }
        let length = rest.find(|c: char| !in_a_key(c)).unwrap_or(rest.len());
        if length == 0 {
            clean.push(first);
            rest = &rest[first.len_utf8()..];
            goes_on = false;
            continue;
        }
        let (word, after) = rest.split_at(length);
        let from = clean.char_indices().rev().nth(MAX_CONTEXT_CHARS).map_or(0, |(at, _)| at);
        if !goes_on {
            let word = word_of(word, &clean[from..]);
            clean.push_str(&word);
            goes_on = word.ends_with(REPLACEMENT_TEXT);
        }
        rest = after;
    }
    clean
}

fn in_a_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_+/=.~".contains(c)
}

/// An ASCII character as an address or JSON writes it, at the beginning of a text, and its length there.
fn encoded(text: &str) -> Option<(char, usize)> {
    let byte = |digits: Option<&str>| {
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii).map(char::from)
    };
    let (c, length) = match text.as_bytes() {
        [b'%', ..] => (byte(text.get(1..3))?, 3),
        [b'\\', b'u', b'0', b'0', ..] => (byte(text.get(4..6))?, 6),
        [b'\\', b'/', ..] => ('/', 2),
        _ => return None,
    };
    Some((c, length))
}

/// What comes before a word, without what stands between a name and its value.
fn name_before(before: &str) -> &str {
    let mut name = before;
    loop {
        let trimmed = name.trim_end_matches([' ', '"', ':', '\\']);
        let code = trimmed.len().checked_sub(3).and_then(|at| trimmed.get(at..)).and_then(encoded);
        name = match code {
            Some((' ' | '"' | ':' | '=', length)) => &trimmed[..trimmed.len() - length],
            _ => return trimmed,
        };
    }
}

/// A word, redacted if needed.
fn word_of(word: &str, before: &str) -> String {
    let boundary = |at: usize| !word[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let is_secret = |at: usize| word.len() - at >= MIN_SECRET_CHARS && SecretKind::of(&word[at..]).is_some();
    if let Some(at) = (0..word.len()).find(|at| boundary(*at) && is_secret(*at)) {
        return format!("{}{REPLACEMENT_TEXT}", &word[..at]);
    }
    // The words are ASCII.
    let before_it = name_before(before).to_ascii_lowercase();
    let ends = |text: &str| before_it.ends_with(text);
    let is_parameter = before.len() != before.trim_end_matches("%3D").trim_end_matches("%3d").len();
    let told = NAMES_OF_SECRETS.into_iter().any(ends) || (is_parameter && PARAMETERS.into_iter().any(ends));
    // A log says `code=refused` of what an address says `?code=…`.
    let in_address = before.ends_with(['?', '&']) || before.ends_with("%3F") || before.ends_with("%26");
    let is_read = |name: &str| name != "code" || in_address || word.contains(['/', '.']);
    let coded = PARAMETERS
        .into_iter()
        .filter(|name| is_read(name))
        .find_map(|name| Some(word.find(&format!("{name}="))? + name.len() + 1));
    match coded {
        Some(at) if word.len() - at >= MIN_SECRET_CHARS => format!("{}{REPLACEMENT_TEXT}", &word[..at]),
        _ if told && word.len() >= MIN_SECRET_CHARS => REPLACEMENT_TEXT.to_owned(),
        _ if is_long(word) && !before.ends_with("SHA256:") => REPLACEMENT_TEXT.to_owned(),
        _ => word.to_owned(),
    }
}

/// Whether it is long base64 or hexadecimal, and no path. Identifiers open nothing, so that they do not count.
fn is_long(word: &str) -> bool {
    word.len() - identifiers::length_of(word) >= MIN_OPAQUE_CHARS
        && !word.starts_with(['/', '~', '.'])
        && !word.contains("=/")
        && !word.contains('.')
}

/// Removes the passwords from addresses: the part between the name and the host of `scheme://name:password@host`.
fn without_passwords(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + "://".len());
        clean.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/?#\"'<>".contains(c)).unwrap_or(after.len());
        // A password may contain any character but those; the host follows the last of them.
        let (authority, left) = after.split_at(end);
        match authority.rsplit_once('@').and_then(|(who, host)| Some((who.split_once(':')?.0, host))) {
            Some((name, host)) => clean.extend([name, ":", REPLACEMENT_TEXT, "@", host]),
            None => clean.push_str(authority),
        }
        rest = left;
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_leave_a_text_and_the_rest_stays() {
        for (text, clean) in [
            ("key dgk_0123456789abcdef refused", "key [removed] refused"),
            (
                "http://127.0.0.1:7420/sign-in?code=dgl_01234567&to=/runs",
                "http://127.0.0.1:7420/sign-in?code=[removed]&to=/runs",
            ),
            ("https://x/?a=sk-ant-0123456789", "https://x/?a=[removed]"),
            ("Authorization: Bearer canary-canary", "Authorization: Bearer [removed]"),
            ("/sign-in?code=AbCdEfGhIj", "/sign-in?code=[removed]"),
            ("/callback?code=AbCdEfGhIj&iss=https", "/callback?code=[removed]&iss=https"),
            ("{\"access_token\": \"canary-canary\"}", "{\"access_token\": \"[removed]\"}"),
            ("refresh_token=canary-canary&code_verifier: canary-2", "refresh_token=[removed]&code_verifier: [removed]"),
            ("\"dgt_0123456789\",\"whsec_0123456789\"", "\"[removed]\",\"[removed]\""),
            ("postgres://me:h@unter2@db:5432/x and on", "postgres://me:[removed]@db:5432/x and on"),
            ("?a=1%26api_key%3Dcanary-canary%26b=2", "?a=1%26api_key%3D[removed]%26b=2"),
            ("?url=x%3Fkey%3Dsk-ant-0123%2B456789%3D&b", "?url=x%3Fkey%3D[removed]&b"),
            (r#"{\"access_token\": \"canary-canary\/x\u002by\"}"#, r#"{\"access_token\": \"[removed]\"}"#),
            ("-----BEGIN OPENSSH", "[removed] OPENSSH"),
            ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB", "[removed]"),
            ("secret=b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB", "[removed]"),
            ("token=canary-canary key=canary-canary", "token=[removed] key=[removed]"),
            ("invitation dgi_AAAAAAAAAAAA-_A", "invitation [removed]"),
        ] {
            assert_eq!(redact(text), clean);
        }
        for text in [
            "run_019ab3c4d5e67f8091a2b3c4d5e6f708 ended, task-list done in 3.2 s",
            "device connected run_id=run_019ab3c4d5e67f8091a2b3c4d5e6f708 device_id=dev_019ab3c4d5e67f8091a2b3c4d5e6f708",
            "refused code=version_mismatch invitation_id=inv_019ab3c4d5e67f8091a2b3c4d5e6f708",
            "\"code\":\"version_mismatch\",\"conversation_id\":\"conv_019ab3c4d5e67f8091a2b3c4d5e6f708\"",
            "fingerprint SHA256:dlqIyXYrBcsFcSkyLbNrgJvD8HvWCyvaAzBgyLqN9u8",
            "cannot open /home/me/a/very/long/path/with-many-parts/and/no/end/to/it",
            "https://gateway.example.com:8443/api/v1 and postgres://me@db/x",
            "Größe 漢字 \"quoted\" sk-1",
            "https://x/a%20file%2Fwith?redirect=https%3A%2F%2Fy and 100 %, C:\\users\\me",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
