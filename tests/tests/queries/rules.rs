//! The rule of `ingestd/docs/rules.md` as it is written: a real daemon, a real receiver of the webhook, and the alerts and pins from SQL in
//! both DuckDB versions.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ingestd::client::Client;
use loom_engine::schema::{ALERT_STATES, RULE_STATES};
use loom_tests::command::{Running, certificate};
use loom_tests::daemon::{Daemon, ingestd, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::page::block;

const SOURCE: &str = "[[source]]\nname = 'redis_request'\n[[source.field]]\nname = 'latency_ns'\ntype = 'u64'\n\
                      [[source.index]]\nname = 'latency'\nvalue = 'latency_ns'\n";

/// The block of a language in the page's worked example.
fn example(language: &str) -> Result<String> {
    let heading = "\n## Page me when p99.99 breaks, and keep the 30 seconds before\n";
    block("ingestd/docs/rules.md", heading, language)
}

/// The rule of the page, with the receiver's address.
fn rule(receiver: &TcpListener) -> Result<String> {
    let rule = example("toml")?;
    ensure!(rule.contains("127.0.0.1:9009"), "{rule}");
    Ok(rule.replace("127.0.0.1:9009", &receiver.local_addr()?.to_string()))
}

/// Answers the next request and returns its body.
fn receive(receiver: &TcpListener) -> Result<serde_json::Value> {
    let (mut stream, _) = receiver.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut request = Vec::new();
    let body = loop {
        let mut piece = [0; 4096];
        let bytes = stream.read(&mut piece)?;
        ensure!(bytes > 0, "the request ends early");
        request.extend_from_slice(piece.get(..bytes).unwrap_or_default());
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            break body;
        }
    };
    stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
    Ok(body)
}

