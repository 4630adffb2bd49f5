//! A QR code, drawn as one path.

use qrcode::{Color, EcLevel, QrCode};

/// The quiet zone that readers need around a code, in squares (ISO/IEC 18004).
const QUIET: usize = 4;

/// A code in squares of one unit.
pub(super) struct Squares {
    /// How many squares wide and high, with the quiet zone.
    pub(super) side: usize,
    /// The dark ones, as the `d` of an SVG path.
    pub(super) path: String,
}

impl Squares {
    /// The code of a text; `None` if it is too long for one.
    pub(super) fn of(text: &str) -> Option<Self> {
        let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
        let width = code.width();
        let dark = code.to_colors().into_iter().enumerate().filter(|(_, color)| *color == Color::Dark);
        let path = dark.map(|(place, _)| format!("M{} {}h1v1h-1z", QUIET + place % width, QUIET + place / width));
        Some(Self { side: width + 2 * QUIET, path: path.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_three_finders_within_the_quiet_zone() {
        let code = Squares::of("{\"device_name\":\"this-laptop\"}").expect("short enough");
        let far = code.side - QUIET - 7;
        for (x, y) in [(QUIET, QUIET), (far, QUIET), (QUIET, far)] {
            assert!(code.path.contains(&format!("M{x} {y}h1")), "{x} {y}");
        }
        let outside = QUIET - 1;
        assert!(!code.path.contains(&format!("M{outside} ")), "{}", code.path);
        assert!(Squares::of(&"x".repeat(4_000)).is_none());
    }
}
