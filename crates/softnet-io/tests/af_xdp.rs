//! The driver `af_xdp` at both ends of a veth: frames as they are, rings that go round many times,
//! and what is refused.

#![cfg(not(miri))]

mod common;

use std::process::Command;

use common::{buffers, bytes, namespace, pool, skip};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_engine::Link;
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_io::rights::AskError;
use softnet_io::{AfXdp, AfXdpError, AfXdpSpec, Buffers, InterfaceError, LinkError, Netns};

/// A veth between `va` and `vb` in a namespace of its own.
fn veth(queues: usize, mtu: u32) -> Option<Netns> {
    if !rustix::process::geteuid().is_root() {
        skip("XDP needs root");
        return None;
    }
    let netns = namespace()?;
    let queues = format!("numrxqueues {queues} numtxqueues {queues} mtu {mtu}");
    if !ip(
        &netns,
        &format!("link add va {queues} type veth peer name vb {queues}"),
    )? {
        panic!("no veth");
    }
    for name in ["va", "vb"] {
        // No frames of the kernel's own.
        assert!(ip(&netns, &format!("link set {name} addrgenmode none up"))?);
    }
    Some(netns)
}

fn ip(netns: &Netns, arguments: &str) -> Option<bool> {
    let run = || Command::new("ip").args(arguments.split(' ')).status();
    let Ok(done) = netns.run(run).unwrap() else {
        skip("needs iproute2");
        return None;
    };
    Some(done.success())
}

fn open(netns: &Netns, name: &str, queues: usize, buffers: &Buffers) -> AfXdp {
    let spec = AfXdpSpec::new(name);
    let open = || AfXdp::open(&spec, queues, 1500, buffers);
    let device = netns.run(open).unwrap().unwrap();
    // The kernel says so some time after it was taken up.
    softnet_tests::wait_for("the link to be up", || device.link.state().up);
    device
}

/// Arrivals of `count` frames and drops, in polls of at most `budget`.
fn receive(device: &mut AfXdp, count: usize, budget: usize) -> (Vec<Packet>, DropCounters) {
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    softnet_tests::wait_for("frames", || {
        for rx in &mut device.rx {
            let before = packets.len() + drops.total() as usize;
            let mut receive = Receive::new(budget, Time::ZERO, &mut packets, &drops);
            let Polled { more, .. } = rx.poll(&mut receive);
            let got = packets.len() + drops.total() as usize - before;
            assert!(got <= budget && (!more || got > 0));
        }
        packets.len() + drops.total() as usize >= count
    });
    (packets.into_iter().collect(), drops)
}

fn send(device: &mut AfXdp, packets: impl IntoIterator<Item = Packet>) -> Sent {
    let mut packets: PacketList = packets.into_iter().collect();
    let mut sent = Sent::default();
    softnet_tests::wait_for("all to be sent", || {
        device.tx[0].available(Time::ZERO) != Some(0)
            && device.tx[0].xmit(&mut packets, &mut sent) == Xmit::Complete
    });
    assert!(packets.is_empty());
    sent
}

/// Tags behind the addresses, an unknown protocol, and a payload that begins with a number.
fn frame(tags: &[[u8; 4]], number: u32, payload: usize) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].to_vec();
    frame.extend(tags.as_flattened());
    frame.extend([0x88, 0xb5]);
    let rest = (0..payload).map(|i| (i * 7) as u8);
    frame.extend(number.to_be_bytes().into_iter().chain(rest).take(payload));
    frame
}

fn packet(pool: &Pool, frame: &[u8]) -> Packet {
    pool.packet(frame).unwrap()
}

const C_TAG: [u8; 4] = [0x81, 0x00, 0xa0, 0x07];
const S_TAG: [u8; 4] = [0x88, 0xa8, 0x00, 0x09];

/// From buffers of the driver's own pool, of another one, and such as others use, too.
#[test]
fn frames_cross_as_they_are() {
    let Some(netns) = veth(1, 1500) else { return };
    let buffers = buffers();
    let (mut a, mut b) = (
        open(&netns, "va", 1, &buffers),
        open(&netns, "vb", 1, &buffers),
    );
    let other = pool(64, 2048);
    for tags in [&[][..], &[C_TAG], &[S_TAG], &[S_TAG, C_TAG]] {
        for back in [false, true] {
            let (from, to) = match back {
                false => (&mut a, &mut b),
                true => (&mut b, &mut a),
            };
            // One tag does not count, others do.
            let longest = 1500 - 4 * tags.len().saturating_sub(1);
            for payload in [46, 100, longest] {
                let frame = frame(tags, 1, payload);
                let own = packet(&buffers.small, &frame);
                let mut shared = packet(&buffers.small, &frame);
                let copy = shared.share(&buffers.small).unwrap();
                let sent = send(from, [own, shared, copy, packet(&other, &frame)]);
                assert_eq!((sent.packets, sent.dropped), (4, vec![]));
                assert_eq!(sent.bytes, 4 * frame.len() as u64);
                let (received, drops) = receive(to, 4, 3);
                assert_eq!(drops.nonzero(), []);
                for packet in &received {
                    assert_eq!(bytes(packet), frame);
                    assert_eq!(packet.queue(), None);
                    assert!(packet.headroom() >= 192);
                }
            }
            let long = frame(tags, 1, longest + 1);
            let sent = send(from, [packet(&buffers.small, &long)]);
            assert_eq!(sent.dropped, [(DropReason::TooLong, 1)]);
        }
    }
    drop((a, b));
    assert_eq!(buffers.small.stats().free, 256, "a buffer was not freed");
    assert_eq!(other.stats().free, 64);
}

