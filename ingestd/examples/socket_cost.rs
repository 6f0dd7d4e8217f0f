//! What a record costs from a producer to the log: `socket_cost DIR [key=value]...`, with `ingestd run DIR` running.
//!
//! One connection pushes records of one source with one `auto` index and syncs; the rate is by wall time, producer included.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::Instant;

use ingestd::client::Client;
use ingestd::protocol::Shape;

const HELP: &str =
    "socket_cost DIR [key=value]...: records (millions), runs, batch (1: one by one), payload";

fn main() {
    let (mut records, mut runs, mut batch, mut payload) = (20_000_000u64, 5, 1024, 48);
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect(HELP);
    for argument in arguments {
        match argument.split_once('=').expect(HELP) {
            ("records", millions) => records = millions.parse::<u64>().unwrap() * 1_000_000,
            ("runs", value) => runs = value.parse().unwrap(),
            ("batch", value) => batch = value.parse().unwrap(),
            ("payload", value) => payload = value.parse().unwrap(),
            (key, _) => panic!("{key}? {HELP}"),
        }
    }
    let mut payloads = Vec::new();
    for nth in 0..65_536u64 {
        let value = nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (44 + nth % 14);
        payloads.extend_from_slice(&value.to_le_bytes());
        payloads.resize(payloads.len() + payload - 8, value as u8);
    }
    let client = Client::connect(dir.as_ref()).unwrap();
    let mut text =
        "[[source]]\nname = \"cost\"\n[[source.field]]\nname = \"v\"\ntype = \"u64\"\n".to_owned();
    if payload > 8 {
        text += &format!(
            "[[source.field]]\nname = \"rest\"\ntype = \"bytes[{}]\"\n",
            payload - 8
        );
    }
    text += "[[source.index]]\nname = \"v\"\nvalue = \"v\"\n";
    let source = client.define_one(&text).unwrap();
    let shape = Shape::Fixed {
        record_bytes: payload as u16,
    };
    let mut rates: Vec<f64> = Vec::new();
    for _ in 0..runs {
        let before = client.sync().unwrap().counts.stored;
        let started = Instant::now();
        let mut left = records;
        while left > 0 {
            for bytes in payloads.chunks(payload * batch) {
                if batch == 1 {
                    client.push(source, bytes).unwrap();
                } else {
                    client.push_batch(source, shape, bytes).unwrap();
                }
            }
            left = left.saturating_sub(65_536);
        }
        let stored = client.sync().unwrap().counts.stored - before;
        rates.push(stored as f64 / 1e6 / started.elapsed().as_secs_f64());
    }
    rates.sort_unstable_by(f64::total_cmp);
    println!("batch={batch} payload={payload}: M records/s, socket to log: {rates:.1?}");
}
