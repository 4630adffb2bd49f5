//! Markdown of models, as HTML that can do nothing: text, lists, tables, code and links, and no other element.
//!
//! A library reads it (CommonMark with tables, strikethrough and task lists); what is written of it is chosen here. HTML in
//! it is shown as the text that it is. Nothing is loaded: an image is a link to it. A link goes to the web or to a mail
//! address, and shows its host unless its text does.

use std::fmt::Write;

use askama::filters::Escaper;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::escape::VisibleHtml;

/// Where a link may lead.
const LINK_SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// How many times longer than the text its HTML may be. A table of short rows has cells without end; such a text is shown as it
/// is.
const MAX_GROWTH: usize = 16;

/// The HTML of a text in Markdown.
pub(super) fn html(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let most = text.len().saturating_mul(MAX_GROWTH).saturating_add(MAX_GROWTH * 1024);
    let mut writer = Writer::default();
    for event in Parser::new_ext(text, options) {
        writer.add(event);
        if writer.html.len() > most {
            let mut plain = Writer::default();
            plain.html += "<pre tabindex=\"0\">";
            plain.text(text);
            return plain.html + "</pre>";
        }
    }
    writer.html
}

#[derive(Default)]
struct Writer {
    html: String,
    /// The open links and images: where each leads, and where its text begins.
    links: Vec<(Option<String>, usize)>,
    is_in_table_head: bool,
}

impl Writer {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.open(tag),
            Event::End(tag) => self.close(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.html += "<code>";
                self.text(&text);
                self.html += "</code>";
            }
            Event::FootnoteReference(name) => self.text(&format!("[{name}]")),
            Event::SoftBreak => self.html.push('\n'),
            Event::HardBreak => self.html += "<br>",
            Event::Rule => self.html += "<hr>",
            Event::TaskListMarker(done) => self.html += if done { "☑ " } else { "☐ " },
        }
    }

    fn text(&mut self, text: &str) {
        VisibleHtml.write_escaped_str(&mut self.html, text).expect("a string takes all text");
    }

    fn open(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.html += "<p>",
            // The page has headings of its own; those of a message would stand among them.
            Tag::Heading { .. } => self.html += "<p><strong>",
            Tag::BlockQuote(_) => self.html += "<blockquote>",
            Tag::CodeBlock(kind) => {
                self.html += "<pre tabindex=\"0\"><code";
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.html += " title=\"";
                    self.text(&language);
                    self.html.push('"');
                }
                self.html.push('>');
            }
            Tag::List(None) => self.html += "<ul>",
            Tag::List(Some(1)) => self.html += "<ol>",
            Tag::List(Some(first)) => {
                let _ = write!(self.html, "<ol start=\"{first}\">");
            }
            Tag::Item => self.html += "<li>",
            Tag::Table(_) => self.html += "<table>",
            Tag::TableHead => {
                self.is_in_table_head = true;
                self.html += "<thead><tr>";
            }
            Tag::TableRow => self.html += "<tr>",
            Tag::TableCell => self.html += if self.is_in_table_head { "<th scope=\"col\">" } else { "<td>" },
            Tag::Emphasis => self.html += "<em>",
            Tag::Strong => self.html += "<strong>",
            Tag::Strikethrough => self.html += "<del>",
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                let leads = place_of(&dest_url).is_some();
                // A link in a link's text is text.
                let leads = leads && self.links.iter().all(|(target, _)| target.is_none());
                if leads {
                    self.html += "<a rel=\"noopener noreferrer\" href=\"";
                    self.text(&dest_url);
                    self.html += "\">";
                }
                self.links.push((leads.then(|| dest_url.into_string()), self.html.len()));
            }
            _ => {}
        }
    }

    fn close(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.html += "</p>\n",
            TagEnd::Heading(_) => self.html += "</strong></p>\n",
            TagEnd::BlockQuote(_) => self.html += "</blockquote>\n",
            TagEnd::CodeBlock => self.html += "</code></pre>\n",
            TagEnd::List(is_ordered) => self.html += if is_ordered { "</ol>\n" } else { "</ul>\n" },
            TagEnd::Item => self.html += "</li>\n",
            TagEnd::Table => self.html += "</tbody></table>\n",
            TagEnd::TableHead => {
                self.is_in_table_head = false;
                self.html += "</tr></thead><tbody>";
            }
            TagEnd::TableRow => self.html += "</tr>\n",
            TagEnd::TableCell => self.html += if self.is_in_table_head { "</th>" } else { "</td>" },
            TagEnd::Emphasis => self.html += "</em>",
            TagEnd::Strong => self.html += "</strong>",
            TagEnd::Strikethrough => self.html += "</del>",
            TagEnd::Link | TagEnd::Image => self.close_link(),
            _ => {}
        }
    }

    fn close_link(&mut self) {
        let Some((Some(target), begin)) = self.links.pop() else { return };
        if self.html.len() == begin {
            self.text(&target);
        }
        let mut said = Self::default();
        said.text(&target);
        let says_it = self.html[begin..] == said.html;
        self.html += "</a>";
        if !says_it {
            self.html += " (";
            self.text(place_of(&target).unwrap_or_default());
            self.html.push(')');
        }
    }
}

