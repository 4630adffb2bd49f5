//! Evaluates an expression.

use super::EvalError;
use super::parse::{BinaryOperator, ComprehensionMacro, Node, StringFunction};
use super::value::{Fuel, Value};
use crate::domain::webhooks::WebhookEvent;

/// The most steps of an evaluation: some milliseconds.
const MAX_STEPS: u32 = 100_000;

/// Whether an expression holds.
pub(super) fn eval(node: &Node, event: &WebhookEvent) -> Result<bool, EvalError> {
    let mut scope = Evaluator { event, fuel: Fuel(MAX_STEPS), elements: Vec::new() };
    scope.value(node)?.as_bool().ok_or(EvalError::NoBoolean)
}

struct Evaluator<'a> {
    event: &'a WebhookEvent,
    fuel: Fuel,
    /// The elements that macros iterate over, innermost last.
    elements: Vec<(&'a str, Value<'a>)>,
}

type EvalResult<'a> = Result<Value<'a>, EvalError>;

impl<'a> Evaluator<'a> {
    fn value(&mut self, node: &'a Node) -> EvalResult<'a> {
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
                self.field(&of, name)?.ok_or_else(|| EvalError::NoField(name.clone()))?
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
                _ => return Err(EvalError::NoSuch("!")),
            },
            Node::Negative(of) => match self.value(of)? {
                Value::Int(number) => Value::Int(number.checked_neg().ok_or(EvalError::Range)?),
                Value::Double(number) => Value::Double(-number),
                _ => return Err(EvalError::NoSuch("-")),
            },
            Node::Binary(BinaryOperator::And, one, other) => self.decided(one, other, false)?,
            Node::Binary(BinaryOperator::Or, one, other) => self.decided(one, other, true)?,
            Node::Binary(operator, one, other) => {
                let (one, other) = (self.value(one)?, self.value(other)?);
                self.binary(*operator, &one, &other)?
            }
            Node::Choice(parts) => {
                let (test, yes, no) = parts.as_ref();
                match self.value(test)? {
                    Value::Bool(true) => self.value(yes)?,
                    Value::Bool(false) => self.value(no)?,
                    _ => return Err(EvalError::NoSuch("?:")),
                }
            }
            Node::Size(of) => {
                let of = self.value(of)?;
                Value::Int(i64::try_from(self.size(&of)?).unwrap_or(i64::MAX))
            }
            Node::Call(call, parts) => {
                let (Value::Text(text), Value::Text(part)) = (self.value(&parts.0)?, self.value(&parts.1)?) else {
                    return Err(EvalError::NoSuch("looking for a text"));
                };
                self.fuel.read(text.len())?;
                Value::Bool(match call {
                    StringFunction::StartsWith => text.starts_with(part),
                    StringFunction::EndsWith => text.ends_with(part),
                    StringFunction::Contains => text.contains(part),
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

    fn field(&mut self, of: &Value<'a>, name: &str) -> Result<Option<Value<'a>>, EvalError> {
        match (of, name) {
            (Value::Object(members), _) => Ok(members.get(name).map(Value::from)),
            (Value::Event, "id") => Ok(Some(Value::Text(&self.event.id))),
            (Value::Event, "type") => Ok(self.event.kind.as_deref().map(Value::Text)),
            (Value::Event, _) => Ok(None),
            _ => Err(EvalError::NoSuch("taking a field")),
        }
    }

    fn index(&mut self, of: &Value<'a>, index: &Value<'a>) -> EvalResult<'a> {
        match (of, index) {
            (Value::Object(members), Value::Text(name)) => {
                self.fuel.read(name.len())?;
                members.get(*name).map(Value::from).ok_or_else(|| EvalError::NoField((*name).to_owned()))
            }
            (Value::Array(values), Value::Int(place)) => {
                let value = usize::try_from(*place).ok().and_then(|place| values.get(place));
                value.map(Value::from).ok_or(EvalError::NoIndex)
            }
            (Value::List(values), Value::Int(place)) => {
                let value = usize::try_from(*place).ok().and_then(|place| values.get(place));
                value.cloned().ok_or(EvalError::NoIndex)
            }
            _ => Err(EvalError::NoSuch("[…]")),
        }
    }

    fn size(&mut self, of: &Value<'_>) -> Result<usize, EvalError> {
        Ok(match of {
            Value::Text(text) => {
                self.fuel.read(text.len())?;
                text.chars().count()
            }
            Value::Array(values) => values.len(),
            Value::List(values) => values.len(),
            Value::Object(members) => members.len(),
            _ => return Err(EvalError::NoSuch("size")),
        })
    }

    /// `&&` and `||`: one side that decides is enough, whatever is wrong with the other.
    fn decided(&mut self, one: &'a Node, other: &'a Node, by: bool) -> EvalResult<'a> {
        let first = self.yes_or_no(one);
        if matches!(first, Ok(value) if value == by) || matches!(first, Err(EvalError::TooMuch)) {
            return first.map(Value::Bool);
        }
        match self.yes_or_no(other) {
            Ok(value) if value == by => Ok(Value::Bool(by)),
            second => first.and(second).map(Value::Bool),
        }
    }

    fn yes_or_no(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        self.value(node)?.as_bool().ok_or(EvalError::NoSuch("&& or ||"))
    }

    fn binary(&mut self, operator: BinaryOperator, one: &Value<'a>, other: &Value<'a>) -> EvalResult<'a> {
        let fuel = &mut self.fuel;
        Ok(match operator {
            BinaryOperator::Equal => Value::Bool(one.same(other, fuel)?),
            BinaryOperator::Unequal => Value::Bool(!one.same(other, fuel)?),
            BinaryOperator::Less => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_lt())),
            BinaryOperator::AtMost => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_le())),
            BinaryOperator::Greater => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_gt())),
            BinaryOperator::AtLeast => Value::Bool(one.order(other, fuel)?.is_some_and(|order| order.is_ge())),
            BinaryOperator::In => match (one, other) {
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

    /// Iterates over a list. As with `&&` and `||`, one element that decides is enough.
    fn each(&mut self, each: ComprehensionMacro, of: &'a Node, name: &'a str, test: &'a Node) -> EvalResult<'a> {
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
                (_, Err(EvalError::TooMuch)) => return Err(EvalError::TooMuch),
                (ComprehensionMacro::All, Ok(false)) => return Ok(Value::Bool(false)),
                (ComprehensionMacro::Exists, Ok(true)) => return Ok(Value::Bool(true)),
                (_, Ok(true)) => count += 1,
                (_, Ok(false)) => {}
                (_, Err(error)) => trouble = trouble.or(Some(error)),
            }
        }
        match trouble {
            Some(error) => Err(error),
            None => Ok(Value::Bool(match each {
                ComprehensionMacro::All => true,
                ComprehensionMacro::Exists => false,
                ComprehensionMacro::ExistsOne => count == 1,
            })),
        }
    }
}

fn calculated<'a>(operator: BinaryOperator, one: &Value<'a>, other: &Value<'a>) -> EvalResult<'a> {
    if let (Value::Int(one), Value::Int(other)) = (one, other) {
        let number = match operator {
            BinaryOperator::Plus => one.checked_add(*other),
            BinaryOperator::Minus => one.checked_sub(*other),
            BinaryOperator::Times => one.checked_mul(*other),
            BinaryOperator::By => one.checked_div(*other),
            _ => one.checked_rem(*other),
        };
        return number.map(Value::Int).ok_or(EvalError::Range);
    }
    let number = |value: &Value<'_>| match value {
        Value::Int(number) => Some(*number as f64),
        Value::Double(number) => Some(*number),
        _ => None,
    };
    let (Some(one), Some(other)) = (number(one), number(other)) else { return Err(EvalError::NoSuch("calculating")) };
    Ok(Value::Double(match operator {
        BinaryOperator::Plus => one + other,
        BinaryOperator::Minus => one - other,
        BinaryOperator::Times => one * other,
        BinaryOperator::By => one / other,
        _ => return Err(EvalError::NoSuch("%")),
    }))
}
