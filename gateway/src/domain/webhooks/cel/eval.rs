//! From an expression to a value.

use super::NoAnswer;
use super::parse::{Binary, Call, Each, Node};
use super::value::{Fuel, Value};
use crate::domain::webhooks::Event;

/// Steps that an evaluation may take: some milliseconds.
const STEPS: u32 = 100_000;

/// Whether an expression holds.
pub(super) fn eval(node: &Node, event: &Event) -> Result<bool, NoAnswer> {
    let mut scope = Scope { event, fuel: Fuel(STEPS), elements: Vec::new() };
    scope.value(node)?.as_bool().ok_or(NoAnswer::NoBoolean)
}

struct Scope<'a> {
    event: &'a Event,
    fuel: Fuel,
    /// What macros go through, innermost last.
    elements: Vec<(&'a str, Value<'a>)>,
}

type Answer<'a> = Result<Value<'a>, NoAnswer>;

impl<'a> Scope<'a> {
    fn value(&mut self, node: &'a Node) -> Answer<'a> {
        self.fuel.burn(1)?;
        Ok(match node {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Int(number) => Value::Int(*number),
            Node::Double(number) => Value::Double(*number),
            Node::Text(text) => Value::Text(text),
            Node::Name(name) => self.named(name),
            Node::List(nodes) => Value::List(nodes.iter().map(|node| self.value(node)).collect::<Result<_, _>>()?),
            Node::Field(of, name) => {
                let of = self.value(of)?;
                self.field(&of, name)?.ok_or_else(|| NoAnswer::NoField(name.clone()))?
            }
            Node::Has(of, name) => {
                let of = self.value(of)?;
                Value::Bool(self.field(&of, name)?.is_some())
            }
            Node::Index(of, index) => {
                let (of, index) = (self.value(of)?, self.value(index)?);
                self.index(&of, &index)?
            }
            Node::Not(of) => match self.value(of)? {
                Value::Bool(value) => Value::Bool(!value),
                _ => return Err(NoAnswer::NoSuch("!")),
            },
            Node::Negative(of) => match self.value(of)? {
                Value::Int(number) => Value::Int(number.checked_neg().ok_or(NoAnswer::Range)?),
                Value::Double(number) => Value::Double(-number),
                _ => return Err(NoAnswer::NoSuch("-")),
            },
            Node::Binary(Binary::And, one, other) => self.decided(one, other, false)?,
            Node::Binary(Binary::Or, one, other) => self.decided(one, other, true)?,
            Node::Binary(operator, one, other) => {
                let (one, other) = (self.value(one)?, self.value(other)?);
                self.binary(*operator, &one, &other)?
            }
            Node::Choice(parts) => {
                let (test, yes, no) = parts.as_ref();
                match self.value(test)? {
                    Value::Bool(true) => self.value(yes)?,
                    Value::Bool(false) => self.value(no)?,
                    _ => return Err(NoAnswer::NoSuch("?:")),
                }
            }
            Node::Size(of) => {
                let of = self.value(of)?;
                Value::Int(i64::try_from(self.size(&of)?).unwrap_or(i64::MAX))
            }
            Node::Call(call, parts) => {
                let (Value::Text(text), Value::Text(part)) = (self.value(&parts.0)?, self.value(&parts.1)?) else {
                    return Err(NoAnswer::NoSuch("looking for a text"));
                };
                self.fuel.read(text.len())?;
                Value::Bool(match call {
                    Call::StartsWith => text.starts_with(part),
                    Call::EndsWith => text.ends_with(part),
                    Call::Contains => text.contains(part),
                })
            }
            Node::Each { each, of, name, test } => self.each(*each, of, name, test)?,
        })
    }

    fn named(&self, name: &str) -> Value<'a> {
        // The innermost of a name counts.
        let own = self.elements.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
        own.unwrap_or_else(|| if name == "event" { Value::Event } else { Value::from(&self.event.payload) })
    }

    fn field(&mut self, of: &Value<'a>, name: &str) -> Result<Option<Value<'a>>, NoAnswer> {
        match (of, name) {
            (Value::Object(members), _) => Ok(members.get(name).map(Value::from)),
            (Value::Event, "id") => Ok(Some(Value::Text(&self.event.id))),
            (Value::Event, "type") => Ok(self.event.kind.as_deref().map(Value::Text)),
            (Value::Event, _) => Ok(None),
            _ => Err(NoAnswer::NoSuch("taking a field")),
        }
    }

    fn index(&mut self, of: &Value<'a>, index: &Value<'a>) -> Answer<'a> {
        match (of, index) {
            (Value::Object(members), Value::Text(name)) => {
                self.fuel.read(name.len())?;
                members.get(*name).map(Value::from).ok_or_else(|| NoAnswer::NoField((*name).to_owned()))
            }
            (Value::Array(values), Value::Int(place)) => {
                let value = usize::try_from(*place).ok().and_then(|place| values.get(place));
                value.map(Value::from).ok_or(NoAnswer::NoIndex)
            }
            (Value::List(values), Value::Int(place)) => {
                let value = usize::try_from(*place).ok().and_then(|place| values.get(place));
                value.cloned().ok_or(NoAnswer::NoIndex)
            }
            _ => Err(NoAnswer::NoSuch("[…]")),
        }
    }

