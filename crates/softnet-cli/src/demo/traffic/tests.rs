//! The generators against each other over the loopback of a fresh namespace: what they count must
//! be what was sent.

use std::net::Ipv4Addr;

use softnet_io::{Links, Netns};
use softnet_tests::{PATIENCE, wait_for};

use super::*;
use crate::demo::host::Host;

/// A host that talks to itself; `None` (or a panic, if skipping is forbidden) where the system
/// permits no namespace.
fn loopback() -> Option<Host> {
    let netns = match Netns::anonymous() {
        Ok(netns) => netns,
        Err(error) => {
            softnet_tests::skip(&error.to_string());
            return None;
        }
    };
    netns
        .run(|| Links::open()?.loopback_up())
        .expect("entering our own namespace")
        .expect("taking the loopback up");
    Some(Host {
        netns,
        address: Ipv4Addr::LOCALHOST,
    })
}

/// Runs `f` for longer and longer until it has something: in a short time a thread may get no CPU.
fn in_time<T>(mut f: impl FnMut(Until) -> Option<T>) -> T {
    let mut lengths = [200, 2_000, 20_000].map(Duration::from_millis).into_iter();
    let found = lengths.find_map(|length| f(Until::after(length, &Arc::default())));
    found.expect("something in 20 s")
}

#[test]
fn tcp_arrives_and_ends_in_time() {
    let Some(host) = loopback() else { return };
    in_time(|until| {
        let bulk = tcp::Bulk::open(&host, &host).expect("connection");
        let arrived = Arrived::default();
        let start = Instant::now();
        let transfer = std::thread::scope(|scope| {
            let sender = scope.spawn(|| bulk.send(&until));
            let transfer = bulk.receive(&until, &arrived).expect("receiving");
            sender.join().expect("no panic").expect("sending");
            transfer
        });
        assert!(transfer.bytes <= arrived.get(), "{transfer:?}");
        assert!(transfer.elapsed <= start.elapsed(), "{transfer:?}");
        (transfer.bytes > 0).then_some(())
    });
}

#[test]
fn a_stop_ends_traffic_early() {
    let Some(host) = loopback() else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let until = Until::after(Duration::from_secs(3600), &stop);
    let bulk = tcp::Bulk::open(&host, &host).expect("connection");
    let stream = udp::Stream::open(&host, &host).expect("sockets");
    let mut pinger = ping::Pinger::open(&host, &host).expect("socket");
    let arrived = Arrived::default();
    std::thread::scope(|scope| {
        scope.spawn(|| bulk.send(&until));
        scope.spawn(|| bulk.receive(&until, &arrived));
        scope.spawn(|| stream.send(&until, None));
        scope.spawn(|| stream.receive(&until, &arrived));
        scope.spawn(|| pinger.run(&until, Duration::from_millis(1), |_| {}));
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        // The scope's end waits for all of them: the test hangs if one does not stop.
    });
}

#[test]
fn paced_datagrams_all_arrive_in_order() {
    let Some(host) = loopback() else { return };
    in_time(|until| {
        let stream = udp::Stream::open(&host, &host).expect("sockets");
        let arrived = Arrived::default();
        let done = Arc::new(AtomicBool::new(false));
        let late = Until::after(until.left() + PATIENCE, &done);
        let start = Instant::now();
        let (sent, count) = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| stream.receive(&late, &arrived));
            let sent = stream.send(&until, Some(10_000.0)).expect("sending");
            // 10,000 a second; a starved machine may send fewer, never more.
            let most = start.elapsed().as_secs_f64() * 10_000.0;
            assert!(sent as f64 <= most, "{sent} of {most}");
            wait_for("all datagrams", || arrived.get() >= sent);
            done.store(true, Ordering::Relaxed);
            (sent, receiver.join().expect("no panic").expect("receiving"))
        });
        assert_eq!((count.received, count.reordered), (sent, 0));
        assert_eq!(arrived.get(), sent);
        (sent > 0).then_some(())
    });
}

#[test]
fn pings_are_answered() {
    let Some(host) = loopback() else { return };
    let mut pinger = ping::Pinger::open(&host, &host).expect("socket");
    assert_eq!(pinger.via(), ping::Via::IcmpRaw);
    let mut seen = 0;
    let trips = in_time(|until| {
        seen = 0;
        let trips = pinger.run(&until, Duration::from_millis(1), |_| seen += 1);
        all_answered(trips.expect("pinging"))
    });
    assert_eq!(seen, trips.answers());
    assert!(trips.percentile(50) <= trips.percentile(99));
}

/// Round trips, if each was answered soon enough.
fn all_answered(trips: ping::RoundTrips) -> Option<ping::RoundTrips> {
    (trips.answers() > 0 && trips.lost == 0).then_some(trips)
}

#[test]
fn udp_echo_stands_in_for_icmp() {
    let Some(host) = loopback() else { return };
    let mut pinger = ping::Pinger::open_udp(&host, &host).expect("sockets");
    in_time(|until| {
        let trips = pinger.run(&until, Duration::from_millis(1), |_| {});
        all_answered(trips.expect("pinging"))
    });
}

#[test]
fn pings_of_a_trace_do_not_wait_for_answers() {
    let Some(host) = loopback() else { return };
    let icmp = ping::Pinger::open(&host, &host).expect("socket");
    let udp = ping::Pinger::open_udp(&host, &host).expect("sockets");
    for mut pinger in [icmp, udp] {
        let mut seen = 0;
        let (trace, trips) = in_time(|until| {
            seen = 0;
            let trace = pinger.trace(&until, Duration::from_millis(2), |_| seen += 1);
            let trace = trace.expect("pinging");
            let trips = all_answered(trace.round_trips(Duration::ZERO))?;
            Some((trace, trips))
        });
        assert_eq!((trips.answers(), trace.points.len()), (seen, seen));
        let first = trace.points[0].at;
        let later = trace.round_trips(first + Duration::from_nanos(1));
        assert_eq!(later.answers(), seen - 1, "the first does not count");
    }
}
