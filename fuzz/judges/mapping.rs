//! The mapping of events: it ends in bounded time, within its limits, and gives the same result again.

use std::collections::BTreeMap;

use deskgate_gateway::domain::body_quota::MAX_TEXT_BYTES;
use deskgate_gateway::domain::webhooks::cel::Condition;
use deskgate_gateway::domain::webhooks::path::Path;
use deskgate_gateway::domain::webhooks::rules::Rules;
use deskgate_gateway::domain::webhooks::template::Template;
use deskgate_gateway::domain::webhooks::{Headers, Proof, WebhookEvent, event};
use deskgate_protocol::management::{
    HashAlgorithm, MappedRun, PlainHmac, SignatureEncoding, TrialOutcome, WebhookFilter, WebhookMapping, WebhookScheme,
    WebhookSettings,
};
use serde_json::Value;

use super::{line, processor_time};

/// The most CPU seconds for one event, in an unoptimised build on a busy machine.
const LONGEST: f64 = 2.0;

/// Judges six lines and a payload: event types separated by blanks, a condition, a subject, the path of a subject, the
/// path of a conversation's key, a template; an empty line means absent.
pub fn judge(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (types, rest) = line(&text);
    let (condition, rest) = line(rest);
    let (subject, rest) = line(rest);
    let (subject_path, rest) = line(rest);
    let (key, rest) = line(rest);
    let (template, payload) = line(rest);
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());

    let began = processor_time();
    for text in [types, condition, subject, subject_path, key, template, payload] {
        same(|| format!("{:?}", Condition::parse(text)));
        same(|| format!("{:?}", Path::parse(text)));
        same(|| format!("{:?}", Template::parse(text)));
    }
    let settings = WebhookSettings {
        name: "a webhook".to_owned(),
        endpoint_id: "ep_018f3b6e000070008000000000000001".parse().expect("an identifier"),
        scheme: WebhookScheme::Hmac(PlainHmac {
            header: "x-signature".to_owned(),
            algorithm: HashAlgorithm::Sha256,
            encoding: SignatureEncoding::Hex,
            prefix: String::new(),
            event_id: Some("$.id".to_owned()),
            event_type: Some("$.type".to_owned()),
        }),
        filter: WebhookFilter { event_types: types.split(' ').filter_map(some).collect(), condition: some(condition) },
        mapping: WebhookMapping {
            text: template.replace("\\n", "\n"),
            subject: some(subject),
            subject_path: some(subject_path),
            conversation_key: some(key),
            on_busy: Default::default(),
            metadata: BTreeMap::from([("label".to_owned(), "$.label".to_owned())]),
            data: BTreeMap::from([("whole".to_owned(), "$".to_owned()), ("again".to_owned(), "$".to_owned())]),
        },
        requests_per_second: 10,
        keep_bodies: false,
    };
    if let (Ok(rules), Ok(payload)) = (Rules::read(&settings), serde_json::from_str::<Value>(payload)) {
        let of = || event(&settings.scheme, Proof::default(), &Headers::default(), bytes, payload.clone());
        let event: WebhookEvent = of().expect("no header is looked at");
        assert_eq!(of().as_ref(), Ok(&event));
        assert!((1..=255).contains(&event.id.len()) && !event.id.contains('\0'), "{:?}", event.id);
        let outcome = rules.judge(&event);
        assert_eq!(rules.judge(&event), outcome, "decided in another way");
        if let TrialOutcome::Submitted(mapped) = outcome {
            bounded(&mapped);
        }
    }
    let took = processor_time() - began;
    assert!(took < LONGEST, "it took {took} s");
}

fn same(make: impl Fn() -> String) {
    assert_eq!(make(), make());
}

fn bounded(mapped: &MappedRun) {
    let MappedRun { text, subject, conversation_key, metadata, data } = mapped;
    assert!((1..=MAX_TEXT_BYTES).contains(&text.len()), "a text of {} bytes", text.len());
    assert!(
        (1..=255).contains(&subject.len()) && subject.bytes().all(|byte| (0x21..0x7f).contains(&byte)),
        "{subject:?}"
    );
    assert!(conversation_key.iter().all(|key| (1..=255).contains(&key.chars().count())), "{conversation_key:?}");
    let size = data.iter().flatten().map(|(_, value)| value.to_string().len()).sum::<usize>();
    assert!(size <= deskgate_schema::MAX_DATA_BYTES, "data of {size} bytes");
    assert!(metadata.values().all(|value| value.chars().count() <= 512), "{metadata:?}");
}
