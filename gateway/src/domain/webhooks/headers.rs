//! The headers of an event, each of which may come once.

use super::SignatureError;

/// A request's headers.
#[derive(Clone, Debug, Default)]
pub struct Headers<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers<'a> {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a [u8])>>(headers: T) -> Self {
        Self(headers.into_iter().collect())
    }
}

impl<'a> Headers<'a> {
    /// The value of a header that may be missing.
    ///
    /// # Errors
    /// It came twice, or is not text: two readers could take it for different things.
    pub(super) fn find(&self, name: &str) -> Result<Option<&'a str>, SignatureError> {
        let mut values = self.0.iter().filter(|(there, _)| there.eq_ignore_ascii_case(name));
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some((_, value)), None) => {
                let text = std::str::from_utf8(value).map_err(|_| SignatureError::Unreadable(name.to_owned()))?;
                Ok(Some(text.trim()))
            }
            _ => Err(SignatureError::Repeated(name.to_owned())),
        }
    }

    /// The value of a header that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<&'a str, SignatureError> {
        self.find(name)?.ok_or_else(|| SignatureError::Missing(name.to_owned()))
    }
}
