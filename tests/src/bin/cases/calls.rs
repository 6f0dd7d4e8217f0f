//! A program that makes exactly so many system calls, at a rate or as fast as it can.
//!
//! It waits by reading the clock, which is no system call, so `getppid` is called as often as it says and evenly in time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;

#[derive(clap::Args)]
pub struct Options {
    /// Calls of all threads together
    #[arg(long)]
    calls: u64,
    /// Calls a second of all threads together; without it, as fast as they can
    #[arg(long)]
    rate: Option<u64>,
    #[arg(long, default_value_t = 1)]
    threads: u64,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        options.threads > 0 && options.calls.is_multiple_of(options.threads),
        "--calls is not a multiple of --threads"
    );
    crate::wait_for_the_start()?;
    let began = Instant::now();
    let calls = options.calls / options.threads;
    let rate = options
        .rate
        .map(|rate| rate as f64 / options.threads as f64);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(|| make(calls, rate, began)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{}", json!({"calls": options.calls, "seconds": seconds}));
    Ok(())
}

/// Makes calls, of which the n-th is due at n / `rate` seconds.
fn make(calls: u64, rate: Option<f64>, began: Instant) {
    for number in 0..calls {
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(number as f64 / rate);
            while began.elapsed() < due {
                std::hint::spin_loop();
            }
        }
        let _ = rustix::process::getppid();
    }
}
