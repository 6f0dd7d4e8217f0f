//! The attributes of a resource besides its job and its instance: they are labels of `target_info`, stored once for each time and limited
//! like any series.

use anyhow::{Result, ensure};
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::sender::{Receiving, attribute, gauge, int, metrics_of, now_ns, shop, text};

const MS_NS: u64 = 1_000_000;

fn resource(attributes: Vec<KeyValue>) -> Resource {
    Resource {
        attributes,
        ..Resource::default()
    }
}

fn till(process: i64) -> Resource {
    let zone = |zone: &str| AnyValue {
        value: Some(any_value::Value::StringValue(zone.to_owned())),
    };
    let zones = ArrayValue {
        values: vec![zone("north"), zone("a, b")],
    };
    resource(vec![
        text("service.namespace", "shops"),
        text("service.name", "shop"),
        text("service.instance.id", "till-1"),
        text("host.name", "h1"),
        int("process.pid", process),
        attribute("is.new", any_value::Value::BoolValue(false)),
        attribute("zones", any_value::Value::ArrayValue(zones)),
        text("note", "é = \"ü\""),
        text("none", ""),
        text("a.b", "1"),
        text("a-b", "2"),
        text("job", "its own"),
    ])
}

fn load(time_ns: u64, of: &str) -> Vec<Metric> {
    vec![gauge("load", [(time_ns, of.to_owned(), 0.5)])]
}

/// The labels of a series, in the order of their names.
const LABELS: &str =
    "list_sort(list_transform(map_entries(labels), lambda label: label.key || '=' || label.value))";

#[test]
fn the_attributes_of_a_resource_are_the_labels_of_target_info() -> Result<()> {
    let receiving = Receiving::new("")?;
    // Whole microseconds can be read back exactly.
    let now = now_ns() / MS_NS * MS_NS;
    let takes = |sent| -> Result<()> {
        receiving.takes_all("/v1/metrics", &metrics_of(sent))?;
        Ok(())
    };
    let infos =
        "SELECT count(*) || '|' || count(DISTINCT labels) FROM loom_series(DIR, 'target_info')";
    // A Collector sends the resource once for each point.
    let both = || {
        vec![
            (till(7), load(now - 2000 * MS_NS, "first")),
            (till(7), load(now - 1000 * MS_NS, "second")),
        ]
    };
    takes(both())?;
    let found = receiving.ask(&format!(
            "SELECT ts_ns || '|' || value || '|' || array_to_string({LABELS}, '|') FROM loom_series(DIR, 'target_info')"
        ),
    )?;
    let labels = "__name__=target_info|a_b=1;2|exported_job=its own|host_name=h1|instance=till-1|is_new=false|job=shops/shop|\
                  note=é = \"ü\"|process_pid=7|zones=[\"north\",\"a, b\"]";
    let wanted = format!("{}|1.0|{labels}", now - 1000 * MS_NS);
    ensure!(found == wanted, "{found}, wanted {wanted}");
    // The same again, and an older point of another series.
    takes(both())?;
    takes(vec![(till(7), load(now - 3000 * MS_NS, "third"))])?;
    receiving.asks(infos, "2|1")?;
    takes(vec![(till(7), load(now, "first"))])?;
    receiving.asks(infos, "3|1")?;
    // Another process of the same instance.
    takes(vec![(till(8), load(now + 1000 * MS_NS, "first"))])?;
    receiving.asks(infos, "4|2")?;
    let receiving = receiving.killed_and_started("")?;
    let again = metrics_of(vec![(till(8), load(now + 1000 * MS_NS, "first"))]);
    receiving.takes("/v1/metrics", &again)?;
    receiving.asks(infos, "4|2")?;
    receiving.asks("SELECT string_agg(DISTINCT i.labels['process_pid'], ' ' ORDER BY i.labels['process_pid']) \
         FROM loom_series(DIR, 'load') l JOIN loom_series(DIR, 'target_info') i \
         ON (l.ts, l.labels['job'], l.labels['instance']) = (i.ts, i.labels['job'], i.labels['instance'])", "7 8")?;
    receiving.asks("SELECT count(*) FROM loom_losses(DIR)", "0")?;
    receiving.stop()
}

#[test]
fn a_resource_without_other_attributes_or_without_points_has_no_target_info() -> Result<()> {
    let receiving = Receiving::new("")?;
    let known = vec![
        text("service.name", "shop"),
        text("service.instance.id", "1"),
    ];
    let unnamed = vec![Metric {
        name: "?".to_owned(),
        ..gauge("", [(now_ns(), "x".to_owned(), 1.0)])
    }];
    for (resource, sent, wanted) in [
        (resource(known), load(now_ns(), "a"), ""),
        (resource(Vec::new()), load(now_ns(), "b"), ""),
        (till(1), unnamed, ""),
        (till(1), Vec::new(), ""),
        // It has no name, and its other series have none either.
        (
            resource(vec![text("region", "north")]),
            load(now_ns(), "c"),
            "unknown_service unknown north",
        ),
    ] {
        let reply = receiving.post("/v1/metrics", &metrics_of(vec![(resource, sent)]))?;
        ensure!(reply.status == 200, "{reply:?}");
        receiving.asks("SELECT coalesce(string_agg(concat_ws(' ', labels['job'], labels['instance'], labels['region'])), '') \
             FROM loom_series(DIR, 'target_info')", wanted)?;
    }
    receiving.stop()
}

#[test]
fn resources_that_always_change_are_limited_counted_and_named() -> Result<()> {
    let receiving = Receiving::new("series_max = 5")?;
    let now = now_ns();
    let changed = |n: u64| {
        let mut attributes = shop().attributes;
        attributes.push(int("process.pid", n as i64));
        (resource(attributes), load(now + n * MS_NS, "one"))
    };
    for n in 0..10 {
        let sent = metrics_of(vec![changed(n)]);
        let (refused, why) = receiving.post("/v1/metrics", &sent)?.refused()?;
        // One from the first request, and five from the rest of the day. The points are stored all the same.
        ensure!(refused == 0, "{n}: {refused} {why}");
        let is_named = why.contains("series_max series are new") && why.contains("target_info{");
        ensure!(is_named == (n > 5), "{n}: {why}");
    }
    // The longest labels of a series have 4096 bytes.
    let mut long = shop().attributes;
    long.push(text("process.command_args", &"x".repeat(5000)));
    let sent = metrics_of(vec![(resource(long), load(now + 10 * MS_NS, "one"))]);
    receiving.refuses("/v1/metrics", &sent, 0, "4096 bytes")?;
    // More in one request than a sender may have series.
    let sent = metrics_of((20..28).map(changed).collect());
    let (_, why) = receiving.post("/v1/metrics", &sent)?.refused()?;
    ensure!(why.contains("more than series_max resources"), "{why}");
    for (series, wanted) in [("target_info", "6|6"), ("load", "19|1")] {
        receiving.asks(
            &format!(
                "SELECT count(*) || '|' || count(DISTINCT labels) FROM loom_series(DIR, '{series}')"
            ),
            wanted,
        )?;
    }
    // Four, the long one, and five of the last request, three more of which have no sender's source.
    let lost = "SELECT sum(records) FROM loom_losses(DIR) WHERE source = 'metrics/shop/i1'";
    receiving.asks_until(lost, "10")?;
    receiving.stop()
}
