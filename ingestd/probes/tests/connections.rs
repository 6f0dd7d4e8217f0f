//! Every state of a connection, and every reset, is drained.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod shared;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use loom_probes::{Clock, TCP_EVENTS, TCP_STATES, Tcp};
use shared::{framed, opened};

const CONNECTIONS: usize = 100;

/// A payload of the source `tcp`.
#[derive(Debug)]
struct Event {
    event: &'static str,
    states: Option<(&'static str, &'static str)>,
    is_timed: bool,
    ports: [u16; 2],
    pid: Option<u32>,
    cgroup: Option<u64>,
    addresses: String,
}

impl Event {
    fn of(payload: &[u8]) -> Event {
        let port = |at: usize| u16::from_le_bytes([payload[at], payload[at + 1]]);
        let nulls = payload[8];
        let state = |at: usize| TCP_STATES[usize::from(payload[at])].1;
        let pid = u32::from_le_bytes(payload[25..29].try_into().unwrap());
        let cgroup = u64::from_le_bytes(payload[45..53].try_into().unwrap());
        Event {
            event: TCP_EVENTS[usize::from(payload[10])].1,
            states: (nulls & 1 == 0).then(|| (state(11), state(12))),
            is_timed: nulls & 2 == 0,
            ports: [port(21), port(23)],
            pid: (nulls & 16 == 0).then_some(pid),
            cgroup: (payload[9] & 1 == 0).then_some(cgroup),
            addresses: String::from_utf8(payload[57..].to_vec()).unwrap(),
        }
    }
}

/// The events at a port while `act` runs; nothing where this machine lets nobody record.
fn recorded(port: u16, act: impl FnOnce()) -> Option<Vec<Event>> {
    let filter = Tcp {
        ports: vec![port],
        ..Tcp::default()
    };
    let mut probe = opened(filter.open())?;
    probe.arm().unwrap();
    act();
    let mut bytes = Vec::new();
    let counts = probe.disarm(Clock::take(), &mut bytes).unwrap();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    Some(framed(&bytes).into_iter().map(Event::of).collect())
}

// case Recording: events of the kernel
#[test]
fn each_connection_has_the_states_that_it_passes() {
    for (address, text) in [("127.0.0.1:0", "127.0.0.1127.0.0.1"), ("[::1]:0", "::1::1")] {
        // A machine may have no IPv6.
        let listener = match TcpListener::bind(address) {
            Err(_) if text == "::1::1" => continue,
            bound => bound.unwrap(),
        };
        let address = listener.local_addr().unwrap();
        let port = address.port();
        let Some(events) = recorded(port, || {
            for _ in 0..CONNECTIONS {
                let client = TcpStream::connect(address).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                // The client closes first, and the server learns of it.
                drop(client);
                assert_eq!(server.read(&mut [0]).unwrap(), 0);
            }
        }) else {
            return;
        };
        let count = |from: &str, to: &str| {
            let states = events
                .iter()
                .filter(|event| event.states == Some((from, to)));
            states.count()
        };
        assert_eq!(count("close", "syn_sent"), CONNECTIONS);
        assert_eq!(count("syn_sent", "established"), CONNECTIONS);
        assert_eq!(count("syn_recv", "established"), CONNECTIONS);
        assert_eq!(count("established", "fin_wait1"), CONNECTIONS);
        assert_eq!(count("established", "close_wait"), CONNECTIONS);
        assert_eq!(count("close_wait", "last_ack"), CONNECTIONS);
        assert!(events.iter().all(|event| event.ports.contains(&port)));
        assert!(events.iter().all(|event| event.cgroup > Some(0)));
        let connected = |event: &&Event| event.states == Some(("syn_sent", "established"));
        for event in events.iter().filter(connected) {
            assert!(event.is_timed, "{event:?}");
            assert_eq!(event.ports[1], port);
            assert_eq!(event.pid, Some(std::process::id()));
            assert_eq!(event.addresses, text);
        }
    }
}

// case Recording: events of the kernel
#[test]
fn a_reset_is_an_event_of_both_ends_and_of_a_port_where_nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let Some(events) = recorded(address.port(), || {
        let mut client = TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"unread").unwrap();
        server.peek(&mut [0]).unwrap();
        // A socket that is closed with bytes that nobody read resets its connection.
        drop(server);
        assert!(client.read(&mut [0]).is_err());
        drop(listener);
        TcpStream::connect(address).unwrap_err();
    }) else {
        return;
    };
    let of = |event: &str| events.iter().filter(|it| it.event == event).count();
    assert_eq!(
        (of("reset sent"), of("reset received")),
        (2, 2),
        "{events:?}"
    );
    let refused = events
        .iter()
        .rfind(|event| event.event == "reset sent" && event.pid.is_none());
    assert_eq!(refused.unwrap().addresses, "127.0.0.1127.0.0.1");
    assert_eq!(refused.unwrap().cgroup, None);
}
