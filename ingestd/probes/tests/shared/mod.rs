//! The parts that the tests of captures share: a probe that this machine may refuse, and its payloads.

#![expect(dead_code, reason = "no test uses all of them")]

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use loom_probes::{Clock, Counts, Probe, ProbeError};

/// A probe, or nothing where this machine lets nobody record: a failure where `CI` is set.
pub fn opened(result: Result<Probe, ProbeError>) -> Option<Probe> {
    match result {
        Ok(probe) => Some(probe),
        Err(error @ (ProbeError::Capability { .. } | ProbeError::Tracefs { .. })) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Says why a test does not run, which is a failure where `CI` is set.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI skips nothing: {why}");
    println!("skipped: {why}");
}

/// The name of this test's executable, which it starts again to record it.
pub fn own_name() -> String {
    let exe = std::env::current_exe().unwrap();
    exe.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Drains until the program has ended; the payloads, and what the kernel counted.
pub fn drained(probe: &mut Probe, program: &mut Child) -> (Vec<u8>, Counts) {
    let clock = Clock::take();
    let mut bytes = Vec::new();
    while program.try_wait().unwrap().is_none() {
        let mut batch = Vec::new();
        if probe.drain(clock, &mut batch) {
            std::thread::sleep(Duration::from_millis(1));
        }
        bytes.append(&mut batch);
    }
    let counts = probe.disarm(clock, &mut bytes).unwrap();
    (bytes, counts)
}

/// Compiles a C program that waits for the end of its input; `None` without a compiler.
pub fn compiled(folder: &Path, source: &str) -> Option<String> {
    let path = folder.join("program");
    std::fs::write(folder.join("program.c"), source).unwrap();
    let compiler = Command::new("clang")
        .args(["-O2", "-o"])
        .args([&path, &folder.join("program.c")])
        .output();
    let Ok(output) = compiler else {
        skip("clang is missing");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(path.to_str().unwrap().to_owned())
}

/// The payloads behind their lengths.
pub fn framed(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let (payload, after) = after.split_at(usize::from(u16::from_le_bytes(*length)));
        payloads.push(payload);
        rest = after;
    }
    payloads
}
