//! Defining, pushing and syncing.

use ingestd::client::{Client, ClientError};
use ingestd::protocol::{ErrorCode, Shape};
use loom_tests::command::{says, until};
use serde_json::Value;

use super::connections::is_refused;
use super::support::{Here, NUMBERS, SMALL, connect, numbers, payloads, push};

#[test]
fn what_a_sync_has_acknowledged_is_visible_to_other_readers() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    for round in 1..=5u64 {
        let counts = push(&client, source, 0..10_000);
        assert_eq!(
            (counts.received, counts.stored),
            (round * 10_000, round * 10_000)
        );
        let visible = numbers(here.path());
        assert_eq!(visible.len() as u64, round * 10_000);
        let mut parts = visible.chunks(10_000);
        assert!(parts.all(|part| part.iter().copied().eq(0..10_000)));
        assert!(client.sync().unwrap().position.0 > 0);
    }
    assert_eq!(client.pushed(), 50_000);
    let stayed = numbers(here.stop().path());
    assert_eq!(stayed.len(), 50_000, "they stay after a clean stop");
}

#[test]
fn records_are_visible_soon_without_any_sync() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    client.push(source, &7u64.to_le_bytes()).unwrap();
    until(|| numbers(here.path()) == [7]);
}

/// The source of numbers with one more field.
fn wider() -> String {
    let note = "[[source.field]]\nname = 'note'\ntype = 'u64'\n[[source.index]]";
    NUMBERS.replace("[[source.index]]", note)
}

#[test]
fn payloads_of_a_layout_that_has_grown_are_refused_until_the_source_is_defined_again() {
    let here = Here::start(SMALL);
    let (old, source) = connect(here.path());
    old.push(source, &1u64.to_le_bytes()).unwrap();
    old.sync().unwrap();
    let wider = wider();
    here.client().define(&wider).unwrap();
    // As long as a payload of the new layout, so that its length alone does not show the layout.
    old.push(source, &[2u8; 16]).unwrap();
    let counts = old.sync().unwrap();
    assert_eq!((counts.counts.stored, counts.counts.refused), (1, 1));
    says(&counts.reason, "'note'");
    old.define(&wider).unwrap();
    old.push(source, &[3u8; 16]).unwrap();
    assert_eq!(old.sync().unwrap().counts.stored, 2);
}

#[test]
fn a_daemon_starts_with_a_configuration_older_than_the_fields_of_its_sources() {
    let config = format!("{SMALL}{NUMBERS}");
    let here = Here::start(&config);
    let wider = wider();
    here.client().define(&wider).unwrap();
    assert_eq!(here.reload(&config).unwrap(), [""; 0]);
    let here = Here::again(here.stop(), &config);
    assert!(here.client().catalog().unwrap().contains("note"));
}

#[test]
fn a_definition_that_exists_already_is_no_error_and_one_that_contradicts_is() {
    let here = Here::start(SMALL);
    let client = here.client();
    let first = client.define(NUMBERS).unwrap();
    assert_eq!(first[0].1, "numbers");
    assert_eq!(client.define(NUMBERS).unwrap(), first);
    assert_eq!(here.client().define(NUMBERS).unwrap(), first);

    let other = NUMBERS.replace("u64", "f64");
    let fresh = format!("[[source]]\nname = 'fresh'\n{other}");
    is_refused(client.define(&fresh), ErrorCode::Definition, "");
    let catalog: Value = serde_json::from_str(&client.catalog().unwrap()).unwrap();
    let sources = catalog.as_array().unwrap().len();
    assert_eq!(sources, 1, "all or none: {catalog}");

    for (toml, why) in [
        ("[[source]]\nname = 'loom_losses'", "built in"),
        ("[[source]]\nnam = 'x'", "line 2"),
    ] {
        says(&client.define(toml).unwrap_err().to_string(), why);
    }
    client.sync().expect("an error of a request ends nothing");
}

