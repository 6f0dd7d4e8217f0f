//! Scrapes of well-behaved targets.

use std::process::Command;

use anyhow::{Result, ensure};
use loom_tests::command::{Running, certificate, says};
use loom_tests::daemon::{Daemon, ingestd, wait_until};
use loom_tests::duckdb::Version;
use loom_tests::machine;
use loom_tests::page::block;

use crate::targets::{Answer, Samples, Server, scraped, session, shown};

fn job(server: &Server, more: &str) -> String {
    format!(
        "[[scrape]]\njob = 'app'\ntargets = ['{}']\nevery = '100ms'\n{more}\n",
        server.address
    )
}

// case Metrics: a scrape
#[test]
fn a_scrape_is_one_record_and_its_series_are_found_by_their_labels() -> Result<()> {
    let server = Server::start(|nth, _| {
        let mut text = "# TYPE http_requests_total counter\n".to_owned();
        for (method, code, value) in [("GET", 200, 10), ("GET", 503, 1), ("POST", 500, 2)] {
            text += &format!(
                "http_requests_total{{method=\"{method}\",code=\"{code}\",job=\"x\"}} {}\n",
                value * (nth + 1)
            );
        }
        Answer::Text(text + "temperature -1.5e1\nodd{a=\"\",b=\"x\\ny\"} NaN\n")
    })?;
    let place = tempfile::tempdir()?;
    let dir = place.path().join("m.loom");
    let daemon = Daemon::start(&dir, &job(&server, "labels = { env = 'test' }"))?;
    scraped(&dir, 4)?;
    ingestd(["status".as_ref(), dir.as_os_str()])?;
    let at = shown(&dir);
    for version in Version::ALL {
        let mut session = session(version)?;
        let mut value = |sql: &str| session.value(&sql.replace("DIR", &at));
        let series = "loom_series(DIR, 'http_requests_total', labels := MAP {'method': 'GET', 'code': '5..'})";
        ensure!(value(&format!("SELECT count(*) >= 3 FROM {series}"))? == "true");
        let labels = value(&format!("SELECT DISTINCT labels FROM {series}"))?;
        let wanted = format!(
            "{{__name__=http_requests_total, code=503, env=test, exported_job=x, instance='{}', job=app, method=GET}}",
            server.address
        );
        ensure!(labels == wanted, "{labels}");
        // One field holds each of its values, in order. A busy machine may miss some.
        let values = value(&format!(
            "SELECT list(value ORDER BY ts) = list(DISTINCT value ORDER BY value) FROM {series}"
        ))?;
        ensure!(values == "true");
        // All series of a scrape share its record and its time.
        let source = format!("'metrics/app/{}'", server.address);
        let apart = value(&format!(
            "SELECT count(DISTINCT ts_ns) - count(*) FROM loom_scan(DIR, {source}) WHERE up = 1 AND temperature = -15 \
             AND \"http_requests_total{{code=\"\"200\"\",exported_job=\"\"x\"\",method=\"\"GET\"\"}}\" > 0"
        ))?;
        ensure!(apart == "0", "{apart}");
        let odd = value(
            "SELECT isnan(any_value(value)) AND any_value(labels['b']) = 'x' || chr(10) || 'y' \
                         AND NOT any_value(list_contains(map_keys(labels), 'a')) FROM loom_series(DIR, 'odd')",
        )?;
        ensure!(odd == "true");
        for (count, labels) in [
            ("3", "NULL"),
            ("1", "MAP {'method': 'POST'}"),
            ("2", "MAP {'code': '5.*'}"),
            ("0", "MAP {'code': '5'}"),
            ("3", "MAP {'missing': ''}"),
            ("0", "MAP {'missing': '.+'}"),
        ] {
            let found = value(&format!(
                "SELECT count(DISTINCT labels) FROM loom_series(DIR, 'http_requests_total', labels := {labels})"
            ))?;
            ensure!(found == count, "{labels}: {found}");
        }
        let metrics = value(
            "SELECT list(DISTINCT value ORDER BY value) FROM loom_labels(DIR, NULL) WHERE label = '__name__'",
        )?;
        ensure!(
            metrics
                == "[http_requests_total, odd, scrape_duration_seconds, scrape_samples_scraped, temperature, up]",
            "{metrics}"
        );
    }
    daemon.stop()
}

// case Metrics: a scrape
#[test]
fn series_keep_their_fields_across_restarts_and_reloads() -> Result<()> {
    let server = Server::start(|nth, _| Answer::Text(format!("a 1\nb{{n=\"{nth}\"}} 2\n")))?;
    let samples = Samples::new()?;
    let dir = &samples.dir;
    let config = job(&server, "");
    let count = |sql: &str| samples.value(Version::V2, sql);
    for life in 1..=2u64 {
        samples.record(&config, life * 5)?;
    }
    let fields = count("SELECT count(*) FROM loom_labels(DIR, 'a') WHERE label = '__name__'")?;
    ensure!(fields == "1", "{fields} fields hold one series");
    let stored = count("SELECT count(*) FROM loom_series(DIR, 'a')")?;
    ensure!(stored.parse::<u64>()? >= 9, "{stored}");
    let each =
        count("SELECT max(n) FROM (SELECT count(*) n FROM loom_series(DIR, 'b') GROUP BY labels)")?;
    ensure!(each == "1", "{each}");

    // Without the job, no target is scraped. With the job back, the same fields are used again.
    let daemon = Daemon::start(dir, "")?;
    let before = server.scrapes();
    std::fs::write(dir.with_extension("toml"), &config)?;
    daemon.signal(rustix::process::Signal::HUP)?;
    ensure!(wait_until(|| Ok(server.scrapes() > before + 1))?);
    daemon.stop()?;
    ensure!(count("SELECT count(*) FROM loom_labels(DIR, 'a') WHERE label = '__name__'")? == "1");
    ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
}

