//! The names of metrics and labels in Prometheus, by OpenTelemetry's rules of compatibility: a unit and `_total` are at the end.

/// The kind of an instrument, as far as its name needs it.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Instrument {
    Gauge,
    /// A sum that only grows.
    Counter,
    Other,
}

/// Units of UCUM that have a word; other units stay as they are.
const UNITS: &str = "d=days h=hours min=minutes s=seconds ms=milliseconds us=microseconds ns=nanoseconds \
    By=bytes KiBy=kibibytes MiBy=mebibytes GiBy=gibibytes TiBy=tibibytes KBy=kilobytes MBy=megabytes GBy=gigabytes TBy=terabytes \
    m=meters V=volts A=amperes J=joules W=watts g=grams Cel=celsius Hz=hertz %=percent";

/// The units that can follow a slash.
const PER_UNITS: &str = "s=second m=minute h=hour d=day w=week mo=month y=year";

/// The name of a metric; empty if it has none.
pub(crate) fn metric(name: &str, unit: &str, instrument: Instrument) -> String {
    let mut all: Vec<String> = words(name).collect();
    if all.is_empty() {
        return String::new();
    }
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let main = unit_word(main, UNITS);
    let per = Some(unit_word(per, PER_UNITS)).filter(|per| !per.is_empty());
    for suffix in [
        main,
        per.map_or_else(String::new, |per| format!("per_{per}")),
    ] {
        if !suffix.is_empty() && !all.contains(&suffix) {
            all.push(suffix);
        }
    }
    let last = match instrument {
        Instrument::Counter => Some("total"),
        // Counters and histograms of things have this unit too, by mistake.
        Instrument::Gauge if unit == "1" => Some("ratio"),
        Instrument::Gauge | Instrument::Other => None,
    };
    if let Some(last) = last {
        all.retain(|word| word != last);
        all.push(last.to_owned());
    }
    let name = all.join("_");
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// The part of a name that comes from a part of a unit: nothing if it is a remark in braces, or 1.
fn unit_word(unit: &str, known: &str) -> String {
    let unit = unit.trim();
    if unit.contains(['{', '}']) || unit == "1" {
        return String::new();
    }
    let mut known = known.split(' ').filter_map(|pair| pair.split_once('='));
    match known.find(|(short, _)| *short == unit) {
        Some((_, word)) => word.to_owned(),
        None => words(unit).collect::<Vec<_>>().join("_"),
    }
}

/// The parts of a name between characters that are not allowed.
fn words(name: &str) -> impl Iterator<Item = String> {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric() && c != ':');
    parts.filter(|part| !part.is_empty()).map(str::to_owned)
}

/// The name of a label; empty if it has none.
pub(crate) fn label(name: &str) -> String {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fit: String = name
        .chars()
        .map(|c| if is_fit(c) { c } else { '_' })
        .collect();
    // Prometheus reserves names that begin with two.
    let fit = match fit.strip_prefix("__") {
        Some(rest) => format!("key_{}", rest.trim_start_matches('_')),
        None => fit,
    };
    match fit.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("key_{fit}"),
        false => fit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, unit and kind of an instrument, and its name in Prometheus.
    const NAMES: &str = "\
http.server.duration|ms|other|http_server_duration_milliseconds
system.cpu.time|s|counter|system_cpu_time_seconds_total
system.cpu.utilization|1|gauge|system_cpu_utilization_ratio
process.seconds|s|other|process_seconds
requests_total|{request}|counter|requests_total
total_requests|1|counter|requests_total
net.io|By/s|gauge|net_io_bytes_per_second
a..b--c||other|a_b_c
2xx||counter|_2xx_total
own|furlong|gauge|own_furlong
job:rate||gauge|job:rate
|s|counter|
ü|s|counter|
cpu_ratio_of|1|gauge|cpu_of_ratio
response_time_seconds|s|gauge|response_time_seconds
bytes.in.time|By|counter|bytes_in_time_total
per.host.io|By/s|gauge|per_host_io_bytes_per_second
cpu_seconds_total|s|counter|cpu_seconds_total
active_connections|1|other|active_connections
x|1/s|gauge|x_per_second
x|/s|gauge|x_per_second
x| s |gauge|x_seconds
x|{req}/s|gauge|x_per_second
x|By/{req}|gauge|x_bytes
x|{a}/{b}|gauge|x
x|By{transmitted}|gauge|x
x|By/|gauge|x_bytes
x|/|gauge|x
x|requests/m|gauge|x_requests_per_minute
x|1/custom|gauge|x_per_custom
x|By/_custom__unit_|gauge|x_bytes_per_custom_unit
x|unit@with#special/chars|gauge|x_unit_with_special_per_chars
x|@#$|gauge|x
x|kBy|gauge|x_kBy";

    // case Metrics: data points over OTLP
    #[test]
    fn metrics_are_named_as_the_rules_of_compatibility_say() {
        for line in NAMES.lines() {
            let [name, unit, kind, wanted] =
                line.split('|').collect::<Vec<_>>().try_into().unwrap();
            let instrument = match kind {
                "gauge" => Instrument::Gauge,
                "counter" => Instrument::Counter,
                _ => Instrument::Other,
            };
            assert_eq!(metric(name, unit, instrument), wanted, "{line}");
        }
    }

    #[test]
    fn units_are_named_as_prometheus_names_them() {
        for (unit, word) in UNITS.split(' ').filter_map(|pair| pair.split_once('=')) {
            let of = |unit: &str| metric("x", unit, Instrument::Gauge);
            assert_eq!(of(unit), format!("x_{word}"));
            assert_eq!(of(&format!("{unit}/s")), format!("x_{word}_per_second"));
        }
        assert_eq!(UNITS.split(' ').count(), 25);
        for (unit, word) in PER_UNITS.split(' ').filter_map(|pair| pair.split_once('=')) {
            let unit = format!("1/{unit}");
            let wanted = format!("x_per_{word}_total");
            assert_eq!(metric("x", &unit, Instrument::Counter), wanted);
        }
    }

    // case Metrics: data points over OTLP
    #[test]
    fn labels_hold_what_prometheus_takes() {
        for (name, wanted) in [
            ("http.method", "http_method"),
            ("2", "key_2"),
            ("__name__", "key_name__"),
            ("_private", "_private"),
            ("größe", "gr__e"),
        ] {
            assert_eq!(label(name), wanted, "{name}");
        }
    }
}
