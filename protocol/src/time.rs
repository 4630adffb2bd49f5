//! Timestamps as callers see them: RFC 3339, UTC, milliseconds, `Z`.

use std::fmt;
use std::str::FromStr;

use jiff::{RoundMode, TimestampRound, Unit};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, written like `2026-11-21T09:14:50.123Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub jiff::Timestamp);

impl Timestamp {
    /// The current time of this machine's clock.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now())
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(moment: jiff::Timestamp) -> Self {
        Self(moment)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let moment: jiff::Timestamp = text.parse()?;
        // Finer parts are never written, so a time stays equal after it was sent.
        let milliseconds = TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Floor);
        moment.round(milliseconds).map(Self)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_always_written() {
        let whole: Timestamp = "2026-11-21T09:14:50Z".parse().expect("valid");
        assert_eq!(whole.to_string(), "2026-11-21T09:14:50.000Z");
        let fine: Timestamp = "2026-11-21T09:14:50.123456Z".parse().expect("valid");
        assert_eq!(fine.to_string(), "2026-11-21T09:14:50.123Z");
        assert_eq!(fine.to_string().parse::<Timestamp>().expect("valid"), fine, "said again it is the same moment");
        for text in ["1969-12-31T23:59:59.9999Z", "-009999-01-02T01:59:59.0009Z", "9999-12-30T22:00:00.999999999Z"] {
            let far: Timestamp = text.parse().expect("valid");
            assert_eq!(far.to_string().parse::<Timestamp>().expect("valid"), far, "{text}");
        }
    }
}