// case Rules: a condition over a window
#[test]
fn the_rule_of_the_page_pages_when_the_percentile_breaks() -> Result<()> {
    let receiver = TcpListener::bind("127.0.0.1:0")?;
    let place = tempfile::tempdir()?;
    let dir = place.path().join("web.loom");
    let daemon = Daemon::start(&dir, &format!("{SOURCE}{}", rule(&receiver)?))?;
    let client = Client::connect(&dir)?;
    let source = client.define_one(SOURCE)?;
    for latency_ns in [1_000_000u64; 200].into_iter().chain([9_000_000]) {
        client.push(source, &latency_ns.to_le_bytes())?;
    }
    client.sync()?;
    let alert = receive(&receiver)?;
    ensure!(
        alert["rule"] == "slow_redis" && alert["state"] == "firing",
        "{alert}"
    );
    ensure!(
        alert["value"] == 9e6 && alert["threshold"] == 5e6,
        "{alert}"
    );

    // The window with the slow record passes while the rest is checked.
    let ends = receiver.try_clone()?;
    let ends = std::thread::spawn(move || receive(&ends));
    let documented: serde_json::Value = serde_json::from_str(&example("json")?)?;
    let keys = |alert: &serde_json::Value| {
        let keys = alert
            .as_object()
            .map(|alert| alert.keys().cloned().collect::<Vec<_>>());
        keys.context("an alert is an object")
    };
    ensure!(keys(&alert)? == keys(&documented)?, "{alert}");

    let shown = dir.display().to_string();
    let alerts = format!("loom_scan('{shown}', 'loom_alerts')");
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        ensure!(wait_until(|| {
            let count = session.value(&format!(
                "SELECT count(*) FROM {alerts} WHERE state = 'acted'"
            ))?;
            Ok(count != "0")
        })?);
        let firing = format!("FROM {alerts} WHERE state = 'firing'");
        let row = session.value(&format!(
            "SELECT concat_ws(' ', rule, value, threshold, to_ts - from_ts BETWEEN INTERVAL 0 SECOND AND INTERVAL 10 SECOND) {firing}"
        ))?;
        ensure!(row == "slow_redis 9000000.0 5000000.0 true", "{row}");
        // The position and the window select the records that the rule saw.
        let [position, from, to] = ["position", "epoch_ns(from_ts)", "epoch_ns(to_ts)"]
            .map(|column| session.value(&format!("SELECT {column} {firing}")));
        let count = session.value(&format!(
            "SELECT count(*) FROM loom_scan('{shown}', 'redis_request', at := {}) WHERE ts_ns >= {} AND ts_ns < {}",
            position?, from?, to?
        ))?;
        ensure!(count == "201", "the rule saw {count}");
    }
    let mut session = Session::open(Version::ALL[0])?;
    session.attach(&dir, Some("web"))?;
    let states = session.value(
        "SELECT count(DISTINCT state) FROM web.loom.loom_alerts WHERE state IN ('firing', 'acted')",
    )?;
    ensure!(states == "2", "{states}");

    // The pin holds the records around the alert.
    ensure!(wait_until(|| {
        let pinned = format!("SELECT count(*) FROM {alerts} WHERE state = 'pinned'");
        Ok(session.value(&pinned)? == "1")
    })?);
    let path = session.value(&format!(
        "SELECT detail FROM {alerts} WHERE state = 'pinned'"
    ))?;
    let pinned = session.value(&format!(
        "SELECT count(*) FROM '{path}/redis_request.parquet'"
    ))?;
    ensure!(pinned == "201", "the pin holds {pinned}");
    let attached =
        session.value("SELECT concat_ws(' ', rule, records, path) FROM web.loom.loom_pins");
    ensure!(attached? == format!("slow_redis 201 {path}"));
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        for (statement, rows) in example("sql")?.split_inclusive(";\n").zip([3, 1]) {
            let found = session.query(&statement.replace("/var/lib/loom", &shown))?;
            ensure!(found.len() >= rows, "{statement}{found:?}");
        }
    }
    ensure!(ingestd(["pins", &shown])?.contains(&path));
    let Ok(end) = ends.join() else {
        bail!("the receiver panicked");
    };
    let end = end?;
    ensure!(
        end["rule"] == "slow_redis" && end["state"] == "resolved",
        "{end}"
    );

    for version in Version::every()? {
        let mut session = Session::open(version)?;
        check_enum(&mut session, &alerts, &ALERT_STATES)?;
        let rules = format!("loom_scan('{shown}', 'loom_rules')");
        check_enum(&mut session, &rules, &RULE_STATES)?;
        let numbers = format!("loom_scan('{shown}', 'loom_alerts', labels := false)");
        let types = format!("SELECT DISTINCT typeof(state) FROM {numbers}");
        ensure!(session.value(&types)? == "UTINYINT");
    }

    let test = "--source redis_request --index latency --over 10s --every 1s --when".split(' ');
    let words = ["rule", "test", &shown].into_iter().chain(test);
    let tried = ingestd(words.chain(["p99_99 > 5ms AND count > 100"]))?;
    ensure!(tried.contains("fired 1 time "), "{tried}");
    let config = place.path().join("loom.toml");
    std::fs::write(&config, rule(&receiver)?)?;
    let config = config.display().to_string();
    let of_config = ["rule", "test", &shown, "--config", &config, "--name"];
    let tried = ingestd(of_config.into_iter().chain(["slow_redis"]))?;
    ensure!(tried.contains("fired 1 time "), "{tried}");
    let listed = ingestd(["rule", "list", &shown])?;
    ensure!(
        listed.contains("slow_redis") && listed.contains("configuration"),
        "{listed}"
    );
    daemon.stop()
}

