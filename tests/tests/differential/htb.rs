//! htb: G4 and G5, and trees at random. Which packets leave at once and in which order, what is
//! dropped, and every number of every class.
//!
//! Rates are so low that what comes in during a test decides nothing; a random case whose outcome
//! depends on the time between its packets is left out. Up to the first wait for a timer the
//! kernel's overlimits are the same, too.

use std::time::Duration;

use softnet::time::Time;
use softnet_tc::{
    ClassSpec, Handle, HtbClassSpec, HtbSpec, LinkCost, LinkLayer, QdiscSpec, TreeSpec,
};

use super::htb_pair::{Class, Pair, class, kernel, with_kernel};
use super::*;

/// Bytes per second of most classes. Lower ones would not fit the kernel's 32 bits for a burst, in
/// ticks of 64 ns.
const SLOW: u64 = 20;

/// One packet of the overdraft, two of the burst; the leaf's pfifo holds five.
#[test]
fn g4_htb_with_a_burst() {
    with_kernel(|kernel| {
        let classes = [
            ("1:", "1:1", class(2 * SLOW, 2 * SLOW, 2500, 2500)),
            ("1:1", "1:10", class(SLOW, 2 * SLOW, 2500, 2500)),
        ];
        let mut pair = Pair::new(kernel, 0x10, &classes, &[("1:10", 5)], None);
        for _ in 0..12 {
            pair.send(1000, 0);
        }
        pair.compare("G4");
    });
}

/// Without classes, with a default class that there is not or that is an inner one, and with the
/// qdisc's own name as priority.
#[test]
fn g5_direct_packets() {
    with_kernel(|kernel| {
        let mut pair = Pair::new(kernel, 0, &[], &[], None);
        (0..3).for_each(|_| pair.send(1000, 0));
        pair.compare("G5");
        let classes = [
            ("1:", "1:1", class(SLOW, SLOW, 500, 500)),
            ("1:1", "1:10", class(SLOW, SLOW, 500, 500)),
        ];
        for default in [1, 0x10, 0x77] {
            let mut pair = Pair::new(kernel, default, &classes, &[], None);
            for priority in [0, 0x1_0000, 0x1_0010, 0x1_0001, 0x1_0077, 7, 0x2_0010] {
                (0..2).for_each(|_| pair.send(700, priority));
            }
            pair.compare(&format!("default {default:x}"));
        }
    });
}

/// Own tokens first, then those of the classes above, by priority and in turn.
#[test]
fn borrowing_goes_by_priority_and_quantum() {
    with_kernel(|kernel| {
        let leaf = |prio, quantum| HtbClassSpec {
            prio,
            quantum: Some(quantum),
            ..class(SLOW, 5 * SLOW, 1500, 9000)
        };
        let classes = [
            ("1:", "1:1", class(5 * SLOW, 5 * SLOW, 20_000, 20_000)),
            ("1:1", "1:2", class(3 * SLOW, 5 * SLOW, 5500, 12_000)),
            ("1:2", "1:10", leaf(1, 1000)),
            ("1:2", "1:20", leaf(0, 3000)),
            ("1:1", "1:30", leaf(1, 1514)),
            ("1:1", "1:40", leaf(1, 4000)),
        ];
        let gate = || Some(shut(1514, 1));
        let mut pair = Pair::new(kernel, 0x40, &classes, &[("1:20", 6)], gate());
        for n in 0..48 {
            pair.send(300 + 97 * (n as usize % 7), 0x1_0010 + 16 * (n % 4));
        }
        pair.compare("shut");
        pair.open();
        pair.send(60, 0);
        pair.compare("opened");
    });
}

/// A leaf that borrows through all eight levels.
#[test]
fn eight_levels() {
    const NAMES: [&str; 8] = ["1:1", "1:2", "1:3", "1:4", "1:5", "1:6", "1:7", "1:8"];
    with_kernel(|kernel| {
        let mut classes = vec![("1:", NAMES[0], class(5 * SLOW, 5 * SLOW, 6500, 20_000))];
        for (level, pair) in (1..).zip(NAMES.windows(2)) {
            let burst = 200 + 300 * level;
            classes.push((
                pair[0],
                pair[1],
                class(SLOW, 5 * SLOW, burst, 9000 - 500 * level),
            ));
        }
        let mut pair = Pair::new(kernel, 8, &classes, &[], None);
        for n in 0..20 {
            pair.send(400 + 13 * n, 0);
        }
        pair.compare("eight levels");
        let ninth = "class add dev x0 parent 1:8 classid 1:9 htb rate 8kbit";
        let theirs = pair.kernel.try_tc(ninth);
        let spec = ClassSpec::Htb(class(1000, 1000, 0, 0));
        let ours = pair.edit(|tree| tree.add_class(handle("1:8"), handle("1:9"), spec));
        assert_eq!(
            ours.is_ok(),
            theirs.is_ok(),
            "{ours:?}, the kernel: {theirs:?}"
        );
    });
}

