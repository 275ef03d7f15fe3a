//! Qdiscs below a shaper that is shut: G3, G10 and G11, and packets at random.

use softnet::time::Time;
use softnet_tc::{Handle, QdiscSpec};
use softnet_tests::oracle::KernelQdisc;

use super::*;

const LATER: Time = Time(1_000_000_000);

/// Sends the same packets (length, priority) through both: first with the shaper shut, then
/// opened. Compares after each packet whether it was dropped, after all of them every number of
/// both qdiscs, and then the order of departure.
fn compare(
    kernel: &mut KernelQdisc,
    child: Option<(&str, QdiscSpec)>,
    gate: &TbfSpec,
    packets: &[(usize, u32)],
) {
    kernel.set_root(&words(gate));
    let mut nodes = vec![("root", "1:", QdiscSpec::Tbf(gate.clone()))];
    if let Some((text, spec)) = child.clone() {
        if let QdiscSpec::PfifoFast { limit } = spec {
            kernel.set_tx_queue_len(limit);
        }
        kernel.tc(&format!("qdisc replace dev x0 parent 1:1 handle 2: {text}"));
        nodes.push(("1:1", "2:", spec));
        // The device has to hold all that leaves at once. A qdisc below another keeps the length
        // that it was made with.
        kernel.set_tx_queue_len(1000);
    }
    let mut ours = Ours::new(&nodes);
    kernel.read();
    for (n, &(len, priority)) in (0..).zip(packets) {
        let bytes = frame(n, len);
        let theirs = kernel.send(&bytes, priority);
        let queued = match child {
            // What was dropped was another packet: the sender is not told (NET_XMIT_CN).
            Some((_, QdiscSpec::PfifoHeadDrop { limit: 1.. })) => {
                ours.send(&bytes, priority, Time::ZERO);
                true
            }
            _ => ours.send(&bytes, priority, Time::ZERO),
        };
        assert_eq!(queued, theirs, "packet {n} of {packets:?}");
    }
    let theirs = kernel.stats("1:");
    assert_eq!(theirs, [as_tc(ours.stats(Handle::ROOT))], "{packets:?}");
    if let Some((_, spec)) = &child {
        let theirs = kernel.stats("2:")[0];
        let mut expected = as_tc(ours.stats(handle("1:1")));
        if matches!(spec, QdiscSpec::Tbf(_)) && theirs.packets == expected.packets + 1 {
            // The kernel's inner shaper counts a packet as sent, and as queued still, from when
            // the outer one has looked at it; ours when it leaves.
            assert!(expected.qlen > 0, "{packets:?}");
            let first = ours.first_queued(packets);
            expected.packets += 1;
            expected.bytes += first as u64;
        }
        assert_eq!(theirs, expected, "{packets:?}");
    }
    // Open. The kernel's tbf hands its limit, in bytes, to a pfifo or bfifo below it, and a pfifo
    // takes it for packets; ours leaves the child alone. And the kernel's goes on only when the
    // next packet comes, or at the time that it computed for the old rate.
    const MANY: u32 = 1 << 20;
    let opened = open(MANY.into());
    kernel.tc(&format!(
        "qdisc change dev x0 root handle 1: {}",
        words(&opened)
    ));
    ours.change("1:", &QdiscSpec::Tbf(opened), LATER);
    match child {
        Some((_, QdiscSpec::Pfifo { .. })) => {
            ours.change("2:", &QdiscSpec::Pfifo { limit: MANY }, LATER);
        }
        Some((_, QdiscSpec::Bfifo { .. })) => {
            ours.change("2:", &QdiscSpec::Bfifo { limit: MANY.into() }, LATER);
        }
        Some((_, QdiscSpec::PfifoHeadDrop { .. })) => {
            ours.change("2:", &QdiscSpec::PfifoHeadDrop { limit: MANY }, LATER);
        }
        Some((_, QdiscSpec::Tbf(_))) => {
            let opened = open(MANY.into());
            kernel.tc(&format!(
                "qdisc change dev x0 parent 1:1 handle 2: {}",
                words(&opened)
            ));
            ours.change("2:", &QdiscSpec::Tbf(opened), LATER);
        }
        _ => {}
    }
    let last = frame(9999, 60);
    let theirs = kernel.send(&last, 7);
    assert_eq!(ours.send(&last, 7, LATER), theirs);
    softnet_tests::wait_for("the kernel's queue to run dry", || {
        kernel.stats("1:")[0].qlen == 0
    });
    let order: Vec<u32> = kernel
        .read()
        .iter()
        .map(|(_, _, bytes)| number(bytes))
        .collect();
    let ordered: Vec<u32> = ours.left.iter().map(|l| l.0).collect();
    assert_eq!(ordered, order, "{packets:?}");
    let theirs = kernel.stats("1:");
    assert_eq!(theirs, [as_tc(ours.stats(Handle::ROOT))], "{packets:?}");
    ours.finish();
}

