//! A QR code, drawn as one path.

use qrcode::{Color, EcLevel, QrCode};

/// The quiet zone that readers need around a code, in modules (ISO/IEC 18004).
const QUIET_ZONE_MODULES: usize = 4;

/// A code of modules, each one unit wide.
pub(super) struct QrImage {
    /// The side length in modules, with the quiet zone.
    pub(super) side: usize,
    /// The dark modules, as the `d` of an SVG path.
    pub(super) path: String,
}

impl QrImage {
    /// The code of a text; `None` if it is too long for one.
    pub(super) fn of(text: &str) -> Option<Self> {
        let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
        let width = code.width();
        let dark = code.to_colors().into_iter().enumerate().filter(|(_, color)| *color == Color::Dark);
        let path = dark.map(|(place, _)| {
            format!("M{} {}h1v1h-1z", QUIET_ZONE_MODULES + place % width, QUIET_ZONE_MODULES + place / width)
        });
        Some(Self { side: width + 2 * QUIET_ZONE_MODULES, path: path.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_three_finders_within_the_quiet_zone() {
        let code = QrImage::of("{\"device_name\":\"this-laptop\"}").expect("short enough");
        let far = code.side - QUIET_ZONE_MODULES - 7;
        for (x, y) in [(QUIET_ZONE_MODULES, QUIET_ZONE_MODULES), (far, QUIET_ZONE_MODULES), (QUIET_ZONE_MODULES, far)] {
            assert!(code.path.contains(&format!("M{x} {y}h1")), "{x} {y}");
        }
        let outside = QUIET_ZONE_MODULES - 1;
        assert!(!code.path.contains(&format!("M{outside} ")), "{}", code.path);
        assert!(QrImage::of(&"x".repeat(4_000)).is_none());
    }
}
