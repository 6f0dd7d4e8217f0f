//! The ledger: received = stored + refused + dropped, in the log itself, across stops and kills.

use std::collections::BTreeMap;
use std::path::Path;

use ingestd::client::{Client, ClientError};
use ingestd::protocol::{Counts, LostCause};
use loom_engine::query::{Directory, Poll};
use loom_engine::{SourceId, TimeRange, Timestamp};
use loom_tests::command::{eventually, says, until};

use super::support::{
    Here, NUMBERS, Place, SMALL, dropping, id_of, kill, losses, numbers, payloads, push, stop,
};

/// Small blocks, an fsync for each, and a source that drops what does not fit.
fn overloaded() -> String {
    format!("{SMALL}durability = 'batch'\n{}", dropping())
}

/// Lost records by reason; every number must be known.
fn lost(dir: &Path) -> BTreeMap<String, u64> {
    let mut lost = BTreeMap::new();
    for loss in losses(dir) {
        assert_eq!(loss.source.as_deref(), Some("numbers"), "{loss:?}");
        *lost.entry(loss.reason).or_default() += loss.records.unwrap();
    }
    lost
}

fn assert_incomplete(dir: &Path) {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let source = snapshot.source("numbers").unwrap().id;
    let error = snapshot.require_complete(source, TimeRange::ALL, &Poll::never());
    assert!(error.unwrap_err().to_string().contains("'numbers'"));
}

/// Pushes numbers until some were dropped, malformed payloads among them, and returns the counts of all.
fn overload(client: &Client) -> Counts {
    let source = id_of(client, "numbers");
    let mut start = 0u64;
    loop {
        push(client, source, start..start + 100_000);
        start += 100_000;
        for bytes in [0usize, 7, 9] {
            client.push(source, &vec![1; bytes]).unwrap();
        }
        let counts = client.sync().unwrap().counts;
        let all = counts.stored + counts.refused + counts.dropped;
        assert_eq!(counts.received, all);
        if counts.dropped > 0 {
            return counts;
        }
    }
}

// case Recording: losses in the kernel
#[test]
fn what_a_client_lost_is_in_the_ledger_and_in_no_count() {
    let here = Here::start(&overloaded());
    let client = here.client();
    push(&client, id_of(&client, "numbers"), [7]);
    let lately = TimeRange {
        first: Timestamp(5),
        last: Timestamp::MAX,
    };
    let lose = |records| {
        client.report_lost(
            LostCause::Kernel,
            "numbers",
            records,
            lately,
            "a ring was full",
        )
    };
    lose(5).unwrap();
    assert_incomplete(here.path());
    lose(1 << 40).unwrap();
    let unknown = client
        .report_lost(LostCause::Kernel, "nobody", 1, lately, "")
        .unwrap_err();
    assert!(unknown.to_string().contains("nobody"), "{unknown}");
    let expected = Counts {
        received: 1,
        stored: 1,
        ..Counts::default()
    };
    assert_eq!(client.sync().unwrap().counts, expected);
    drop(client);
    let dir = here.stop();
    for loss in losses(dir.path()) {
        assert_eq!(loss.from, lately.first);
        assert!(loss.to < Timestamp::MAX, "it would have arrived by then");
    }
    let of_kernel = losses(dir.path()).iter().all(|loss| loss.stage == "kernel");
    assert!(of_kernel, "{:?}", losses(dir.path()));
    let full = ("buffer full".to_owned(), (1 << 40) + 5);
    assert_eq!(lost(dir.path()), [full].into());
}

// G9
#[test]
fn what_was_refused_and_dropped_is_told_by_the_log_after_a_stop() {
    let here = Here::start(&overloaded());
    let counts = overload(&here.client());
    // Seen live too, recorded or not, and each time while it is recorded.
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(2500) {
        let listed = lost(here.path()).values().sum::<u64>();
        assert_eq!(listed, counts.refused + counts.dropped);
        assert_incomplete(here.path());
    }
    let dir = here.stop();
    let lost = lost(dir.path());
    assert_eq!(lost["overload"], counts.dropped);
    assert_eq!(lost["malformed"], counts.refused);
    assert_eq!(numbers(dir.path()).len() as u64, counts.stored);
    let overloads = losses(dir.path());
    for loss in overloads.iter().filter(|loss| loss.reason == "overload") {
        assert_eq!(loss.bytes, loss.records.map(|records| 8 * records));
        assert!(loss.from <= loss.to);
    }
    assert_incomplete(dir.path());
}

#[test]
fn metrics_that_find_the_log_full_are_in_the_next_records() {
    let here = Here::start(&format!("[metrics]\ninterval = '1ms'\n{}", overloaded()));
    let counts = overload(&here.client());
    // Null bits, then interval_ns, received, stored, refused, dropped: of the whole daemon bit 4 is set, for it has no name.
    let number = |payload: &[u8], at: usize| {
        let bytes = payload[1 + 8 * at..][..8].try_into().unwrap();
        u64::from_le_bytes(bytes)
    };
    for is_whole in [false, true] {
        until(|| {
            let records = payloads(here.path(), "loom_metrics");
            let of_kind = records
                .iter()
                .filter(|record| (record[0] & 16 != 0) == is_whole);
            let mut sums = Counts::default();
            for record in of_kind {
                sums.add(Counts {
                    received: number(record, 1),
                    stored: number(record, 2),
                    refused: number(record, 3),
                    dropped: number(record, 4),
                });
            }
            sums == counts
        });
    }
}

