//! The two kinds of DuckDB session that the other tests use must answer alike, or a comparison shows nothing.

use anyhow::Result;
use loom_tests::duckdb::{Row, Session, Version};

fn answers(sql: &str) -> Result<Vec<Vec<Row>>> {
    let ask = |version| Ok(Session::plain(version)?.query(sql)?);
    Version::ALL.into_iter().map(ask).collect()
}

#[test]
fn values_of_every_kind_look_the_same() -> Result<()> {
    let sql = "SELECT 1 AS a, NULL AS a, '' AS c, E'x\\n\\ty {' AS d, 0.1::DOUBLE AS e, 18446744073709551615 AS f,
               'nan'::FLOAT AS g, TIMESTAMPTZ '2026-01-02 03:04:05.678+02' AS h, '\\x00a'::BLOB AS i, true AS j, 1e300 AS k";
    let expected: Row = [
        Some("1"),
        None,
        Some(""),
        Some("x\n\ty {"),
        Some("0.1"),
        Some("18446744073709551615"),
        Some("nan"),
        Some("2026-01-02 01:04:05.678+00"),
        Some("\\x00a"),
        Some("true"),
        Some("1e+300"),
    ]
    .map(|value| value.map(str::to_owned))
    .into();
    for rows in answers(sql)? {
        assert_eq!(rows, vec![expected.clone()]);
    }
    Ok(())
}

#[test]
fn rows_keep_their_order_and_statements_give_none() -> Result<()> {
    for rows in answers("FROM range(3) ORDER BY 1 DESC;")? {
        let values: Vec<_> = rows.into_iter().flatten().flatten().collect();
        assert_eq!(values, ["2", "1", "0"]);
    }
    for rows in answers("SET VARIABLE x = 1")? {
        assert!(rows.is_empty());
    }
    Ok(())
}

#[test]
fn an_error_is_told_and_the_session_goes_on() -> Result<()> {
    for version in Version::ALL {
        let mut session = Session::plain(version)?;
        let told = session
            .query("SELECT no_such_column")
            .err()
            .map(|error| error.to_string());
        assert!(
            told.is_some_and(|told| told.contains("Binder") && told.contains("no_such_column"))
        );
        assert_eq!(session.value("SELECT 7")?, "7");
    }
    Ok(())
}