// case Metrics: a scrape
// case Metrics: labels
#[test]
fn a_target_of_many_series_has_several_groups_with_one_time() -> Result<()> {
    let server = Server::start(|_, _| {
        let lines = (0..2500).map(|n| format!("m{{n=\"{n}\"}} {n}\n"));
        Answer::OpenMetrics(lines.collect::<String>() + "# EOF\n")
    })?;
    let samples = Samples::recorded(&job(&server, ""), 3)?;
    for version in Version::ALL {
        let mut session = session(version)?;
        let mut value = |sql: &str| session.value(&sql.replace("DIR", &shown(&samples.dir)));
        let groups =
            value("SELECT count(*) FROM loom_sources(DIR) WHERE name LIKE 'metrics/app/%'")?;
        ensure!(groups == "3", "{groups}");
        let whole = value(
            "SELECT bool_and(n = 2500 AND s = 3123750) FROM (SELECT count(*) n, sum(value) s FROM loom_series(DIR, 'm') GROUP BY ts_ns)",
        )?;
        ensure!(whole == "true");
        // A single series is read from its group alone.
        let one = value(
            "SELECT count(DISTINCT value) FROM loom_series(DIR, 'm', labels := MAP {'n': '2400'})",
        )?;
        ensure!(one == "1");
        let read = value("SELECT source FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1")?;
        ensure!(read.ends_with("#3"), "{read}");
    }
    Ok(())
}

