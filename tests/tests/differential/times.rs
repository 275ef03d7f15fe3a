//! When packets leave a tbf: the kernel's clock against ours.

use std::time::{Duration, Instant};

use softnet_tc::{Handle, LinkCost, LinkLayer, QdiscSpec};
use softnet_tests::oracle::KernelQdisc;

use super::*;

/// The kernel counts nanoseconds per packet, and rounds each down.
const ROUNDING: Duration = Duration::from_micros(1);

/// Sends packets of these lengths at once. Nothing may leave the kernel's before it leaves ours:
/// both have the same tokens, and the kernel's buckets cannot be fuller than ours. How much later
/// it leaves is up to the kernel's timers and to other threads that want the CPU, so that is
/// printed and not judged.
fn compare(kernel: &mut KernelQdisc, text: &str, spec: &TbfSpec, lengths: &[usize]) {
    kernel.set_root(text);
    let mut ours = Ours::new(&[("root", "1:", QdiscSpec::Tbf(spec.clone()))]);
    kernel.read();
    let start = Instant::now();
    for (n, &len) in (0..).zip(lengths) {
        let sent = kernel.send(&frame(n, len), 0);
        assert!(
            sent && ours.send(&frame(n, len), 0, Time::ZERO),
            "{text}: packet {n}"
        );
    }
    let bytes = lengths.iter().map(|&len| len as u64).sum::<u64>();
    ours.finish();
    let mut late = Vec::new();
    while late.len() < lengths.len() {
        assert!(
            start.elapsed() < softnet_tests::PATIENCE,
            "{text}: {late:?}"
        );
        for (_, at, frame) in kernel.read() {
            let (expected, time) = ours.left[late.len()];
            assert_eq!(number(&frame), expected, "{text}");
            let model = Duration::from_nanos(time.nanos());
            let took = at - start + ROUNDING * lengths.len() as u32;
            assert!(
                took >= model,
                "{text}: packet {expected} left after {took:?}, ours after {model:?}"
            );
            late.push(took - model);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let last = ours.left.last().map(|l| l.1);
    let theirs = kernel.stats("1:")[0];
    assert_eq!(
        (theirs.packets, theirs.bytes, theirs.drops, theirs.qlen),
        (lengths.len() as u64, bytes, 0, 0)
    );
    late.sort();
    println!(
        "{text}: the last of {} leaves ours at {last:?}; the kernel's are later by {:?} (median)",
        late.len(),
        late[late.len() / 2]
    );
}

#[test]
fn tbf_lets_packets_pass_when_the_kernels_does() {
    let Some(mut kernel) = KernelQdisc::new(1, 1000).filter(KernelQdisc::has_tbf) else {
        return;
    };
    let base = TbfSpec {
        rate: 100_000,
        burst: 2000,
        limit: 100_000,
        ..TbfSpec::default()
    };
    compare(
        &mut kernel,
        "tbf rate 800kbit burst 2000 limit 100000",
        &base,
        &[1000; 20],
    );
    let mixed: Vec<usize> = (0..30).map(|n| 60 + 47 * n).collect();
    compare(
        &mut kernel,
        "tbf rate 800kbit burst 2000 limit 100000",
        &base,
        &mixed,
    );
    // A second bucket spaces the burst.
    let peak = TbfSpec {
        burst: 8000,
        peakrate: Some(200_000),
        mtu: 1514,
        ..base.clone()
    };
    compare(
        &mut kernel,
        "tbf rate 800kbit burst 8000 limit 100000 peakrate 1600kbit mtu 1514",
        &peak,
        &[1000; 12],
    );
    let atm = TbfSpec {
        link: LinkCost {
            overhead: 40,
            mpu: 0,
            linklayer: LinkLayer::Atm,
        },
        ..base
    };
    compare(
        &mut kernel,
        "tbf rate 800kbit burst 2000 limit 100000 overhead 40 linklayer atm",
        &atm,
        &mixed,
    );
}

/// Cost of a packet, with every framing: all of a burst leaves at once, and the packet that it does
/// not cover waits.
#[test]
fn tbf_charges_as_the_kernel_does() {
    let Some(mut kernel) = KernelQdisc::new(1, 1000).filter(KernelQdisc::has_tbf) else {
        return;
    };
    for (words, link) in [
        ("", LinkCost::default()),
        (
            " overhead 24",
            LinkCost {
                overhead: 24,
                ..LinkCost::default()
            },
        ),
        (
            " mpu 300",
            LinkCost {
                mpu: 300,
                ..LinkCost::default()
            },
        ),
        (
            " linklayer atm",
            LinkCost {
                linklayer: LinkLayer::Atm,
                ..LinkCost::default()
            },
        ),
        (
            " overhead 10 linklayer adsl",
            LinkCost {
                overhead: 10,
                linklayer: LinkLayer::Atm,
                ..LinkCost::default()
            },
        ),
    ] {
        for len in [60, 61, 96, 200, 500] {
            let spec = TbfSpec {
                link,
                ..shut(1500, 100_000)
            };
            kernel.set_root(&format!("{}{words}", super::words(&spec)));
            let mut ours = Ours::new(&[("root", "1:", QdiscSpec::Tbf(spec))]);
            for n in 0..40 {
                let theirs = kernel.send(&frame(n, len), 0);
                assert_eq!(ours.send(&frame(n, len), 0, Time::ZERO), theirs);
            }
            let theirs = kernel.read().len();
            let mine = as_tc(ours.stats(Handle::ROOT));
            println!(
                "{len} bytes{words}: {theirs} leave at once, ours {}",
                mine.packets
            );
            assert_eq!(kernel.stats("1:"), [mine], "{len} bytes{words}");
        }
    }
}