/// Cost of a packet, with every framing.
#[test]
fn htb_charges_as_the_kernel_does() {
    with_kernel(|kernel| {
        let atm = LinkLayer::Atm;
        for (overhead, mpu, linklayer) in [
            (24, 0, LinkLayer::Ethernet),
            (0, 300, LinkLayer::Ethernet),
            (0, 0, atm),
            (10, 0, atm),
        ] {
            let link = LinkCost {
                overhead,
                mpu,
                linklayer,
            };
            for len in [60, 61, 96, 200, 500] {
                let framed = |rate, burst| HtbClassSpec {
                    link,
                    ..class(rate, 2 * SLOW, burst, 4000)
                };
                let classes = [
                    ("1:", "1:1", framed(2 * SLOW, 2990)),
                    ("1:1", "1:10", framed(SLOW, 1490)),
                ];
                let mut pair = Pair::new(kernel, 0x10, &classes, &[], None);
                (0..40).for_each(|_| pair.send(len, 0));
                pair.compare(&format!("{len} bytes, {link:?}"));
            }
        }
    });
}

/// Tokens count time: with another rate they are other bytes.
#[test]
fn rates_are_changed_under_load() {
    with_kernel(|kernel| {
        let classes = [
            ("1:", "1:1", class(4 * SLOW, 4 * SLOW, 9500, 9500)),
            ("1:1", "1:10", class(2 * SLOW, 4 * SLOW, 3500, 9500)),
            ("1:1", "1:20", class(SLOW, 4 * SLOW, 2500, 9500)),
        ];
        let mut pair = Pair::new(kernel, 0x10, &classes, &[("1:10", 3)], None);
        (0..2).for_each(|_| pair.send(1000, 0x1_0010));
        pair.compare("before");
        pair.change("1:10", &class(4 * SLOW, 8 * SLOW, 5500, 9500));
        (0..3).for_each(|_| pair.send(1000, 0x1_0010));
        pair.compare("faster");
        pair.change("1:1", &class(2 * SLOW, 2 * SLOW, 5500, 5500));
        (0..4).for_each(|_| pair.send(1000, 0x1_0020));
        (0..6).for_each(|_| pair.send(1000, 0x1_0010));
        pair.compare("slower");
    });
}

/// A busy leaf gets a class, is deleted, and the class above is a leaf again.
#[test]
fn busy_classes_come_and_go() {
    with_kernel(|kernel| {
        let classes = [
            ("1:", "1:1", class(SLOW, SLOW, 1500, 1500)),
            ("1:1", "1:10", class(SLOW, SLOW, 1500, 1500)),
            ("1:1", "1:20", class(SLOW, SLOW, 1500, 1500)),
        ];
        let mut pair = Pair::new(kernel, 0x10, &classes, &[("1:20", 4)], None);
        for n in 0..12 {
            pair.send(600, 0x1_0010 + 16 * (n % 2));
        }
        pair.compare("busy");
        pair.add("1:10", "1:30", &class(SLOW, SLOW, 1500, 1500));
        pair.compare("a leaf is no leaf any more");
        (0..6).for_each(|_| pair.send(600, 0x1_0030));
        (0..2).for_each(|_| pair.send(600, 0x1_0010));
        pair.compare("the new leaf");
        pair.delete("1:10");
        pair.filter("1:20", true);
        pair.delete("1:20");
        pair.filter("1:20", false);
        pair.delete("1:20");
        pair.compare("a busy leaf is deleted");
        pair.delete("1:30");
        pair.compare("the last class is deleted");
        (0..6).for_each(|_| pair.send(600, 0x1_0010));
        pair.compare("a leaf again");
    });
}

