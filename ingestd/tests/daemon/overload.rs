//! Producers that are faster than the disk.

use ingestd::protocol::{Counts, Shape};

use super::support::{Here, NUMBERS, SMALL, numbers, payloads};

/// Pushes so many numbers in batches as fast as it goes.
fn push_numbers(here: &Here, source: &str, count: u64) -> Counts {
    let client = here.client();
    let toml = NUMBERS.replacen("numbers", source, 1);
    let source = client.define_one(&toml).unwrap();
    for start in (0..count).step_by(1000) {
        let batch: Vec<u8> = (start..start + 1000).flat_map(u64::to_le_bytes).collect();
        client
            .push_batch(source, Shape::Fixed { record_bytes: 8 }, &batch)
            .unwrap();
    }
    client.sync().unwrap().counts
}

// case Overload: producers faster than the disk
#[test]
fn producers_wait_for_small_blocks_and_nothing_is_lost_or_reordered() {
    let here = Here::start(SMALL);
    std::thread::scope(|scope| {
        let pushers: Vec<_> = ["numbers", "others", "third"]
            .map(|source| scope.spawn(|| push_numbers(&here, source, 300_000)))
            .into_iter()
            .collect();
        for pusher in pushers {
            let counts = pusher.join().unwrap();
            assert_eq!((counts.received, counts.stored), (300_000, 300_000));
        }
    });
    assert!(numbers(here.path()).into_iter().eq(0..300_000));
    let dir = here.stop();
    assert!(numbers(dir.path()).into_iter().eq(0..300_000));
    assert_eq!(payloads(dir.path(), "third").len(), 300_000);
}

// case Overload: producers faster than the disk
#[test]
fn a_source_that_drops_counts_what_it_drops_and_its_neighbour_loses_nothing() {
    let dropping = NUMBERS.replace(
        "name = 'numbers'",
        "name = 'numbers'\non_overload = 'drop_new'",
    );
    let waiting = NUMBERS.replacen("numbers", "waiting", 1);
    let here = Here::start(&format!("{SMALL}durability = 'batch'\n{dropping}{waiting}"));
    let push = |name: &str| {
        let client = here.client();
        let catalog: serde_json::Value = serde_json::from_str(&client.catalog().unwrap()).unwrap();
        let found = catalog
            .as_array()
            .unwrap()
            .iter()
            .find(|source| source["name"] == name);
        let source = loom_engine::SourceId(found.unwrap()["id"].as_u64().unwrap() as u16);
        for start in (0..500_000u64).step_by(1000) {
            let batch: Vec<u8> = (start..start + 1000).flat_map(u64::to_le_bytes).collect();
            client
                .push_batch(source, Shape::Fixed { record_bytes: 8 }, &batch)
                .unwrap();
        }
        client.sync().unwrap().counts
    };
    let (dropped, waited) = std::thread::scope(|scope| {
        let dropped = scope.spawn(|| push("numbers"));
        let waited = scope.spawn(|| push("waiting"));
        (dropped.join().unwrap(), waited.join().unwrap())
    });
    assert_eq!(dropped.received, 500_000);
    assert_eq!(dropped.received, dropped.stored + dropped.dropped);
    assert!(
        dropped.dropped > 0,
        "an fsync a block is slower than a socket"
    );
    assert_eq!((waited.received, waited.stored), (500_000, 500_000));
    let stored = numbers(here.path());
    assert_eq!(stored.len() as u64, dropped.stored);
    assert!(stored.is_sorted());
    assert_eq!(payloads(here.path(), "waiting").len(), 500_000);
    let status = here.daemon().status().unwrap();
    let source = status
        .sources
        .iter()
        .find(|source| source.name == "numbers")
        .unwrap();
    assert_eq!(
        (source.stored, source.dropped),
        (dropped.stored, dropped.dropped)
    );
    assert!(status.log_stalls > 0);
}