fn random(seed: u64, count: u64) -> Vec<(usize, u32)> {
    let mut numbers = Numbers(seed);
    let packet = |_| {
        let len = match numbers.below(3) {
            0 => 60,
            _ => 60 + numbers.below(1454) as usize,
        };
        (len, numbers.below(16) as u32)
    };
    (0..count).map(packet).collect()
}

/// A kernel with a tbf whose queues hold `limit` frames.
fn kernel(limit: u32) -> Option<KernelQdisc> {
    KernelQdisc::new(1, limit).filter(KernelQdisc::has_tbf)
}

/// G3: `tbf rate 80kbit burst 3000 limit 6000`, twelve packets of 1000 bytes; and packets at
/// random, some of them larger than the bucket.
#[test]
fn g3_tbf_with_its_bfifo() {
    let Some(mut kernel) = kernel(1000) else {
        return;
    };
    compare(&mut kernel, None, &shut(3000, 6000), &[(1000, 0); 12]);
    for seed in 1..6 {
        compare(&mut kernel, None, &shut(1200, 9000), &random(seed, 60));
    }
}

/// G10: three bands with 8 places each, the highest first, even before a packet that the shaper
/// has looked at.
#[test]
fn g10_pfifo_fast() {
    let Some(mut kernel) = kernel(8) else { return };
    let child = || Some(("pfifo_fast", QdiscSpec::PfifoFast { limit: 8 }));
    let mut packets = vec![(1000, 2); 12];
    packets.extend([(1000, 0); 12]);
    packets.extend([(1000, 6); 6]);
    compare(&mut kernel, child(), &shut(1600, 1), &packets);
    for seed in 11..16 {
        compare(&mut kernel, child(), &shut(1514, 1), &random(seed, 60));
    }
}

#[test]
fn pfifo_and_bfifo() {
    let Some(mut kernel) = kernel(1000) else {
        return;
    };
    for (seed, limit) in [(21, 0), (22, 1), (23, 10), (24, 1000)] {
        let child = Some((format!("pfifo limit {limit}"), QdiscSpec::Pfifo { limit }));
        let child = child
            .as_ref()
            .map(|(text, spec)| (text.as_str(), spec.clone()));
        compare(&mut kernel, child, &shut(1514, 1), &random(seed, 40));
    }
    for (seed, limit) in [(31, 1), (32, 60), (33, 5000), (34, 100_000)] {
        let child = Some((format!("bfifo limit {limit}"), QdiscSpec::Bfifo { limit }));
        let child = child
            .as_ref()
            .map(|(text, spec)| (text.as_str(), spec.clone()));
        compare(&mut kernel, child, &shut(1514, 1), &random(seed, 40));
    }
}

/// The oldest makes room, and its sender has been told long ago that it was queued. Below a
/// limit that was made smaller each packet still replaces one only.
#[test]
fn pfifo_head_drop() {
    let Some(mut kernel) = kernel(1000) else {
        return;
    };
    for (seed, limit) in [(41, 0), (42, 1), (43, 10), (44, 1000)] {
        let text = format!("pfifo_head_drop limit {limit}");
        let child = Some((text.as_str(), QdiscSpec::PfifoHeadDrop { limit }));
        compare(&mut kernel, child, &shut(1514, 1), &random(seed, 40));
    }
    let gate = shut(100, 1);
    kernel.set_root(&words(&gate));
    kernel.tc("qdisc replace dev x0 parent 1:1 handle 2: pfifo_head_drop limit 8");
    let mut ours = Ours::new(&[
        ("root", "1:", QdiscSpec::Tbf(gate)),
        ("1:1", "2:", QdiscSpec::PfifoHeadDrop { limit: 8 }),
    ]);
    kernel.read();
    for n in 0..20 {
        if n == 12 {
            kernel.tc("qdisc change dev x0 parent 1:1 handle 2: pfifo_head_drop limit 3");
            ours.change("2:", &QdiscSpec::PfifoHeadDrop { limit: 3 }, Time::ZERO);
        }
        assert!(kernel.send(&frame(n, 100), 0));
        ours.send(&frame(n, 100), 0, Time::ZERO);
        for (name, class) in [("1:", Handle::ROOT), ("2:", handle("1:1"))] {
            assert_eq!(kernel.stats(name), [as_tc(ours.stats(class))], "packet {n}");
        }
    }
    assert_eq!(kernel.stats("2:")[0].qlen, 8);
}

