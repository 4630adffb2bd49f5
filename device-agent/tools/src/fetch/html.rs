//! HTML as text that a model reads: headings, lists, links, tables and code in the manner of Markdown.
//!
//! A page is read token by token, and no tree is made of it. The tree that HTML asks for costs the square of a page's
//! length where elements are nested deeply or never closed (whatwg/html#2872), and walking it can end the program. What
//! is done here costs no more than the length of the page, however it is nested.

use html5gum::{DefaultEmitter, EndTag, StartTag, Token, Tokenizer};
use reqwest::Url;
use tokio_util::sync::CancellationToken;

use super::markdown::{Gap, MarkdownText};

/// The size limit of the text, in bytes. Links become longer than they were.
const MAX_TEXT_BYTES: usize = 5 * 1024 * 1024;
/// The length limit of a title, in bytes.
const MAX_TITLE_BYTES: usize = 300;
/// The length limit of a link's address, in bytes. The address of a longer one is left out.
const MAX_LINK_BYTES: usize = 2048;
/// How deep lists are indented.
const MAX_INDENTED_LISTS: usize = 8;
/// Elements whose content is no text of the page.
const SKIPPED_ELEMENTS: [&str; 15] = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "noembed", "object", "canvas", "audio",
    "video", "textarea", "select", "datalist",
];

/// The text of a page, and whether its end is missing. `base` is where the page was found.
pub(super) fn text_of(html: &str, base: &Url, stop: &CancellationToken) -> (String, bool) {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut reader = PageReader::new(base.clone());
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        if stop.is_cancelled() || reader.page.text.len() > MAX_TEXT_BYTES {
            return (reader.finish(), true);
        }
        match token {
            Token::StartTag(tag) => reader.start(&tag),
            Token::EndTag(tag) => reader.end(&tag),
            Token::String(text) => reader.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    (reader.finish(), false)
}

/// Reads a page from its first token to its last.
struct PageReader {
    page: MarkdownText,
    title: String,
    is_in_title: bool,
    /// The element whose content is skipped, and how often it is open.
    skipped: Option<(Vec<u8>, usize)>,
    /// The open lists, with the next number of those that have numbers.
    lists: Vec<Option<u32>>,
    /// How many elements are open whose white space counts.
    preformatted: usize,
    /// The address of the open link.
    href: Option<Url>,
    /// Whether the row of a table has a cell.
    has_cell: bool,
    base: Url,
}

impl PageReader {
    fn new(base: Url) -> Self {
        Self {
            page: MarkdownText::default(),
            title: String::new(),
            is_in_title: false,
            skipped: None,
            lists: Vec::new(),
            preformatted: 0,
            href: None,
            has_cell: false,
            base,
        }
    }

    fn start(&mut self, tag: &StartTag<()>) {
        if let Some((name, open)) = &mut self.skipped {
            *open += usize::from(**name == **tag.name && !tag.self_closing);
            return;
        }
        let name = std::str::from_utf8(&tag.name).unwrap_or_default();
        let attribute = |name: &str| tag.attributes.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value));
        match name {
            "title" => self.is_in_title = self.title.is_empty(),
            "base" => {
                self.base = attribute("href").and_then(|href| self.base.join(&href).ok()).unwrap_or(self.base.clone())
            }
            "br" if self.preformatted > 0 => self.page.mark("\n"),
            "br" => self.page.gap = if self.page.gap >= Gap::Line { Gap::Blank } else { Gap::Line },
            "hr" => self.rule(),
            "img" => self.image(attribute("alt").as_deref().unwrap_or_default()),
            "a" => self.link(attribute("href").as_deref()),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(&name[1..]),
            "ul" | "ol" | "menu" => self.list(name == "ol", attribute("start").as_deref()),
            "li" => self.item(),
            "tr" => self.row(),
            "td" | "th" => self.cell(),
            "pre" => self.preformatted(),
            "code" if self.preformatted == 0 => self.page.mark("`"),
            _ if SKIPPED_ELEMENTS.contains(&name) => {
                // Only elements of drawings and formulas can be closed by their own tag.
                let is_closed = tag.self_closing && matches!(name, "svg" | "math");
                self.skipped = (!is_closed).then(|| (tag.name.to_vec(), 1));
            }
            _ => self.page.separate(gap_around(name)),
        }
    }

    fn end(&mut self, tag: &EndTag<()>) {
        if let Some((name, open)) = &mut self.skipped {
            *open -= usize::from(**name == **tag.name);
            if *open == 0 {
                self.skipped = None;
            }
            return;
        }
        match std::str::from_utf8(&tag.name).unwrap_or_default() {
            "title" => self.is_in_title = false,
            "a" => self.end_link(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.page.prefix.clear();
                self.page.separate(Gap::Blank);
            }
            "ul" | "ol" | "menu" => {
                self.lists.pop();
                self.page.separate(if self.lists.is_empty() { Gap::Blank } else { Gap::Line });
            }
            "li" => {
                self.page.prefix.clear();
                self.page.separate(Gap::Line);
            }
            "pre" if self.preformatted > 0 => self.end_preformatted(),
            "code" if self.preformatted == 0 => self.page.text.push('`'),
            other => self.page.separate(gap_around(other)),
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
        } else if self.is_in_title {
            let room = MAX_TITLE_BYTES.saturating_sub(self.title.len());
            self.title.push_str(super::page::at_most(text, room));
        } else if self.preformatted > 0 {
            self.page.mark(text);
        } else {
            self.page.words(text);
        }
    }

    fn heading(&mut self, level: &str) {
        self.page.separate(Gap::Blank);
        self.page.prefix = format!("{} ", "#".repeat(level.parse().unwrap_or(1)));
    }

    fn rule(&mut self) {
        self.page.separate(Gap::Blank);
        self.page.mark("---");
        self.page.separate(Gap::Blank);
    }

    fn image(&mut self, alt: &str) {
        if !alt.trim().is_empty() {
            self.page.mark("![");
            self.page.words(alt.trim());
            self.page.text.push(']');
        }
    }

    fn link(&mut self, href: Option<&str>) {
        self.end_link();
        let target = href.filter(|href| !href.starts_with('#')).and_then(|href| self.base.join(href).ok());
        let is_shown = |url: &Url| matches!(url.scheme(), "http" | "https") && url.as_str().len() <= MAX_LINK_BYTES;
        self.href = target.filter(is_shown).filter(|_| self.preformatted == 0);
        if self.href.is_some() {
            self.page.mark("[");
            self.page.link = Some(self.page.text.len());
        }
    }

    fn end_link(&mut self) {
        let (Some(url), Some(begin)) = (self.href.take(), self.page.link.take()) else { return };
        if self.page.text.len() == begin {
            self.page.text.truncate(begin - 1);
        } else {
            self.page.text.push_str(&format!("]({url})"));
        }
    }

    fn list(&mut self, is_numbered: bool, start: Option<&str>) {
        self.page.separate(if self.lists.is_empty() { Gap::Blank } else { Gap::Line });
        let first = start.and_then(|start| start.trim().parse().ok()).unwrap_or(1);
        self.lists.push(is_numbered.then_some(first));
    }

    fn item(&mut self) {
        self.page.separate(Gap::Line);
        let indent = "  ".repeat(self.lists.len().saturating_sub(1).min(MAX_INDENTED_LISTS));
        self.page.prefix = match self.lists.last_mut() {
            Some(Some(number)) => {
                let prefix = format!("{indent}{number}. ");
                *number = number.saturating_add(1);
                prefix
            }
            _ => format!("{indent}- "),
        };
    }

    fn row(&mut self) {
        self.page.separate(Gap::Line);
        self.has_cell = false;
    }

    fn cell(&mut self) {
        if self.has_cell {
            self.page.separate(Gap::Space);
            self.page.mark("|");
            self.page.separate(Gap::Space);
        }
        self.has_cell = true;
    }

    fn preformatted(&mut self) {
        if self.preformatted == 0 {
            self.page.separate(Gap::Blank);
            self.page.mark("```\n");
        }
        self.preformatted += 1;
    }

    fn end_preformatted(&mut self) {
        self.preformatted -= 1;
        if self.preformatted == 0 {
            let end = if self.page.text.ends_with('\n') { "```" } else { "\n```" };
            self.page.text.push_str(end);
            self.page.separate(Gap::Blank);
        }
    }

    /// The title, if there is one, and the text.
    fn finish(mut self) -> String {
        self.end_link();
        if self.preformatted > 0 {
            self.preformatted = 1;
            self.end_preformatted();
        }
        let title = self.title.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        match title.is_empty() {
            true => self.page.text,
            false => format!("Title: {title}\n\n{}", self.page.text),
        }
    }
}

