//! Images and PDFs as models take them: known by their bytes, bounded, scaled down.
//!
//! Files and results of other servers are external content: what they claim to be does not count, an image is decoded
//! within limits, and a damaged one never reaches a model, whose vendor would refuse the whole call.

mod picture;

use std::panic::catch_unwind;

use deskgate_definition::tool::{Attachment, MediaType};

pub use picture::picture;

/// The size limit of an image, in bytes, as it is found.
pub const MAX_IMAGE_BYTES: usize = 20 * 1024 * 1024;
/// The size limit of a PDF, in bytes.
pub const MAX_PDF_BYTES: usize = 10 * 1024 * 1024;
/// The limit of a PDF's pages: the least of the vendors'.
pub const MAX_PDF_PAGES: u32 = 100;
/// How many tokens one page may cost: its text, and its picture.
const TOKENS_PER_PAGE: u64 = 3_000;

/// A kind of content that is no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// PNG, JPEG, GIF or WebP.
    Picture,
    /// A PDF.
    Pdf,
}

impl MediaKind {
    /// What the content is, by its first bytes; `None`: neither.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"%PDF-") {
            return Some(Self::Pdf);
        }
        picture::format(bytes).map(|_| Self::Picture)
    }

    /// The size limit of such content, in bytes.
    pub fn max_bytes(self) -> usize {
        match self {
            Self::Picture => MAX_IMAGE_BYTES,
            Self::Pdf => MAX_PDF_BYTES,
        }
    }
}

/// Why content cannot be shown to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// An image that cannot be decoded.
    #[error("It is damaged, or of a form that is not known here.")]
    Damaged,
    /// An image with too many pixels.
    #[error("It has more than {} million pixels.", picture::MAX_PIXELS / 1_000_000)]
    TooManyPixels,
    /// Too many bytes.
    #[error("It is larger than {} MiB.", .0 / (1024 * 1024))]
    TooLarge(usize),
    /// A PDF that only a password opens.
    #[error("It is encrypted. Ask the owner for a copy without a password.")]
    Encrypted,
    /// A PDF with too many pages.
    #[error("It has {0} pages, and {MAX_PDF_PAGES} is the limit.")]
    TooManyPages(u32),
}

/// A PDF, unchanged.
///
/// # Errors
/// It is too large, has too many pages, or its pages cannot be found, as when it needs a password.
pub fn pdf(bytes: Vec<u8>) -> Result<Attachment, MediaError> {
    if bytes.len() > MAX_PDF_BYTES {
        return Err(MediaError::TooLarge(MAX_PDF_BYTES));
    }
    // The parser is another's, and reads external content.
    let read = catch_unwind(|| {
        lopdf::Document::load_metadata_mem(&bytes).map(|document| (document.page_count, document.encrypted))
    });
    let (pages, is_encrypted) = read.ok().and_then(Result::ok).ok_or(MediaError::Damaged)?;
    if is_encrypted {
        return Err(MediaError::Encrypted);
    }
    if pages == 0 {
        return Err(MediaError::Damaged);
    }
    if pages > MAX_PDF_PAGES {
        return Err(MediaError::TooManyPages(pages));
    }
    let about =
        if pages == 1 { "A PDF document of one page.".to_owned() } else { format!("A PDF document of {pages} pages.") };
    let tokens = u64::from(pages) * TOKENS_PER_PAGE;
    Ok(Attachment { media_type: MediaType::Pdf, bytes: bytes.into(), pages, tokens, about })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PDF with so many empty pages.
    fn pdf_of(pages: usize) -> Vec<u8> {
        let mut objects = vec!["<</Type/Catalog/Pages 2 0 R>>".to_owned()];
        let kids: Vec<_> = (0..pages).map(|page| format!("{} 0 R", page + 3)).collect();
        objects.push(format!("<</Type/Pages/Count {pages}/Kids[{}]>>", kids.join(" ")));
        objects.extend((0..pages).map(|_| "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>".to_owned()));
        let mut text = "%PDF-1.4\n".to_owned();
        let mut places = Vec::new();
        for (number, object) in (1..).zip(&objects) {
            places.push(text.len());
            text += &format!("{number} 0 obj{object}endobj\n");
        }
        let table = text.len();
        text += &format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
        text.extend(places.iter().map(|place| format!("{place:010} 00000 n \n")));
        text += &format!("trailer<</Root 1 0 R/Size {}>>\nstartxref\n{table}\n%%EOF", objects.len() + 1);
        text.into_bytes()
    }

    #[test]
    fn content_is_known_by_its_first_bytes() {
        assert_eq!(MediaKind::of(&pdf_of(1)), Some(MediaKind::Pdf));
        assert_eq!(MediaKind::of(b"\x89PNG\r\n\x1a\nrest"), Some(MediaKind::Picture));
        assert_eq!(MediaKind::of(b"GIF89a"), Some(MediaKind::Picture));
        for other in [&b""[..], b"%PDF", b"plain text", b"BM    ", b"II*\0"] {
            assert_eq!(MediaKind::of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_pdf_is_counted_and_stays_as_it_is() {
        let two = pdf(pdf_of(2)).expect("two pages");
        assert_eq!((two.about.as_str(), two.tokens), ("A PDF document of 2 pages.", 6_000));
        assert_eq!(*two.bytes, *pdf_of(2));
        assert_eq!(pdf(pdf_of(101)), Err(MediaError::TooManyPages(101)));
        assert_eq!(pdf(vec![b' '; MAX_PDF_BYTES + 1]), Err(MediaError::TooLarge(MAX_PDF_BYTES)));
        for damaged in [&b"%PDF-1.7\nnothing"[..], &pdf_of(0), &pdf_of(9)[..60]] {
            assert_eq!(pdf(damaged.to_vec()), Err(MediaError::Damaged));
        }
    }
}
