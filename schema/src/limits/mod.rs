//! What a schema may be, so that compiling it and validating by it is bounded.
//!
//! A validator follows each reference anew, so that a few lines can cost more than any computer has: ten definitions that each name
//! the next one ten times. What counts is how many subschemas look at one value, all references followed ([`MAX_EXPANSION`]). A
//! schema may refer to itself for a part of the value, as trees do, but at most once for the same part: then each value is looked at
//! as often as the expansion says, however deep the data is.

mod keywords;

use std::collections::BTreeMap;

use serde_json::Value;

use self::keywords::{Target, asks_what_is_unevaluated, check_keywords, contained, joined, map, own_cost, patterns};
use crate::Finding;

pub(crate) use self::keywords::push;

/// The largest schema, in bytes of JSON.
pub const MAX_SCHEMA_BYTES: usize = 32 * 1024;
/// How deep subschemas may be nested.
pub const MAX_DEPTH: usize = 20;
/// How many properties all of its `properties` may have together.
pub const MAX_PROPERTIES: usize = 500;
/// How many patterns it may have: each takes time and memory to compile.
pub const MAX_PATTERNS: usize = 50;
/// How many subschemas there may be once all references are followed.
pub const MAX_EXPANSION: usize = 2_000;

/// How deep subschemas may be nested once all references are followed.
const MAX_EXPANDED_DEPTH: usize = 64;
/// How many of these may look at the same value, one inside the other. With the depth of data it bounds a validator's stack.
const MAX_SAME_VALUE_DEPTH: usize = 16;

/// How many of these may ask what the others have looked at: each of them has the others look again, often twice, so that the work
/// grows with a power of their number.
const MAX_UNEVALUATED_DEPTH: usize = 3;
/// How often those that look at the same value are asked again by one that asks what they have looked at, at most.
const UNEVALUATED_FACTOR: usize = 3;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A subschema, and those that it names, by their numbers.
struct Subschema {
    place: String,
    names: Vec<(Target, usize)>,
    /// What its own keywords cost for one value.
    cost: usize,
    /// Whether it asks what others that look at the same value have looked at.
    is_unevaluated: bool,
}

/// Every subschema of a schema; the schema itself is the first.
struct Graph<'a> {
    root: &'a Value,
    anchors: BTreeMap<&'a str, String>,
    numbers: BTreeMap<String, usize>,
    subschemas: Vec<Subschema>,
    /// Subschemas that were named and not looked at yet, with how deep they are nested.
    open: Vec<(usize, &'a Value, usize)>,
    properties: usize,
    patterns: usize,
}

/// A subschema with all references followed.
#[derive(Clone, Copy)]
struct Expansion {
    /// How many subschemas there are.
    size: usize,
    /// How deep they are nested.
    depth: usize,
    /// What they cost together for one value.
    cost: usize,
}

/// Checks a schema. Returns the most that it costs for one value.
///
/// # Errors
/// The first thing that is not supported.
pub(crate) fn check(root: &Value) -> Result<usize, Finding> {
    let bytes = root.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        let detail = format!("it has {bytes} bytes; at most {MAX_SCHEMA_BYTES} are taken");
        return Err(Finding::new("", detail));
    }
    let Value::Object(members) = root else { return Err(Finding::new("", "a schema is an object")) };
    if members.get("type").and_then(Value::as_str) != Some("object") {
        return Err(Finding::new("/type", "the data must be an object: write \"type\": \"object\" at the top"));
    }
    if let Some(draft) = members.get("$schema")
        && draft.as_str().map(|draft| draft.trim_end_matches('#')) != Some(DRAFT)
    {
        return Err(Finding::new("/$schema", format!("only draft 2020-12 is supported: {DRAFT}")));
    }
    let mut graph = Graph {
        root,
        anchors: BTreeMap::new(),
        numbers: BTreeMap::new(),
        subschemas: Vec::new(),
        open: Vec::new(),
        properties: 0,
        patterns: 0,
    };
    graph.find_anchors(root, &mut String::new(), 0);
    graph.number("", root, 0);
    while let Some((number, schema, depth)) = graph.open.pop() {
        graph.look_at(number, schema, depth)?;
    }
    graph.check_same_value()?;
    let cost = graph.check_expansion()?;
    graph.check_recursion()?;
    Ok(cost)
}

