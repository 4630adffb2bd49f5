//! Identifiers: a typed prefix and 128 bits, sortable by creation (UUIDv7, RFC 9562).
//!
//! The prefix makes a mix-up visible to people and impossible in code: each kind has its own type, and text with
//! another prefix does not parse.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// Why a text is not an identifier of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an identifier that starts with \"{expected}\" and 32 lower-case hexadecimal digits")]
pub struct InvalidId {
    /// The prefix the identifier must have.
    pub expected: &'static str,
}

fn parse(text: &str, prefix: &'static str) -> Result<Uuid, InvalidId> {
    let invalid = InvalidId { expected: prefix };
    let digits = text.strip_prefix(prefix).ok_or(invalid.clone())?;
    let canonical = digits.len() == ID_DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !canonical {
        return Err(invalid);
    }
    Uuid::try_parse(digits).map_err(|_| invalid)
}

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {
    /// The prefix of each kind.
    pub const PREFIXES: &[&str] = &[$($prefix),*];

    $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The prefix that every identifier of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// A new identifier, later than every earlier one on this machine.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The bits without the prefix, as they are stored.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(bits: Uuid) -> Self {
                Self(bits)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse(text, $prefix).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

/// How many characters an identifier has behind its prefix.
pub const ID_DIGITS: usize = 32;

identifiers! {
    /// A business system that may call services.
    ApplicationId = "app_";
    /// One application key, without its secret.
    KeyId = "key_";
    /// A published service.
    EndpointId = "ep_";
    /// A service that is not published; never valid for submission.
    DraftId = "draft_";
    /// One piece of accepted work.
    RunId = "run_";
    /// A conversation of one subject with one service.
    ConversationId = "conv_";
    /// A stop or a reset that was asked for.
    OperationId = "op_";
    /// A tool call that is held for the desktop user.
    ApprovalId = "apr_";
    /// Something that was done to an application.
    ActivityId = "act_";
    /// An incoming webhook.
    HookId = "hook_";
    /// Something that an incoming webhook received.
    ReceiptId = "rcpt_";
    /// A stored event; receivers deduplicate by it.
    EventId = "evt_";
    /// One event on its way to one receiver.
    DeliveryId = "dlv_";
    /// A file that a caller uploaded.
    FileId = "file_";
    /// A file that a run handed out.
    ArtifactId = "art_";
    /// Where deliveries go: an application's callback, or a listener.
    DestinationId = "dst_";
    /// A paired device.
    DeviceId = "dev_";
    /// An invitation of a device by the gateway's administrator.
    InvitationId = "inv_";
    /// A gateway: all replicas on one database are one gateway.
    GatewayId = "gw_";
    /// The list of runs that a device has taken, since its database was made.
    JournalId = "jrn_";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_identifier_reads_back_as_it_was_written(bits: u128) {
            let id = RunId::from(Uuid::from_u128(bits));
            prop_assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
            let json = serde_json::to_string(&id).expect("serialises");
            prop_assert_eq!(serde_json::from_str::<RunId>(&json).expect("reads back"), id);
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<RunId>();
        }
    }

    #[test]
    fn the_prefix_of_another_kind_is_refused() {
        let endpoint = EndpointId::new().to_string();
        assert_eq!(endpoint.parse::<RunId>(), Err(InvalidId { expected: "run_" }));
        assert!(endpoint.to_uppercase().parse::<EndpointId>().is_err());
        assert!(endpoint.replacen("ep_", "ep_{", 1).parse::<EndpointId>().is_err());
    }

    #[test]
    fn later_identifiers_sort_later() {
        let ids: Vec<_> = (0..1000).map(|_| RunId::new()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1] && pair[0].to_string() < pair[1].to_string()));
    }
}