/// Checks that the column `state` is an ENUM of these texts, and the meaning of each comparison of two of its values.
fn check_enum(session: &mut Session, from: &str, states: &[&str]) -> Result<()> {
    let types = session.value(&format!("SELECT DISTINCT typeof(state) FROM {from}"))?;
    assert_eq!(types, format!("ENUM('{}')", states.join("', '")));
    let place = |state: &Option<String>| {
        let place = states
            .iter()
            .position(|known| Some(*known) == state.as_deref());
        place.with_context(|| format!("{state:?} is not a state"))
    };
    let seen = format!("(SELECT DISTINCT state FROM {from})");
    let pairs = session.query(&format!(
        "SELECT a.state, b.state, a.state < b.state, a.state < b.state::VARCHAR, a.state = b.state, a.state = b.state::VARCHAR
        FROM {seen} AS a, {seen} AS b"
    ))?;
    ensure!(!pairs.is_empty());
    for pair in &pairs {
        let [a, b, less, less_than_text, same, same_text] = pair.as_slice() else {
            bail!("{pair:?}");
        };
        let same_place = (place(a)? == place(b)?).to_string();
        assert_eq!(less.as_deref(), Some(&*(place(a)? < place(b)?).to_string()));
        assert_eq!(less_than_text.as_deref(), Some(&*(a < b).to_string()));
        assert_eq!(
            [same.as_deref(), same_text.as_deref()],
            [Some(&*same_place); 2]
        );
    }
    for state in states {
        let as_texts = session.query(&format!(
            "SELECT state, state < '{state}', state = '{state}' FROM {seen} AS seen ORDER BY state"
        ))?;
        let mut places = Vec::new();
        for row in &as_texts {
            let [seen, less, same] = row.as_slice() else {
                bail!("{row:?}");
            };
            places.push(place(seen)?);
            let text = seen.as_deref().unwrap_or_default();
            assert_eq!(less.as_deref(), Some(&*(text < *state).to_string()));
            assert_eq!(same.as_deref(), Some(&*(text == *state).to_string()));
        }
        ensure!(places.is_sorted(), "{places:?}");
    }
    Ok(())
}

/// Writes the body of each request into a file, and answers.
const TLS_RECEIVER: &str = r#"
import http.server, ssl, os
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("bodies", "ab") as bodies: bodies.write(body + b"\n")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
open("port.new", "w").write(str(server.server_port))
os.rename("port.new", "port")
server.serve_forever()
"#;

#[test]
fn a_webhook_over_tls_is_told_by_those_who_trust_it_alone() -> Result<()> {
    if !machine::has("a webhook with TLS", &["openssl"])? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    certificate(place.path());
    let mut receiver = Command::new(machine::python()?);
    receiver
        .args(["-c", TLS_RECEIVER])
        .current_dir(place.path());
    let _server = Running::start(&mut receiver);
    let port = place.path().join("port");
    ensure!(wait_until(|| Ok(port.exists()))?);
    let port = std::fs::read_to_string(port)?;
    let cert = place.path().join("cert.pem");
    let rule = |name: &str, more: &str| {
        format!(
            "[[rule]]\nname = '{name}'\nsource = 'redis_request'\nindex = 'latency'\nwhen = 'max > 100'\nover = '1s'\n\
             webhook = 'https://127.0.0.1:{port}/alert'\n{more}\n"
        )
    };
    let trusted = rule("trusted", &format!("tls = {{ ca = '{}' }}", cert.display()));
    let dir = place.path().join("web.loom");
    let daemon = Daemon::start(&dir, &format!("{SOURCE}{trusted}{}", rule("stranger", "")))?;
    let client = Client::connect(&dir)?;
    let source = client.define_one(SOURCE)?;
    client.push(source, &4711_u64.to_le_bytes())?;
    client.sync()?;
    let bodies = || std::fs::read_to_string(place.path().join("bodies")).unwrap_or_default();
    ensure!(
        wait_until(|| Ok(bodies().lines().count() == 2))?,
        "{}",
        bodies()
    );
    for (body, state) in bodies().lines().zip(["firing", "resolved"]) {
        let alert: serde_json::Value = serde_json::from_str(body)?;
        ensure!(
            alert["rule"] == "trusted" && alert["state"] == state,
            "{alert}"
        );
    }
    let mut session = Session::open(Version::V2)?;
    let failed = format!(
        "SELECT count(*) FROM loom_scan('{}', 'loom_alerts') WHERE rule = 'stranger' AND state = 'action failed' \
         AND detail LIKE '%its certificate is not trusted%tls.ca%'",
        dir.display()
    );
    ensure!(wait_until(|| Ok(session.value(&failed)? == "2"))?);
    daemon.stop()
}