/// In order, none lost, however often rings go round, and whatever is sent at once.
#[test]
fn rings_go_round() {
    const COUNT: u32 = 20_000;
    let Some(netns) = veth(1, 1500) else { return };
    let buffers = Buffers {
        small: pool(4096, 2048),
        large: None,
    };
    let (mut a, mut b) = (
        open(&netns, "va", 1, &buffers),
        open(&netns, "vb", 1, &buffers),
    );
    let (mut next, mut expected, mut step) = (0, 0, 1);
    while expected < COUNT {
        // The veth's own ring holds 256.
        let some = (next..COUNT).take(step);
        let packets: Vec<_> = some
            .map(|number| packet(&buffers.small, &frame(&[], number, 46)))
            .collect();
        let count = packets.len();
        assert_eq!(send(&mut a, packets).packets, count as u64);
        next += count as u32;
        let (received, drops) = receive(&mut b, count, 64);
        assert_eq!((received.len(), drops.nonzero()), (count, vec![]));
        for packet in received {
            assert_eq!(bytes(&packet), frame(&[], expected, 46));
            expected += 1;
        }
        step = step % 200 + 1;
    }
    let dropped = b.link.dropped();
    assert_eq!((dropped.rx, dropped.tx), (0, 0));
    drop((a, b));
    assert_eq!(buffers.small.stats().free, 4096);
}

/// A queue goes on with the buffers that it has, and with more when there are some.
#[test]
fn an_exhausted_pool_recovers() {
    let Some(netns) = veth(1, 1500) else { return };
    let few = Buffers {
        small: pool(64, 2048),
        large: None,
    };
    let source = buffers();
    let mut a = open(&netns, "va", 1, &source);
    let mut b = open(&netns, "vb", 1, &few);
    let some = |count: u32| (0..count).map(|n| packet(&source.small, &frame(&[], n, 60)));
    let mut held = PacketList::new();
    while few.small.alloc_bulk(64, &mut held) > 0 {}
    // An eighth of them waits in the ring.
    assert_eq!(held.len(), 56);
    for _ in 0..5 {
        send(&mut a, some(8));
        let (received, drops) = receive(&mut b, 8, 64);
        assert_eq!(
            (received.len(), drops.nonzero()),
            (0, vec![(DropReason::NoBuffer, 8)])
        );
    }
    // More than buffers wait there: the kernel's to drop.
    send(&mut a, some(20));
    softnet_tests::wait_for("drops", || b.link.dropped().rx == 12);
    receive(&mut b, 8, 64);
    drop(held);
    for _ in 0..5 {
        send(&mut a, some(8));
        let (received, drops) = receive(&mut b, 8, 64);
        assert_eq!((received.len(), drops.nonzero()), (8, vec![]));
    }
    drop(b);
    assert_eq!(few.small.stats().free, 64);
}

/// Frames of all of an interface's queues arrive, and are marked with theirs.
#[test]
fn every_queue_receives() {
    let Some(netns) = veth(2, 1500) else { return };
    let buffers = buffers();
    let mut a = open(&netns, "va", 2, &buffers);
    let mut b = open(&netns, "vb", 2, &buffers);
    for queue in [0, 1] {
        let mut packets: PacketList = (0..8)
            .map(|number| packet(&buffers.small, &frame(&[], number, 46)))
            .collect();
        let mut sent = Sent::default();
        assert_eq!(a.tx[queue].xmit(&mut packets, &mut sent), Xmit::Complete);
        let (received, drops) = receive(&mut b, 8, 64);
        assert_eq!((received.len(), drops.nonzero()), (8, vec![]));
        // A veth leads what was sent in a queue to the one of that number.
        let expected = Some(queue as u16);
        assert!(received.iter().all(|packet| packet.queue() == expected));
    }
    drop((a, b));
    assert_eq!(buffers.small.stats().free, 256);
}

/// Without a socket frames are the kernel's, and a port can be opened again at once.
#[test]
fn a_closed_port_leaves_nothing() {
    let Some(netns) = veth(1, 1500) else { return };
    let buffers = buffers();
    let mut a = open(&netns, "va", 1, &buffers);
    for _ in 0..5 {
        let mut b = open(&netns, "vb", 1, &buffers);
        send(&mut a, [packet(&buffers.small, &frame(&[], 1, 46))]);
        receive(&mut b, 1, 64);
        // Buffers wait in both rings.
        let mut rest = std::mem::take(&mut b.rx);
        drop(b);
        assert!(buffers.small.stats().free < 256 - 32);
        rest.clear();
        softnet_tests::wait_for("what was sent to be completed", || {
            a.tx[0].available(Time::ZERO);
            buffers.small.stats().free == 256 - 32
        });
    }
    let open = || AfXdp::open(&AfXdpSpec::new("va"), 1, 1500, &buffers);
    let refused = netns.run(open).unwrap().unwrap_err().to_string();
    assert!(refused.contains("uses queue 0"), "{refused}");
}

