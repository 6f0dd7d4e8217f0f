//! Parses the text of a filter into a tree of names and literals without types.
//!
//! ```text
//! filter     = all { OR all }
//! all        = one { AND one }
//! one        = NOT one | "(" filter ")" | predicate
//! predicate  = literal op field | field [ op literal | [NOT] IN "(" literal { "," literal } ")"
//!            | [NOT] BETWEEN literal AND literal | [NOT] LIKE 'text%' | [NOT] CONTAINS 'text'
//!            | IS [NOT] NULL ]
//! op         = "=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">="
//! literal    = number | 'text' | TRUE | FALSE
//! field      = name | "name"
//! ```
//!
//! Recursion is bounded, whatever the text.

use winnow::ascii::{Caseless, digit1, multispace0};
use winnow::combinator::{
    alt, cut_err, fail, not, opt, peek, preceded, repeat, separated, terminated,
};
use winnow::error::{ContextError, ErrMode, StrContext, StrContextValue};
use winnow::prelude::*;
use winnow::token::{any, one_of, take_till, take_while};

use crate::schema::comparison::Op;
use crate::schema::names::shown;

/// The deepest nesting of parentheses and NOT.
const DEPTH_MAX: usize = 64;

const KEYWORDS: [&str; 9] = [
    "and", "or", "not", "in", "is", "null", "between", "true", "false",
];

/// A literal as it was written.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Literal {
    Number(String),
    Text(String),
    Bool(bool),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    Compare {
        field: String,
        op: Op,
        value: Literal,
    },
    In {
        field: String,
        values: Vec<Literal>,
    },
    Between {
        field: String,
        from: Literal,
        to: Literal,
    },
    /// The pattern may end in `%`, its only wildcard.
    Like {
        field: String,
        pattern: String,
    },
    Contains {
        field: String,
        part: String,
    },
    Null {
        field: String,
    },
    /// A bool field alone.
    Flag {
        field: String,
    },
    Not(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
}

/// Returns the tree, or a message that names the wrong place.
pub(super) fn parse(text: &str) -> Result<Node, String> {
    preceded(multispace0, |input: &mut &str| filter(input, 0))
        .parse(text)
        .map_err(|error| {
            let (before, rest) = text.split_at(error.offset());
            let column = 1 + before.chars().count();
            let found = match rest {
                "" => "the end".to_owned(),
                found => format!("'{}'", shown(found, 16)),
            };
            let expected: Vec<String> = error.inner().context().filter_map(expectation).collect();
            match expected.first() {
                Some(expected) => format!("column {column}: expected {expected}, found {found}"),
                None => format!("column {column}: unexpected {found}"),
            }
        })
}

fn expectation(context: &StrContext) -> Option<String> {
    match context {
        StrContext::Expected(expected) => Some(expected.to_string()),
        _ => None,
    }
}

fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

fn filter(input: &mut &str, depth: usize) -> ModalResult<Node> {
    let first = all(input, depth)?;
    let mut nodes = vec![first];
    while opt(keyword("or")).parse_next(input)?.is_some() {
        nodes.push(cut_err(|input: &mut &str| all(input, depth)).parse_next(input)?);
    }
    Ok(single_or(nodes, Node::Any))
}

fn all(input: &mut &str, depth: usize) -> ModalResult<Node> {
    let first = one(input, depth)?;
    let mut nodes = vec![first];
    while opt(keyword("and")).parse_next(input)?.is_some() {
        nodes.push(cut_err(|input: &mut &str| one(input, depth)).parse_next(input)?);
    }
    Ok(single_or(nodes, Node::All))
}

fn single_or(mut nodes: Vec<Node>, join: fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(node) if nodes.is_empty() => node,
        last => {
            nodes.extend(last);
            join(nodes)
        }
    }
}

fn one(input: &mut &str, depth: usize) -> ModalResult<Node> {
    if depth > DEPTH_MAX {
        return cut_err(fail.context(expected("parentheses and NOT at most 64 deep")))
            .parse_next(input);
    }
    if opt(keyword("not")).parse_next(input)?.is_some() {
        let node = cut_err(|input: &mut &str| one(input, depth + 1)).parse_next(input)?;
        return Ok(Node::Not(Box::new(node)));
    }
    if opt(symbol("(")).parse_next(input)?.is_some() {
        let inner = |input: &mut &str| filter(input, depth + 1);
        return cut_err(terminated(inner, symbol(")").context(expected("')'")))).parse_next(input);
    }
    predicate
        .context(expected("a field, a literal, NOT or '('"))
        .parse_next(input)
}

