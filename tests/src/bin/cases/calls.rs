//! A program that makes system calls evenly in time, or as fast as it can, and prints exactly how many it made.
//!
//! It waits by reading the clock, which is not a system call, so `getppid` is called exactly that often.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;

#[derive(clap::Args)]
pub struct Options {
    /// How long to make calls
    #[arg(long)]
    seconds: f64,
    /// Calls a second of all threads together; without it, as fast as they can
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 1)]
    threads: u32,
}

pub fn run(options: &Options) -> Result<()> {
    let rate = options.rate.unwrap_or(f64::INFINITY) / f64::from(options.threads);
    ensure!(rate > 0.0, "--rate and --threads are not positive");
    let length = Duration::try_from_secs_f64(options.seconds)?;
    crate::wait_for_the_start()?;
    let began = Instant::now();
    let calls = thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(|| make(rate, began, length)))
            .collect();
        threads.into_iter().try_fold(0, |calls, thread| {
            let made = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
            anyhow::Ok(calls + made)
        })
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{}", json!({"calls": calls, "seconds": seconds}));
    Ok(())
}

/// Makes calls until the time is over; the n-th is due at n / `rate` seconds. Returns their number.
fn make(rate: f64, began: Instant, length: Duration) -> u64 {
    let mut calls = 0;
    loop {
        let elapsed = began.elapsed();
        if elapsed >= length {
            return calls;
        }
        if elapsed.as_secs_f64() * rate < calls as f64 {
            std::hint::spin_loop();
            continue;
        }
        let _ = rustix::process::getppid();
        calls += 1;
    }
}