/// The host that a URL of the web leads to, or the mail address; `None`: it leads nowhere that could be named.
fn place_of(url: &str) -> Option<&str> {
    let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    let is_mail = lower.starts_with("mailto:");
    let scheme = LINK_SCHEMES.iter().find(|scheme| lower.starts_with(*scheme))?;
    let authority = url[scheme.len()..].split(['/', '?', '#']).next().unwrap_or_default();
    let place = if is_mail { authority } else { authority.rsplit('@').next().unwrap_or_default() };
    // Browsers take a backslash for a slash, and leave out slashes that are too many.
    (!place.is_empty() && !authority.contains('\\')).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_models_write_is_set_as_they_meant_it() {
        let text = "# Due\n\nTwo **invoices** in `drafts/`:\n\n1. 2026-102\n2. [x] *two*\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\nls -l\n```\n";
        let expected = "<p><strong>Due</strong></p>\n<p>Two <strong>invoices</strong> in <code>drafts/</code>:</p>\n\
                        <ol><li>2026-102</li>\n<li>☑ <em>two</em></li>\n</ol>\n<table><thead><tr><th scope=\"col\">a</th>\
                        <th scope=\"col\">b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr>\n</tbody></table>\n\
                        <pre tabindex=\"0\"><code title=\"sh\">ls -l\n</code></pre>\n";
        assert_eq!(html(text), expected);
    }

    #[test]
    fn no_element_comes_from_the_text_itself() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div onclick=\"x\">\n\nhi\n\n</div>",
            "```\n</code></pre><script>\n```",
            "```\"><script>\nx\n```",
            "`<b>`",
            "| <i> |\n|---|\n| <u> |",
            "[a](https://example.com/\"onmouseover=\"x)",
            "![\"><svg onload=x>](https://example.com/a.png)",
            "<https://example.com/?a=\"><script>",
        ] {
            let html = html(text);
            let ours = ["p", "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "a", "strong", "em"];
            for element in html.split('<').skip(1) {
                let name: String =
                    element.trim_start_matches('/').chars().take_while(char::is_ascii_alphabetic).collect();
                assert!(ours.contains(&name.as_str()), "{name} in {html}");
                let attributes = element.split('>').next().unwrap_or_default().matches('"').count();
                assert!(attributes <= 4 && attributes % 2 == 0, "{html}");
            }
            assert!(!html.contains("onmouseover=\""), "{html}");
        }
        assert_eq!(html("a\u{202e}b"), "<p>a&#60;U+202E&#62;b</p>\n");
    }

    #[test]
    fn a_link_leads_to_the_web_and_says_where() {
        let link = |text: &str| html(text).replace("<a rel=\"noopener noreferrer\" href=", "<a ").trim().to_owned();
        assert_eq!(
            link("[your bank](https://evil.example/x)"),
            "<p><a \"https://evil.example/x\">your bank</a> (evil.example)</p>"
        );
        assert_eq!(
            link("[x](http://bank.example@evil.example/)"),
            "<p><a \"http://bank.example@evil.example/\">x</a> (evil.example)</p>"
        );
        assert_eq!(link("<https://a.example/>"), "<p><a \"https://a.example/\">https://a.example/</a></p>");
        assert_eq!(
            link("![plan](https://a.example/p.png)"),
            "<p><a \"https://a.example/p.png\">plan</a> (a.example)</p>"
        );
        for (text, place) in [
            ("[https://bank.example](https://evil.example/)", "(evil.example)"),
            ("[https://paypal.example/](https://pay.example/)", "(pay.example)"),
            ("[x](mailto:a@evil.example?body=http://bank.example)", "(a@evil.example)"),
        ] {
            assert!(html(text).contains(place), "{text}: {}", html(text));
        }
        for nowhere in [
            "[x](https:///evil.example/)",
            "[x](https://\\\\evil.example/)",
            "[x](javascript:alert(1))",
            "[x](data:text/html,x)",
            "[x](/runs)",
            "[x](file:///etc/passwd)",
        ] {
            assert_eq!(link(nowhere), "<p>x</p>");
        }
    }

    #[test]
    fn a_table_of_cells_without_end_is_shown_as_it_was_written() {
        let text = format!("{}\n{}\n{}", "|a".repeat(500), "|-".repeat(500), "|a\n".repeat(500));
        let html = html(&text);
        assert!(html.starts_with("<pre") && html.len() < MAX_GROWTH * (text.len() + 1024), "{}", html.len());
    }

    #[test]
    fn deep_nesting_takes_no_more_than_its_length() {
        let deep = format!("{}x{}", "> ".repeat(20_000), "*".repeat(20_000));
        let begun = std::time::Instant::now();
        assert!(html(&deep).contains('x'));
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
}