/// The inner or the outer shaper is the narrower one; also packets that only one of them lets
/// in. Where it is the outer one, the packet that it waits for has left the kernel's inner
/// queue, which has room for another one then; so no limit is reached there.
#[test]
fn tbf_below_tbf() {
    let Some(mut kernel) = kernel(1000) else {
        return;
    };
    for (seed, outer, inner, limit) in [
        (51, 4000, 1514, 20_000),
        (52, 1514, 4000, 1 << 20),
        (53, 1514, 1514, 9000),
        (54, 3000, 900, 9000),
        (55, 900, 3000, 1 << 20),
    ] {
        let inner = shut(inner, limit);
        let text = words(&inner);
        let child = Some((text.as_str(), QdiscSpec::Tbf(inner)));
        compare(&mut kernel, child, &shut(outer, 1), &random(seed, 40));
    }
}

/// A smaller bucket: what is queued stays, as far as it fits at all.
#[test]
fn a_smaller_burst_keeps_what_is_queued() {
    let Some(mut kernel) = kernel(1000) else {
        return;
    };
    let gate = shut(3000, 9000);
    kernel.set_root(&words(&gate));
    let mut ours = Ours::new(&[("root", "1:", QdiscSpec::Tbf(gate))]);
    kernel.read();
    for n in 0..12 {
        assert!(kernel.send(&frame(n, 1000), 0) && ours.send(&frame(n, 1000), 0, Time::ZERO));
    }
    // Less room than is queued, too.
    let smaller = shut(1000, 3000);
    let change = format!("qdisc change dev x0 root handle 1: {}", words(&smaller));
    kernel.tc(&change);
    ours.change("1:", &QdiscSpec::Tbf(smaller), LATER);
    assert!(!kernel.send(&frame(12, 1000), 0) && !ours.send(&frame(12, 1000), 0, LATER));
    let theirs = kernel.stats("1:");
    assert_eq!(theirs, [as_tc(ours.stats(Handle::ROOT))]);
    assert_eq!((theirs[0].qlen, theirs[0].drops), (8, 1));
}

/// G11: fewer places for what is queued. Before Linux 7.1 the device dropped everything that was
/// queued, and counted none of it; ours keeps what fits and counts the rest.
#[test]
fn g11_shorter_queues() {
    let Some(mut kernel) = kernel(8) else { return };
    let gate = shut(1000, 1);
    kernel.set_root(&words(&gate));
    kernel.tc("qdisc replace dev x0 parent 1:1 handle 2: pfifo_fast");
    let mut ours = Ours::new(&[
        ("root", "1:", QdiscSpec::Tbf(gate)),
        ("1:1", "2:", QdiscSpec::PfifoFast { limit: 8 }),
    ]);
    kernel.read();
    for n in 0..7 {
        assert!(kernel.send(&frame(n, 1000), 0) && ours.send(&frame(n, 1000), 0, Time::ZERO));
    }
    assert_eq!(kernel.stats("1:")[0].qlen, 6);
    kernel.set_tx_queue_len(3);
    let theirs = kernel.stats("1:")[0];
    println!(
        "the kernel keeps {} of 6 packets and counts {} drops",
        theirs.qlen, theirs.drops
    );
    assert!(theirs.qlen <= 6 && theirs.drops <= 6 - theirs.qlen);
    let sim = ours.sim.as_mut().expect("it runs");
    let (tree, cx) = sim.tree();
    let shorter = QdiscSpec::PfifoFast { limit: 3 };
    tree.edit(cx)
        .replace(handle("1:1"), handle("3:"), shorter)
        .expect("a replacement");
    let stats = ours.stats(Handle::ROOT);
    assert_eq!((stats.qlen, stats.drops), (3, 3));
    ours.finish();
    let order: Vec<u32> = ours.left.iter().map(|l| l.0).collect();
    assert_eq!(order, [0, 1, 2, 3], "the oldest stay");
}

/// A smaller limit while more is queued: both keep what is there.
#[test]
fn a_change_keeps_what_is_queued() {
    let Some(mut kernel) = kernel(1000) else {
        return;
    };
    let gate = shut(1000, 8000);
    kernel.set_root(&words(&gate));
    let mut ours = Ours::new(&[("root", "1:", QdiscSpec::Tbf(gate))]);
    kernel.read();
    for n in 0..9 {
        assert!(kernel.send(&frame(n, 1000), 0) && ours.send(&frame(n, 1000), 0, Time::ZERO));
    }
    let smaller = shut(1000, 3000);
    kernel.tc(&format!(
        "qdisc change dev x0 root handle 1: {}",
        words(&smaller)
    ));
    ours.change("1:", &QdiscSpec::Tbf(smaller), LATER);
    assert_eq!(kernel.stats("1:")[0].qlen, 8);
    // A change fills the bucket, so one more leaves as the next comes, which is refused.
    assert!(!kernel.send(&frame(9, 1000), 0) && !ours.send(&frame(9, 1000), 0, LATER));
    assert_eq!(kernel.stats("1:"), [as_tc(ours.stats(Handle::ROOT))]);
    let order: Vec<u32> = kernel
        .read()
        .iter()
        .map(|(_, _, bytes)| number(bytes))
        .collect();
    assert_eq!(order, [0, 1]);
}
