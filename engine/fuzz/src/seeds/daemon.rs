//! What the daemon alone reads: its configuration, and losses that are not records yet.

use super::{Seeds, seed, with};
use crate::UNREPAIRED;
use crate::memory::BOOT_ID;

pub fn all() -> Vec<(&'static str, Seeds)> {
    vec![
        ("configuration", configurations()),
        ("unrecorded", unrecorded()),
    ]
}

const SOUND: &str = r#"[log]
chunk = "64KiB"
block = "1MiB"
segment = "16 MiB"
staging = "/dev/shm"
durability = "1.5s"
[retention]
max_bytes = "50GB"
max_age = "7d"
min_free = "2.5%"
on_full = "refuse"
[access]
group = "telemetry"
socket = "group"
[metrics]
listen = "[::1]:9464"
interval = "500ms"
[[source]]
name = "s"
"#;

fn configurations() -> Seeds {
    [
        ("sound", SOUND),
        ("empty", ""),
        (
            "plain",
            "log.durability = 'none'\nretention.min_free = '10GiB'",
        ),
        ("batch", "log.durability = 'batch'"),
        (
            "sizes",
            "64KiB 1.5TiB 10kB 0 1.1B 18446744073709551615B 9ns",
        ),
        ("unknown_key", "log.colour = 'red'"),
        ("chunk", "log.chunk = '60KiB'"),
        ("block", "log.block = '2GiB'"),
        ("segment", "log.segment = '65MiB'"),
        ("staging", "log.staging = 'here'"),
        ("durability", "log.durability = '0s'"),
        ("max_bytes", "retention.max_bytes = '1MiB'"),
        ("size", "log.chunk = 'much'"),
        ("span", "retention.max_age = '1.5 fortnights'"),
        ("share", "retention.min_free = '100%'"),
        ("free", "retention.min_free = 'some'"),
        ("on_full", "retention.on_full = 'stop'"),
        ("no_group", "access.socket = 'group'"),
        ("listen", "metrics.listen = '10.0.0.1:80'"),
        (
            "two_sources",
            "[[source]]\nname = 's'\n[[source]]\nname = 's'",
        ),
    ]
    .iter()
    .map(|(name, text)| seed(name, &[text.as_bytes()]))
    .chain([seed("not_utf8", &[&[0xFF]])])
    .collect()
}

fn unrecorded() -> Seeds {
    let entry = |records: &str, recorded_at: &str| {
        format!(
            r#"{{"source":1,"reason":4,"from":1,"to":2,"records":{records},"bytes":null,"detail":"full","recorded_at":{recorded_at}}}"#
        )
    };
    let content =
        |boot: &str, entries: &str| format!(r#"{{"boot_id":"{boot}","entries":[{entries}]}}"#);
    let one = content(BOOT_ID, &entry("3", "null"));
    let other = content(BOOT_ID, &entry("4", "81"));
    let slot = |sequence: u64, json: &str| -> Vec<u8> {
        let mut bytes = sequence.to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes
    };
    let pair = |first: Vec<u8>, second: Vec<u8>| {
        let bytes = first.len().max(second.len());
        // Blanks behind it leave JSON as it is.
        let padded = |mut slot: Vec<u8>| {
            slot.resize(bytes, b' ');
            slot
        };
        [padded(first), padded(second)].concat()
    };
    let both = pair(slot(6, &one), slot(7, &other));
    let alone = |json: &str| pair(slot(6, json), Vec::new());
    vec![
        seed("sound", &[&[0], &both]),
        seed("older", &[&[0], &pair(slot(6, &one), slot(5, &other))]),
        seed("one_slot", &[&[0], &alone(&one)]),
        seed("other_slot", &[&[0], &pair(slot(7, &one), slot(6, &other))]),
        seed("last", &[&[0], &pair(Vec::new(), slot(u64::MAX, &one))]),
        seed("unrepaired", &[&[UNREPAIRED], &with(&both, 9, b"x")]),
        seed("another_boot", &[&[0], &alone(&content("earlier", ""))]),
        seed("not_json", &[&[0], &alone("entries")]),
        seed(
            "great",
            &[
                &[0],
                &alone(&content(BOOT_ID, &entry("18446744073709551615", "-1"))),
            ],
        ),
        seed("none", &[]),
    ]
}
