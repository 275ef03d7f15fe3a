//! More than a port, a host or the pool takes: packets are dropped and counted, and when the
//! pressure ends, nothing sticks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use softnet::stats::DropReason;
use softnet_tc::{QdiscSpec, TbfSpec};
use softnet_tests::traffic::{Connection, Flow, is_silent, pattern, receive};
use softnet_tests::{Host, HostConfig, Lan, LanConfig, counters, wait_for};

fn tbf(rate: u64, burst: u64, limit: u64) -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate,
        burst,
        limit,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    })
}

/// Datagram `n` of a flow whose frames are 1042 bytes long.
fn numbered(n: u64) -> Vec<u8> {
    pattern(n, 1000)
}

/// Has a host say nothing by itself but what IPv4 takes: with IPv6 it reports groups and looks for
/// routers for some seconds. (Where settings may not be written, it does.)
fn without_ipv6(host: &Host) {
    let file = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6";
    let _ = host.run(|| std::fs::write(file, "1"));
}

/// A port that hardly sends fills its queue and then drops, counted, what does not fit. When it
/// sends again, what waited leaves in order.
#[test]
fn a_full_queue_drops_and_drains() {
    const SENT: u64 = 300;
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    without_ipv6(&lan.hosts[0]);
    let flow = Flow::open(&lan.hosts[0], &lan.hosts[1], false);
    // What was said before is in front of this, and counted when the answer is there.
    flow.echo(10);
    let before = lan.port(1).tx_packets;
    // Nearly nothing leaves, 20 frames wait.
    lan.set_qdisc(1, &tbf(1, 2000, 20 * 1042));
    for n in 0..SENT {
        flow.a.send(&numbered(n)).expect("sending");
    }
    wait_for("the queue to overflow", || {
        let port = lan.port(1);
        let dropped = lan.dropped(1, DropReason::QdiscLimit);
        port.tx_packets + port.queued + dropped >= before + SENT && dropped >= SENT - 25
    });
    let full = lan.port(1);
    assert!((15..=25).contains(&full.queued), "{full:?}");
    assert!(full.queues[0].qdisc.backlog <= 20 * 1042, "{full:?}");
    // A queue that is too short for what waits drops the rest, and does not lose count.
    lan.set_qdisc(1, &QdiscSpec::Pfifo { limit: 5 });
    lan.settle();
    let kept = SENT - lan.dropped(1, DropReason::QdiscLimit);
    assert!((5..=12).contains(&kept), "{kept}");
    // The frames that passed before the queue filled were the first, and those that waited came
    // next. What was dropped came last.
    let mut arrived: Vec<u64> = Vec::new();
    let mut buffer = [0; 2000];
    while (arrived.len() as u64) < kept || !is_silent(&flow.b) {
        let n = flow.b.recv(&mut buffer);
        let n = n.expect("a datagram that was not dropped");
        let number = (0..SENT).find(|&number| numbered(number) == buffer[..n]);
        arrived.push(number.expect("a datagram that was sent"));
    }
    assert!(arrived.is_sorted(), "{arrived:?}");
    assert!(arrived.iter().all(|&n| n < 25), "{arrived:?}");
    // What the kernels send by themselves may have been dropped too.
    let lost = SENT - arrived.len() as u64;
    let dropped = lan.dropped(1, DropReason::QdiscLimit);
    assert!((lost..=lost + 5).contains(&dropped), "{lost} {dropped}");
    // It goes on.
    lan.set_qdisc(1, &QdiscSpec::default());
    flow.echo(1000);
    Connection::open(&lan.hosts[0], &lan.hosts[1], false).transfer(1, 1 << 20);
    let stats = lan.stop();
    assert_eq!(stats.drops(), [(DropReason::QdiscLimit, dropped)]);
}

/// Packets that wait when the engine stops are given time to leave, and are counted as dropped if
/// that does not suffice.
#[test]
fn packets_queued_at_the_end_are_counted() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let flow = Flow::open(&lan.hosts[0], &lan.hosts[1], false);
    flow.echo(10);
    lan.set_qdisc(1, &tbf(1, 2000, 1 << 20));
    for n in 0..50 {
        flow.a.send(&numbered(n)).expect("sending");
    }
    wait_for("the packets to wait", || lan.port(1).queued >= 48);
    let queued = lan.port(1).queued;
    // Without time to leave.
    let stats = lan.stop_within(Duration::ZERO);
    let drops = stats.drops();
    assert_eq!(drops.len(), 1, "{drops:?}");
    assert_eq!(drops[0].0, DropReason::QdiscReset);
    assert!(drops[0].1 >= queued, "{drops:?}");
}

/// A program that never reads its datagrams harms nobody else on its host.
#[test]
fn a_deaf_receiver_does_not_stop_others() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let deaf = Flow::open(a, b, false);
    set_socket_recv_buffer_size(&deaf.b, 4096).expect("a small receive buffer");
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| {
            Connection::open(a, b, false).transfer(2, 20 << 20);
            Connection::open(a, b, true).transfer(3, 20 << 20);
        });
        let mut n = 0;
        while n < 100 || !transfer.is_finished() {
            deaf.a.send(&numbered(n)).expect("sending");
            n += 1;
            std::thread::sleep(Duration::from_micros(100));
        }
        transfer.join().expect("the transfer");
    });
    wait_for("its host to drop datagrams", || {
        counters::protocol(b, "Udp", "RcvbufErrors") > 10
    });
    // What came first is still there.
    receive(&deaf.b, &numbered(0));
    let drops = lan.stop().drops();
    // TCP may have filled the queue.
    assert!(
        drops.iter().all(|d| d.0 == DropReason::QdiscLimit),
        "{drops:?}"
    );
}

