//! The macro that gives closed enums their words, each in one place.

/// The error for a text that is none of the expected words. It does not repeat the text, which may be a secret in the
/// wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// The words that are expected.
    pub expected: &'static [&'static str],
}

impl std::fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "choose one of {}", self.expected.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

/// Defines an enum whose variants are words: on the wire, in tables, in settings and on command lines.
///
/// ```
/// deskgate_protocol::words! {
///     /// The size of a shirt.
///     pub enum Size {
///         /// For most people.
///         Medium = "m",
///         /// For tall people.
///         Large = "l",
///     }
/// }
/// assert_eq!(Size::Large.as_str(), "l");
/// assert_eq!("m".parse(), Ok(Size::Medium));
/// assert_eq!("s".parse::<Size>().unwrap_err().to_string(), "choose one of m, l");
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$about:meta])* $variant:ident = $word:tt,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        $vis enum $name {
            $($(#[$about])* #[serde(rename = $word)] $variant,)*
        }

        #[allow(dead_code, reason = "not every enum needs all of them")]
        impl $name {
            /// Every variant, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::words::UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err($crate::words::UnknownWord { expected: &[$($word),*] }),
                }
            }
        }
    };
}

/// [`words!`] for an enum of the API: its OpenAPI document describes it.
macro_rules! api_words {
    ($($enum:tt)*) => {
        $crate::words! {
            #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
            $($enum)*
        }
    };
}

pub(crate) use api_words;