#[test]
fn fields_and_indexes_are_added_while_records_come() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    client.push(source, &1u64.to_le_bytes()).unwrap();
    let more = format!("{NUMBERS}[[source.field]]\nname = 'more'\ntype = 'u8'\n");
    client.define(&more).unwrap();
    client.push(source, &[2, 0, 0, 0, 0, 0, 0, 0, 9]).unwrap();
    let index = "name = 'more'\nvalue = 'more'";
    client.add_index("numbers", index).unwrap();
    client.push(source, &[3, 0, 0, 0, 0, 0, 0, 0, 9]).unwrap();
    client.close_index("numbers", "n").unwrap();
    client.push(source, &4u64.to_le_bytes()).unwrap();
    let synced = client.sync().unwrap();
    assert_eq!((synced.counts.stored, synced.counts.refused), (3, 1));
    says(&synced.reason, "8 bytes");

    let catalog: Value = serde_json::from_str(&client.catalog().unwrap()).unwrap();
    let source = &catalog[0];
    assert_eq!(source["fields"][1]["name"], "more");
    assert_eq!(source["indexes"][0]["closed"], true);
    assert_eq!(source["indexes"][1]["value"], "more");
    assert_eq!(payloads(here.path(), "numbers").len(), 3);

    let unknown = client.add_index("nombers", "name = 'x'");
    is_refused(unknown, ErrorCode::NotFound, "'numbers'");
    let unknown = client.close_index("numbers", "nothing");
    is_refused(unknown, ErrorCode::NotFound, "");
}

#[test]
fn payloads_of_any_length_arrive_whole_and_in_order() {
    let here = Here::start("");
    let client = here.client();
    let raw = client.define_one("[[source]]\nname = 'raw'").unwrap();
    let payload = |n: usize| vec![n as u8; n * 37 % 5000];
    for n in 0..2000 {
        client.push(raw, &payload(n)).unwrap();
    }
    let mut framed = Vec::new();
    for n in 0..2000 {
        framed.extend_from_slice(&(payload(n).len() as u16).to_le_bytes());
        framed.extend_from_slice(&payload(n));
    }
    client.push_batch(raw, Shape::Framed, &framed).unwrap();
    assert_eq!(client.sync().unwrap().counts.stored, 4000);
    let found = payloads(here.path(), "raw");
    let mut numbered = found.iter().enumerate();
    assert!(numbered.all(|(n, found)| *found == payload(n % 2000)));

    let longest = client.welcome().payload_bytes_max as usize;
    client.push(raw, &vec![1; longest]).unwrap();
    let error = client.push(raw, &vec![1; longest + 1]).unwrap_err();
    assert!(matches!(error, ClientError::PayloadTooLong { .. }));
    let mut too_long = ((longest + 1) as u16).to_le_bytes().to_vec();
    too_long.extend_from_slice(&vec![1; longest + 1]);
    client.push_batch(raw, Shape::Framed, &too_long).unwrap();
    let synced = client.sync().unwrap();
    assert_eq!((synced.counts.stored, synced.counts.refused), (4001, 1));
    says(&synced.reason, "too long");
}

#[test]
fn a_closed_source_takes_nothing_more_until_it_is_defined_again() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    client.push(source, &1u64.to_le_bytes()).unwrap();
    client.close_source("numbers").unwrap();
    client.push(source, &2u64.to_le_bytes()).unwrap();
    client.push(source, &3u64.to_le_bytes()).unwrap();
    let synced = client.sync().unwrap();
    assert_eq!((synced.counts.stored, synced.counts.refused), (1, 2));
    says(&synced.reason, "closed");
    assert_eq!(client.define_one(NUMBERS).unwrap(), source);
    push(&client, source, [4]);
    assert_eq!(numbers(here.path()), [1, 4]);
}

