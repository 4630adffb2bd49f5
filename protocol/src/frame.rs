//! Bytes to frames and back. One frame is one JSON text of at most [`MAX_FRAME_BYTES`].

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest frame in either direction: it fits a run's record with an input and a result of 1 MiB each.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Why bytes are not a frame, or a frame cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Larger than [`MAX_FRAME_BYTES`].
    #[error("a frame of {0} bytes is over the limit of {MAX_FRAME_BYTES} bytes")]
    TooLarge(usize),
    /// Not JSON, an unknown frame, or a missing or wrong member. The error does not repeat the bytes: they may be
    /// private.
    #[error("not a frame of this protocol: it errs at line {}, column {}", .0.line(), .0.column())]
    Malformed(#[from] serde_json::Error),
}

/// Writes a frame.
///
/// # Errors
/// The frame is larger than [`MAX_FRAME_BYTES`], or cannot be written as JSON.
pub fn encode(frame: &impl Serialize) -> Result<String, FrameError> {
    let text = serde_json::to_string(frame)?;
    if text.len() > MAX_FRAME_BYTES { Err(FrameError::TooLarge(text.len())) } else { Ok(text) }
}

/// Reads a frame.
///
/// # Errors
/// The text is larger than [`MAX_FRAME_BYTES`], or is not a frame.
pub fn decode<F: DeserializeOwned>(text: &str) -> Result<F, FrameError> {
    if text.len() > MAX_FRAME_BYTES {
        return Err(FrameError::TooLarge(text.len()));
    }
    Ok(serde_json::from_str(text)?)
}
