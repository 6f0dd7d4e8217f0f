//! RocksDB through its own benchmark, `db_bench` of the package rocksdb-tools, if that is installed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::ingest::place_in;

/// The settings of the run, for the table.
pub const HOW: &str = "batches of 1000, no write-ahead log, no compression, not synced";

/// Fills a new database with records of `record_bytes` bytes. Returns millions a second of wall time; `None` without `db_bench`.
pub fn fill(folder: &Path, records: u64, record_bytes: usize) -> Result<Option<f64>> {
    let place = place_in(folder)?;
    let output = Command::new("db_bench")
        .arg("--benchmarks=fillseq")
        .arg(format!("--db={}", place.path().display()))
        .arg(format!("--num={records}"))
        .arg(format!("--value_size={record_bytes}"))
        .args([
            "--key_size=8",
            "--batch_size=1000",
            "--disable_wal=1",
            "--compression_type=none",
        ])
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output.context("running db_bench")?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "db_bench: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // `fillseq : 0.612 micros/op 1633986 ops/sec …`
    let line = text.lines().find(|line| line.starts_with("fillseq"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let rate = words
        .windows(2)
        .find_map(|pair| match pair {
            [rate, "ops/sec"] => rate.parse::<f64>().ok(),
            _ => None,
        })
        .with_context(|| format!("db_bench said {text}"))?;
    Ok(Some(rate / 1e6))
}
