//! Hooks of ports, by whole engines: every packet is sent, dropped or queued, whatever filters do.

mod names;
mod others;

use std::time::Duration;

use super::link_tests::{engine, port};
use super::*;
use crate::testing::{CondSleeper, FedDevices, wait};
use softnet::mem::{Packet, Pool};
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};
use softnet::time::{Clock, Time};
use softnet_tc::{
    ActionKind, ActionList, ActionSpec as Act, ActionTable, Control, FilterKind, FilterOp,
    FilterSpec, Handle, Hook, HookKind, Mirred, MirredTo, QdiscSpec, Side, TbfSpec,
};

struct Bench {
    engine: Engine<FedDevices>,
    devices: FedDevices,
    pool: Pool,
    table: ActionTable,
}

impl Bench {
    /// Ports `a` and `b` of a bridge, `ifb0` and `ifb1`.
    fn new(workers: usize) -> Bench {
        let (engine, devices, pool) = match workers {
            1 => engine(),
            _ => {
                let pool = pool(512);
                let sleepers = (0..workers).map(|_| CondSleeper::default()).collect();
                let devices = FedDevices::default();
                let clock = Clock::monotonic();
                let engine = Engine::start(sleepers, pool.clone(), clock, devices.clone());
                (engine.unwrap(), devices, pool)
            }
        };
        engine.add_bridge(Settings::new("br")).unwrap();
        let of = |name: &str, device, master| {
            let mut port = port(name, master);
            port.options.device = device;
            port
        };
        let ports = [
            of("a", "tun", Some("br")),
            of("b", "tun", Some("br")),
            of("ifb0", "ifb", None),
            of("ifb1", "ifb", None),
        ];
        engine.add_ports(ports.to_vec()).unwrap();
        Bench {
            engine,
            devices,
            pool,
            table: ActionTable::default(),
        }
    }

    fn index(&self, name: &str) -> u32 {
        self.engine.link_named(name).unwrap().index
    }

    fn hook(&self, name: &str, hook: Option<Hook>) {
        let index = self.index(name);
        self.engine
            .edit_tree(index, |tree| tree.set_hook(hook))
            .unwrap();
    }

    fn clsact(&self, name: &str) {
        self.hook(name, Some(Hook::new(HookKind::Clsact)));
    }

    fn filter(side: Side, prio: u16, actions: ActionList) -> FilterSpec {
        FilterSpec {
            parent: side.parent(),
            prio,
            class: None,
            actions,
            ..FilterSpec::new(FilterKind::Matchall, Handle::NONE)
        }
    }

    fn put(&self, name: &str, side: Side, prio: u16, actions: ActionList) {
        let filter = Bench::filter(side, prio, actions);
        let index = self.index(name);
        // There is one `matchall` in a priority, which cannot be changed.
        let before = softnet_tc::FilterKey {
            prio,
            ..Default::default()
        };
        let _ = self
            .engine
            .edit_tree(index, |tree| tree.delete_filters(side.parent(), before));
        let put = self
            .engine
            .edit_tree(index, |tree| tree.put_filter(FilterOp::Replace, filter));
        put.unwrap();
    }

    /// `mirred`: `redirects`, `ingress`, the target.
    fn mirred(&mut self, redirects: bool, ingress: bool, to: MirredTo) -> ActionList {
        let kind = ActionKind::Mirred(Mirred {
            redirects,
            ingress,
            to,
        });
        let control = match redirects {
            true => Control::Stolen,
            false => Control::Pipe,
        };
        let spec = Act {
            control,
            ..Act::new(kind)
        };
        let action = self.table.add(spec, true, Time::ZERO).unwrap();
        let engine = &self.engine;
        let link = |name: &str| engine.link_named(name).ok().map(|link| link.index);
        self.table.resolve(link);
        [action].into_iter().collect()
    }

    fn to(&mut self, redirects: bool, ingress: bool, name: &str) -> ActionList {
        self.mirred(redirects, ingress, MirredTo::Dev(name.to_owned()))
    }

    fn frame(&self, from: u8, to: u8, mark: u32) -> Packet {
        frame(&self.pool, from, to, 60, mark)
    }

    fn feed(&self, name: &str, packets: impl IntoIterator<Item = Packet>) {
        let queue = self.devices.last(name).0;
        packets
            .into_iter()
            .for_each(|packet| queue.feed().packets.push_back(packet));
    }

    fn sent(&self, name: &str) -> Vec<u32> {
        self.devices.last(name).1.marks()
    }

    fn end(self) -> EngineStats {
        let stats = self.engine.stop(Duration::from_secs(5));
        let conservation = stats.conservation();
        assert!(conservation.holds(), "{conservation:?} {:?}", stats.drops());
        assert_eq!(self.pool.stats().free, self.pool.stats().buffers);
        stats
    }
}

