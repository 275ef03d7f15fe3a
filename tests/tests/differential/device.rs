//! Qdiscs right above a device: G1, G2, G7, G9.

use softnet_tc::AnyQdisc;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use softnet::mem::{Packet, PacketList};
use softnet::stats::DropReason;
use softnet::tx::{Device, DeviceConfig, Features, Sent, TxRing, Xmit, XmitResult};
use softnet::tx::{Notifier, Wake};
use softnet_tests::oracle::KernelQdisc;

use super::*;

/// A TAP device as its qdisc sees it: frames beyond its capacity are dropped, and the qdisc is not
/// told.
#[derive(Debug)]
struct Ring {
    room: usize,
    taken: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl TxRing for Ring {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let mut taken = self.taken.lock().expect("no panic");
        while let Some(packet) = packets.pop_front() {
            if taken.len() < self.room {
                sent.count(&packet);
                taken.push(packet.data().to_vec());
            } else {
                sent.drop(DropReason::DriverRefused, &packet);
            }
        }
        Xmit::Complete
    }
}

#[derive(Debug)]
struct NoWake;
impl Wake for NoWake {
    fn wake(&self) {}
}

struct OurDevice {
    device: Device<Ring, AnyQdisc>,
    pool: Pool,
    taken: Vec<Arc<Mutex<Vec<Vec<u8>>>>>,
}

impl OurDevice {
    fn new(queues: usize, room: usize, qdisc: QdiscSpec) -> OurDevice {
        let pool = Pool::new(PoolConfig {
            buffers: 1024,
            buffer_size: 2048,
        })
        .expect("a pool");
        let taken: Vec<Arc<Mutex<Vec<Vec<u8>>>>> = (0..queues).map(|_| Arc::default()).collect();
        let rings = taken.iter().map(|taken| Ring {
            room,
            taken: taken.clone(),
        });
        let qdiscs = qdisc.instances(queues, &pool).expect("a qdisc");
        let config = DeviceConfig {
            name: "x0".into(),
            features: Features::default(),
            policy: Default::default(),
        };
        let notifier = Arc::new(Notifier::new(queues, Arc::new(NoWake)));
        let workers: Vec<_> = (0..queues).map(|n| (notifier.clone(), n)).collect();
        OurDevice {
            device: Device::new(config, rings.collect(), qdiscs, &pool, &workers),
            pool,
            taken,
        }
    }

    fn packet(&self, bytes: &[u8]) -> Packet {
        let mut packet = self.pool.alloc().expect("a buffer");
        assert!(packet.append(bytes));
        packet
    }

    fn send(&self, bytes: &[u8]) -> XmitResult {
        self.device.transmit(self.packet(bytes).into(), Time::ZERO)
    }
}

/// G1: nobody reads the device, which holds 10 frames. The qdisc has sent all 25 and dropped none;
/// the device dropped 15. The sender is not told.
#[test]
fn g1_drops_of_the_device_count_as_sent_by_the_qdisc() {
    let Some(mut kernel) = KernelQdisc::new(1, 10) else {
        return;
    };
    let ours = OurDevice::new(1, 10, QdiscSpec::PfifoFast { limit: 10 });
    for n in 0..25 {
        assert!(kernel.send(&frame(n, 1000), 0), "the sender is not told");
        assert_eq!(ours.send(&frame(n, 1000)), XmitResult::Success);
    }
    let stats = ours.device.stats();
    assert_eq!(kernel.stats("root"), [as_tc(stats.queues[0].qdisc)]);
    assert_eq!((kernel.device_dropped(), stats.tx_packets), (15, 10));
    assert_eq!(stats.drops, [(DropReason::DriverRefused, 15)]);
    let theirs: Vec<Vec<u8>> = kernel
        .read()
        .into_iter()
        .map(|(_, _, bytes)| bytes)
        .collect();
    assert_eq!(*ours.taken[0].lock().expect("no panic"), theirs);
}

/// G2: without a qdisc the sender learns at once that the device has no room.
#[test]
fn g2_refusal_without_a_qdisc_reaches_the_sender() {
    let Some(kernel) = KernelQdisc::new(1, 0) else {
        return;
    };
    // A device without a queue gets no qdisc when it goes up.
    let shown = kernel.tc("qdisc show dev x0");
    assert!(shown.contains("noqueue"), "{shown}");
    let ours = OurDevice::new(1, 0, QdiscSpec::Noqueue);
    for n in 0..3 {
        assert!(!kernel.send(&frame(n, 1000), 0));
        assert_eq!(ours.send(&frame(n, 1000)), XmitResult::Drop);
    }
    assert_eq!(ours.device.stats().drops, [(DropReason::DriverRefused, 3)]);
}

/// G7: the kernel's ring gives slots back 16 at a time, so after k frames were read it may refuse
/// up to 15 of the k that it should hold. Ours has the room that it says.
#[test]
fn g7_full_ring_has_capacity_again() {
    let Some(mut kernel) = KernelQdisc::new(1, 64) else {
        return;
    };
    for (k, expected) in [
        (1, 1),
        (8, 8),
        (15, 15),
        (16, 0),
        (17, 1),
        (31, 15),
        (32, 0),
        (33, 1),
    ] {
        kernel.read();
        for n in 0..64 {
            kernel.send(&frame(n, 60), 0);
        }
        let before = kernel.device_dropped();
        assert_eq!(kernel.read_some(k), k);
        for n in 0..k {
            kernel.send(&frame(n as u32, 60), 0);
        }
        assert_eq!(kernel.device_dropped() - before, expected, "{k} read");
        // The same with our bands, in which packets wait the same way.
        let mut queue = Ours::new(&[
            ("root", "1:", QdiscSpec::Tbf(shut(60, 1))),
            ("1:1", "2:", QdiscSpec::PfifoFast { limit: 64 }),
        ]);
        // One leaves at once.
        for n in 0..65 {
            assert!(queue.send(&frame(n, 60), 0, Time::ZERO));
        }
        // Each minute lets a packet of 60 bytes pass.
        let mut now = Time::ZERO;
        for n in 0..k {
            now = now.plus_nanos(60_000_000_000);
            assert!(queue.send(&frame(n as u32, 60), 0, now), "{n} of {k}");
        }
        assert!(!queue.send(&frame(0, 60), 0, now), "64 and no more");
    }
}