/// The gap before and after an element.
fn gap_around(name: &str) -> Gap {
    match name {
        "p" | "blockquote" | "table" | "dl" | "section" | "article" | "header" | "footer" | "nav" | "main"
        | "aside" | "figure" | "form" | "fieldset" | "details" | "search" => Gap::Blank,
        "div" | "dt" | "dd" | "tr" | "caption" | "figcaption" | "address" | "summary" | "option" | "legend"
        | "hgroup" | "center" | "body" | "html" | "head" => Gap::Line,
        "td" | "th" | "button" | "label" => Gap::Space,
        _ => Gap::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pieces of markup in any order, with what belongs to no markup between them.
    const HOSTILE_HTML: &str = "(<[a-z1-6/!?-]{0,6}( (href|alt|start)='[a-z0-9:/#]{0,9}')?/?>?|</?(a|p|li|ul|ol|pre|td|tr|svg|h2|title|script|code|base)>|[a-z<>&;#'\"= \n\u{0}é]{0,4}){0,40}";

    fn read(html: &str) -> String {
        let base = Url::parse("https://docs.example.com/guide/").expect("a URL");
        text_of(html, &base, &CancellationToken::new()).0
    }

    #[test]
    fn a_page_becomes_its_title_and_its_text() {
        let html = "<!doctype html><html><head><title>A &amp; B\n guide</title><style>p { color: red }</style>
            <script>if (a < b) alert('<p>no</p>')</script></head><body><!-- hidden --><nav><a href=/home>Home</a></nav>
            <h1>The <em>guide</em></h1><p>One&nbsp;paragraph,
            on two lines.<p>Another<br>line with <code>code</code> in it.
            <ul><li>first<li>second <a href='x?a=1&amp;b=2#part'>link</a><ol start=3><li>three</li><li>four</ol></ul>
            <hr><pre>  let a = 1;\n\n  <b>a</b>\n</pre><img src=x.png alt='a picture'><img alt=''>
            <table><tr><th>name<th>price<tr><td>tea<td>2 €</table><p>Caf&eacute; &#x2713;";
        assert_eq!(
            read(html),
            "Title: A & B guide\n\n[Home](https://docs.example.com/home)\n\n# The guide\n\nOne\u{a0}paragraph, on two lines.\n\n\
             Another\nline with `code` in it.\n\n- first\n- second [link](https://docs.example.com/guide/x?a=1&b=2#part)\n  3. three\n  \
             4. four\n\n---\n\n```\n  let a = 1;\n\n  a\n```\n\n![a picture]\n\nname | price\ntea | 2 €\n\nCafé ✓"
        );
    }

    #[test]
    fn only_addresses_that_can_be_opened_are_shown() {
        assert_eq!(
            read("<a href='javascript:x()'>run</a> <a href='#top'>up</a> <a href='mailto:a@b'>write</a>"),
            "run up write"
        );
        assert_eq!(
            read("<a href='/a'><img src=x></a> <a href=b>b</a> <a>c</a>"),
            "[b](https://docs.example.com/guide/b) c"
        );
        assert_eq!(read("<base href='https://other.example/x/'><a href=b>b</a>"), "[b](https://other.example/x/b)");
        assert_eq!(read("<a href=a><h2>Card</h2></a><p>text"), "[## Card](https://docs.example.com/guide/a)\n\ntext");
        assert_eq!(
            read("<a href=a>one<a href=b>two"),
            "[one](https://docs.example.com/guide/a)[two](https://docs.example.com/guide/b)"
        );
    }

    #[test]
    fn what_is_never_closed_or_never_opened_hides_nothing_else() {
        assert_eq!(read("</p></ul></li></pre></a></table>a</svg>b"), "a\n\nb".replace("\n\n", ""));
        assert_eq!(read("a <svg><text>no</text><svg></svg>no</svg> b <svg/> c"), "a b c");
        assert_eq!(read("<pre>a\n  b"), "```\na\n  b\n```");
        assert_eq!(read("a<script>b"), "a");
        assert_eq!(read("<h2></h2>a<li></li>b"), "a\nb");
        assert_eq!(read("a < b && c <d"), "a < b && c");
        assert_eq!(read(""), "");
    }

    #[test]
    fn a_hostile_page_costs_no_more_than_its_length() {
        let count = 100_000;
        let attributes: String = (0..count).map(|n| format!("a{n}=1 ")).collect();
        let fonts: String = (0..count).map(|n| format!("<font a{n}>")).collect();
        let began = std::time::Instant::now();
        for html in [
            "<div>".repeat(count) + "deep",
            "<b>".repeat(count) + "deep",
            "<blockquote>".repeat(count) + "deep",
            "<ul><li>".repeat(count) + "deep",
            "<table><tr><td>".repeat(count) + "deep",
            "<pre>".repeat(count) + "deep",
            "<a href=x>".repeat(count) + "deep",
            fonts + &"<p>".repeat(count) + "deep",
            format!("<div {attributes}>deep"),
            "<svg>".repeat(count) + &"</svg>".repeat(count) + "deep",
            "</div>".repeat(count) + "deep",
            "&amp;".repeat(count) + "deep",
            "<".repeat(count) + " deep",
        ] {
            let text = read(&html);
            assert!(text.contains("deep"), "{}", &html[..20]);
            assert!(text.len() < 2 * html.len(), "{} gave {} bytes", &html[..20], text.len());
        }
        // In a tree the first of these takes a minute, and each further one longer.
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }

    proptest! {
        #[test]
        fn whatever_a_page_holds_its_text_is_bounded_and_its_words_stay(html in HOSTILE_HTML) {
            let text = read(&html);
            prop_assert!(text.len() <= 64 * html.len() + 64);
            // A word in front of every tag is never lost.
            let with_word = read(&format!("begin{html}"));
            prop_assert!(with_word.contains("begin"), "{with_word}");
        }
    }

    #[test]
    fn short_links_on_a_long_base_end_at_the_limit() {
        let base = format!("<base href='https://docs.example.com/{}/'>", "a".repeat(1500));
        let html = base + &"<a href=b>b</a>".repeat(20_000);
        let at = Url::parse("https://docs.example.com/").expect("a URL");
        let (text, is_cut) = text_of(&html, &at, &CancellationToken::new());
        assert!(is_cut && text.len() < MAX_TEXT_BYTES + 4096, "{}", text.len());
        let stopped = CancellationToken::new();
        stopped.cancel();
        assert_eq!(text_of("text", &at, &stopped), (String::new(), true));
    }
}
