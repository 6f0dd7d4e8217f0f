//! The texts that stand in everything that matches a regular expression.
//!
//! DuckDB's RE2 knows no classes in classes, and the parser here does. Otherwise what is a literal here is one there, or DuckDB refuses the expression.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{Ast, ClassSet, ClassSetItem, RepetitionKind, RepetitionRange};

/// The texts, in upper or lower case; `None` if the expression is not understood.
pub fn parts(pattern: &str) -> Option<Vec<String>> {
    let ast = Parser::new().parse(pattern).ok()?;
    let mut parts = vec![String::new()];
    add(&ast, &mut parts)?;
    parts.retain(|part| !part.is_empty());
    Some(parts)
}

/// Appends a literal to the last part; anything else ends it.
fn add(ast: &Ast, parts: &mut Vec<String>) -> Option<()> {
    let unneeded = || vec![String::new()];
    match ast {
        Ast::Literal(literal) => {
            parts.last_mut()?.push(literal.c);
            return Some(());
        }
        Ast::Concat(all) => return all.asts.iter().try_for_each(|ast| add(ast, parts)),
        Ast::Alternation(any) => {
            let mut any = any.asts.iter();
            any.try_for_each(|ast| add(ast, &mut unneeded()))?;
        }
        Ast::Group(group) => {
            parts.push(String::new());
            add(&group.ast, parts)?;
        }
        Ast::Repetition(repeated) => {
            let mut once = unneeded();
            add(&repeated.ast, &mut once)?;
            if is_needed(&repeated.op.kind) {
                parts.extend(once);
            }
        }
        Ast::ClassBracketed(class) => is_plain(&class.kind).then_some(())?,
        _ => {}
    }
    parts.push(String::new());
    Some(())
}

/// Whether a class has no class in it, so that it ends where RE2's does.
fn is_plain(class: &ClassSet) -> bool {
    fn is_plain(item: &ClassSetItem) -> bool {
        match item {
            ClassSetItem::Bracketed(_) => false,
            ClassSetItem::Union(union) => union.items.iter().all(is_plain),
            _ => true,
        }
    }
    matches!(class, ClassSet::Item(item) if is_plain(item))
}

fn is_needed(kind: &RepetitionKind) -> bool {
    use RepetitionRange::{AtLeast, Bounded, Exactly};
    match kind {
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore => false,
        RepetitionKind::OneOrMore => true,
        RepetitionKind::Range(Exactly(least) | AtLeast(least) | Bounded(least, _)) => *least > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_that_every_match_has_are_parts() {
        for (pattern, expected) in [
            ("timeout", &["timeout"][..]),
            (
                "(?i)time[ -_]?out after \\d+ ?ms",
                &["time", "out after ", "ms"],
            ),
            ("^a(bc)+d{2,}e{0,3}$", &["a", "bc", "d"]),
            ("one(two|three)four|five", &[]),
            ("x(two|three)four", &["x", "four"]),
            ("a\\.b\\<c\\x41", &["a.b", "cA"]),
            ("[[:alpha:]]end[]x]", &["end"]),
            ("colou?r", &["colo", "r"]),
        ] {
            assert_eq!(parts(pattern).unwrap(), expected, "{pattern}");
        }
        for unknown in [
            "[[a]|foo]timeout",
            "[[:]|foo]timeout",
            "[:[:]K|,]timeout",
            "[a&&b]timeout",
            "(",
            "\\Qtimeout\\E",
            "x([a[b]]|y)timeout",
        ] {
            assert_eq!(parts(unknown), None, "{unknown}");
        }
    }
}
