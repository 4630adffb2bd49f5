//! What the keywords of one subschema name and cost.

use serde_json::{Map, Value};

use crate::Finding;

/// What a pattern costs, in comparisons: its engine is linear in the text, times the states of the pattern.
const PATTERN_COST: usize = 50;

/// Keywords of which the meaning depends on where a schema was reached from, or that name other resources.
const REFUSED_KEYWORDS: [&str; 4] = ["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"];
/// Keywords of earlier drafts, whose subschemas the validator follows all the same, with what to write instead.
const EARLIER_KEYWORDS: [(&str, &str); 2] = [
    ("dependencies", "write dependentSchemas or dependentRequired"),
    ("additionalItems", "write prefixItems and items"),
];
/// Keywords with a subschema for the same value.
const SAME_VALUE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with lists of subschemas for the same value.
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with a subschema for parts of the value.
const PARTS: [(&str, Target); 6] = [
    ("additionalProperties", Target::AnyMember),
    ("unevaluatedProperties", Target::AnyMember),
    ("propertyNames", Target::Name),
    ("items", Target::AnyItem),
    ("contains", Target::AnyItem),
    ("unevaluatedItems", Target::AnyItem),
];

/// What a subschema looks at, from the one that names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The same value.
    Same,
    /// The member of that name, and no other.
    Member(String),
    /// Any member of an object.
    AnyMember,
    /// The item at that place, and no other.
    Item(String),
    /// Any item of an array.
    AnyItem,
    /// The name of a member, which has no parts.
    Name,
}

/// Appends a step to a JSON Pointer (RFC 6901, section 4).
pub(crate) fn push(pointer: &mut String, step: &str) {
    pointer.push('/');
    for c in step.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

pub(super) fn joined(place: &str, steps: &[&str]) -> String {
    let mut place = place.to_owned();
    steps.iter().for_each(|step| push(&mut place, step));
    place
}

/// The subschemas in a subschema, with their places; without a target those that only references lead to.
pub(super) fn contained<'a>(members: &'a Map<String, Value>, place: &str) -> Vec<(Option<Target>, String, &'a Value)> {
    let mut contained = Vec::new();
    let mut add = |target: Option<Target>, steps: &[&str], value| contained.push((target, joined(place, steps), value));
    for keyword in SAME_VALUE {
        members.get(keyword).into_iter().for_each(|value| add(Some(Target::Same), &[keyword], value));
    }
    for (keyword, target) in PARTS {
        members.get(keyword).into_iter().for_each(|value| add(Some(target.clone()), &[keyword], value));
    }
    for keyword in SAME_VALUE_LISTS {
        list(members, keyword).for_each(|(at, value)| add(Some(Target::Same), &[keyword, &at], value));
    }
    list(members, "prefixItems")
        .for_each(|(at, value)| add(Some(Target::Item(at.clone())), &["prefixItems", &at], value));
    map(members, "properties")
        .for_each(|(name, value)| add(Some(Target::Member(name.clone())), &["properties", name], value));
    map(members, "patternProperties")
        .for_each(|(name, value)| add(Some(Target::AnyMember), &["patternProperties", name], value));
    map(members, "dependentSchemas")
        .for_each(|(name, value)| add(Some(Target::Same), &["dependentSchemas", name], value));
    for keyword in ["$defs", "definitions"] {
        map(members, keyword).for_each(|(name, value)| add(None, &[keyword, name], value));
    }
    contained
}

/// What a subschema's own keywords cost for one value: a validator compares it with each alternative of a list, looks for each required
/// name, and runs each pattern over the text.
pub(super) fn own_cost(members: &Map<String, Value>) -> usize {
    let required = map(members, "dependentRequired").filter_map(|(_, names)| names.as_array()).map(Vec::len);
    let lists = list(members, "enum").count() + list(members, "required").count() + required.sum::<usize>();
    1 + lists + PATTERN_COST * patterns(members)
}

pub(super) fn asks_what_is_unevaluated(members: &Map<String, Value>) -> bool {
    ["unevaluatedProperties", "unevaluatedItems"].iter().any(|keyword| members.contains_key(*keyword))
}

pub(super) fn patterns(members: &Map<String, Value>) -> usize {
    map(members, "patternProperties").count() + usize::from(members.contains_key("pattern"))
}

pub(super) fn check_keywords(members: &Map<String, Value>, place: &str) -> Result<(), Finding> {
    if let Some(keyword) = REFUSED_KEYWORDS.into_iter().find(|keyword| members.contains_key(*keyword)) {
        return Err(Finding::new(joined(place, &[keyword]), format!("{keyword} is not supported")));
    }
    if let Some((keyword, instead)) = EARLIER_KEYWORDS.into_iter().find(|(keyword, _)| members.contains_key(*keyword)) {
        return Err(Finding::new(joined(place, &[keyword]), format!("{keyword} is not supported: {instead}")));
    }
    if members.contains_key("$id") && !place.is_empty() {
        return Err(Finding::new(joined(place, &["$id"]), "$id is supported at the top only"));
    }
    if members.contains_key("$schema") && !place.is_empty() {
        return Err(Finding::new(joined(place, &["$schema"]), "$schema is supported at the top only"));
    }
    Ok(())
}

pub(super) fn list<'a>(members: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = (String, &'a Value)> {
    let items = members.get(keyword).and_then(Value::as_array);
    items.into_iter().flatten().enumerate().map(|(at, value)| (at.to_string(), value))
}

pub(super) fn map<'a>(members: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    members.get(keyword).and_then(Value::as_object).into_iter().flatten()
}