/// Filters drop what arrives and what is sent; the other hook, and a port without one, pass it.
#[test]
fn filters_drop_at_both_hooks_and_count_together() {
    let bench = Bench::new(2);
    bench.clsact("a");
    bench.clsact("b");
    bench.put("a", Side::Ingress, 1, Control::Drop.into());
    bench.feed("a", (0..20).map(|n| bench.frame(1, 2, n)));
    let counts = |name| bench.engine.hook_counts(bench.index(name)).unwrap();
    wait("the drops", || counts("a").drops == 20);
    // Frames of 60 bytes, of which 14 are no part of `skb->len` there (`sch_handle_ingress`).
    assert_eq!((counts("a").packets, counts("a").bytes), (20, 920));
    bench.hook("a", None);
    bench.put("b", Side::Egress, 1, Control::Drop.into());
    bench.feed("a", (0..10).map(|n| bench.frame(1, 2, n)));
    wait("the drops", || counts("b").drops == 10);
    assert_eq!((counts("b").packets, counts("b").bytes), (10, 600));
    let filters = bench.engine.filters(bench.index("b"));
    assert_eq!(filters.len(), 1);
    assert_eq!(filters[0].1.packets, 10, "of all workers' copies");
    // A filter that is replaced lets all pass.
    bench.put("b", Side::Egress, 2, Control::Pass.into());
    let which = softnet_tc::FilterKey {
        chain: 0,
        prio: 1,
        handle: 0,
    };
    let b = bench.index("b");
    let deleted = bench
        .engine
        .edit_tree(b, |tree| tree.delete_filters(Side::Egress.parent(), which));
    deleted.unwrap();
    bench.feed("a", [bench.frame(1, 2, 77)]);
    wait("it passes", || bench.sent("b") == [77]);
    let stats = bench.end();
    assert_eq!(stats.drops(), [(DropReason::FilterDrop, 30)]);
}

/// The way every HOWTO shapes what comes in: ingress, mirred to an ifb, a shaper there.
#[test]
fn what_arrives_is_shaped_by_an_ifb_and_goes_on() {
    let mut bench = Bench::new(1);
    bench.hook("a", Some(Hook::new(HookKind::Ingress)));
    let redirect = bench.to(true, false, "ifb0");
    bench.put("a", Side::Ingress, 10, redirect);
    let tbf = TbfSpec {
        rate: 1_000_000,
        burst: 10_000,
        limit: 100_000,
        ..TbfSpec::default()
    };
    let ifb = bench.index("ifb0");
    bench.engine.set_qdisc(ifb, &QdiscSpec::Tbf(tbf)).unwrap();
    bench.feed("a", (0..100).map(|n| bench.frame(1, 2, n)));
    wait("all", || bench.sent("b").len() == 100);
    assert_eq!(bench.sent("b"), (0..100).collect::<Vec<_>>());
    assert_eq!(bench.sent("ifb0").len(), 100);
    assert!(bench.end().drops().is_empty());
}

/// A packet that leaves passes an ifb and leaves where it was to leave, not by the hook again; a
/// copy ends at the ifb, one to another link arrives or leaves there.
#[test]
fn what_leaves_passes_an_ifb_once_and_copies_go_their_way() {
    let mut bench = Bench::new(1);
    bench.clsact("b");
    let copy = bench.to(false, false, "ifb1");
    bench.put("b", Side::Egress, 1, copy);
    let other = bench.to(false, false, "a");
    // Of one priority there is one matchall; a filter that decides nothing goes before.
    bench.clsact("ifb1");
    bench.put("ifb1", Side::Egress, 1, other);
    bench.feed("a", [bench.frame(1, 2, 5)]);
    wait("both", || bench.sent("b") == [5] && bench.sent("a") == [5]);
    let redirect = bench.to(true, false, "ifb0");
    bench.put("b", Side::Egress, 1, Control::Continue.into());
    bench.put("b", Side::Egress, 2, redirect);
    bench.feed("a", (10..20).map(|n| bench.frame(1, 2, n)));
    wait("all", || bench.sent("b").len() == 11);
    assert_eq!(bench.sent("ifb0"), (10..20).collect::<Vec<_>>());
    let stats = bench.end();
    assert_eq!(stats.copied, 2);
    assert_eq!(
        stats.drops(),
        [(DropReason::NoForward, 1)],
        "the copy at ifb1"
    );
}

