//! `ingestd load` of files in other formats, beside DuckDB filling a table from the same file, one thread each.
//!
//! Loom's figure includes the start of its process and the sync at the end; DuckDB's includes its checkpoint.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use loom_tests::command::declared;
use loom_tests::daemon::ingestd;

use super::figures::{Figures, rounded};
use super::ingest::place_in;
use super::options::Sizes;
use super::peer::{Peer, System};
use super::table::Line;

/// Bytes of a captured packet: the usual headers and some of the payload.
const PACKET_BYTES: u32 = 96;
/// Pcap of microseconds, version 2.4, Ethernet.
const PCAP_HEADER: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];

/// Rows like those of a telemetry export: a time, an integer, a number, a word.
const ROWS: &str = "SELECT TIMESTAMP '2026-01-01' + to_microseconds(i * 10) AS t, (i * 7919 % 10007)::INTEGER AS latency,
    (i % 1000) / 8 AS share, 'client ' || (i % 50) AS client FROM range({rows}) AS numbers(i)";

/// The fields of the rows without their time.
const FIELDS: &str = "latency i32, share f64, client utf8";

/// A file of a format, DuckDB's way to read it, and the options of the load.
struct Input {
    name: &'static str,
    file: PathBuf,
    reader: Option<&'static str>,
    options: &'static [&'static str],
    rates: Figures,
    peer_rates: Figures,
}

pub fn files(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let rows = sizes.load_rows;
    let mut duckdb = Peer::start(System::DuckDb, &place.path().join("duckdb"))?;
    duckdb.query("SET threads = 1")?;
    let mut inputs = Vec::new();
    for (name, suffix, copy, reader) in [
        ("Parquet", "parquet", "FORMAT parquet", "read_parquet"),
        (
            "Parquet, zstd",
            "zstd.parquet",
            "FORMAT parquet, COMPRESSION zstd",
            "read_parquet",
        ),
        ("CSV", "csv", "FORMAT csv, HEADER", "read_csv"),
        (
            "CSV, gzip",
            "csv.gz",
            "FORMAT csv, HEADER, COMPRESSION gzip",
            "read_csv",
        ),
        ("JSON lines", "jsonl", "FORMAT json", "read_json"),
    ] {
        let file = place.path().join(format!("rows.{suffix}"));
        let rows = ROWS.replace("{rows}", &rows.to_string());
        duckdb.query(&format!("COPY ({rows}) TO '{}' ({copy})", file.display()))?;
        inputs.push(Input {
            name,
            file,
            reader: Some(reader),
            options: &["--ts", "t", "--index", "latency"],
            rates: Figures::default(),
            peer_rates: Figures::default(),
        });
    }
    let capture = place.path().join("packets.pcap");
    write_capture(&capture, rows)?;
    inputs.push(Input {
        name: "pcap",
        file: capture,
        reader: None,
        options: &["--index", "wire_bytes"],
        rates: Figures::default(),
        peer_rates: Figures::default(),
    });
    for _ in 0..sizes.runs {
        for input in &mut inputs {
            let dir = place.path().join("loom");
            let began = Instant::now();
            let said = load(&dir, input)?;
            let seconds = began.elapsed().as_secs_f64();
            ensure!(
                said.contains(&format!("stored={rows} refused=0")),
                "{}: {said}",
                input.name
            );
            input.rates.push(rows as f64 / 1e6 / seconds);
            fs::remove_dir_all(&dir)?;
            if let Some(reader) = input.reader {
                let table = format!(
                    "CREATE OR REPLACE TABLE t AS FROM {reader}('{}')",
                    input.file.display()
                );
                let filled = duckdb.query(&table)?;
                let synced = duckdb.query("CHECKPOINT")?;
                let seconds = filled.wall + synced.wall;
                input.peer_rates.push(rows as f64 / 1e6 / seconds);
            }
        }
    }
    Ok(inputs.iter().map(|input| line(input, rows)).collect())
}

fn load(dir: &Path, input: &Input) -> Result<String> {
    let (dir, file) = (dir.display().to_string(), input.file.display().to_string());
    let start = ["load", &dir, "--source", "s"];
    let declared = match input.reader {
        Some(_) => vec!["--fields".to_owned(), declared(&input.file, "s", FIELDS)],
        None => Vec::new(),
    };
    let options = input.options.iter().copied();
    let declared = declared.iter().map(String::as_str);
    let arguments = start.into_iter().chain(options).chain(declared);
    ingestd(arguments.chain([file.as_str()]))
}

fn line(input: &Input, rows: u64) -> Line {
    let bytes = fs::metadata(&input.file).map_or(0, |meta| meta.len());
    let mut line = Line {
        measure: format!("`ingestd load` of {}, wall", input.name),
        loom: format!("{} M rows/s", input.rates),
        how: format!(
            "{rows} rows in {} MB; a new directory, one index, the process and the sync at its end included",
            bytes / 1_000_000
        ),
        ..Line::default()
    };
    if input.reader.is_some() {
        line.peer = "DuckDB 2 filling a table, one thread".to_owned();
        line.peer_figure = format!("{} M rows/s", input.peer_rates);
        line.ratio = rounded(input.rates.median() / input.peer_rates.median());
    }
    line
}

/// Packets of UDP over IPv4.
fn write_capture(path: &Path, packets: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for word in PCAP_HEADER {
        file.write_all(&word.to_le_bytes())?;
    }
    let headers: [u8; 42] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, // Ethernet
        0x45, 0, 0, 82, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0x30, 0x39, 0x18, 0xeb, 0, 62, 0, 0, // UDP
    ];
    let rest = vec![0; PACKET_BYTES as usize - headers.len() - size_of::<u64>()];
    for packet in 0..packets {
        let (seconds, micros) = (packet / 100_000, packet % 100_000 * 10);
        for word in [
            1_767_225_600 + seconds as u32,
            micros as u32,
            PACKET_BYTES,
            PACKET_BYTES,
        ] {
            file.write_all(&word.to_le_bytes())?;
        }
        for part in [headers.as_slice(), &packet.to_le_bytes(), &rest] {
            file.write_all(part)?;
        }
    }
    file.flush()?;
    Ok(())
}