/// G8: a shorter queue keeps the oldest. The kernel's device counts none of those that it loses;
/// ours counts each.
#[test]
fn g8_a_shorter_queue_keeps_the_oldest() {
    let Some(mut kernel) = KernelQdisc::new(1, 64) else {
        return;
    };
    let mut ours = Ours::new(&[
        ("root", "1:", QdiscSpec::Tbf(shut(60, 1))),
        ("1:1", "2:", QdiscSpec::PfifoFast { limit: 64 }),
    ]);
    for n in 0..50 {
        assert!(kernel.send(&frame(n, 60), 0) && ours.send(&frame(n, 60), 0, Time::ZERO));
    }
    kernel.set_tx_queue_len(10);
    let kept: Vec<u32> = kernel
        .read()
        .iter()
        .map(|(_, _, bytes)| number(bytes))
        .collect();
    assert!(kept.iter().copied().eq(0..10), "{kept:?}");
    assert_eq!(kernel.device_dropped(), 0);
    let shorter = QdiscSpec::PfifoFast { limit: 10 };
    let (tree, cx) = ours.sim.as_mut().expect("it runs").tree();
    tree.edit(cx)
        .replace(handle("1:1"), handle("3:"), shorter)
        .expect("a replacement");
    // The first one has left at once.
    let stats = ours.stats(Handle::ROOT);
    assert_eq!((stats.qlen, stats.drops, stats.packets), (10, 39, 1));
    ours.finish();
    assert!(ours.left.iter().map(|l| l.0).eq(0..11));
}

/// G9: a device with four queues. Every flow keeps to one queue, in order, and the root's numbers
/// are the sum of the queues'. Which queue it is depends on a hash that is another one in each
/// kernel, so that is not compared.
#[test]
fn g9_mq_is_the_sum_of_its_queues() {
    let Some(mut kernel) = KernelQdisc::new(4, 1000) else {
        return;
    };
    let shown = kernel.tc("qdisc show dev x0");
    assert!(shown.contains("qdisc mq"), "{shown}");
    let ours = OurDevice::new(4, 1000, QdiscSpec::default());
    let udp = |flow: u16, n: u32| {
        let mut bytes = frame(n, 100);
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14..34].fill(0);
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&86_u16.to_be_bytes());
        bytes[22..24].copy_from_slice(&[64, 17]);
        bytes[26..34].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 7]);
        bytes[34..36].copy_from_slice(&(2000 + flow).to_be_bytes());
        bytes[36..38].copy_from_slice(&53_u16.to_be_bytes());
        bytes[38..40].copy_from_slice(&66_u16.to_be_bytes());
        bytes[42..46].copy_from_slice(&n.to_be_bytes());
        bytes
    };
    let sequence = |bytes: &[u8]| {
        (
            bytes[35],
            u32::from_be_bytes([bytes[42], bytes[43], bytes[44], bytes[45]]),
        )
    };
    for n in 0..10 {
        for flow in 0..16 {
            assert!(kernel.send(&udp(flow, n), 0));
            assert_eq!(ours.send(&udp(flow, n)), XmitResult::Success);
        }
    }
    let check = |frames: Vec<(usize, Vec<u8>)>| {
        let mut flows: BTreeMap<u8, (usize, Vec<u32>)> = BTreeMap::new();
        for (queue, bytes) in frames {
            let (flow, n) = sequence(&bytes);
            let seen = flows.entry(flow).or_insert_with(|| (queue, Vec::new()));
            assert_eq!(seen.0, queue, "flow {flow} changed its queue");
            seen.1.push(n);
        }
        assert_eq!(flows.len(), 16);
        assert!(
            flows
                .values()
                .all(|(_, order)| order.iter().copied().eq(0..10)),
            "{flows:?}"
        );
        let used: std::collections::BTreeSet<usize> = flows.values().map(|f| f.0).collect();
        assert!(used.len() > 1, "all flows in one queue");
    };
    check(
        kernel
            .read()
            .into_iter()
            .map(|(queue, _, bytes)| (queue, bytes))
            .collect(),
    );
    let taken = ours.taken.iter().enumerate();
    check(
        taken
            .flat_map(|(queue, taken)| {
                taken
                    .lock()
                    .expect("no panic")
                    .iter()
                    .map(|bytes| (queue, bytes.clone()))
                    .collect::<Vec<_>>()
            })
            .collect(),
    );
    // INV-MQ-1.
    let root = kernel.stats("root")[0];
    let children = kernel.stats("children");
    let sum = |f: fn(&TcStats) -> u64| children.iter().map(f).sum::<u64>();
    assert_eq!(
        (root.packets, root.bytes),
        (sum(|s| s.packets), sum(|s| s.bytes))
    );
    let stats = ours.device.stats();
    let queues = stats.queues.iter().map(|q| as_tc(q.qdisc));
    let total = queues.fold(TcStats::default(), |a, b| TcStats {
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
        drops: a.drops + b.drops,
        ..a
    });
    assert_eq!(
        (total.packets, total.bytes, total.drops),
        (root.packets, root.bytes, root.drops)
    );
    assert_eq!(total.packets, 160);
}