/// Trees, packets and a gate at random.
#[test]
fn random_trees() {
    let Some(mut kernel) = kernel() else { return };
    let (mut cases, mut compared) = (0, 0);
    for seed in 1..400 {
        let mut numbers = Numbers(seed);
        const NAMES: [&str; 9] = [
            "1:1", "1:f0", "1:2", "1:aa", "1:10", "1:3", "1:7fff", "1:20", "1:11",
        ];
        let mut classes: Vec<Class> = Vec::new();
        let mut depths = vec![0];
        for name in NAMES {
            let above = numbers.below(classes.len() as u64 + 1) as usize;
            if depths[above] == 4 {
                continue;
            }
            depths.push(depths[above] + 1);
            let parent = above.checked_sub(1).map_or("1:", |above| classes[above].1);
            let rate = SLOW * (1 + numbers.below(10));
            let ceil = SLOW * (1 + numbers.below(20));
            let spec = HtbClassSpec {
                prio: numbers.below(4) as u32,
                quantum: [None, Some(1 + numbers.below(6000) as u32)][numbers.below(2) as usize],
                ..class(
                    rate,
                    ceil,
                    100 + numbers.below(4000),
                    100 + numbers.below(5000),
                )
            };
            classes.push((parent, name, spec));
        }
        let packets: Vec<(usize, u32)> = (0..50)
            .map(|_| {
                let name = NAMES[numbers.below(NAMES.len() as u64) as usize];
                (60 + numbers.below(1400) as usize, handle(name).raw())
            })
            .collect();
        let gate = (seed % 2 == 0).then(|| shut(1514, 1));
        // Ours alone: packets `step` apart, and the machine stands still for a while before one.
        let outcome = |step: u64, (before, pause): (usize, u64)| {
            let mut spec = TreeSpec::new();
            let mut parent = Handle::ROOT;
            if let Some(gate) = &gate {
                spec.add(parent, handle("2:"), QdiscSpec::Tbf(gate.clone()))
                    .expect("a tbf");
                parent = handle("2:1");
            }
            let htb = HtbSpec {
                default: 1,
                ..HtbSpec::default()
            };
            spec.add(parent, handle("1:"), QdiscSpec::Htb(htb))
                .expect("an htb");
            for (parent, name, class) in &classes {
                let class = ClassSpec::Htb(class.clone());
                spec.add_class(handle(parent), handle(name), class)
                    .expect("a class");
            }
            let mut ours = Ours::of(spec);
            let time = |n: usize| Time(n as u64 * step + if n < before { 0 } else { pause });
            for (n, &(len, priority)) in packets.iter().enumerate() {
                ours.send(&frame(n as u32, len), priority, time(n));
            }
            let now = time(packets.len());
            if gate.is_some() {
                ours.change("2:", &QdiscSpec::Tbf(super::open(1 << 20)), now);
            }
            ours.send(&frame(packets.len() as u32, 60), 0, now);
            let left: Vec<u32> = ours.left.iter().map(|left| left.0).collect();
            let (tree, _) = ours.sim.as_mut().expect("it runs").tree();
            let counts = |class: &softnet_tc::ClassStats| {
                let htb = class.htb?;
                Some((htb.lended, htb.borrowed, htb.overlimits))
            };
            let counts: Vec<_> = tree.classes().iter().map(counts).collect();
            // Whatever the kernel's timers have leave before its packets are read.
            ours.run_until(now + Duration::from_millis(300));
            let later = ours.left.len() - left.len();
            (left, counts, later)
        };
        let at_once = outcome(0, (0, 0));
        let stands_still = |before| outcome(0, (before, 300_000_000)) == at_once;
        if at_once.2 > 0
            || outcome(60_000_000, (0, 0)) != at_once
            || outcome(0, (packets.len(), 5_000_000_000)) != at_once
            || !(1..packets.len()).all(stands_still)
        {
            continue;
        }
        cases += 1;
        let mut pair = Pair::new(&mut kernel, 1, &classes, &[], gate.clone());
        packets
            .iter()
            .for_each(|&(len, priority)| pair.send(len, priority));
        if gate.is_some() {
            pair.open();
        }
        pair.send(60, 0);
        // As long as it was seen to make no difference.
        let case = format!("seed {seed}: {classes:?} {packets:?}");
        compared += u32::from(pair.compare_within(Duration::from_millis(300), &case));
    }
    // A machine that is slow compares fewer than there are.
    println!("{compared} of {cases} random trees were compared");
    assert!(cases > 20 && compared > 0);
}
