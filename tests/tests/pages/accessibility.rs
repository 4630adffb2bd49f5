//! Accessibility of the pages: the guidelines' rules in light and dark, and in a narrow window.
//!
//! With `DESKGATE_SCREENS=FOLDER` (`make screens`) it also takes a screenshot of each page.

use std::path::PathBuf;

use deskgate_tests::browser::BrowserPage;

const WIDE_PIXELS: u32 = 1100;
const NARROW_PIXELS: u32 = 390;
/// Rules that depend on the theme; the others are checked once.
const THEME_RULES: [&str; 2] = ["color-contrast", "link-in-text-block"];

/// Collects findings, and takes screenshots with a name prefix if they are wanted.
pub(crate) struct AccessibilityChecker {
    pictures: Option<PathBuf>,
    computer: &'static str,
    findings: Vec<String>,
    seen: usize,
}

impl AccessibilityChecker {
    pub(crate) fn of(computer: &'static str) -> Self {
        let pictures = std::env::var_os("DESKGATE_SCREENS").map(PathBuf::from);
        Self { pictures, computer, findings: Vec::new(), seen: 0 }
    }

    /// Checks a page in its present state, in both themes, wide and narrow.
    pub(crate) async fn judge(&mut self, page: &BrowserPage, name: &str) {
        self.seen += 1;
        let mut found = page.accessibility_findings(None).await;
        self.picture(page, name, "light").await;
        page.look("dark", WIDE_PIXELS).await;
        found.extend(
            page.accessibility_findings(Some(&THEME_RULES)).await.into_iter().map(|finding| format!("dark: {finding}")),
        );
        self.picture(page, name, "dark").await;
        page.look("light", NARROW_PIXELS).await;
        let wider = page.evaluate("document.documentElement.scrollWidth - innerWidth").await;
        if wider.as_f64() > Some(0.0) {
            found.push(format!("{wider} pixels wider than a narrow window"));
        }
        self.picture(page, name, "narrow").await;
        page.look("light", WIDE_PIXELS).await;
        self.findings.extend(found.into_iter().map(|finding| format!("{name}: {finding}")));
    }

    async fn picture(&self, page: &BrowserPage, name: &str, look: &str) {
        let Some(folder) = &self.pictures else { return };
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plain = plain.trim_matches('-');
        page.picture(&folder.join(format!("{}-{plain}-{look}.png", self.computer))).await;
    }

    /// Fails if anything was found.
    pub(crate) fn sentence(self, at_least: usize) {
        assert!(self.seen >= at_least, "only {} pages were seen", self.seen);
        assert!(self.findings.is_empty(), "{} findings:\n{}", self.findings.len(), self.findings.join("\n"));
    }
}
