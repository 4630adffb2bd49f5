//! Conversion between a webhook's settings and form fields, which are named as the options of `deskgate hook`.

use std::collections::BTreeMap;

use deskgate_protocol::management::{
    PlainHmac, WebhookFilter, WebhookMapping, WebhookSample, WebhookScheme, WebhookSettings,
};
use deskgate_protocol::secret::SecretKind;

use super::fields::FormFields;
use super::webhook_kinds::WebhookKind;
use crate::local::{ErrorReply, ErrorReplyCode};

/// The fields that an error can be about, each with its name on the page.
const WEBHOOK_FIELD_LABELS: [(&str, &str); 22] = [
    ("name", "Name"),
    ("service", "Service"),
    ("secret", "Secret"),
    ("event-type", "Types"),
    ("condition", "Condition"),
    ("text", "Text"),
    ("subject", "Subject"),
    ("subject-path", "Path to the subject"),
    ("conversation-key", "Path to the conversation"),
    ("on-busy", "While it is busy"),
    ("label", "Labels"),
    ("data", "Data"),
    ("rate", "Events a second"),
    ("signature-header", "Header"),
    ("algorithm", "Algorithm"),
    ("encoding", "Encoding"),
    ("prefix", "Prefix"),
    ("event-id-from", "Event's identifier"),
    ("event-type-from", "Event's type"),
    ("receipt", "Event"),
    ("with-header", "Headers"),
    ("body", "Body"),
];

/// The same without the names on the page.
pub(super) const WEBHOOK_FIELDS: &[&str] = &{
    let mut fields = [""; WEBHOOK_FIELD_LABELS.len()];
    let mut place = 0;
    while place < WEBHOOK_FIELD_LABELS.len() {
        fields[place] = WEBHOOK_FIELD_LABELS[place].0;
        place += 1;
    }
    fields
};

/// The name of a field on the page.
pub(super) fn label(field: &str) -> &'static str {
    WEBHOOK_FIELD_LABELS.iter().find(|(name, _)| *name == field).map_or("", |(_, label)| label)
}