/// A LAN with hardly any buffers and none for large frames.
fn poor(buffers: usize) -> Option<Lan> {
    // Small frames only, so that each takes one buffer.
    let host = HostConfig {
        offload: false,
        ..HostConfig::default()
    };
    Lan::build(LanConfig {
        hosts: vec![host; 2],
        buffers,
        large: 0,
        ..LanConfig::default()
    })
}

/// True if all drops are for want of buffers.
fn are_for_want_of_buffers(drops: &[(DropReason, u64)]) -> bool {
    let want = [DropReason::NoBuffer, DropReason::BufferQuota];
    drops.iter().all(|(reason, _)| want.contains(reason))
}

/// Packets that wait for one port use up its share of the buffers; what comes then is dropped and
/// counted, and others find buffers. When they have left, all buffers are free again.
#[test]
fn a_full_queue_leaves_buffers_for_others() {
    const SENT: u64 = 600;
    let Some(lan) = poor(512) else { return };
    let flow = Flow::open(&lan.hosts[0], &lan.hosts[1], false);
    for _ in 0..3 {
        flow.echo(10);
        let before = lan.dropped(1, DropReason::BufferQuota);
        lan.set_qdisc(1, &tbf(1, 2000, 1 << 20));
        for n in 0..SENT {
            flow.a.send(&numbered(n)).expect("sending");
        }
        // 512 buffers, half of which are for the queues of two ports.
        wait_for("the queue to be full", || {
            lan.dropped(1, DropReason::BufferQuota) >= before + SENT - 128 - 2
        });
        let queued = lan.port(1).queued;
        assert!((100..=128).contains(&queued), "{queued}");
        // The other way, nothing is lost.
        for n in 0..20 {
            flow.b.send(&numbered(n)).expect("sending");
            receive(&flow.a, &numbered(n));
        }
        lan.set_qdisc(1, &QdiscSpec::default());
        lan.settle();
        wait_for("buffers to be freed", || lan.pool().free >= 256);
        // The first came through.
        receive(&flow.b, &numbered(0));
        receive(&flow.b, &numbered(1));
        let mut buffer = [0; 2000];
        while !is_silent(&flow.b) {
            flow.b.recv(&mut buffer).expect("what waits");
        }
    }
    flow.echo(1000);
    let drops = lan.stop().drops();
    assert!(are_for_want_of_buffers(&drops), "{drops:?}");
}

/// A connection slows down to what the pool gives and arrives whole.
#[test]
fn tcp_gets_through_a_tiny_pool() {
    let Some(lan) = poor(64) else { return };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for v6 in [false, true] {
        Connection::open(a, b, v6).transfer(5, 2 << 20);
        Connection::open(b, a, v6).transfer(6, 2 << 20);
    }
    let drops = lan.stop().drops();
    assert!(are_for_want_of_buffers(&drops), "{drops:?}");
}

/// Large frames that find no large buffers are chained, and those that find no small ones either
/// are dropped.
#[test]
fn large_frames_get_through_a_small_pool() {
    let config = LanConfig {
        buffers: 256,
        large: 2,
        ..LanConfig::default()
    };
    let Some(lan) = Lan::build(config) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for v6 in [false, true] {
        Connection::open(a, b, v6).transfer(7, 4 << 20);
        Flow::open(a, b, v6).send_segmented(60_500, 1000);
    }
    let drops = lan.stop().drops();
    assert!(are_for_want_of_buffers(&drops), "{drops:?}");
}

/// Says so when it is dropped, in a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// In any window a port sends at most its rate and its burst, and a connection gets through. That
/// it sends no less is for virtual time: here, other programs may want the CPU.
#[test]
fn a_rate_limit_holds_on_a_real_port() {
    const RATE: u64 = 50_000_000 / 8;
    const BURST: u64 = 32 << 10;
    /// Bytes that the first reading may lack: packets of a run that has sent and not yet counted.
    const UNCOUNTED: u64 = 64 * 1514;
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    lan.set_qdisc(1, &tbf(RATE, BURST, 1 << 20));
    let connection = Connection::open(&lan.hosts[0], &lan.hosts[1], false);
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = |_sent: usize| enough.load(Ordering::Relaxed);
        let transfer = scope.spawn(move || connection.transfer_until(8, done));
        let ends = Ends(&enough);
        wait_for("the queue to fill", || lan.port(1).queued > 40);
        // Longer than the time between the readings, so that the bound is safe.
        let (start, before) = (Instant::now(), lan.port(1).tx_bytes);
        let bytes = || lan.port(1).tx_bytes - before;
        wait_for("enough to be limited", || bytes() > 8_000_000);
        let bytes = bytes();
        let most = RATE as f64 * start.elapsed().as_secs_f64();
        let most = most as u64 + BURST + UNCOUNTED;
        assert!(bytes <= most, "{bytes} bytes where {most} may be sent");
        drop(ends);
        transfer.join().expect("the transfer");
    });
    let drops = lan.stop().drops();
    assert!(
        drops.iter().all(|d| d.0 == DropReason::QdiscLimit),
        "{drops:?}"
    );
}
