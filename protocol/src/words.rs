//! The macro that gives closed enums their words, each in one place.

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:tt,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub enum $name {
            $($(#[$about])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word for it in the API and the tables.
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
            type Err = crate::run::UnknownWord;

            fn from_str(text: &str) -> Result<Self, crate::run::UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(crate::run::UnknownWord),
                }
            }
        }
    };
}

pub(crate) use words;