/// The fields of settings.
pub(super) fn fields(settings: &WebhookSettings) -> FormFields {
    let WebhookSettings { name, endpoint_id, scheme, filter, mapping, requests_per_second, keep_bodies } = settings;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let pairs = |pairs: &BTreeMap<String, String>| {
        pairs.iter().map(|(name, path)| format!("{name}={path}")).collect::<Vec<_>>().join("\n")
    };
    let mut fields = vec![
        ("name", name.clone()),
        ("service", endpoint_id.to_string()),
        ("event-type", filter.event_types.join(", ")),
        ("condition", text(&filter.condition)),
        ("text", mapping.text.clone()),
        ("subject", text(&mapping.subject)),
        ("subject-path", text(&mapping.subject_path)),
        ("conversation-key", text(&mapping.conversation_key)),
        ("on-busy", mapping.on_busy.to_string()),
        ("label", pairs(&mapping.metadata)),
        ("data", pairs(&mapping.data)),
        ("rate", requests_per_second.to_string()),
        ("keep-bodies", if *keep_bodies { "yes" } else { "" }.to_owned()),
    ];
    if let WebhookScheme::Hmac(plain) = scheme {
        fields.extend([
            ("signature-header", plain.header.clone()),
            ("algorithm", plain.algorithm.to_string()),
            ("encoding", plain.encoding.to_string()),
            ("prefix", plain.prefix.clone()),
            ("event-id-from", text(&plain.event_id)),
            ("event-type-from", text(&plain.event_type)),
        ]);
    }
    FormFields(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The settings in a form, or one sentence for each wrong field.
pub(super) fn settings(fields: &FormFields, kind: &WebhookKind) -> Result<WebhookSettings, ErrorReply> {
    let mut form = WebhookForm { fields, wrong: Vec::new() };
    let settings = form.settings(kind);
    let wrong = form.wrong;
    settings
        .filter(|_| wrong.is_empty())
        .ok_or_else(|| ErrorReply { code: ErrorReplyCode::Invalid, message: wrong.join("\n") })
}

/// The event in a form: a received one, or one that is written there.
pub(super) fn sample(fields: &FormFields) -> Result<WebhookSample, ErrorReply> {
    if let Ok(receipt_id) = fields.get("receipt").parse() {
        return Ok(WebhookSample::Receipt { receipt_id });
    }
    let mut form = WebhookForm { fields, wrong: Vec::new() };
    let headers = form.pairs("with-header", ':', "a header is written as Name: value, one in a line");
    let (wrong, body) = (form.wrong, fields.get("body").to_owned());
    match wrong.is_empty() {
        true => Ok(WebhookSample::Given { headers, body }),
        false => Err(ErrorReply { code: ErrorReplyCode::Invalid, message: wrong.join("\n") }),
    }
}

/// A form while it is parsed, with its errors.
struct WebhookForm<'a> {
    fields: &'a FormFields,
    wrong: Vec<String>,
}

impl WebhookForm<'_> {
    fn settings(&mut self, kind: &WebhookKind) -> Option<WebhookSettings> {
        self.no_secrets();
        let mapping = WebhookMapping {
            text: self.text("text"),
            subject: self.fields.filled("subject"),
            subject_path: self.fields.filled("subject-path"),
            conversation_key: self.fields.filled("conversation-key"),
            on_busy: self.parsed("on-busy", "choose one").unwrap_or_default(),
            metadata: self.pairs("label", '=', "a label is written as name=$.path, one in a line"),
            data: self.pairs("data", '=', "a member is written as name=$.path, one in a line"),
        };
        let types = self.text("event-type");
        let types = types.split([',', '\n']).map(str::trim).filter(|kind| !kind.is_empty());
        let condition = Some(self.text("condition")).filter(|text| !text.trim().is_empty());
        let filter = WebhookFilter { event_types: types.map(str::to_owned).collect(), condition };
        // Every field is parsed, so that all errors are shown at once.
        let endpoint_id = self.parsed("service", "choose one");
        let requests_per_second = self.parsed("rate", "it is no whole number");
        let scheme = self.scheme(kind);
        Some(WebhookSettings {
            name: self.fields.get("name").trim().to_owned(),
            endpoint_id: endpoint_id?,
            scheme: scheme?,
            filter,
            mapping,
            requests_per_second: requests_per_second?,
            keep_bodies: self.fields.get("keep-bodies") == "yes",
        })
    }

    fn scheme(&mut self, kind: &WebhookKind) -> Option<WebhookScheme> {
        Some(match kind.word {
            "standard" => WebhookScheme::StandardWebhooks {},
            "github" => WebhookScheme::Github {},
            "stripe" => WebhookScheme::Stripe {},
            _ => {
                let (algorithm, encoding) =
                    (self.parsed("algorithm", "choose one"), self.parsed("encoding", "choose one"));
                WebhookScheme::Hmac(PlainHmac {
                    header: self.fields.get("signature-header").trim().to_owned(),
                    algorithm: algorithm?,
                    encoding: encoding?,
                    prefix: self.fields.get("prefix").trim().to_owned(),
                    event_id: self.fields.filled("event-id-from"),
                    event_type: self.fields.filled("event-type-from"),
                })
            }
        })
    }

    /// Only the secret's field may hold a secret.
    fn no_secrets(&mut self) {
        for (name, value) in
            self.fields.0.iter().filter(|(name, _)| name != "secret" && WEBHOOK_FIELDS.contains(&name.as_str()))
        {
            if let Some(kind) = SecretKind::of(value.trim()) {
                self.wrong
                    .push(format!("{name}: this is {kind}, which does not belong here. It was taken out of the field"));
            }
        }
    }

    /// A text without the browser's line ends.
    fn text(&self, name: &str) -> String {
        self.fields.get(name).replace("\r\n", "\n")
    }

    fn parsed<T: std::str::FromStr>(&mut self, name: &str, wrong: &str) -> Option<T> {
        let parsed = self.fields.get(name).trim().parse().ok();
        if parsed.is_none() {
            self.wrong.push(format!("{name}: {wrong}"));
        }
        parsed
    }

    /// Names with values, one per line.
    fn pairs(&mut self, name: &str, between: char, wrong: &str) -> BTreeMap<String, String> {
        let (mut pairs, text) = (BTreeMap::new(), self.text(name));
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once(between) {
                Some((key, value)) => drop(pairs.insert(key.trim().to_owned(), value.trim().to_owned())),
                None => {
                    self.wrong.push(format!("{name}: {wrong}"));
                    break;
                }
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::super::webhook_kinds;
    use super::*;

    fn form(change: &[(&str, &str)]) -> FormFields {
        let kind = webhook_kinds::named("hmac").expect("known");
        let endpoint = "ep_0192f1c047117000800000000000000a";
        let mut fields = kind.fresh();
        for (name, value) in [&[("service", endpoint)], change].concat() {
            fields.0.retain(|(key, _)| key != name);
            fields.0.push((name.to_owned(), value.to_owned()));
        }
        fields
    }

    fn read(change: &[(&str, &str)]) -> Result<WebhookSettings, String> {
        settings(&form(change), webhook_kinds::named("hmac").expect("known")).map_err(|no| no.message)
    }

    #[test]
    fn what_is_saved_comes_back_as_the_same_fields() {
        let more =
            [("event-type", "a, b.*\r\nc"), ("label", "n=$.n\r\nm = $.m"), ("text", "a\r\nb"), ("keep-bodies", "yes")];
        let saved = read(&more).expect("whole");
        assert_eq!(saved.filter.event_types, ["a", "b.*", "c"]);
        assert_eq!((saved.mapping.metadata.len(), saved.mapping.text.as_str()), (2, "a\nb"));
        assert!(saved.keep_bodies && saved.filter.condition.is_none());
        let again = settings(&fields(&saved), webhook_kinds::of(&saved.scheme)).expect("whole");
        assert_eq!(again, saved);
    }

    #[test]
    fn every_field_that_cannot_be_read_is_named_at_once() {
        let wrong =
            read(&[("service", ""), ("rate", "many"), ("label", "n"), ("encoding", "morse")]).expect_err("wrong");
        let named: Vec<_> = wrong.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
        assert_eq!(named, ["label", "service", "rate", "encoding"], "{wrong}");
        assert!(named.iter().all(|name| WEBHOOK_FIELDS.contains(name) && !label(name).is_empty()));
        let secret = read(&[("name", "dgk_canary")]).expect_err("a secret");
        assert!(secret.starts_with("name: this is") && !secret.contains("canary"), "{secret}");
    }

    #[test]
    fn an_event_is_one_that_was_received_or_the_one_that_is_written_there() {
        let written = sample(&form(&[("with-header", "A: 1\r\n b:2"), ("body", "{}")])).expect("whole");
        let headers = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        assert_eq!(written, WebhookSample::Given { headers, body: "{}".to_owned() });
        let receipt = "rcpt_0192f1c047117000800000000000000b";
        let received = sample(&form(&[("receipt", receipt), ("with-header", "none")])).expect("whole");
        assert_eq!(received, WebhookSample::Receipt { receipt_id: receipt.parse().expect("an identifier") });
        assert!(sample(&form(&[("with-header", "none")])).is_err());
    }
}
