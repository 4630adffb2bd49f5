//! Parses tokens to an expression. Its size and depth are bounded, and with them the stack that parsing, evaluating and
//! dropping it take.

use super::InvalidCondition;
use super::token::{Token, TokenKind};

/// Parts of an expression.
const MAX_NODES: usize = 256;
/// Brackets, calls and negations inside each other.
const MAX_DEPTH: usize = 24;
/// Macros inside each other.
const MAX_MACRO_DEPTH: usize = 3;

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Name(String),
    List(Vec<Node>),
    Field(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Negative(Box<Node>),
    Binary(BinaryOperator, Box<Node>, Box<Node>),
    Choice(Box<(Node, Node, Node)>),
    Has(Box<Node>, String),
    Size(Box<Node>),
    Call(StringFunction, Box<(Node, Node)>),
    Each { each: ComprehensionMacro, of: Box<Node>, name: String, test: Box<Node> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOperator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
    Plus,
    Minus,
    Times,
    By,
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StringFunction {
    StartsWith,
    EndsWith,
    Contains,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComprehensionMacro {
    All,
    Exists,
    ExistsOne,
}

/// Operators, loosest first. Those of the third level do not chain, as their chain in CEL has no useful meaning.
const PRECEDENCE_LEVELS: [&[(&str, BinaryOperator)]; 5] = [
    &[("||", BinaryOperator::Or)],
    &[("&&", BinaryOperator::And)],
    &[
        ("==", BinaryOperator::Equal),
        ("!=", BinaryOperator::Unequal),
        ("<=", BinaryOperator::AtMost),
        ("<", BinaryOperator::Less),
        (">=", BinaryOperator::AtLeast),
        (">", BinaryOperator::Greater),
        ("in", BinaryOperator::In),
    ],
    &[("+", BinaryOperator::Plus), ("-", BinaryOperator::Minus)],
    &[("*", BinaryOperator::Times), ("/", BinaryOperator::By), ("%", BinaryOperator::Rest)],
];

/// Parses the tokens of an expression.
pub(super) fn parse(tokens: Vec<Token>) -> Result<Node, InvalidCondition> {
    let mut parser = Parser { tokens, next: 0, nodes: 0, depth: 0, macros: 0, names: Vec::new() };
    let node = parser.choice()?;
    match parser.peek() {
        TokenKind::End => Ok(node),
        _ => Err(parser.wrong("nothing more belongs here")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    nodes: usize,
    depth: usize,
    macros: usize,
    /// The names of the macros' elements.
    names: Vec<String>,
}

type ParseResult = Result<Node, InvalidCondition>;

impl Parser {
    fn peek(&self) -> &TokenKind {
        // The last token is an end, which is never consumed.
        &self.tokens[self.next].kind
    }

    fn take(&mut self) -> TokenKind {
        let kind = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        kind
    }

    fn is(&mut self, sign: &str) -> bool {
        let there = matches!(self.peek(), TokenKind::Sign(found) if *found == sign);
        if there {
            self.take();
        }
        there
    }

    fn need(&mut self, sign: &str) -> Result<(), InvalidCondition> {
        if self.is(sign) { Ok(()) } else { Err(self.wrong(&format!("{sign} is missing"))) }
    }

    fn wrong(&self, why: &str) -> InvalidCondition {
        InvalidCondition { at: self.tokens[self.next].at, why: why.to_owned() }
    }

    fn made(&mut self, node: Node) -> ParseResult {
        self.nodes += 1;
        if self.nodes > MAX_NODES { Err(self.wrong("the condition has too many parts")) } else { Ok(node) }
    }

    /// `a ? b : c`, or what binds closer.
    fn choice(&mut self) -> ParseResult {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong("the condition is nested too deep"));
        }
        let node = self.binary(0)?;
        let node = if self.is("?") {
            let yes = self.binary(0)?;
            self.need(":")?;
            let no = self.choice()?;
            self.made(Node::Choice(Box::new((node, yes, no))))?
        } else {
            node
        };
        self.depth -= 1;
        Ok(node)
    }

    fn binary(&mut self, level: usize) -> ParseResult {
        let Some(operators) = PRECEDENCE_LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            let right = self.binary(level + 1)?;
            left = self.made(Node::Binary(operator, Box::new(left), Box::new(right)))?;
        }
        Ok(left)
    }

    fn operator(&mut self, operators: &[(&str, BinaryOperator)]) -> Option<BinaryOperator> {
        let word = match self.peek() {
            TokenKind::Sign(sign) => sign,
            TokenKind::Name(name) => name.as_str(),
            _ => return None,
        };
        let found = operators.iter().find(|(sign, _)| *sign == word).map(|(_, operator)| *operator);
        if found.is_some() {
            self.take();
        }
        found
    }

    fn unary(&mut self) -> ParseResult {
        let sign = ["!", "-"].into_iter().find(|sign| self.is(sign));
        let Some(sign) = sign else { return self.member() };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong("the condition is nested too deep"));
        }
        let node = Box::new(self.unary()?);
        self.depth -= 1;
        self.made(if sign == "!" { Node::Not(node) } else { Node::Negative(node) })
    }

    /// A value with its fields, indices and methods.
    fn member(&mut self) -> ParseResult {
        let mut node = self.primary()?;
        loop {
            if self.is("[") {
                let index = self.choice()?;
                self.need("]")?;
                node = self.made(Node::Index(Box::new(node), Box::new(index)))?;
            } else if self.is(".") {
                let TokenKind::Name(name) = self.take() else { return Err(self.wrong("a name follows a dot")) };
                node = if self.is("(") {
                    self.method(node, &name)?
                } else {
                    self.made(Node::Field(Box::new(node), name))?
                };
            } else {
                return Ok(node);
            }
        }
    }

    fn method(&mut self, of: Node, name: &str) -> ParseResult {
        let each = match name {
            "all" => Some(ComprehensionMacro::All),
            "exists" => Some(ComprehensionMacro::Exists),
            "exists_one" | "existsOne" => Some(ComprehensionMacro::ExistsOne),
            _ => None,
        };
        if let Some(each) = each {
            return self.each(each, of);
        }
        let call = match name {
            "size" => {
                self.need(")")?;
                return self.made(Node::Size(Box::new(of)));
            }
            "startsWith" => StringFunction::StartsWith,
            "endsWith" => StringFunction::EndsWith,
            "contains" => StringFunction::Contains,
            _ => return Err(self.wrong(&format!("there is no method {name:?} here"))),
        };
        let argument = self.choice()?;
        self.need(")")?;
        self.made(Node::Call(call, Box::new((of, argument))))
    }

    fn each(&mut self, each: ComprehensionMacro, of: Node) -> ParseResult {
        self.macros += 1;
        if self.macros > MAX_MACRO_DEPTH {
            return Err(self.wrong("too many macros stand inside each other"));
        }
        let TokenKind::Name(name) = self.take() else { return Err(self.wrong("a name for the element is missing")) };
        self.need(",")?;
        self.names.push(name.clone());
        let test = self.choice()?;
        self.names.pop();
        self.need(")")?;
        self.macros -= 1;
        self.made(Node::Each { each, of: Box::new(of), name, test: Box::new(test) })
    }

    fn primary(&mut self) -> ParseResult {
        let node = match self.peek().clone() {
            TokenKind::Sign("(") => {
                self.take();
                let node = self.choice()?;
                self.need(")")?;
                return Ok(node);
            }
            TokenKind::Sign("[") => {
                self.take();
                Node::List(self.values("]")?)
            }
            TokenKind::Int(number) => Node::Int(number),
            TokenKind::Double(number) => Node::Double(number),
            TokenKind::Text(text) => Node::Text(text),
            TokenKind::Name(name) => return self.named(&name),
            TokenKind::Sign(_) | TokenKind::End => return Err(self.wrong("a value is missing")),
        };
        if !matches!(node, Node::List(_)) {
            self.take();
        }
        self.made(node)
    }

    fn named(&mut self, name: &str) -> ParseResult {
        let known = |parser: &Self| ["payload", "event"].contains(&name) || parser.names.iter().any(|own| own == name);
        let node = match name {
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            "null" => Node::Null,
            "has" | "size" if self.tokens[self.next + 1].kind == TokenKind::Sign("(") => {
                self.take();
                self.take();
                let argument = self.choice()?;
                self.need(")")?;
                return match (name, argument) {
                    ("size", argument) => self.made(Node::Size(Box::new(argument))),
                    (_, Node::Field(of, field)) => self.made(Node::Has(of, field)),
                    _ => Err(self.wrong("has(…) asks for a field, as in has(payload.issue)")),
                };
            }
            _ if known(self) => Node::Name(name.to_owned()),
            _ => return Err(self.wrong(&format!("there is no {name:?} here; begin with payload or event"))),
        };
        self.take();
        self.made(node)
    }

    /// Values with commas between, up to a closing sign; a comma may stand behind the last.
    fn values(&mut self, end: &str) -> Result<Vec<Node>, InvalidCondition> {
        let mut values = Vec::new();
        while !self.is(end) {
            values.push(self.choice()?);
            if !self.is(",") {
                self.need(end)?;
                break;
            }
        }
        Ok(values)
    }
}