impl<'a> Graph<'a> {
    /// Notes the names that subschemas give themselves.
    fn find_anchors(&mut self, value: &'a Value, place: &mut String, depth: usize) {
        // Deeper text than schemas can have, as in examples, names nothing.
        if depth > 4 * MAX_DEPTH {
            return;
        }
        let length = place.len();
        let mut inner = |graph: &mut Self, step: &str, value: &'a Value| {
            push(place, step);
            graph.find_anchors(value, place, depth + 1);
            place.truncate(length);
        };
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, member)| inner(self, name, member));
                if let Some(anchor) = members.get("$anchor").and_then(Value::as_str) {
                    self.anchors.insert(anchor, place.clone());
                }
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(at, item)| inner(self, &at.to_string(), item));
            }
            _ => {}
        }
    }

    /// The number of the subschema at a place, which is looked at later if it is new.
    fn number(&mut self, place: &str, schema: &'a Value, depth: usize) -> usize {
        if let Some(number) = self.numbers.get(place) {
            return *number;
        }
        let number = self.subschemas.len();
        self.numbers.insert(place.to_owned(), number);
        self.subschemas.push(Subschema { place: place.to_owned(), names: Vec::new(), cost: 1, is_unevaluated: false });
        self.open.push((number, schema, depth));
        number
    }

    /// Notes all that a subschema contains and refers to.
    fn look_at(&mut self, number: usize, schema: &'a Value, depth: usize) -> Result<(), Finding> {
        let place = self.subschemas[number].place.clone();
        if depth > MAX_DEPTH {
            return Err(Finding::new(place, format!("subschemas are nested deeper than {MAX_DEPTH}")));
        }
        if self.subschemas.len() > MAX_EXPANSION {
            return Err(Finding::new("", format!("it has more than {MAX_EXPANSION} subschemas")));
        }
        let members = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(members) => members,
            _ => return Err(Finding::new(place, "a schema is an object, true or false")),
        };
        check_keywords(members, &place)?;
        self.subschemas[number].cost = own_cost(members);
        self.subschemas[number].is_unevaluated = asks_what_is_unevaluated(members);
        let contained = contained(members, &place);
        self.properties += map(members, "properties").count();
        if self.properties > MAX_PROPERTIES {
            return Err(Finding::new(place, format!("it has more than {MAX_PROPERTIES} properties")));
        }
        self.patterns += patterns(members);
        if self.patterns > MAX_PATTERNS {
            return Err(Finding::new(place, format!("it has more than {MAX_PATTERNS} patterns")));
        }
        let mut names = Vec::new();
        for (target, inner, value) in contained {
            let inner = self.number(&inner, value, depth + 1);
            names.extend(target.map(|target| (target, inner)));
        }
        if let Some(reference) = members.get("$ref") {
            let (target, value) = self.resolve(reference, &joined(&place, &["$ref"]))?;
            names.push((Target::Same, self.number(&target, value, 1)));
        }
        self.subschemas[number].names = names;
        Ok(())
    }

    /// Where a reference leads.
    fn resolve(&self, reference: &Value, at: &str) -> Result<(String, &'a Value), Finding> {
        let text = reference.as_str().ok_or_else(|| Finding::new(at, "a reference is text"))?;
        let Some(fragment) = text.strip_prefix('#') else {
            return Err(Finding::new(at, "only references into the same schema are supported, as \"#/$defs/name\""));
        };
        if fragment.contains('%') {
            return Err(Finding::new(at, "references with percent-encoding are not supported"));
        }
        let nowhere = || Finding::new(at, "it leads nowhere");
        let place = match fragment {
            pointer if pointer.is_empty() || pointer.starts_with('/') => pointer.to_owned(),
            anchor => self.anchors.get(anchor).cloned().ok_or_else(nowhere)?,
        };
        let value = self.root.pointer(&place).ok_or_else(nowhere)?;
        Ok((place, value))
    }

    fn finding(&self, number: usize, detail: impl Into<String>) -> Finding {
        Finding::new(self.subschemas[number].place.as_str(), detail)
    }

    /// Those that look at the same value as a subschema.
    fn same_value(&self, number: usize) -> impl Iterator<Item = usize> {
        self.subschemas[number].names.iter().filter(|(target, _)| *target == Target::Same).map(|(_, next)| *next)
    }

    /// Checks that nothing leads back to itself while it looks at the same value, or to too many others.
    fn check_same_value(&self) -> Result<(), Finding> {
        // Taken away one after the other: those that lead to nothing that is left. Whatever remains goes round in a circle.
        let mut leads_to: Vec<usize> =
            (0..self.subschemas.len()).map(|number| self.same_value(number).count()).collect();
        let mut named_by = vec![Vec::new(); self.subschemas.len()];
        for number in 0..self.subschemas.len() {
            self.same_value(number).for_each(|next| named_by[next].push(number));
        }
        let mut free: Vec<_> = (0..self.subschemas.len()).filter(|number| leads_to[*number] == 0).collect();
        let mut depths = vec![1; self.subschemas.len()];
        let mut unevaluated = vec![0; self.subschemas.len()];
        while let Some(number) = free.pop() {
            if depths[number] > MAX_SAME_VALUE_DEPTH {
                let detail =
                    format!("more than {MAX_SAME_VALUE_DEPTH} subschemas look at the same value, one in another");
                return Err(self.finding(number, detail));
            }
            unevaluated[number] += usize::from(self.subschemas[number].is_unevaluated);
            if unevaluated[number] > MAX_UNEVALUATED_DEPTH {
                let detail = format!(
                    "more than {MAX_UNEVALUATED_DEPTH} subschemas with unevaluatedProperties or unevaluatedItems look at the \
                     same value, one in another"
                );
                return Err(self.finding(number, detail));
            }
            for before in &named_by[number] {
                unevaluated[*before] = unevaluated[*before].max(unevaluated[number]);
                depths[*before] = depths[*before].max(depths[number] + 1);
                leads_to[*before] -= 1;
                if leads_to[*before] == 0 {
                    free.push(*before);
                }
            }
        }
        match leads_to.iter().position(|left| *left > 0) {
            None => Ok(()),
            Some(number) => Err(self.finding(number, "it refers to itself without looking at a part of the data")),
        }
    }

    /// Checks how many subschemas there are once all references are followed, and how deep they are nested. Returns what they cost.
    fn check_expansion(&self) -> Result<usize, Finding> {
        let Expansion { size, depth, cost } = self.expansion(0, &mut Vec::new(), &mut BTreeMap::new());
        let detail = if size > MAX_EXPANSION {
            format!("with all references followed it has more than {MAX_EXPANSION} subschemas; refer to fewer")
        } else if depth > MAX_EXPANDED_DEPTH {
            format!("with all references followed its subschemas are nested deeper than {MAX_EXPANDED_DEPTH}")
        } else {
            return Ok(cost);
        };
        Err(Finding::new("", detail))
    }

    fn expansion(&self, number: usize, path: &mut Vec<usize>, known: &mut BTreeMap<usize, Expansion>) -> Expansion {
        if let Some(expansion) = known.get(&number) {
            return *expansion;
        }
        // What refers to itself is counted where it begins. Deeper than it may be, nothing more is found out.
        if path.contains(&number) || path.len() > MAX_EXPANDED_DEPTH {
            return Expansion { size: 1, depth: 1, cost: self.subschemas[number].cost };
        }
        path.push(number);
        let mut expansion = Expansion { size: 1, depth: 0, cost: self.subschemas[number].cost };
        for (target, next) in &self.subschemas[number].names {
            let inner = self.expansion(*next, path, known);
            let is_asked_again = self.subschemas[number].is_unevaluated && *target == Target::Same;
            let times = if is_asked_again { UNEVALUATED_FACTOR } else { 1 };
            expansion.size = expansion.size.saturating_add(inner.size);
            expansion.depth = expansion.depth.max(inner.depth);
            expansion.cost = expansion.cost.saturating_add(inner.cost.saturating_mul(times));
        }
        expansion.depth += 1;
        path.pop();
        known.insert(number, expansion);
        expansion
    }

    /// Checks that whatever refers to itself leads, for each part of its value, to one subschema at most that refers to itself.
    /// Otherwise the looks at a part would double with each level of the data.
    fn check_recursion(&self) -> Result<(), Finding> {
        let reached: Vec<Vec<bool>> = (0..self.subschemas.len()).map(|number| self.reached_from(number)).collect();
        let is_recursive = |number: usize| reached[number][number];
        let leads_to_recursion: Vec<bool> = (0..self.subschemas.len())
            .map(|number| {
                is_recursive(number) || (0..reached.len()).any(|other| reached[number][other] && is_recursive(other))
            })
            .collect();
        for number in (0..self.subschemas.len()).filter(|number| is_recursive(*number)) {
            let mut parts: BTreeMap<Target, usize> = BTreeMap::new();
            self.count_parts(number, &leads_to_recursion, &mut parts);
            let most = |of: fn(&Target) -> bool| {
                parts.iter().filter(|(target, _)| of(target)).map(|(_, count)| *count).max().unwrap_or(0)
            };
            let members =
                most(|target| *target == Target::AnyMember) + most(|target| matches!(target, Target::Member(_)));
            let items = most(|target| *target == Target::AnyItem) + most(|target| matches!(target, Target::Item(_)));
            if members.max(items) > 1 {
                return Err(self.finding(number, "it refers to itself more than once for the same part of the data"));
            }
        }
        Ok(())
    }

    /// Every subschema that one leads to.
    fn reached_from(&self, number: usize) -> Vec<bool> {
        let mut reached = vec![false; self.subschemas.len()];
        let mut open = vec![number];
        while let Some(from) = open.pop() {
            for (_, next) in &self.subschemas[from].names {
                if !reached[*next] {
                    reached[*next] = true;
                    open.push(*next);
                }
            }
        }
        reached
    }

    /// How often each part of the value is looked at by something that leads to recursion. The expansion bounds the work.
    fn count_parts(&self, number: usize, leads_to_recursion: &[bool], parts: &mut BTreeMap<Target, usize>) {
        for (target, next) in &self.subschemas[number].names {
            match target {
                _ if !leads_to_recursion[*next] => {}
                Target::Name => {}
                Target::Same => self.count_parts(*next, leads_to_recursion, parts),
                part => *parts.entry(part.clone()).or_default() += 1,
            }
        }
    }
}