// G1, G9
// case Overload: a flusher slower than ingest for a minute
#[test]
fn the_identity_is_exact_after_kills() {
    let place = Place::new();
    let start = || place.start(&overloaded());
    let mut total = Counts::default();
    for _ in 0..3 {
        let there = start();
        let counts = overload(&there.client().unwrap());
        total.add(counts);
        // No second passes between the answer and the kill: what is not recorded yet must be found all the same.
        kill(there);
        // Readers find it without a daemon.
        let listed = lost(&place.dir);
        let wanted = (total.dropped, total.refused);
        assert_eq!((listed["overload"], listed["malformed"]), wanted);
        assert_incomplete(&place.dir);
    }
    let there = start();
    let wanted = total.refused + total.dropped;
    until(|| lost(&place.dir).values().sum::<u64>() == wanted);
    assert_eq!(numbers(&place.dir).len() as u64, total.stored);
    stop(there);
    let lost = lost(&place.dir);
    let wanted = (total.dropped, total.refused);
    assert_eq!((lost["overload"], lost["malformed"]), wanted);
    assert_eq!(numbers(&place.dir).len() as u64, total.stored);
    assert_eq!(total.received, total.stored + total.refused + total.dropped);
}

#[test]
fn records_for_a_source_that_does_not_exist_are_losses_of_no_source_and_the_others_are_taken() {
    let here = Here::start(NUMBERS);
    let client = here.client();
    let numbers_id = id_of(&client, "numbers");
    client.push(numbers_id, &1u64.to_le_bytes()).unwrap();
    client.push(SourceId(99), &[1, 2, 3]).unwrap();
    client.push(numbers_id, &2u64.to_le_bytes()).unwrap();
    let error = client.sync().unwrap_err();
    says(&error.to_string(), "no source");
    let listed = eventually(|| losses(here.path()).pop());
    assert_eq!((listed.source, listed.records), (None, Some(1)));
    assert_eq!(
        (&*listed.stage, &*listed.reason),
        ("input", "no such source")
    );
    // The loss is kept before the records beside it are published.
    until(|| numbers(here.path()) == [1, 2]);
}

#[test]
fn the_built_in_sources_are_the_daemons_own() {
    let here = Here::start(&format!("[metrics]\ninterval = '10ms'\n{NUMBERS}"));
    let client = here.client();
    let source = id_of(&client, "numbers");
    client.push(source, &[1]).unwrap();
    client.sync().unwrap();
    eventually(|| losses(here.path()).pop());
    let builtin = id_of(&here.client(), "loom_losses");
    let before = losses(here.path());
    let forger = here.client();
    forger.push(builtin, &[0; 40]).unwrap();
    assert!(matches!(forger.sync(), Err(ClientError::Daemon { .. })));
    for refused in [
        client.close_source("loom_losses").map(drop),
        client
            .define("[[source]]\nname = 'loom_losses'\n")
            .map(drop),
    ] {
        says(&refused.unwrap_err().to_string(), "built in");
    }
    let listed =
        eventually(|| Some(losses(here.path())).filter(|listed| listed.len() > before.len()));
    let is_one = listed.iter().all(|loss| loss.records == Some(1));
    assert!(is_one, "{listed:?}");
    eventually(|| {
        let snapshot = Directory::open(here.path()).unwrap().snapshot().unwrap();
        snapshot.source("loom_metrics").ok()
    });
    // The intervals of `loom_metrics` add up to the totals.
    push(&client, source, [7]);
    let recorded = |field: usize| {
        let records = payloads(here.path(), "loom_metrics");
        let number = |record: &Vec<u8>| {
            // One byte of null bits; the record of the whole has no name, the fifth of them.
            let at = 1 + 8 * field;
            u64::from_le_bytes(record[at..at + 8].try_into().unwrap())
        };
        let named = records.iter().filter(|record| record[0] & 16 == 0);
        named.map(number).sum::<u64>()
    };
    until(|| recorded(1) == 2);
    assert_eq!((recorded(2), recorded(3), recorded(4)), (1, 1, 0));
}

// case Disk: full in mid-flush
#[test]
fn a_full_disk_refuses_and_counts_where_it_is_told_to_until_there_is_room() {
    let config = |min_free: &str| {
        format!("[retention]\nmin_free = '{min_free}'\non_full = 'refuse'\n{NUMBERS}")
    };
    let here = Here::start(&config("1000000TiB"));
    let client = here.client();
    let source = id_of(&client, "numbers");
    eventually(|| here.daemon().status().unwrap().trouble);
    client.push(source, &1u64.to_le_bytes()).unwrap();
    let synced = client.sync().unwrap();
    assert_eq!((synced.counts.refused, synced.counts.stored), (1, 0));
    says(&synced.reason, "less than min_free");
    assert_eq!(here.reload(&config("0%")).unwrap(), Vec::<String>::new());
    until(|| here.daemon().status().unwrap().trouble.is_none());
    assert_eq!(push(&client, source, [2]).stored, 1);
    let dir = here.stop();
    assert_eq!(numbers(dir.path()), [2]);
    assert_eq!(lost(dir.path()), [("disk full".to_owned(), 1)].into());
}
