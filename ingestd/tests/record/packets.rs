//! Tests packets from `tcpdump`, and interfaces that come and go.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::query::Poll;
use loom_tests::command::{Ended, says};
use rustix::process::{Signal, kill_process};

use super::scene::{Scene, interrupt, may_record, program_of, scene};

// case Recording: something that is missing
#[test]
fn a_filter_that_tcpdump_refuses_is_an_error_and_nothing_is_made() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let output = scene
        .record(&["packets", "-i", "lo", "no", "such", "filter"])
        .ends(1);
    says(&output.err, "tcpdump cannot capture: ");
    assert!(!scene.dir.exists());
}

// case Recording: events of the kernel
#[test]
fn exactly_the_packets_that_were_sent_are_recorded_into_a_daemon_that_runs() {
    if may_record() {
        check_exactly("lo");
        check_exactly("any");
    }
}

/// A socket, and a recording of packets to its port.
fn capture(scene: &Scene, interface: &str) -> (UdpSocket, Child) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = receiver.local_addr().unwrap().port().to_string();
    let filter = ["packets", "-i", interface, "udp", "port", &port];
    let child = scene.start(&filter, "packet");
    (receiver, child)
}

fn check_exactly(interface: &str) {
    let scene = scene();
    let daemon = Daemon::start(&scene.dir, &Config::default(), false).unwrap();
    let (receiver, child) = capture(&scene, interface);
    let to = receiver.local_addr().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..5000_u32 {
        sender.send_to(&number.to_le_bytes(), to).unwrap();
    }
    scene.wait_for(5000, "packet");
    let output = interrupt(child).ends(0);
    daemon.stop().unwrap();
    let payloads = scene.payloads("packet").into_iter();
    let numbers = payloads.map(|payload| u32::from_le_bytes(*payload.last_chunk().unwrap()));
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..5000), "{}", output.err);
    assert!(scene.is_complete("packet"));
}

// case Recording: losses in the kernel
#[test]
fn packets_that_found_the_buffer_full_are_counted_and_the_source_is_not_complete() {
    if may_record() {
        check_full_buffer("lo");
    }
}

#[test]
fn packets_of_any_interface_that_found_the_buffer_full_are_counted_once() {
    if may_record() {
        check_full_buffer("any");
    }
}

fn check_full_buffer(interface: &str) {
    const SENT: u32 = 3000;
    let scene = scene();
    let (receiver, child) = capture(&scene, interface);
    let to = receiver.local_addr().unwrap();
    // A stopped tcpdump takes nothing from the buffer of 64 MiB.
    let tcpdump = program_of(&child);
    kill_process(tcpdump, Signal::STOP).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..SENT {
        sender.send_to(&[7; 50_000], to).unwrap();
    }
    kill_process(tcpdump, Signal::CONT).unwrap();
    // An interrupted tcpdump leaves what it has not read yet. Packets are read in order, so all before a stored marker were read.
    let mut sent = SENT;
    let is_stored = || {
        scene
            .payloads("packet")
            .iter()
            .any(|payload| payload.last() == Some(&8))
    };
    for _ in 0..12 {
        sender.send_to(&[8], to).unwrap();
        sent += 1;
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && !is_stored() {
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_stored() {
            break;
        }
    }
    let output = interrupt(child).ends(0);
    let snapshot = scene.snapshot();
    let losses = snapshot.losses(&Poll::never()).unwrap();
    let of_kernel = losses.iter().all(|loss| loss.stage == "kernel");
    assert!(of_kernel, "{losses:?}");
    let lost: u64 = losses.iter().map(|loss| loss.records.unwrap()).sum();
    let stored = scene.payloads("packet").len() as u64;
    assert!(lost > 0 && stored > 0, "{lost} lost, {stored} stored");
    assert_eq!(lost + stored, u64::from(sent), "{}", output.out);
    assert!(!scene.is_complete("packet"));
}

// case Recording: a program or a daemon that ends
#[test]
fn an_interface_that_disappears_is_named() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let child = scene.started(apart(&scene, "-n", "true", &[]), "packet");
    in_net_of(&child, &["del", "loom0"]);
    let output = Ended::once(child).ends(1);
    let output = output.says("tcpdump ended by itself");
    let output = output.says("The interface disappeared");
    assert!(output.out.starts_with("source=packet received="));
}

/// A recording of the interface `loom0` in a network of its own, made by `unshare` with this option, once a command has run there.
fn apart(scene: &Scene, option: &str, first: &str, more: &[&str]) -> Command {
    let record = scene.command(&[&["packets", "-i", "loom0"], more].concat());
    let link = "ip link add loom0 type veth peer name loom1 && ip link set loom0 up";
    let script = format!("{first} && {link} && exec \"$@\"");
    let mut unshare = Command::new("unshare");
    unshare.args([option, "sh", "-c", &script, "sh"]);
    unshare.arg(record.get_program()).args(record.get_args());
    unshare
}

/// Runs `ip link` in the network of a process.
fn in_net_of(child: &Child, words: &[&str]) {
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["-n", "-t", &child.id().to_string(), "ip", "link"]);
    Ended::of(nsenter.args(words)).ends(0);
}

#[test]
fn a_tcpdump_that_is_killed_is_reported_without_an_empty_reason() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let child = scene.start(&["packets", "-i", "lo", "port", "1"], "packet");
    kill_process(program_of(&child), Signal::KILL).unwrap();
    let output = Ended::once(child).ends(1);
    let said = &output.err;
    says(said, "(signal: 9 (SIGKILL)); what was recorded");
}

#[test]
fn without_an_interface_the_one_that_tcpdump_took_is_named() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let output = scene
        .record(&["packets", "--seconds", "1", "port", "1"])
        .ends(0);
    let said = &output.err;
    let named = said.find("it has the packets of interface '");
    assert!(named.is_some(), "{said}");
    assert!(named < said.find("recording into"), "{said}");
}

#[test]
fn an_interface_that_is_down_and_up_again_is_named_both_times() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let first = "mount -t sysfs sysfs /sys";
    let record = apart(&scene, "-nm", first, &["--seconds", "30"]);
    let mut child = scene.started(record, "packet");
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    for (state, expected) in [("down", "'loom0' is down"), ("up", "'loom0' is up again")] {
        in_net_of(&child, &["set", "loom0", state]);
        let is_said = said.any(|line| line.unwrap().contains(expected));
        assert!(is_said, "{expected}");
    }
    interrupt(child);
}
