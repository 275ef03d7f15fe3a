//! More than two of something: hosts, workers, queues, connections.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_broadcast;
use softnet::stats::DropReason;
use softnet_tests::raw::{IPV4, PacketSocket};
use softnet_tests::traffic::{Connection, Flow, is_silent, pattern, ping, receive, udp};
use softnet_tests::{Host, HostConfig, Lan, LanConfig, counters, wait_for};

/// Datagrams of a flow, at most: no more than its receiver's buffer holds, and no flood that would
/// starve connections on a machine that has other things to do.
const DATAGRAMS: u64 = 4000;

/// Sends numbered datagrams of changing size until `done`, at least eight; returns how many.
fn send_numbered(socket: &UdpSocket, flow: u64, done: impl Fn() -> bool) -> u64 {
    let mut number = 0;
    loop {
        for _ in 0..8 {
            socket.send(&numbered(flow, number)).expect("sending");
            number += 1;
        }
        if number >= DATAGRAMS || done() {
            return number;
        }
        thread::sleep(Duration::from_micros(500));
    }
}

fn numbered(flow: u64, number: u64) -> Vec<u8> {
    let mut datagram = number.to_be_bytes().to_vec();
    datagram.extend(pattern(flow << 32 | number, (number % 100) as usize * 14));
    datagram
}

/// The part of a flow that has arrived.
#[derive(Debug, Default)]
struct Received {
    /// Higher than any number that arrived.
    next: u64,
    count: u64,
}

impl Received {
    /// Reads what has arrived since; every datagram must be one that was sent, and come after
    /// those sent before it.
    fn read(&mut self, socket: &UdpSocket, flow: u64, sent: u64) {
        let mut buffer = [0; 2000];
        while !is_silent(socket) {
            let n = socket.recv(&mut buffer).expect("what waits");
            let number = buffer[..n].first_chunk().map(|b| u64::from_be_bytes(*b));
            let number = number.expect("a numbered datagram");
            assert!(number < sent, "datagram {number} of {sent}");
            let next = self.next;
            assert!(
                number >= next,
                "{number} of flow {flow} came when {next} was due"
            );
            assert!(buffer[..n] == numbered(flow, number), "wrong bytes");
            self.next = number + 1;
            self.count += 1;
        }
    }
}

/// Datagrams that a host's kernel lost on either side of Softnet.
fn lost_in_kernel(host: &Host) -> u64 {
    let interface = counters::interface(host);
    let full = ["Udp", "Udp6"].map(|p| counters::protocol(host, p, "InErrors"));
    interface.tx_dropped + interface.tx_errors + full[0] + full[1]
}

/// Two workers share two ports with two queues each: connections both ways arrive whole, datagrams
/// of a flow in order.
#[test]
fn two_workers_and_queues_keep_every_flow_in_order() {
    const CONNECTIONS: u64 = 8;
    const FLOWS: u64 = 6;
    let host = HostConfig {
        queues: 2,
        ..HostConfig::default()
    };
    let config = LanConfig {
        hosts: vec![host; 2],
        workers: 2,
        ..LanConfig::default()
    };
    let Some(lan) = Lan::build(config) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    // A datagram that waits in its host for the neighbour's address is overtaken there.
    for v6 in [false, true] {
        ping(a, b, v6, 100);
    }
    let flows: Vec<Flow> = (0..FLOWS).map(|n| Flow::open(a, b, n % 2 == 1)).collect();
    let sent: Vec<u64> = thread::scope(|scope| {
        let transfers: Vec<_> = (0..CONNECTIONS)
            .map(|n| {
                let (from, to) = if n % 4 == 3 { (b, a) } else { (a, b) };
                scope.spawn(move || {
                    Connection::open(from, to, n % 2 == 1).transfer(n, 6 << 20);
                })
            })
            .collect();
        let transfers = Arc::new(transfers);
        let senders: Vec<_> = (0..)
            .zip(&flows)
            .map(|(n, flow)| {
                let transfers = transfers.clone();
                let done = move || transfers.iter().all(|transfer| transfer.is_finished());
                scope.spawn(move || send_numbered(&flow.a, n, done))
            })
            .collect();
        let sent = senders.into_iter().map(|s| s.join().expect("a sender"));
        sent.collect()
    });
    let mut received: Vec<Received> = flows.iter().map(|_| Received::default()).collect();
    let total: u64 = sent.iter().sum();
    // Some still wait in a ring or a socket.
    wait_for("every datagram to arrive or to be counted as lost", || {
        for (n, (flow, received)) in (0..).zip(flows.iter().zip(&mut received)) {
            received.read(&flow.b, n, sent[n as usize]);
        }
        let arrived: u64 = received.iter().map(|flow| flow.count).sum();
        let dropped = lan.engine.stats().conservation().dropped;
        // Among the dropped are packets of the connections.
        let lost = dropped + lost_in_kernel(a) + lost_in_kernel(b);
        arrived + lost >= total && received.iter().all(|flow| flow.count > 0)
    });
    for host in [a, b] {
        assert_eq!(counters::checksum_errors(host), 0);
    }
    // The hosts' kernels choose a flow's queue, and with it the worker, by a hash of their own: a
    // few flows may all be at one.
    wait_for("each queue of both ports to be used", || {
        Flow::open(a, b, false).echo_after_load(100);
        let mut queues = (0..2).flat_map(|port| lan.port(port).queues);
        queues.all(|queue| queue.tx_packets > 0)
    });
    let stats = lan.stop();
    assert!(
        stats.workers.iter().all(|worker| worker.processed > 0),
        "{:?}",
        stats.workers
    );
    let drops = stats.drops();
    let limits = [DropReason::QdiscLimit, DropReason::QdiscBurst];
    assert!(drops.iter().all(|d| limits.contains(&d.0)), "{drops:?}");
}

