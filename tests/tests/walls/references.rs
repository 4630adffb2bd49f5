//! Reads which paths a source file names. Comments and strings name nothing.

/// A path that a file names, with aliases and `super` resolved as far as the text allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) line: usize,
    /// Starts with `crate` for our own modules, else with whatever stands first.
    pub(crate) path: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SourceToken {
    Word(String),
    /// `::`
    Separator,
    Mark(char),
}

/// All paths of more than one step in `text`, and everything that is imported. `module` is where the
/// file stands in its crate: empty for the root, `["http", "runs"]` for `http/runs.rs`.
pub(crate) fn references(text: &str, module: &[String]) -> Vec<Reference> {
    let mut reader = ReferenceReader { tokens: tokens(text), at: 0, module: module.to_vec(), found: Vec::new() };
    reader.read();
    reader.found
}

struct ReferenceReader {
    tokens: Vec<(usize, SourceToken)>,
    at: usize,
    module: Vec<String>,
    found: Vec<Reference>,
}

impl ReferenceReader {
    fn peek(&self, ahead: usize) -> Option<&SourceToken> {
        self.tokens.get(self.at + ahead).map(|(_, token)| token)
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.peek(ahead) {
            Some(SourceToken::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is(&self, ahead: usize, mark: char) -> bool {
        self.peek(ahead) == Some(&SourceToken::Mark(mark))
    }

    fn read(&mut self) {
        let mut depth = 0;
        // The depths at which modules written inside this file began.
        let mut inner: Vec<usize> = Vec::new();
        while let Some(token) = self.peek(0).cloned() {
            match token {
                SourceToken::Word(word) if word == "mod" && self.is(2, '{') => {
                    self.module.push(self.word(1).unwrap_or_default().to_owned());
                    inner.push(depth);
                    depth += 1;
                    self.at += 3;
                }
                // `use<'a>` in a type captures lifetimes and imports nothing.
                SourceToken::Word(word) if word == "use" && !self.is(1, '<') => {
                    self.at += 1;
                    self.tree(&[]);
                }
                SourceToken::Word(word) if word == "extern" && self.word(1) == Some("crate") => {
                    self.note(self.at, self.word(2).map(str::to_owned).into_iter().collect());
                    self.at += 3;
                }
                SourceToken::Word(_) => self.expression(),
                SourceToken::Mark('{') => (depth, self.at) = (depth + 1, self.at + 1),
                SourceToken::Mark('}') => {
                    depth -= 1;
                    self.at += 1;
                    if inner.last() == Some(&depth) {
                        inner.pop();
                        self.module.pop();
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// A path outside of an import. What follows `Vec::<T>` belongs to no path of its own.
    fn expression(&mut self) {
        let begin = self.at;
        let mut path = Vec::new();
        while let Some(word) = self.word(0) {
            path.push(word.to_owned());
            self.at += 1;
            if self.peek(0) != Some(&SourceToken::Separator) || self.word(1).is_none() {
                break;
            }
            self.at += 1;
        }
        let before = |steps: usize| begin.checked_sub(steps).map(|at| &self.tokens[at].1);
        let continues = before(1) == Some(&SourceToken::Separator) && before(2) == Some(&SourceToken::Mark('>'));
        if path.len() > 1 && !continues {
            self.note(begin, path);
        }
    }

    /// One branch of an import, with everything below it.
    fn tree(&mut self, prefix: &[String]) {
        let begin = self.at;
        let mut path = prefix.to_vec();
        loop {
            match self.peek(0).cloned() {
                Some(SourceToken::Separator) => self.at += 1,
                Some(SourceToken::Word(word)) if word == "as" => self.at += 2,
                Some(SourceToken::Word(word)) => {
                    path.push(word);
                    self.at += 1;
                }
                Some(SourceToken::Mark('*')) => {
                    path.push("*".to_owned());
                    self.at += 1;
                }
                Some(SourceToken::Mark('{')) => {
                    self.at += 1;
                    while self.peek(0).is_some() && !self.is(0, '}') {
                        self.tree(&path);
                        self.at += usize::from(self.is(0, ','));
                    }
                    self.at += 1;
                    return;
                }
                _ => break,
            }
        }
        // Something that is no import at all must not stop the reading.
        self.at += usize::from(self.at == begin);
        self.note(begin, path);
    }

    fn note(&mut self, at: usize, path: Vec<String>) {
        let Some((first, rest)) = path.split_first() else { return };
        let mut absolute = vec!["crate".to_owned()];
        let steps_up = path.iter().take_while(|step| *step == "super").count();
        match first.as_str() {
            "crate" => absolute.extend_from_slice(rest),
            "self" if rest.first().is_some_and(|step| step == "super") => return self.note(at, rest.to_vec()),
            "self" => absolute.extend(self.module.iter().chain(rest).cloned()),
            "super" => {
                let kept = self.module.len().saturating_sub(steps_up);
                absolute.extend(self.module[..kept].iter().chain(&path[steps_up..]).cloned());
            }
            _ => absolute = path,
        }
        let line = self.tokens.get(at).map_or(0, |(line, _)| *line);
        self.found.push(Reference { line, path: absolute });
    }
}

fn tokens(text: &str) -> Vec<(usize, SourceToken)> {
    let characters: Vec<char> = text.chars().collect();
    let at = |index: usize| characters.get(index).copied().unwrap_or('\0');
    let mut found = Vec::new();
    let (mut index, mut line) = (0, 1);
    while index < characters.len() {
        let (begin, begin_line) = (index, line);
        match at(index) {
            '/' if at(index + 1) == '/' => index = skip_to(&characters, index, |at| at == '\n'),
            '/' if at(index + 1) == '*' => index = block_comment_end(&characters, index),
            '"' => index = string_end(&characters, index),
            // A character in quotes; a lifetime has no closing quote.
            '\'' if at(index + 1) == '\\' => index = skip_to(&characters, index + 3, |at| at == '\'') + 1,
            '\'' if at(index + 2) == '\'' => index += 3,
            ':' if at(index + 1) == ':' => {
                found.push((line, SourceToken::Separator));
                index += 2;
            }
            character if character.is_alphanumeric() || character == '_' => {
                index = skip_to(&characters, index, |at| !(at.is_alphanumeric() || at == '_'));
                let word: String = characters[begin..index].iter().collect();
                let hashes = characters[index..].iter().take_while(|at| **at == '#').count();
                let is_prefix = ["r", "b", "c", "br", "cr"].contains(&word.as_str());
                match at(index + hashes) {
                    '"' if is_prefix && word.contains('r') => index = raw_string_end(&characters, index, hashes),
                    '"' if is_prefix && hashes == 0 => index = string_end(&characters, index),
                    '\'' if word == "b" && hashes == 0 => {}
                    _ if word == "r" && hashes == 1 => index += 1,
                    _ => found.push((begin_line, SourceToken::Word(word))),
                }
            }
            character => {
                if !character.is_whitespace() {
                    found.push((line, SourceToken::Mark(character)));
                }
                index += 1;
            }
        }
        line += characters[begin..index.min(characters.len())].iter().filter(|at| **at == '\n').count();
    }
    found
}

fn skip_to(characters: &[char], from: usize, end: impl Fn(char) -> bool) -> usize {
    (from..characters.len()).find(|index| end(characters[*index])).unwrap_or(characters.len())
}

fn string_end(characters: &[char], quote: usize) -> usize {
    let mut index = quote + 1;
    while index < characters.len() && characters[index] != '"' {
        index += if characters[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

fn raw_string_end(characters: &[char], from: usize, hashes: usize) -> usize {
    let mut index = from + hashes + 1;
    while index < characters.len() {
        let after = &characters[index + 1..];
        if characters[index] == '"' && after.iter().take_while(|at| **at == '#').count() >= hashes {
            return index + 1 + hashes;
        }
        index += 1;
    }
    index
}

fn block_comment_end(characters: &[char], from: usize) -> usize {
    let (mut index, mut depth) = (from, 0);
    while index + 1 < characters.len() {
        match (characters[index], characters[index + 1]) {
            ('/', '*') => (depth, index) = (depth + 1, index + 2),
            ('*', '/') => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            return index;
        }
    }
    characters.len()
}
