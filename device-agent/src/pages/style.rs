//! The static files: style sheet, script, icons, marks. They hold no secret, so they need no session.

use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;

/// The path of the style sheet.
pub(super) const STYLESHEET_PATH: &str = "/style.css";

/// The mark of a tab.
pub(super) const MARK_PATH: &str = "/mark.svg";
/// The same, while something waits for its owner.
pub(super) const WAITING_MARK_PATH: &str = "/mark-waiting.svg";
/// All icons, in one file.
pub(super) const ICONS_PATH: &str = "/icons.svg";

/// Whether a path is answered without a session.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, STYLESHEET_PATH | ICONS_PATH | MARK_PATH | WAITING_MARK_PATH | "/script.js" | "/sign-in")
}

/// `GET /style.css`
pub(super) async fn css() -> impl IntoResponse {
    of("text/css; charset=utf-8", include_str!("../../templates/style.css"))
}

/// `GET /script.js`
pub(super) async fn script() -> impl IntoResponse {
    of("text/javascript; charset=utf-8", include_str!("../../templates/script.js"))
}

/// `GET /icons.svg`
pub(super) async fn icons() -> impl IntoResponse {
    of("image/svg+xml", include_str!("../../templates/icons.svg"))
}

/// `GET /mark.svg`
pub(super) async fn mark() -> impl IntoResponse {
    of("image/svg+xml", include_str!("../../templates/mark.svg"))
}

/// `GET /mark-waiting.svg`
pub(super) async fn waiting_mark() -> impl IntoResponse {
    of("image/svg+xml", include_str!("../../templates/mark-waiting.svg"))
}

fn of(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text)
}

#[cfg(test)]
mod tests {
    use super::super::labels::Shape;

    /// The largest style sheet, in bytes.
    const MAX_STYLESHEET_BYTES: usize = 40_000;

    #[test]
    fn the_style_sheet_stays_small() {
        let size = include_str!("../../templates/style.css").len();
        assert!(size <= MAX_STYLESHEET_BYTES, "{size} bytes");
    }

    /// Every icon that a template names is in the file of icons.
    #[test]
    fn every_icon_exists() {
        let icons = include_str!("../../templates/icons.svg");
        let templates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let shapes = Shape::ALL.map(Shape::icon);
        let mut named: Vec<String> = shapes.iter().map(|name| (*name).to_owned()).collect();
        for file in std::fs::read_dir(templates).expect("a folder").map(|entry| entry.expect("readable").path()) {
            let text = std::fs::read_to_string(&file).expect("text");
            let names = text.split("/icons.svg#").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
            named.extend(names.filter(|name| !name.contains('{') && *name != "NAME").map(str::to_owned));
        }
        for name in named {
            assert!(icons.contains(&format!("id=\"{name}\"")), "{name}");
        }
    }
}
