//! Reads server-sent events from a byte stream (WHATWG HTML, section 9.2.6).
//!
//! Providers use only the fields `event` and `data`. Events beyond [`MAX_EVENT_BYTES`] are refused, so that the other
//! side cannot decide how much is kept.

/// The size limit of one event, in bytes. Providers send a few hundred.
pub(super) const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Its type; empty when the stream names none.
    pub(super) kind: String,
    /// Its data lines, joined by line feeds.
    pub(super) data: String,
}

/// Why a stream cannot be read further.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SseError {
    /// One event is larger than [`MAX_EVENT_BYTES`].
    TooLarge,
    /// It is not UTF-8.
    NotText,
}

/// The reader of one stream.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    /// The unfinished line.
    line: Vec<u8>,
    /// The last byte was a carriage return: a following line feed belongs to it.
    after_return: bool,
    event: SseEvent,
    has_data: bool,
}

impl SseReader {
    /// Takes the next bytes and returns the events that they complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, SseError> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let piece = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + self.event.data.len() + piece.len() > MAX_EVENT_BYTES {
                return Err(SseError::TooLarge);
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { break };
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            events.extend(self.line_ended(std::str::from_utf8(&line).map_err(|_| SseError::NotText)?));
        }
        Ok(events)
    }

    /// An empty line ends an event; an event without data is ignored.
    fn line_ended(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(kind: &str, data: &str) -> SseEvent {
        SseEvent { kind: kind.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_found_whichever_line_ends_are_used_and_wherever_the_bytes_are_cut() {
        let texts = ["event: a\ndata: {\"x\":\ndata:  1}\n\n: comment\n\ndata:é\nid: 7\n\nevent: none\n\ndata\n\n"];
        let wanted = [event("a", "{\"x\":\n 1}"), event("", "é"), event("", "")];
        for text in texts {
            for line_end in ["\n", "\r\n", "\r"] {
                let bytes = text.replace('\n', line_end).into_bytes();
                for cut in 1..bytes.len() {
                    let mut reader = SseReader::default();
                    let read: Vec<_> = bytes.chunks(cut).flat_map(|chunk| reader.read(chunk).expect("text")).collect();
                    assert_eq!(read, wanted, "{line_end:?} in pieces of {cut}");
                }
            }
        }
    }

    #[test]
    fn what_never_ends_is_given_up_and_not_kept() {
        let mut reader = SseReader::default();
        let piece = vec![b'x'; 1 << 20];
        let broken = (0..8).find_map(|_| reader.read(&piece).err());
        assert_eq!(broken, Some(SseError::TooLarge));
        let mut reader = SseReader::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        let broken = (0..8).find_map(|_| reader.read(&line).err());
        assert_eq!(broken, Some(SseError::TooLarge), "nor an event of many lines");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(SseReader::default().read(b"data: \xff\xfe\n\n"), Err(SseError::NotText));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_read_the_same_in_any_pieces(bytes: Vec<u8>, cut in 1usize..20) {
            let whole = SseReader::default().read(&bytes);
            let mut reader = SseReader::default();
            let pieces: Result<Vec<_>, _> = bytes.chunks(cut).map(|chunk| reader.read(chunk)).collect();
            if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
                prop_assert_eq!(whole, pieces.concat());
            }
        }
    }
}