#[test]
fn errors_name_the_interface() {
    let Some(netns) = veth(2, 1500) else { return };
    let open = |name: &str, queues, buffers: &Buffers| {
        let open = || AfXdp::open(&AfXdpSpec::new(name), queues, 1500, buffers);
        netns.run(open).unwrap().unwrap_err()
    };
    let all = buffers();
    assert!(matches!(
        open("none", 1, &all),
        AskError::Own(AfXdpError::Interface(InterfaceError::Link(LinkError::NotFound(name))))
            if name == "none"
    ));
    assert_eq!(
        open("lo", 1, &all).to_string(),
        "the interface 'lo' is not an Ethernet device"
    );
    for queues in [0, 129] {
        assert!(matches!(
            open("va", queues, &all),
            AskError::Own(AfXdpError::BadQueues(_))
        ));
    }
    // What arrives at the other would pass the port by.
    for queues in [1, 3] {
        let other = open("va", queues, &all).to_string();
        assert!(other.contains("has 2 receive queues"), "{other}");
    }
    let odd = Buffers {
        small: pool(64, 1024),
        large: None,
    };
    assert!(matches!(
        open("va", 2, &odd),
        AskError::Own(AfXdpError::Memory)
    ));
    ip(&netns, "link set va mtu 9000");
    let long = open("va", 2, &all).to_string();
    assert!(long.contains("MTU of 9000"), "{long}");
    assert_eq!(all.small.stats().free, 256);
}

/// Memory is locked up to a limit, for a thread that may not lock any. The limit is one of all
/// tests of a process, so this one runs in a process of its own.
#[test]
fn a_pool_that_may_not_be_locked_is_refused() {
    const OWN_PROCESS: &str = "SOFTNET_TEST_OWN_PROCESS";
    const BYTES: u64 = 1 << 20;
    if std::env::var_os(OWN_PROCESS).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "a_pool_that_may_not_be_locked_is_refused"]);
        let output = child.arg("--nocapture").env(OWN_PROCESS, "1").output();
        let output = output.unwrap();
        let [printed, said] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
        assert!(output.status.success(), "{printed}{said}");
        assert!(printed.contains("1 passed"), "{printed}{said}");
        return;
    }
    let Some(netns) = veth(1, 1500) else { return };
    let limit = getrlimit(Resource::Memlock);
    let bytes = limit.current.unwrap_or(BYTES).min(BYTES);
    let lower = Rlimit {
        current: Some(bytes),
        ..limit
    };
    setrlimit(Resource::Memlock, lower).unwrap();
    let buffers = Buffers {
        small: pool(bytes as usize / 2048 + 512, 2048),
        large: None,
    };
    // On a thread of its own.
    let open = || {
        let mut held = capabilities(None).unwrap();
        held.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, held).unwrap();
        AfXdp::open(&AfXdpSpec::new("va"), 1, 1500, &buffers)
    };
    let refused = netns.run(open).unwrap().unwrap_err();
    assert!(
        matches!(refused, AskError::Own(AfXdpError::Locked { .. })),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(text.contains("limit of locked memory"), "{text}");
}

/// Both halves, every call held against the contract.
#[cfg(feature = "check")]
#[test]
fn contracts_are_kept() {
    use softnet_io::middleware::Checked;

    let Some(netns) = veth(1, 1500) else { return };
    let buffers = Buffers {
        small: pool(1024, 2048),
        large: None,
    };
    let (mut a, mut b) = (
        open(&netns, "va", 1, &buffers),
        open(&netns, "vb", 1, &buffers),
    );
    let mut tx = Checked::driver("xdp", a.tx.remove(0)).slots(1024);
    let mut rx = Checked::driver("xdp", b.rx.remove(0));
    drop((a, b.tx));
    let drops = DropCounters::new();
    for round in 0..100 {
        let mut packets: PacketList = (0..64)
            .map(|number| packet(&buffers.small, &frame(&[], number, 1 + round % 1500)))
            .collect();
        let mut sent = Sent::default();
        softnet_tests::wait_for("all to be sent", || {
            tx.available(Time::ZERO) != Some(0)
                && tx.xmit(&mut packets, &mut sent) == Xmit::Complete
        });
        let mut received = PacketList::new();
        softnet_tests::wait_for("frames", || {
            let mut receive = Receive::new(7, Time::ZERO, &mut received, &drops);
            rx.poll(&mut receive);
            received.len() == 64
        });
    }
    assert_eq!(drops.nonzero(), []);
    drop((tx, rx));
    assert_eq!(buffers.small.stats().free, 1024);
}
