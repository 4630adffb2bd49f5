//! Splits an expression into tokens: words, numbers and signs.

use super::InvalidCondition;

/// A token, and where it begins in the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) kind: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Name(String),
    Text(String),
    Int(i64),
    Double(f64),
    Sign(&'static str),
    End,
}

/// Longer ones first, so that none is taken for two.
const OPERATOR_SIGNS: [&str; 22] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",", ".", "?", ":",
];

/// The tokens of a text, with an end after them.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, InvalidCondition> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        let at = text[..text.len() - rest.len()].chars().count() + 1;
        let kind;
        (kind, rest) = token(rest).map_err(|why| InvalidCondition { at, why: why.to_owned() })?;
        let ended = kind == TokenKind::End;
        tokens.push(Token { at, kind });
        if ended {
            return Ok(tokens);
        }
    }
}

fn token(text: &str) -> Result<(TokenKind, &str), &'static str> {
    let Some(first) = text.chars().next() else { return Ok((TokenKind::End, "")) };
    match first {
        '\'' | '"' => quoted(&text[1..], first),
        '0'..='9' => number(text),
        '.' if text[1..].starts_with(|c: char| c.is_ascii_digit()) => number(text),
        c if c.is_ascii_alphabetic() || c == '_' => {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
            if text[end..].starts_with(['\'', '"']) {
                return Err("texts with a letter before them are not known here");
            }
            Ok((TokenKind::Name(text[..end].to_owned()), &text[end..]))
        }
        _ => {
            let sign = OPERATOR_SIGNS.into_iter().find(|sign| text.starts_with(sign)).ok_or("this is not known")?;
            Ok((TokenKind::Sign(sign), &text[sign.len()..]))
        }
    }
}

fn number(text: &str) -> Result<(TokenKind, &str), &'static str> {
    const NUMBER_ERROR: &str = "this number cannot be read";
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let end = digits.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(digits.len());
        let number = i64::from_str_radix(&digits[..end], 16).map_err(|_| NUMBER_ERROR)?;
        return Ok((TokenKind::Int(number), &digits[end..]));
    }
    let mut end = 0;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(end) {
        let in_exponent = end > 0 && matches!(bytes[end - 1], b'e' | b'E');
        match byte {
            b'0'..=b'9' | b'.' | b'e' | b'E' => end += 1,
            b'+' | b'-' if in_exponent => end += 1,
            _ => break,
        }
    }
    let (digits, rest) = text.split_at(end);
    if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        return Err(NUMBER_ERROR);
    }
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    let kind = match whole {
        true => digits.parse().map(TokenKind::Int).ok(),
        false => digits.parse().map(TokenKind::Double).ok().filter(|_| !digits.ends_with('.')),
    };
    Ok((kind.ok_or(NUMBER_ERROR)?, rest))
}

/// The text before the closing quote.
fn quoted(text: &str, quote: char) -> Result<(TokenKind, &str), &'static str> {
    const ESCAPE_ERROR: &str = "what follows a backslash is not known";
    let (mut said, mut rest) = (String::new(), text.chars());
    while let Some(c) = rest.next() {
        match c {
            c if c == quote => return Ok((TokenKind::Text(said), rest.as_str())),
            '\n' | '\r' => break,
            '\\' => match rest.next().ok_or(ESCAPE_ERROR)? {
                c @ ('\\' | '?' | '"' | '\'' | '`') => said.push(c),
                'n' => said.push('\n'),
                'r' => said.push('\r'),
                't' => said.push('\t'),
                signed @ ('u' | 'U' | 'x') => {
                    let length = match signed {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let digits = rest.as_str().get(..length).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                    let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                    said.push(code.and_then(char::from_u32).ok_or(ESCAPE_ERROR)?);
                    rest = rest.as_str()[length..].chars();
                }
                _ => return Err(ESCAPE_ERROR),
            },
            c => said.push(c),
        }
    }
    Err("a quote is missing")
}