fn predicate(input: &mut &str) -> ModalResult<Node> {
    if let Some(value) = opt(literal).parse_next(input)? {
        let op = cut_err(operator)
            .context(expected("a comparison"))
            .parse_next(input)?;
        let field = cut_err(field)
            .context(expected("a field"))
            .parse_next(input)?;
        return Ok(Node::Compare {
            field,
            op: op.mirrored(),
            value,
        });
    }
    let field = field.parse_next(input)?;
    if let Some(op) = opt(operator).parse_next(input)? {
        let value = cut_err(literal)
            .context(expected("a number, a text in single quotes, true or false"))
            .parse_next(input)?;
        return Ok(Node::Compare { field, op, value });
    }
    if opt(keyword("is")).parse_next(input)?.is_some() {
        let negated = opt(keyword("not")).parse_next(input)?.is_some();
        cut_err(keyword("null"))
            .context(expected("NULL"))
            .parse_next(input)?;
        return Ok(negate_if(negated, Node::Null { field }));
    }
    let negated = opt(keyword("not")).parse_next(input)?.is_some();
    if opt(keyword("in")).parse_next(input)?.is_some() {
        let values = cut_err(list).parse_next(input)?;
        return Ok(negate_if(negated, Node::In { field, values }));
    }
    if opt(keyword("between")).parse_next(input)?.is_some() {
        let (from, _, to) = cut_err((
            literal.context(expected("a literal")),
            keyword("and").context(expected("AND")),
            literal.context(expected("a literal")),
        ))
        .parse_next(input)?;
        return Ok(negate_if(negated, Node::Between { field, from, to }));
    }
    if opt(keyword("like")).parse_next(input)?.is_some() {
        let pattern = cut_err(text)
            .context(expected("a text in single quotes"))
            .parse_next(input)?;
        return Ok(negate_if(negated, Node::Like { field, pattern }));
    }
    if opt(keyword("contains")).parse_next(input)?.is_some() {
        let part = cut_err(text)
            .context(expected("a text in single quotes"))
            .parse_next(input)?;
        return Ok(negate_if(negated, Node::Contains { field, part }));
    }
    if peek(opt(keyword("ilike"))).parse_next(input)?.is_some() {
        let instead = "LIKE or CONTAINS, as ILIKE works in a WHERE clause only";
        return cut_err(fail.context(expected(instead))).parse_next(input);
    }
    if negated {
        return cut_err(fail.context(expected("IN, BETWEEN, LIKE or CONTAINS"))).parse_next(input);
    }
    Ok(Node::Flag { field })
}

fn negate_if(negated: bool, node: Node) -> Node {
    if negated {
        Node::Not(Box::new(node))
    } else {
        node
    }
}

fn list(input: &mut &str) -> ModalResult<Vec<Literal>> {
    symbol("(").context(expected("'('")).parse_next(input)?;
    let values = separated(1.., literal.context(expected("a literal")), symbol(","));
    terminated(values, symbol(")").context(expected("',' or ')'"))).parse_next(input)
}

fn operator(input: &mut &str) -> ModalResult<Op> {
    terminated(
        alt((
            alt(("<>", "!=")).value(Op::Ne),
            "<=".value(Op::Le),
            ">=".value(Op::Ge),
            "<".value(Op::Lt),
            ">".value(Op::Gt),
            alt(("==", "=")).value(Op::Eq),
        )),
        multispace0,
    )
    .parse_next(input)
}

fn literal(input: &mut &str) -> ModalResult<Literal> {
    alt((
        number.map(Literal::Number),
        text.map(Literal::Text),
        keyword("true").value(Literal::Bool(true)),
        keyword("false").value(Literal::Bool(false)),
    ))
    .parse_next(input)
}

fn number(input: &mut &str) -> ModalResult<String> {
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digits);
    let fraction = ('.', opt(digits));
    let unsigned = alt(((digits, opt(fraction)).void(), ('.', digits).void()));
    let number = (opt(one_of(['+', '-'])), unsigned, opt(exponent)).take();
    terminated(number, multispace0)
        .map(|number: &str| number.replace('_', ""))
        .parse_next(input)
}

/// Parses digits, with single underscores between them as in SQL.
fn digits(input: &mut &str) -> ModalResult<()> {
    separated(1.., digit1, '_').parse_next(input)
}

fn text(input: &mut &str) -> ModalResult<String> {
    quoted('\'', input)
}

/// Parses a quoted text, in which a doubled quote stands for one.
fn quoted(quote: char, input: &mut &str) -> ModalResult<String> {
    one_of(quote).parse_next(input)?;
    let plain = take_till(1.., quote);
    let doubled = (quote, quote).value(if quote == '"' { "\"" } else { "'" });
    let content = repeat(0.., alt((plain, doubled))).fold(String::new, |mut text, part: &str| {
        text.push_str(part);
        text
    });
    cut_err(terminated(content, (quote, multispace0)))
        .context(expected("the closing quote"))
        .parse_next(input)
}

fn field(input: &mut &str) -> ModalResult<String> {
    if peek(opt('"')).parse_next(input)?.is_some() {
        return quoted('"', input);
    }
    name.verify(|name: &str| !KEYWORDS.iter().any(|word| word.eq_ignore_ascii_case(name)))
        .map(str::to_owned)
        .parse_next(input)
}

fn name<'i>(input: &mut &'i str) -> ModalResult<&'i str> {
    let first = any.verify(|&c: &char| c.is_alphabetic() || c == '_');
    terminated((first, take_while(0.., is_name_char)).take(), multispace0).parse_next(input)
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn keyword<'i>(word: &'static str) -> impl Parser<&'i str, (), ErrMode<ContextError>> {
    (Caseless(word), not(one_of(is_name_char)), multispace0).void()
}

fn symbol<'i>(symbol: &'static str) -> impl Parser<&'i str, (), ErrMode<ContextError>> {
    (symbol, multispace0).void()
}
