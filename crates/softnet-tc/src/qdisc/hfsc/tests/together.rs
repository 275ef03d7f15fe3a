//! Packets that come in one call, for many leaves.

use super::*;

const LEAVES: u32 = 40;

/// A number below another one, from a sequence that is the same each time.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// Leaves below two classes, one of which has a limit; a real-time curve for some; and queues that
/// are short, of another kind, or hold back.
fn world() -> World {
    let inner = |ul| HfscClassSpec { ul, ..ls(600_000) };
    let mut classes = vec![
        ("1:".to_string(), "1:100".to_string(), inner(None)),
        ("1:".to_string(), "1:101".to_string(), inner(line(500_000))),
    ];
    for leaf in 1..=LEAVES {
        let mut spec = ls(10_000 + leaf % 3 * 5_000);
        if leaf % 7 == 0 {
            spec.rt = ServiceCurve::of_delay(1500, 20_000, 5_000);
        }
        let parent = format!("1:10{}", leaf % 2);
        classes.push((parent, format!("1:{leaf:x}"), spec));
    }
    let mut names: Vec<(&str, &str, HfscClassSpec)> = Vec::new();
    for (parent, name, spec) in &classes {
        names.push((parent, name, spec.clone()));
    }
    let mut world = World::new(0, 1_250_000, &names);
    let slow = QdiscSpec::Tbf(TbfSpec {
        rate: 20_000,
        burst: 1600,
        limit: 100_000,
        ..TbfSpec::default()
    });
    let codel = QdiscSpec::FqCodel(FqCodelSpec::default());
    let short = QdiscSpec::Pfifo { limit: 2 };
    let mut live = world.tree.edit(world.cx.at(world.now));
    for (leaf, qdisc) in [("1:2", slow), ("1:3", codel), ("1:4", short)] {
        live.replace(handle(leaf), Handle::NONE, qdisc).unwrap();
    }
    world
}

/// They leave as those that come one by one: the same ones at the same times, and what classes have
/// counted is the same.
#[test]
fn packets_of_one_call_leave_as_those_of_many() {
    let (mut together, mut apart) = (world(), world());
    let (mut seed, mut most) = (1_u64, 0_u64);
    for _ in 0..80 {
        let count = 1 + draw(&mut seed, 45);
        let mut drawn = Vec::new();
        for _ in 0..count {
            let leaf = 1 + draw(&mut seed, u64::from(LEAVES)) as u32;
            drawn.push((leaf, 60 + draw(&mut seed, 1400) as usize));
        }
        let mut list = PacketList::new();
        for (leaf, len) in drawn {
            together.number += 1;
            let mut packet = frame(&together.pool, 1, 2, len, together.number);
            let class = Handle::new(1, leaf as u16);
            packet.set_priority(class.raw());
            list.push_back(packet);
            apart.number = together.number;
            apart.offer(&class.to_string(), len, 1);
        }
        let now = together.now;
        together.tree.enqueue(&mut list, together.cx.at(now));
        most = most.max(together.tree.stats().qlen);
        // All may leave now and then.
        let until = now.plus_nanos(1_u64 << (20 + draw(&mut seed, 7)));
        for world in [&mut together, &mut apart] {
            while world.now < until && world.step(until) {}
            world.now = world.now.max(until);
        }
        assert_eq!(together.left, apart.left);
    }
    assert!(most > 16 && together.left.len() > 400, "{most}");
    for leaf in 1..=LEAVES {
        let name = format!("1:{leaf:x}");
        assert_eq!(together.own(&name), apart.own(&name), "{name}");
        // How often one was asked that holds back depends on the calls.
        let sums = |world: &World| {
            let stats = world.class(&name);
            (stats.packets, stats.bytes, stats.drops, stats.qlen)
        };
        assert_eq!(sums(&together), sums(&apart), "{name}");
    }
}