/// Links share a block: one filter for what arrives at both.
#[test]
fn links_share_a_block() {
    let mut bench = Bench::new(1);
    let shared = Hook {
        ingress: softnet_tc::HookFilters {
            block: 7,
            ..Default::default()
        },
        ..Hook::new(HookKind::Ingress)
    };
    bench.hook("a", Some(shared.clone()));
    assert_eq!(bench.engine.blocks(), [7]);
    let filter = FilterSpec {
        parent: Handle::NONE,
        ..Bench::filter(Side::Ingress, 1, Control::Drop.into())
    };
    let refused = bench.engine.put_in_block(8, FilterOp::Add, filter.clone());
    assert!(refused.is_err());
    bench
        .engine
        .put_in_block(7, FilterOp::Add, filter.clone())
        .unwrap();
    bench.hook("b", Some(shared));
    bench.feed("a", [bench.frame(1, 2, 1)]);
    bench.feed("b", [bench.frame(2, 1, 2)]);
    let dropped = || bench.engine.stats().conservation().dropped;
    wait("both", || dropped() == 2);
    let sum = bench.engine.read_block(7, |block| {
        let found = block.list().get(softnet_tc::FilterKey {
            chain: 0,
            prio: 1,
            handle: 1,
        });
        block.filter_sum(found.unwrap()).1.packets
    });
    assert_eq!(sum.unwrap(), 2);
    // Its own filters are refused.
    let own = bench.engine.edit_tree(bench.index("a"), |tree| {
        tree.put_filter(
            FilterOp::Add,
            Bench::filter(Side::Ingress, 1, Control::Drop.into()),
        )
    });
    assert!(own.is_err());
    // A specification that is read back is the same.
    let spec = bench.engine.spec().unwrap();
    assert_eq!(spec.blocks[&7].iter().count(), 1);
    bench.engine.apply(&spec, true).unwrap();
    assert_eq!(bench.engine.spec().unwrap(), spec);
    // To all links of the block but where it is.
    let to_block = bench.mirred(true, false, MirredTo::Block(7));
    let redirect = FilterSpec {
        actions: to_block,
        ..filter
    };
    let delete = |bench: &Bench| {
        let which = softnet_tc::FilterKey::default();
        bench.engine.delete_in_block(7, which.into()).unwrap();
    };
    delete(&bench);
    bench
        .engine
        .put_in_block(7, FilterOp::Add, redirect)
        .unwrap();
    bench.feed("a", [bench.frame(1, 9, 3)]);
    wait("at b", || bench.sent("b") == [3]);
    bench.hook("a", None);
    bench.hook("b", None);
    assert!(bench.engine.blocks().is_empty());
    bench.end();
}

/// Rings of redirects, to ingress and egress, over one link or several, end; so does a mirror of a
/// link on itself.
#[test]
fn rings_of_redirects_end() {
    let mut bench = Bench::new(2);
    for name in ["a", "b", "ifb0", "ifb1"] {
        bench.clsact(name);
    }
    let mut fed = 0;
    let sides = [Side::Ingress, Side::Egress];
    for (side, ingress) in sides
        .into_iter()
        .flat_map(|side| [(side, true), (side, false)])
    {
        for redirects in [true, false] {
            for ring in [
                vec!["a"],
                vec!["a", "b"],
                vec!["a", "ifb0", "b", "ifb1"],
                vec!["a", "ifb0"],
            ] {
                for (at, from) in ring.iter().enumerate() {
                    let to = ring[(at + 1) % ring.len()];
                    for side in [side, Side::Egress] {
                        let action = bench.to(redirects, ingress, to);
                        bench.put(from, side, 1, action);
                    }
                }
                bench.feed("a", (0..5).map(|n| bench.frame(1, 2, n)));
                bench.feed("b", (0..5).map(|n| bench.frame(2, 1, n)));
                fed += 10;
                let received = || {
                    let ports = bench.engine.stats().ports;
                    ports.iter().map(|port| port.device.rx_packets).sum::<u64>()
                };
                wait("all to be received", || received() == fed);
                let at_rest = || {
                    let stats = bench.engine.stats();
                    stats.conservation().holds() && stats.in_backlogs() == 0
                };
                wait("all to end", at_rest);
                for name in &ring {
                    bench.clsact(name);
                }
            }
        }
    }
    bench.end();
}

/// Filters of a qdisc send copies and packets to other links; one that comes back again and again
/// is dropped in the end.
#[test]
fn filters_of_a_qdisc_send_elsewhere() {
    let mut bench = Bench::new(1);
    let one = Handle::new(1, 0);
    let b = bench.index("b");
    let prio = QdiscSpec::Prio(softnet_tc::PrioSpec::default());
    let replaced = bench
        .engine
        .edit_tree(b, |tree| tree.replace(Handle::ROOT, one, prio));
    replaced.unwrap();
    let put = |bench: &Bench, actions| {
        let filter = FilterSpec {
            parent: one,
            ..Bench::filter(Side::Egress, 1, actions)
        };
        let which = softnet_tc::FilterKey {
            prio: 1,
            ..Default::default()
        };
        let edited = bench.engine.edit_tree(b, |tree| {
            let _ = tree.delete_filters(one, which);
            tree.put_filter(FilterOp::Add, filter)
        });
        edited.unwrap();
    };
    let copy = bench.to(false, false, "a");
    put(&bench, copy);
    bench.feed("a", (0..10).map(|n| bench.frame(1, 2, n)));
    wait("the packets", || bench.sent("b").len() == 10);
    wait("the copies", || bench.sent("a").len() == 10);
    let away = bench.to(true, false, "a");
    put(&bench, away);
    bench.feed("a", (10..20).map(|n| bench.frame(1, 2, n)));
    wait("the packets elsewhere", || bench.sent("a").len() == 20);
    let back = bench.to(true, false, "b");
    put(&bench, back);
    bench.feed("a", (20..30).map(|n| bench.frame(1, 2, n)));
    wait("the end", || {
        bench.engine.stats().conservation().dropped == 10
    });
    assert_eq!(bench.sent("b").len(), 10);
    bench.end();
}
