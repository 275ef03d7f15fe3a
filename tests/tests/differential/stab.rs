//! Size tables (tc-stab(8)): what the kernel and we count, queue, drop and shape of the same
//! packets, with tables that tc computes.

use softnet::time::Time;
use softnet_tc::{HtbClassSpec, LinkLayer, QdiscSpec, SizeOptions, SizeTable, TreeSpec};
use softnet_tests::oracle::KernelQdisc;

use super::htb_pair::{Pair, class, with_kernel};
use super::*;

/// Options as tc is told, and as we are.
fn tables() -> [(&'static str, SizeTable); 6] {
    let options = SizeOptions::default();
    let atm = SizeOptions {
        linklayer: Some(LinkLayer::Atm),
        ..options
    };
    [
        (
            "overhead 18",
            SizeOptions {
                overhead: 18,
                ..options
            },
        ),
        (
            "overhead -20 linklayer ethernet",
            SizeOptions {
                overhead: -20,
                linklayer: Some(LinkLayer::Ethernet),
                ..options
            },
        ),
        (
            "mpu 300 overhead 24",
            SizeOptions {
                mpu: 300,
                overhead: 24,
                ..options
            },
        ),
        ("linklayer atm", atm),
        // Packets beyond the table, with slots of 16 bytes.
        (
            "mtu 500 tsize 32 overhead -14 linklayer adsl",
            SizeOptions {
                mtu: 500,
                tsize: 32,
                overhead: -14,
                ..atm
            },
        ),
        // Sizes that are kept divided by 2.
        (
            "mtu 120000 tsize 8 mpu 64",
            SizeOptions {
                mtu: 120_000,
                tsize: 8,
                mpu: 64,
                ..options
            },
        ),
    ]
    .map(|(words, options)| (words, SizeTable::new(&options).expect("a table")))
}

fn random(seed: u64) -> Vec<usize> {
    let mut numbers = Numbers(seed);
    let len = |_| 60 + numbers.below(1454) as usize;
    (0..50).map(len).collect()
}

/// A tbf that is shut, then opened: its bucket, and the bytes that may wait, are of what packets
/// count as.
#[test]
fn tbf_with_size_tables() {
    let kernel = KernelQdisc::new(1, 1000);
    let Some(mut kernel) = kernel.filter(KernelQdisc::has_tbf) else {
        return;
    };
    for (seed, (stab, table)) in (1..).zip(tables()) {
        let gate = shut(25_000, 30_000);
        kernel.set_root(&format!("stab {stab} {}", words(&gate)));
        let mut spec = TreeSpec::new();
        spec.add(Handle::ROOT, handle("1:"), QdiscSpec::Tbf(gate))
            .expect("a tbf");
        spec.set_stab(handle("1:"), Some(table))
            .expect("at the root");
        let mut ours = Ours::of(spec);
        kernel.read();
        let packets = random(seed);
        for (n, &len) in (0..).zip(&packets) {
            let bytes = frame(n, len);
            let theirs = kernel.send(&bytes, 0);
            let queued = ours.send(&bytes, 0, Time::ZERO);
            assert_eq!(queued, theirs, "{stab}: packet {n} of {packets:?}");
        }
        let root = as_tc(ours.stats(Handle::ROOT));
        assert_eq!(kernel.stats("1:"), [root], "{stab}: {packets:?}");
        assert!(root.qlen > 0 && root.packets > 0, "{stab}: {root:?}");
        let opened = open(1 << 20);
        let change = format!("qdisc change dev x0 root handle 1: stab {stab}");
        kernel.tc(&format!("{change} {}", words(&opened)));
        let later = Time(1_000_000_000);
        ours.change("1:", &QdiscSpec::Tbf(opened), later);
        let last = frame(9999, 60);
        let theirs = kernel.send(&last, 0);
        assert_eq!(ours.send(&last, 0, later), theirs);
        softnet_tests::wait_for("the kernel's queue to run dry", || {
            kernel.stats("1:")[0].qlen == 0
        });
        let order: Vec<u32> = kernel.read().iter().map(|read| number(&read.2)).collect();
        let ordered: Vec<u32> = ours.left.iter().map(|left| left.0).collect();
        assert_eq!(ordered, order, "{stab}");
        let root = as_tc(ours.stats(Handle::ROOT));
        assert_eq!(kernel.stats("1:"), [root], "{stab}: {packets:?}");
        ours.finish();
    }
}

/// Tokens and deficits of htb, and the bytes that its classes count. What is queued when a table is
/// taken away counts by it still.
#[test]
fn htb_with_size_tables() {
    with_kernel(|kernel| {
        const SLOW: u64 = 20;
        let leaf = |quantum| HtbClassSpec {
            quantum: Some(quantum),
            ..class(SLOW, 5 * SLOW, 3000, 9000)
        };
        for (seed, (stab, table)) in (1..).zip(tables()) {
            let classes = [
                ("1:", "1:1", class(5 * SLOW, 5 * SLOW, 20_000, 20_000)),
                ("1:1", "1:10", leaf(1000)),
                ("1:1", "1:20", leaf(4000)),
            ];
            let limits = [("1:20", 6)];
            let mut pair = Pair::new(kernel, 0x10, &classes, &limits, None);
            let set = |pair: &mut Pair<'_>, stab: &str, table: Option<SizeTable>| {
                let change = "qdisc change dev x0 root handle 1:";
                pair.kernel.tc(&format!("{change} {stab}"));
                pair.edit(|tree| tree.set_stab(handle("1:"), table))
                    .expect("at the root");
            };
            set(&mut pair, &format!("stab {stab}"), Some(table));
            let lens = random(seed + 10);
            for (n, len) in (0..).zip(lens) {
                pair.send(len, 0x1_0010 + 16 * (n % 2));
            }
            pair.compare(stab);
            set(&mut pair, "", None);
            for n in 0..4 {
                pair.send(100, 0x1_0010 + 16 * (n % 2));
            }
            pair.compare(&format!("{stab}, and none"));
        }
    });
}

/// CVE-2024-50039: the kernel has none below a root either, and says it in the same words.
#[test]
fn no_size_table_below_a_root() {
    let kernel = KernelQdisc::new(1, 1000).filter(|kernel| kernel.has("htb"));
    let Some(mut kernel) = kernel else { return };
    let classes = [("1:", "1:10", class(20, 20, 3000, 3000))];
    let mut pair = Pair::new(&mut kernel, 0x10, &classes, &[("1:10", 5)], None);
    let words = "qdisc add dev x0 parent 1:10 handle 20: stab overhead 18 pfifo";
    let theirs = pair.kernel.try_tc(&words.replace("add", "replace"));
    let theirs = theirs.expect_err("it is not at the root");
    let ours = pair.edit(|tree| tree.spec().check_stab(handle("1:10")));
    let ours = ours.expect_err("it is not at the root").to_string();
    assert!(theirs.contains(&ours), "{theirs}, not {ours}");
}
