//! Producers that are faster than the disk.

use super::support::{Here, NUMBERS, SMALL, dropping, id_of, numbers, payloads, push};

// case Overload: producers faster than the disk
#[test]
fn producers_wait_for_small_blocks_and_nothing_is_lost_or_reordered() {
    let here = Here::start(SMALL);
    std::thread::scope(|scope| {
        let pushers = ["numbers", "others", "third"].map(|name| {
            let client = here.client();
            let source = client.define_one(&NUMBERS.replacen("numbers", name, 1));
            scope.spawn(move || push(&client, source.unwrap(), 0..300_000))
        });
        for counts in pushers.map(|pusher| pusher.join().unwrap()) {
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
    let waiting = NUMBERS.replacen("numbers", "waiting", 1);
    let sources = format!("{}{waiting}", dropping());
    let here = Here::start(&format!("{SMALL}durability = 'batch'\n{sources}"));
    let push = |name: &str| {
        let client = here.client();
        let source = id_of(&client, name);
        push(&client, source, 0..500_000)
    };
    let (dropped, waited) = std::thread::scope(|scope| {
        let dropped = scope.spawn(|| push("numbers"));
        let waited = scope.spawn(|| push("waiting"));
        (dropped.join().unwrap(), waited.join().unwrap())
    });
    assert_eq!(dropped.received, 500_000);
    assert_eq!(dropped.received, dropped.stored + dropped.dropped);
    let has_dropped = dropped.dropped > 0;
    assert!(has_dropped, "an fsync a block is slower than a socket");
    assert_eq!((waited.received, waited.stored), (500_000, 500_000));
    let stored = numbers(here.path());
    assert_eq!(stored.len() as u64, dropped.stored);
    assert!(stored.is_sorted());
    assert_eq!(payloads(here.path(), "waiting").len(), 500_000);
    let status = here.daemon().status().unwrap();
    let mut sources = status.sources.iter();
    let source = sources.find(|source| source.name == "numbers").unwrap();
    let counted = (source.stored, source.dropped);
    assert_eq!(counted, (dropped.stored, dropped.dropped));
    assert!(status.log_stalls > 0);
}
