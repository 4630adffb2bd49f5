//! Tests of conditions: their meaning, and the limits of their cost.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn asked(condition: &str, payload: Value) -> Result<bool, EvalError> {
    let event = WebhookEvent { id: "evt_1".to_owned(), kind: Some("issues".to_owned()), payload };
    Condition::parse(condition).unwrap_or_else(|error| panic!("{condition}: {error}")).holds(&event)
}

fn issue() -> Value {
    json!({
        "action": "opened",
        "number": 7,
        "ratio": 0.5,
        "big": 9_007_199_254_740_993i64,
        "none": null,
        "issue": { "labels": [{ "name": "bug" }, { "name": "p1" }], "title": "It breaks", "empty": [] },
    })
}

#[test]
fn conditions_that_hold() {
    for condition in [
        "true",
        "payload.action == 'opened' && event.type == \"issues\"",
        "event.id == 'evt_1' // a remark",
        "payload['action'] in ['opened', 'reopened',]",
        "payload.issue.labels.exists(l, l.name == 'bug')",
        "payload.issue.labels.all(l, size(l.name) <= 3)",
        "payload.issue.labels.exists_one(l, l.name.startsWith('p'))",
        "payload.issue.labels[1].name == 'p1'",
        "payload.issue.empty.all(x, false) && !payload.issue.empty.exists(x, true)",
        "payload.issue.exists(key, key == 'title')",
        "has(payload.issue.title) && !has(payload.issue.body)",
        "'title' in payload.issue && !('body' in payload.issue)",
        "payload.issue.title.contains('break') && payload.issue.title.endsWith('s')",
        "size('☺☺') == 2 && 'ab'.size() == 2",
        "payload.number > 6 && payload.number < 7.5 && payload.number == 7.0 && payload.number != '7'",
        "payload.big != 9007199254740992.0 && payload.big > 9007199254740992.0",
        "payload.ratio * 4 == 2 && 7 / 2 == 3 && -7 % 3 == -1 && 1 + 2 * 3 - 1 == 6 && 0x1F == 31 && 1.5e1 == 15.0",
        "payload.none == null && payload.action != null",
        "(payload.number > 100 ? 'much' : 'little') == 'little'",
        "false ? payload.missing : true",
        "payload.missing == 1 || true",
        "!(payload.missing == 1 && false)",
        "[1, [2, 'x']] == [1.0, [2, 'x']] && [1] != [1, 2]",
        "payload == payload && payload.issue.labels[0] != payload.issue.labels[1]",
        "[1, 2].exists(x, [2, 3].exists(y, x == y)) && [[1], [2]].exists(x, x.exists(x, x == 2))",
        r"'\u263a\x21' == '☺!'",
        "true || payload.missing.deeper",
        "!!true && - -1 == 1",
    ] {
        assert_eq!(asked(condition, issue()), Ok(true), "{condition}");
    }
}

#[test]
fn conditions_without_an_answer() {
    use EvalError::*;
    for (condition, why) in [
        ("payload.missing == 1", NoField("missing".to_owned())),
        ("payload['missing'] == 1", NoField("missing".to_owned())),
        ("payload.missing == 1 && true", NoField("missing".to_owned())),
        ("event.payload == 1", NoField("payload".to_owned())),
        ("payload.issue.labels[2] == 1", NoIndex),
        ("payload.issue.labels[-1] == 1", NoIndex),
        ("payload.action.length == 1", NoSuch("taking a field")),
        ("payload.action < 1", NoSuch("comparing")),
        ("payload.number", NoBoolean),
        ("payload.number + 'x' == 1", NoSuch("calculating")),
        ("1 / 0 == 1", Range),
        ("9223372036854775807 + 1 == 1", Range),
        ("payload.number.exists(x, true)", NoSuch("going through a list")),
        ("[1, 'x'].all(x, x > 0)", NoSuch("comparing")),
        ("!payload.number", NoSuch("!")),
    ] {
        assert_eq!(asked(condition, issue()), Err(why), "{condition}");
    }
}

#[test]
fn what_is_no_condition_is_refused() {
    for text in [
        "",
        "payload.",
        "payload ==",
        "= 1",
        "secret == 1",
        "payload.exists(1, true)",
        "payload.map(x, x)",
        "(true",
        "true)",
        "[1",
        "'open",
        "1.",
        "1x",
        "b'bytes'",
        "r'raw'",
        "{'a': 1}.a == 1",
        "payload.matches('a+')",
        "has(payload)",
        "size == 1",
        "a ? b",
        "true ? 1",
        "x",
        "payload.issue.labels.exists(l, m.name == 'x')",
        "l",
        "'\\q'",
        "#",
    ] {
        assert!(Condition::parse(text).is_err(), "{text:?}");
    }
    let error = Condition::parse("true && wrong").unwrap_err();
    assert_eq!(
        error.to_string(),
        "it cannot be read at character 9: there is no \"wrong\" here; begin with payload or event"
    );
}

#[test]
fn what_would_cost_much_is_refused_before_it_does() {
    let nested = |open: &str, close: &str, times: usize| format!("{}true{}", open.repeat(times), close.repeat(times));
    for text in [
        nested("(", ")", 500),
        nested("!", "", 1000),
        nested("[", "]", 500),
        format!("payload{} == 1", ".a".repeat(900)),
        nested("true || ", "", 250),
        nested("[1].all(x, ", ")", 4),
        nested("true ? ", " : 1", 100),
        "!{[(".repeat(500),
        "[".repeat(2048),
        "a".repeat(2049),
    ] {
        assert!(Condition::parse(&text).is_err(), "{}", &text[..40]);
    }
    let many: Vec<u32> = (0..20_000).collect();
    let payload = json!({ "many": many });
    let quadratic = "payload.many.all(x, payload.many.exists(y, x + y < 0))";
    assert_eq!(asked(quadratic, payload.clone()), Err(EvalError::TooMuch));
    assert_eq!(
        asked("payload.many.exists(x, payload.many == payload.many && false)", payload),
        Err(EvalError::TooMuch)
    );
    let long = json!({ "text": "x".repeat(250_000), "many": vec![0; 1000] });
    assert_eq!(asked("payload.many.all(x, !payload.text.contains('y'))", long), Err(EvalError::TooMuch));
}

#[test]
fn a_list_of_lists_of_lists_is_not_copied_for_each_of_its_names() {
    let list = |of: &str| format!("[{}]", vec![of; 58].join(","));
    let (a, b, c, d) = (list("1"), list("a"), list("b"), list("c"));
    let nested = |test: &str| format!("[{a}].all(a, [{b}].all(b, [{c}].all(c, {test})))");
    assert_eq!(asked(&nested(&format!("size({d}) == 58")), json!({})), Ok(true));
    assert_eq!(asked(&nested("c == c"), json!({})), Err(EvalError::TooMuch));
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text: String) {
        let _ = Condition::parse(&text);
    }

    #[test]
    fn arbitrary_words_never_panic(words in proptest::collection::vec(
        proptest::sample::select(vec![
            "payload", ".", "a", "[", "]", "(", ")", "1", "-", "!", "==", "&&", "||", "?", ":", "in", "has(", "size(", "exists(x,",
            "'t'", ",", "0.5", "null", "event",
        ]), 0..40)) {
        if let Ok(condition) = Condition::parse(&words.join(" ")) {
            let event = WebhookEvent { id: String::new(), kind: None, payload: json!({ "a": [1, { "a": "t" }] }) };
            let _ = condition.holds(&event);
        }
    }
}
