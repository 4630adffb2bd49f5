//! Values during an evaluation: borrowed from the event, so that they are never copied.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::Value as Json;

use super::EvalError;

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(&'a str),
    /// An array of the payload.
    Array(&'a [Json]),
    /// A list in the expression. Shared, because a name for it may stand in it again and again.
    List(Rc<[Value<'a>]>),
    Object(&'a serde_json::Map<String, Json>),
    /// The event's own fields, beside its payload.
    Event,
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(text),
            Json::Array(values) => Self::Array(values),
            Json::Object(members) => Self::Object(members),
        }
    }
}

/// Steps that are left.
pub(super) struct Fuel(pub(super) u32);

impl Fuel {
    /// Takes so many steps.
    ///
    /// # Errors
    /// Too few steps are left.
    pub(super) fn burn(&mut self, steps: usize) -> Result<(), EvalError> {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.0 = self.0.checked_sub(steps).ok_or(EvalError::TooMuch)?;
        Ok(())
    }

    /// Takes the steps for reading so many bytes.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.burn(1 + bytes / 64)
    }
}

impl<'a> Value<'a> {
    pub(super) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The elements of a list.
    pub(super) fn elements(&self) -> Option<Vec<Value<'a>>> {
        match self {
            Self::Array(values) => Some(values.iter().map(Value::from).collect()),
            Self::List(values) => Some(values.to_vec()),
            _ => None,
        }
    }

    /// Whether two values are the same. Values of different kinds are not.
    pub(super) fn same(&self, other: &Self, fuel: &mut Fuel) -> Result<bool, EvalError> {
        fuel.burn(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) | (Self::Event, Self::Event) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => {
                fuel.read(one.len().min(other.len()))?;
                one == other
            }
            (Self::Object(one), Self::Object(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (name, value) in *one {
                    fuel.read(name.len())?;
                    let Some(other) = other.get(name) else { return Ok(false) };
                    if !Value::from(value).same(&other.into(), fuel)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Array(_) | Self::List(_), Self::Array(_) | Self::List(_)) => {
                let (one, other) = (self.counted(fuel)?, other.counted(fuel)?);
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(&other) {
                    if !one.same(other, fuel)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => self.order(other, fuel).is_ok_and(|order| order == Some(Ordering::Equal)) && self.is_number(),
        })
    }

    /// The elements of a list, with their steps taken.
    pub(super) fn counted(&self, fuel: &mut Fuel) -> Result<Vec<Value<'a>>, EvalError> {
        let length = match self {
            Self::Array(values) => values.len(),
            Self::List(values) => values.len(),
            _ => 0,
        };
        fuel.burn(length)?;
        self.elements().ok_or(EvalError::NoSuch("going through a list"))
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Double(_))
    }

    /// The order of two values; `None` where a number is NaN.
    pub(super) fn order(&self, other: &Self, fuel: &mut Fuel) -> Result<Option<Ordering>, EvalError> {
        Ok(match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Int(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Double(other)) => mixed(*one, *other),
            (Self::Double(one), Self::Int(other)) => mixed(*other, *one).map(Ordering::reverse),
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            (Self::Text(one), Self::Text(other)) => {
                fuel.read(one.len().min(other.len()))?;
                Some(one.cmp(other))
            }
            _ => return Err(EvalError::NoSuch("comparing")),
        })
    }
}

/// Exact, also where a double cannot hold all digits.
fn mixed(whole: i64, other: f64) -> Option<Ordering> {
    const INT_UPPER_BOUND: f64 = 9_223_372_036_854_775_808.0;
    if other.is_nan() {
        return None;
    }
    if other >= INT_UPPER_BOUND {
        return Some(Ordering::Less);
    }
    if other < -INT_UPPER_BOUND {
        return Some(Ordering::Greater);
    }
    // Within range, so only the fraction is cut off.
    let cut = other.trunc();
    let order = whole.cmp(&(cut as i64));
    Some(order.then(0.0.partial_cmp(&(other - cut)).unwrap_or(Ordering::Equal)))
}