const TLS_TARGET: &str = r#"
import http.server, ssl, sys
class Target(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers["Authorization"] == "Bearer secret"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(b"over_tls 1\n" if known else b"")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
open("port.new", "w").write(str(server.server_port))
import os; os.rename("port.new", "port")
server.serve_forever()
"#;

// case Metrics: the configuration
#[test]
fn a_target_with_tls_and_a_token_is_scraped_and_no_other_is_trusted() -> Result<()> {
    if !machine::has("a target with TLS", &["openssl"])? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    certificate(place.path());
    let mut target = Command::new(machine::python()?);
    target.args(["-c", TLS_TARGET]).current_dir(place.path());
    let _server = Running::start(&mut target);
    let port = place.path().join("port");
    ensure!(wait_until(|| Ok(port.exists()))?);
    let port = std::fs::read_to_string(port)?;
    std::fs::write(place.path().join("token"), "secret\n")?;
    std::fs::write(place.path().join("wrong"), "guess\n")?;
    let here = place.path().display();
    let job = |name: &str, more: &str| {
        format!(
            "[[scrape]]\njob = '{name}'\ntargets = ['https://127.0.0.1:{port}/metrics']\nevery = '200ms'\n{more}\n"
        )
    };
    let ca = format!("tls = {{ ca = '{here}/cert.pem' }}");
    let config = [
        job("trusted", &format!("bearer_file = '{here}/token'\n{ca}")),
        job("stranger", &format!("bearer_file = '{here}/token'")),
        job("uninvited", &format!("bearer_file = '{here}/wrong'\n{ca}")),
        job(
            "forgetful",
            &format!("bearer_file = '{here}/missing'\n{ca}"),
        ),
    ];
    let dir = place.path().join("m.loom");
    let daemon = Daemon::start(&dir, &config.concat())?;
    let mut session = session(Version::V2)?;
    let up = format!(
        "SELECT list_sort(list(DISTINCT labels['job'] || value::INTEGER)) FROM loom_series({}, 'up')",
        shown(&dir)
    );
    let wanted = "[forgetful0, stranger0, trusted1, uninvited0]";
    let is_so = wait_until(|| Ok(session.value(&up)? == wanted))?;
    let log = std::fs::read_to_string(dir.with_extension("log"))?;
    ensure!(is_so, "{}: {log}", session.value(&up)?);
    let over_tls = format!(
        "SELECT max(value) FROM loom_series({}, 'over_tls')",
        shown(&dir)
    );
    ensure!(session.value(&over_tls)? == "1.0");
    for said in [
        "it answered 401",
        "cannot read bearer_file",
        "its certificate is not trusted",
    ] {
        says(&log, said);
    }
    ensure!(!log.contains("secret"), "{log}");
    daemon.stop()
}

#[test]
fn a_job_has_a_password_and_says_whose_labels_and_times_count() -> Result<()> {
    // The last line has no line feed, although the body is complete.
    const BODY: &str = "a{job=\"own\",instance=\"there\",env=\"\"} 1 1000000000000\nlast 2";
    let of_known_length = |chunked: bool| match chunked {
        false => format!("Content-Length: {}\r\n\r\n{BODY}", BODY.len()),
        true => format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{BODY}\r\n0\r\n\r\n",
            BODY.len()
        ),
    };
    let server = Server::start(move |nth, request| {
        // This is `operator:open sesame` in Base64.
        let is_known = request.contains(": Basic b3BlcmF0b3I6b3BlbiBzZXNhbWU=\r\n");
        Answer::Raw(match is_known {
            true => format!("HTTP/1.1 200 OK\r\n{}", of_known_length(nth % 2 == 0)).into_bytes(),
            false => b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_vec(),
        })
    })?;
    let place = tempfile::tempdir()?;
    let here = place.path().display();
    std::fs::write(place.path().join("right"), "open sesame\n")?;
    std::fs::write(place.path().join("wrong"), "guess")?;
    let job = |name: &str, password: &str, more: &str| {
        format!(
            "[[scrape]]\njob = '{name}'\ntargets = ['{}']\nevery = '100ms'\nlabels = {{ env = 'test' }}\n\
             basic_auth = {{ username = 'operator', password_file = '{here}/{password}' }}\n{more}\n",
            server.address
        )
    };
    let config = [
        job(
            "honored",
            "right",
            "honor_labels = true\nhonor_timestamps = false",
        ),
        job("renamed", "right", "honor_timestamps = false"),
        job("stranger", "wrong", ""),
    ];
    let dir = place.path().join("m.loom");
    let daemon = Daemon::start(&dir, &config.concat())?;
    let mut session = session(Version::V2)?;
    let at = shown(&dir);
    let up = format!(
        "SELECT list_sort(list(DISTINCT labels['job'] || value::INTEGER)) FROM loom_series({at}, 'up')"
    );
    let wanted = "[honored1, renamed1, stranger0]";
    let is_so = wait_until(|| Ok(session.value(&up)? == wanted))?;
    ensure!(is_so, "{}", session.value(&up)?);
    let labels = |session: &mut loom_tests::duckdb::Session, metric: &str| {
        session.value(&format!(
            "SELECT array_to_string(list_sort(list(DISTINCT labels::VARCHAR)), ' ') FROM loom_series({at}, '{metric}')"
        ))
    };
    let instance = server.address;
    let found = labels(&mut session, "a")?;
    let wanted = format!(
        "{{__name__=a, env=test, exported_instance=there, exported_job=own, instance='{instance}', job=renamed}} \
         {{__name__=a, instance=there, job=own}}"
    );
    ensure!(found == wanted, "{found}");
    let last = session.value(&format!(
        "SELECT list_sort(list(DISTINCT labels['job'] || value::INTEGER)) FROM loom_series({at}, 'last')"
    ))?;
    ensure!(last == "[honored2, renamed2]", "{last}");
    let log = std::fs::read_to_string(dir.with_extension("log"))?;
    ensure!(!log.contains("sesame") && !log.contains("guess"), "{log}");
    daemon.stop()
}

fn of_page(language: &str) -> Result<String> {
    block("ingestd/docs/metrics.md", "", language)
}

// case Metrics: the configuration
#[test]
fn the_configuration_of_the_page_scrapes_and_its_queries_answer() -> Result<()> {
    let server = Server::start(|nth, _| {
        Answer::Text(format!(
            "node_load1 0.5\nnode_cpu_seconds_total{{cpu=\"0\",mode=\"user\"}} {nth}\nnode_cpu_seconds_total{{cpu=\"0\",mode=\"idle\"}} 7\n"
        ))
    })?;
    let config = of_page("toml")?;
    ensure!(config.contains("127.0.0.1:9100"), "{config}");
    let config = config.replace("127.0.0.1:9100", &server.address.to_string());
    let place = tempfile::tempdir()?;
    let dir = place.path().join("metrics.loom");
    let daemon = Daemon::start(&dir, &config)?;
    ensure!(wait_until(|| Ok(server.scrapes() >= 4))?);
    let queries = of_page("sql")?.replace("'metrics.loom'", &shown(&dir));
    for version in Version::ALL {
        let mut session = session(version)?;
        let [series, by_env, rate] = loom_tests::script::statements(&queries)[..] else {
            anyhow::bail!("three queries: {queries}");
        };
        for (query, value) in [(series, "value"), (by_env, "max")] {
            let found = session.value(&format!(
                "SELECT any_value(env) || max({value}) FROM ({query})"
            ))?;
            ensure!(found == "test0.5", "{query}: {found}");
        }
        // In steps of 15 s there may be no time with two samples yet.
        let often = rate.replace("INTERVAL 15 SECOND", "INTERVAL 1 SECOND");
        ensure!(often != rate, "{rate}");
        ensure!(wait_until(|| Ok(session
            .value(&format!("SELECT count(busy) > 1 FROM ({often})"))?
            == "true"))?);
        session.query(rate)?;
    }
    let request = server.request().to_ascii_lowercase();
    says(&request, "accept: application/openmetrics-text");
    daemon.stop()
}
