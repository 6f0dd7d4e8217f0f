//! The examples of a Markdown page: fenced blocks, each with the table or the message below it.

use std::ops::Range;

use anyhow::{Context, Result};

use crate::duckdb::Row;
use crate::machine::root;

/// A fenced block.
pub struct Example {
    /// The line of the fence, from 1.
    pub line: usize,
    pub language: String,
    pub text: String,
    /// The lines, from 0, of the table below it.
    pub table: Option<Range<usize>>,
    /// The block of `text` below it.
    pub message: Option<String>,
}

const FENCE: &str = "```";

pub fn examples(page: &str) -> Vec<Example> {
    let lines: Vec<&str> = page.lines().collect();
    let mut found: Vec<Example> = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let Some(language) = line.strip_prefix(FENCE) else {
            at += 1;
            continue;
        };
        let inside = lines.iter().skip(at + 1);
        let text: Vec<&str> = inside.take_while(|line| **line != FENCE).copied().collect();
        // Skips the closing fence and a blank line.
        let below = at + 1 + text.len() + 1 + 1;
        match (language, found.last_mut()) {
            ("text", Some(former)) if former.language == "sql" => {
                former.message = Some(text.join("\n"));
            }
            _ => found.push(Example {
                line: at + 1,
                language: language.to_owned(),
                text: text.join("\n"),
                table: table(&lines, below),
                message: None,
            }),
        }
        at = below - 1;
    }
    found
}

/// The first block of a language behind a heading of a page of the repository, or in the whole page.
pub fn block(page: &str, heading: &str, language: &str) -> Result<String> {
    let text = std::fs::read_to_string(root().join(page))?;
    let section = text.split_once(heading).map(|(_, section)| section);
    let begun = section.and_then(|section| section.split_once(&format!("```{language}\n")));
    let block = begun.and_then(|(_, block)| block.split_once("```"));
    let (block, _) = block.with_context(|| format!("{page} has no {language}"))?;
    Ok(block.to_owned())
}

fn table(lines: &[&str], from: usize) -> Option<Range<usize>> {
    let rows = lines.iter().skip(from);
    let height = rows.take_while(|line| line.starts_with('|')).count();
    (height > 0).then_some(from..from + height)
}

/// An answer in the form in which a page shows it.
pub fn markdown(names: &[String], rows: &[Row]) -> Vec<String> {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let mut lines = vec![line(names), format!("|{}", "---|".repeat(names.len()))];
    lines.extend(rows.iter().map(|row| {
        let cells: Vec<String> = row
            .iter()
            .map(|value| value.as_deref().unwrap_or("NULL").replace('|', "\\|"))
            .collect();
        line(&cells)
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_a_block_and_what_stands_below_it() {
        let page = "# x\n```sh\nls\n```\n\n```sql\nSELECT 1;\n```\n\n| a |\n|---|\n| 1 |\n\ntext\n\n```sql\nSELEC\n```\n\n```text\nParser Error\n```\n";
        let found = examples(page);
        let languages: Vec<_> = found.iter().map(|found| found.language.as_str()).collect();
        assert_eq!(languages, ["sh", "sql", "sql"]);
        assert_eq!(found[1].text, "SELECT 1;");
        assert_eq!(found[1].table, Some(9..12));
        assert_eq!(found[2].message.as_deref(), Some("Parser Error"));
        assert_eq!(found[2].line, 16);
        let row: Row = vec![Some("1|2".into()), None];
        assert_eq!(
            markdown(&["a".into(), "b".into()], &[row]),
            ["| a | b |", "|---|---|", "| 1\\|2 | NULL |"]
        );
    }
}
