//! A client of Redis that waits for each answer, and pushes the latency of each request through shared memory.
//!
//! Each thread has its own connections to the server and to the daemon. A request's record is stamped when its answer is complete.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ingestd::client::RingClient;
use loom_engine::SourceId;
use serde_json::json;

/// The name of the threads, by which the kernel's records are selected.
const NAME: &str = "redis-load";
const KEYS: u64 = 10_000;
const VALUE: &[u8] = &[b'v'; 64];
const SOURCE: &str = r#"
[[source]]
name = "redis_request"
time = "own"
field = [
  { name = "id", type = "u64" },
  { name = "latency_ns", type = "u64" },
  { name = "tid", type = "u32" },
  { name = "client_port", type = "u16" },
  { name = "op", type = "u8", labels = { 0 = "GET", 1 = "SET" } },
]
index = [{ name = "latency", value = "latency_ns" }]
"#;

#[derive(clap::Args)]
pub struct Options {
    /// The Redis server
    #[arg(long)]
    address: SocketAddr,
    /// Requests of all threads together
    #[arg(long)]
    requests: u64,
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Loom directory with a running daemon; without one, latencies are recorded nowhere
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// One thread's connections.
struct Connection {
    server: BufReader<TcpStream>,
    client_port: u16,
    ring: Option<(RingClient, SourceId)>,
}

pub fn run(options: &Options) -> Result<()> {
    let connections = (0..options.threads)
        .map(|_| Connection::open(options.address, options.dir.as_deref()))
        .collect::<Result<Vec<_>>>()?;
    crate::wait_for_the_start()?;
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let requests = options.requests;
    let stored = thread::scope(|scope| {
        let mut threads = Vec::new();
        for connection in connections {
            let next = &next;
            let thread = thread::Builder::new().name(NAME.to_owned());
            threads.push(thread.spawn_scoped(scope, move || connection.load(next, requests))?);
        }
        let mut stored = 0;
        for thread in threads {
            stored += thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(stored)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{}",
        json!({"requests": requests, "seconds": seconds, "stored": stored})
    );
    Ok(())
}

impl Connection {
    fn open(address: SocketAddr, dir: Option<&Path>) -> Result<Connection> {
        let server = TcpStream::connect(address).with_context(|| address.to_string())?;
        server.set_nodelay(true)?;
        server.set_read_timeout(Some(Duration::from_secs(60)))?;
        let ring = match dir {
            None => None,
            Some(dir) => {
                let mut client = RingClient::connect(dir)?;
                let source = client.define_one(SOURCE)?;
                Some((client, source))
            }
        };
        Ok(Connection {
            client_port: server.local_addr()?.port(),
            server: BufReader::new(server),
            ring,
        })
    }

    /// Sends requests while there are some left. Returns how many of their records the daemon stored.
    fn load(mut self, next: &AtomicU64, requests: u64) -> Result<u64> {
        let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get())?;
        let mut command = Vec::new();
        let mut answer = Vec::new();
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if id >= requests {
                break;
            }
            let is_set = id.is_multiple_of(10);
            write_command(&mut command, id, is_set)?;
            let began = Instant::now();
            self.server.get_mut().write_all(&command)?;
            self.read_answer(&mut answer)?;
            let latency_ns = u64::try_from(began.elapsed().as_nanos())?;
            if let Some((client, source)) = &mut self.ring {
                let mut payload = [0; 23];
                let mut rest = &mut payload[..];
                rest.write_all(&id.to_le_bytes())?;
                rest.write_all(&latency_ns.to_le_bytes())?;
                rest.write_all(&tid.to_le_bytes())?;
                rest.write_all(&self.client_port.to_le_bytes())?;
                rest.write_all(&[u8::from(is_set)])?;
                client.push(*source, &payload)?;
            }
        }
        let Some((client, _)) = self.ring else {
            return Ok(0);
        };
        let counts = client.close()?.counts;
        ensure!(
            counts.stored == counts.received,
            "not all is stored: {counts:?}"
        );
        Ok(counts.stored)
    }

    /// Reads a status, or a value of any length.
    fn read_answer(&mut self, answer: &mut Vec<u8>) -> Result<()> {
        answer.clear();
        self.server.read_until(b'\n', answer)?;
        let line = std::str::from_utf8(answer)?.trim_end();
        match line.split_at_checked(1) {
            Some(("+", _)) | Some(("$", "-1")) => Ok(()),
            Some(("$", length)) => {
                let length: usize = length.parse()?;
                answer.resize(length + 2, 0);
                Ok(self.server.read_exact(answer)?)
            }
            _ => bail!("Redis answered '{line}'"),
        }
    }
}

fn write_command(command: &mut Vec<u8>, id: u64, is_set: bool) -> Result<()> {
    command.clear();
    let key = format!("key:{:05}", id % KEYS);
    if is_set {
        write!(
            command,
            "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n",
            key.len(),
            VALUE.len()
        )?;
        command.extend_from_slice(VALUE);
        command.extend_from_slice(b"\r\n");
    } else {
        write!(command, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())?;
    }
    Ok(())
}
