//! All table functions; both adapters register them.

use super::function::Function;
use super::{
    aggregate, attach, chunks, estimate, heat, histogram, rate, scan, series, series_aggregate,
    tables, tail, top, why,
};

pub const FUNCTIONS: &[Function] = &[
    scan::FUNCTION,
    aggregate::FUNCTION,
    histogram::FUNCTION,
    heat::FUNCTION,
    rate::FUNCTION,
    top::FUNCTION,
    why::FUNCTION,
    tail::FUNCTION,
    series::SERIES,
    series_aggregate::FUNCTION,
    series::SAMPLES,
    series::LABELS,
    estimate::FUNCTION,
    tables::SOURCES,
    tables::INDEXES,
    chunks::FUNCTION,
    tables::SNAPSHOT,
    tables::LOSSES,
    tables::PINS,
    tables::STATUS,
    attach::FUNCTION,
    tables::SCAN_STATS,
];

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use super::*;
    use crate::plan::bins::BINS_FUNCTIONS;
    use crate::plan::parameters::Parameter;

    fn row(one: &Parameter, sign: &str) -> String {
        let about = one.about.replace('|', "\\|");
        format!("| `{}{sign}` | {} | {about} |", one.name, one.ty.name())
    }

    fn page() -> String {
        let mut page = "# Functions\n\n\
            Every function with its parameters and columns, as `duckdb_functions()` of DuckDB 2 describes them. [Loom in SQL](README.md) \
            lists the pages that explain them by examples.\n\n\
            This page is printed from the code: `LOOM_BLESS=1 cargo test --release --locked --workspace --lib functions::tests` writes it again.\n"
            .to_owned();
        let mut line = |text: &str| writeln!(page, "{text}").expect("a text takes more");
        for function in FUNCTIONS {
            let names: Vec<&str> = function.positional.iter().map(|one| one.name).collect();
            let more = if function.named.is_empty() {
                ""
            } else {
                ", …"
            };
            line(&format!(
                "\n## `{}({}{more})`\n",
                function.name,
                names.join(", ")
            ));
            line(function.description);
            line(&format!("\nColumns: {}.", function.columns));
            if !(function.positional.is_empty() && function.named.is_empty()) {
                line("\n| parameter | type | meaning |\n|---|---|---|");
            }
            let positional = function.positional.iter().map(|one| row(one, ""));
            let named = function.named.iter().map(|one| row(one, " :="));
            positional.chain(named).for_each(|row| line(&row));
            line(&format!(
                "\n```sql\n{};\n```",
                function.examples.join(";\n")
            ));
        }
        line("\n## Aggregates and scalar functions");
        for function in BINS_FUNCTIONS {
            for form in function.forms {
                let names: Vec<&str> = form.parameters.iter().map(|one| one.name).collect();
                let returns = form.returns.name();
                let heading = format!("{}({})` → {returns}", function.name, names.join(", "));
                line(&format!("\n### `{heading}\n\n{}", function.description));
                line("\n| parameter | type | meaning |\n|---|---|---|");
                form.parameters.iter().for_each(|one| line(&row(one, "")));
            }
            let examples = function.examples.join(";\n");
            line(&format!("\n```sql\n{examples};\n```"));
        }
        page
    }

    #[test]
    fn the_page_of_functions_is_what_the_code_says() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/functions.md");
        let printed = page();
        if std::env::var_os("LOOM_BLESS").is_some() {
            std::fs::write(&file, &printed).unwrap();
        }
        let stored = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            stored == printed,
            "sql/functions.md is not what the code says; run this test with LOOM_BLESS=1"
        );
    }
}