#[test]
fn the_status_counts_each_source() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    for (record_bytes, bytes) in [(8, &[0; 800][..]), (4, &[0; 40])] {
        client
            .push_batch(source, Shape::Fixed { record_bytes }, bytes)
            .unwrap();
    }
    client.sync().unwrap();
    let status: Value = serde_json::from_str(&client.status().unwrap()).unwrap();
    let numbers = &status["sources"][0];
    assert_eq!(numbers["name"], "numbers");
    for (key, count) in [
        ("received", 110),
        ("stored", 100),
        ("refused", 10),
        ("dropped", 0),
        ("bytes", 800),
    ] {
        assert_eq!(numbers[key], count, "{key}");
    }
    assert!(numbers["last_push_ns"].as_i64().unwrap() > 0);
    assert_eq!(status["connections"], 1);
    assert_eq!(status["durability"], "500ms");
    assert_eq!(status["pid"], std::process::id());
}

#[test]
fn a_durable_sync_waits_for_the_disk_and_batch_durability_always_does() {
    for (config, durable) in [
        (SMALL.to_owned(), true),
        (format!("{SMALL}durability = 'batch'\n"), false),
    ] {
        let here = Here::start(&config);
        let (client, source) = connect(here.path());
        push(&client, source, 0..1000);
        client.push(source, &1u64.to_le_bytes()).unwrap();
        let synced = match durable {
            true => client.sync_durable().unwrap(),
            false => client.sync().unwrap(),
        };
        let status = here.daemon().status().unwrap();
        assert!(status.records_durable >= synced.position.0, "{status:?}");
    }
}

#[test]
fn a_daemon_that_stops_tells_each_client_what_it_took() {
    let here = Here::start(SMALL);
    let client = here.client();
    let idle = here.client();
    let source = client.define_one(NUMBERS).unwrap();
    for n in 0..1_000_000u64 {
        client.push(source, &n.to_le_bytes()).unwrap();
    }
    client.flush().unwrap();
    let dir = here.stop();
    let synced = match client.sync() {
        Err(ClientError::Stopped(synced)) => synced,
        other => panic!("the daemon has stopped: {other:?}"),
    };
    assert_eq!(synced.counts.stored, 1_000_000);
    assert!(numbers(dir.path()).into_iter().eq(0..1_000_000));
    assert!(
        matches!(idle.sync(), Err(ClientError::Stopped(synced)) if synced.counts.received == 0)
    );
    assert!(!dir.path().join("ingest.sock").exists());
    let nobody = Client::connect(dir.path());
    assert!(matches!(nobody, Err(ClientError::NotRunning(_))));
}

#[test]
fn a_configuration_is_taken_over_while_clients_push() {
    let here = Here::start(&format!("{SMALL}{NUMBERS}"));
    let (client, source) = connect(here.path());
    let pushing = std::thread::scope(|scope| {
        let pusher = scope.spawn(|| push(&client, source, 0..200_000));
        for i in 0..20 {
            let more = format!("{SMALL}{NUMBERS}[[source]]\nname = 'more{i}'\n");
            assert!(here.reload(&more).unwrap().is_empty());
        }
        pusher.join().unwrap()
    });
    assert_eq!(pushing.stored, 200_000);
    assert!(numbers(here.path()).into_iter().eq(0..200_000));
    let catalog: Value = serde_json::from_str(&here.client().catalog().unwrap()).unwrap();
    assert_eq!(catalog.as_array().unwrap().len(), 21);

    let group = rustix::process::getegid().as_raw();
    let later = format!(
        "[log]\nchunk = '8KiB'\n[access]\ngroup = '{group}'\n[metrics]\nlisten = '127.0.0.1:0'\n{NUMBERS}"
    );
    let notes = here.reload(&later).unwrap();
    assert_eq!(notes.len(), 3, "{notes:?}");
    for (other, why) in [
        ("[[source]]\nname = 'numbers'\ntime = 'own'\n", "'numbers'"),
        ("[access]\ngroup = 'no_such_group'\n", "'no_such_group'"),
    ] {
        says(&here.reload(other).unwrap_err().to_string(), why);
    }
}