    fn size(&mut self, of: &Value<'_>) -> Result<usize, NoAnswer> {
        Ok(match of {
            Value::Text(text) => {
                self.fuel.read(text.len())?;
                text.chars().count()
            }
            Value::Array(values) => values.len(),
            Value::List(values) => values.len(),
            Value::Object(members) => members.len(),
            _ => return Err(NoAnswer::NoSuch("size")),
        })
    }

    /// `&&` and `||`: one side that decides is enough, whatever is wrong with the other.
    fn decided(&mut self, one: &'a Node, other: &'a Node, by: bool) -> Answer<'a> {
        let first = self.yes_or_no(one);
        if matches!(first, Ok(value) if value == by) || matches!(first, Err(NoAnswer::TooMuch)) {
            return first.map(Value::Bool);
        }
        match self.yes_or_no(other) {
            Ok(value) if value == by => Ok(Value::Bool(by)),
            second => first.and(second).map(Value::Bool),
        }
    }

    fn yes_or_no(&mut self, node: &'a Node) -> Result<bool, NoAnswer> {
        self.value(node)?.as_bool().ok_or(NoAnswer::NoSuch("&& or ||"))
    }

    fn binary(&mut self, operator: Binary, one: &Value<'a>, other: &Value<'a>) -> Answer<'a> {
        let fuel = &mut self.fuel;
        Ok(match operator {
            Binary::Equal => Value::Bool(one.same(other, fuel)?),
            Binary::Unequal => Value::Bool(!one.same(other, fuel)?),
            Binary::Less => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_lt())),
            Binary::AtMost => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_le())),
            Binary::Greater => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_gt())),
            Binary::AtLeast => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_ge())),
            Binary::In => match (one, other) {
                (Value::Text(name), Value::Object(members)) => {
                    fuel.read(name.len())?;
                    Value::Bool(members.contains_key(*name))
                }
                _ => {
                    let mut found = false;
                    for element in other.counted(fuel)? {
                        found |= one.same(&element, fuel)?;
                    }
                    Value::Bool(found)
                }
            },
            _ => calculated(operator, one, other)?,
        })
    }

    /// Goes through a list. As with `&&` and `||`, one element that decides is enough.
    fn each(&mut self, each: Each, of: &'a Node, name: &'a str, test: &'a Node) -> Answer<'a> {
        let elements = match self.value(of)? {
            // A map's elements are its keys.
            Value::Object(members) => {
                self.fuel.burn(members.len())?;
                members.keys().map(|key| Value::Text(key)).collect()
            }
            list => list.counted(&mut self.fuel)?,
        };
        let (mut count, mut trouble) = (0u32, None);
        for element in elements {
            self.elements.push((name, element));
            let holds = self.yes_or_no(test);
            self.elements.pop();
            match (each, holds) {
                (_, Err(NoAnswer::TooMuch)) => return Err(NoAnswer::TooMuch),
                (Each::All, Ok(false)) => return Ok(Value::Bool(false)),
                (Each::Exists, Ok(true)) => return Ok(Value::Bool(true)),
                (_, Ok(true)) => count += 1,
                (_, Ok(false)) => {}
                (_, Err(error)) => trouble = trouble.or(Some(error)),
            }
        }
        match trouble {
            Some(error) => Err(error),
            None => Ok(Value::Bool(match each {
                Each::All => true,
                Each::Exists => false,
                Each::ExistsOne => count == 1,
            })),
        }
    }
}

fn calculated<'a>(operator: Binary, one: &Value<'a>, other: &Value<'a>) -> Answer<'a> {
    if let (Value::Int(one), Value::Int(other)) = (one, other) {
        let number = match operator {
            Binary::Plus => one.checked_add(*other),
            Binary::Minus => one.checked_sub(*other),
            Binary::Times => one.checked_mul(*other),
            Binary::By => one.checked_div(*other),
            _ => one.checked_rem(*other),
        };
        return number.map(Value::Int).ok_or(NoAnswer::Range);
    }
    let number = |value: &Value<'_>| match value {
        Value::Int(number) => Some(*number as f64),
        Value::Double(number) => Some(*number),
        _ => None,
    };
    let (Some(one), Some(other)) = (number(one), number(other)) else { return Err(NoAnswer::NoSuch("calculating")) };
    Ok(Value::Double(match operator {
        Binary::Plus => one + other,
        Binary::Minus => one - other,
        Binary::Times => one * other,
        Binary::By => one / other,
        _ => return Err(NoAnswer::NoSuch("%")),
    }))
}