fn three() -> Option<Lan> {
    Lan::build(LanConfig {
        hosts: vec![HostConfig::default(); 3],
        ..LanConfig::default()
    })
}

/// A broadcast reaches everybody but its sender, once, and the copies are counted.
#[test]
fn broadcasts_reach_every_other_host() {
    const COUNT: u64 = 50;
    let Some(lan) = three() else { return };
    let [a, b, c] = &lan.hosts[..] else { return };
    let broadcast = Ipv4Addr::new(10, 9, 0, 255);
    let sockets = [b, c, a].map(|host| udp(host, Ipv4Addr::UNSPECIFIED.into()));
    let port = |socket: &UdpSocket| socket.local_addr().expect("an address").port();
    let sender = udp(a, a.v4.into());
    set_socket_broadcast(&sender, true).expect("permission to broadcast");
    let before = lan.engine.stats().copied;
    let seen = PacketSocket::open(a, IPV4);
    for number in 0..COUNT {
        for socket in &sockets[..2] {
            let sent = sender.send_to(&pattern(number, 700), (broadcast, port(socket)));
            sent.expect("a broadcast");
        }
        for socket in &sockets[..2] {
            receive(socket, &pattern(number, 700));
        }
    }
    assert!(sockets.iter().all(is_silent));
    assert!(
        seen.drain().is_empty(),
        "a broadcast came back to its sender"
    );
    wait_for("the copies to be counted", || {
        lan.engine.stats().copied >= before + 2 * COUNT
    });
    let stats = lan.stop();
    assert_eq!(stats.drops(), []);
    let sum = stats.conservation();
    assert_eq!(sum.tx, sum.rx + sum.copied);
}

/// Hosts find each other by flooded requests; once the switch knows where a host is, others do not
/// see what it gets.
#[test]
fn frames_to_a_learnt_host_reach_it_alone() {
    let Some(lan) = three() else { return };
    let [a, b, c] = &lan.hosts[..] else { return };
    for (from, to) in [(a, b), (b, c), (c, a)] {
        for v6 in [false, true] {
            ping(from, to, v6, 100);
        }
    }
    let copied = lan.engine.stats().copied;
    assert!(copied >= 3, "nobody's ARP request was flooded: {copied}");
    let overheard = PacketSocket::open(c, IPV4);
    let flow = Flow::open(a, b, false);
    for len in 0..100 {
        flow.echo(len);
    }
    Connection::open(b, a, false).transfer(1, 1 << 20);
    assert_eq!(overheard.drain().len(), 0, "host c saw what is not for it");
    // All three talk at once.
    thread::scope(|scope| {
        for (seed, (from, to)) in (0..).zip([(a, b), (b, c), (c, a)]) {
            scope.spawn(move || Connection::open(from, to, seed % 2 == 0).transfer(seed, 4 << 20));
        }
    });
    let stats = lan.stop();
    assert_eq!(stats.drops(), []);
}
