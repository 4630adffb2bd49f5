//! Splits a command into words for a person to read before deciding, as a shell would, without running anything.
//! Operators are words of their own. What only a run can resolve (variables, patterns, substitutions) stays as written.

/// The words of a command, in order.
pub(super) fn split(command: &str) -> Vec<String> {
    let mut words = WordSplitter { rest: command.chars().peekable(), word: None, found: Vec::new() };
    words.read();
    words.found
}

struct WordSplitter<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    /// The unfinished word; a word of quotes only is present and empty.
    word: Option<String>,
    found: Vec<String>,
}

impl WordSplitter<'_> {
    fn read(&mut self) {
        while let Some(character) = self.rest.next() {
            match character {
                ' ' | '\t' => self.end(),
                '\\' => match self.rest.next() {
                    Some('\n') => {}
                    Some(escaped) => self.add(escaped),
                    None => self.add('\\'),
                },
                '\'' => self.single(),
                '"' => self.double(),
                '$' if self.rest.peek() == Some(&'(') => self.substitution('$'),
                '`' => self.backticks(),
                '#' if self.word.is_none() => self.comment(),
                '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => self.operator(character),
                other => self.add(other),
            }
        }
        self.end();
    }

    fn add(&mut self, character: char) {
        self.word.get_or_insert_default().push(character);
    }

    fn end(&mut self) {
        self.found.extend(self.word.take());
    }

    fn single(&mut self) {
        self.word.get_or_insert_default();
        while let Some(character) = self.rest.next().filter(|character| *character != '\'') {
            self.add(character);
        }
    }

    fn double(&mut self) {
        self.word.get_or_insert_default();
        while let Some(character) = self.rest.next().filter(|character| *character != '"') {
            match (character, self.rest.peek()) {
                ('\\', Some('"' | '\\' | '$' | '`')) => {
                    if let Some(escaped) = self.rest.next() {
                        self.add(escaped);
                    }
                }
                ('$', Some('(')) => self.substitution('$'),
                _ => self.add(character),
            }
        }
    }

    /// Up to its closing bracket, as written; brackets in quotes inside it count too.
    fn substitution(&mut self, first: char) {
        self.add(first);
        let mut depth = 0;
        while let Some(character) = self.rest.next() {
            self.add(character);
            match character {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn backticks(&mut self) {
        self.add('`');
        while let Some(character) = self.rest.next() {
            self.add(character);
            if character == '`' {
                return;
            }
        }
    }

    /// A comment does not run, but a person should see it.
    fn comment(&mut self) {
        self.add('#');
        while let Some(character) = self.rest.next_if(|character| *character != '\n') {
            self.add(character);
        }
        self.end();
    }

    /// The longest operator that begins here. A number before `<` or `>` belongs to it.
    fn operator(&mut self, first: char) {
        let mut operator = String::from(first);
        let of_descriptor = matches!(first, '<' | '>')
            && self.word.as_ref().is_some_and(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_digit()));
        if of_descriptor {
            operator.insert_str(0, &self.word.take().unwrap_or_default());
        }
        self.end();
        while let Some(next) = self.rest.peek().copied() {
            let longer = matches!(
                (operator.trim_start_matches(|c: char| c.is_ascii_digit()), next),
                ("&", '&' | '>')
                    | ("&>", '>')
                    | ("|", '|' | '&')
                    | (";", ';' | '&')
                    | (";;", '&')
                    | ("<", '<' | '&' | '>' | '(')
                    | ("<<", '<' | '-')
                    | (">", '>' | '&' | '|' | '(')
            );
            if !longer {
                break;
            }
            operator.push(next);
            self.rest.next();
        }
        self.found.push(operator);
    }
}

#[cfg(test)]
mod tests {
    use super::split;
    use proptest::prelude::*;

    #[test]
    fn words_are_what_a_shell_would_see() {
        let cases: [(&str, &[&str]); 13] = [
            ("ls -la", &["ls", "-la"]),
            (r#"echo 'a b' "c d" e\ f"#, &["echo", "a b", "c d", "e f"]),
            ("a&&b||c;d|e&", &["a", "&&", "b", "||", "c", ";", "d", "|", "e", "&"]),
            ("x >out 2>&1 <in", &["x", ">", "out", "2>&", "1", "<", "in"]),
            ("echo a2>b", &["echo", "a2", ">", "b"]),
            ("(cd x\nrm -rf y)", &["(", "cd", "x", "\n", "rm", "-rf", "y", ")"]),
            ("echo $(rm -rf /) `id`", &["echo", "$(rm -rf /)", "`id`"]),
            (r#"sh -c "echo $(a b) \"c\"""#, &["sh", "-c", r#"echo $(a b) "c""#]),
            ("true # not this\nrm x", &["true", "# not this", "\n", "rm", "x"]),
            ("echo ''", &["echo", ""]),
            ("r\"m\" -'rf' x", &["rm", "-rf", "x"]),
            ("a \\\n b", &["a", "b"]),
            ("echo 'never closed", &["echo", "never closed"]),
        ];
        for (command, words) in cases {
            assert_eq!(split(command), words, "{command}");
        }
    }

    proptest! {
        #[test]
        fn nothing_a_person_should_see_is_dropped(command in "[a-z '\"\\\\|&;<>()$`#\n]{0,60}") {
            let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
            prop_assert_eq!(letters(&split(&command).concat()), letters(&command));
        }
    }
}
