//! The same htb in the kernel and here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use softnet::time::Time;
use softnet_tc::{
    ClassSpec, FilterKind, FilterOp, FilterSpec, Handle, HtbClassSpec, HtbSpec, LinkCost,
    LinkLayer, QdiscSpec, TreeSpec,
};
use softnet_tests::oracle::KernelQdisc;

use super::*;

/// A kernel with htb.
pub(super) fn kernel() -> Option<KernelQdisc> {
    KernelQdisc::new(1, 1000).filter(|kernel| kernel.has("htb"))
}

/// Runs a test with a kernel that has htb. One that fails runs again, up to three times in all: a
/// machine that stands still for seconds lets in so many tokens that they may decide something.
pub(super) fn with_kernel(test: impl Fn(&mut KernelQdisc)) {
    let Some(mut kernel) = kernel() else { return };
    for _ in 0..2 {
        if catch_unwind(AssertUnwindSafe(|| test(&mut kernel))).is_ok() {
            return;
        }
    }
    test(&mut kernel);
}

/// A class: parent, name and parameters.
pub(super) type Class = (&'static str, &'static str, HtbClassSpec);

pub(super) fn class(rate: u64, ceil: u64, burst: u64, cburst: u64) -> HtbClassSpec {
    HtbClassSpec {
        ceil,
        burst,
        cburst,
        ..HtbClassSpec::new(rate)
    }
}

/// Options of a class for tc.
pub(super) fn words(class: &HtbClassSpec) -> String {
    let HtbClassSpec {
        rate,
        ceil,
        burst,
        cburst,
        prio,
        quantum,
        ticks: _,
        link,
    } = class;
    let mut words = format!(
        "htb rate {}bit ceil {}bit burst {burst}b cburst {cburst}b prio {prio}",
        rate * 8,
        ceil * 8
    );
    if let Some(quantum) = quantum {
        words += &format!(" quantum {quantum}");
    }
    let LinkCost {
        overhead,
        mpu,
        linklayer,
    } = link;
    words += &format!(" overhead {overhead} mpu {mpu}");
    if *linklayer == LinkLayer::Atm {
        words += " linklayer atm";
    }
    words
}

/// The same htb in the kernel and here, at the root or below a `tbf` that is shut.
pub(super) struct Pair<'a> {
    pub(super) kernel: &'a mut KernelQdisc,
    ours: Ours,
    gated: bool,
    started: Instant,
    sent: u32,
    now: Time,
    /// Classes that there are.
    classes: Vec<String>,
}

impl<'a> Pair<'a> {
    /// `1:` with these classes, and pfifos with limits at some of them.
    pub(super) fn new(
        kernel: &'a mut KernelQdisc,
        default: u16,
        classes: &[Class],
        limits: &[(&str, u32)],
        gate: Option<TbfSpec>,
    ) -> Pair<'a> {
        let htb = format!("htb default {default:x}");
        let mut spec = TreeSpec::new();
        let mut parent = Handle::ROOT;
        if let Some(gate) = &gate {
            kernel.set_root("pfifo");
            let words = super::words(gate);
            kernel.tc(&format!("qdisc replace dev x0 root handle 2: {words}"));
            kernel.tc(&format!("qdisc replace dev x0 parent 2:1 handle 1: {htb}"));
            spec.add(parent, handle("2:"), QdiscSpec::Tbf(gate.clone()))
                .expect("a tbf");
            parent = handle("2:1");
        } else {
            kernel.set_root(&htb);
        }
        let htb = HtbSpec {
            default,
            ..HtbSpec::default()
        };
        spec.add(parent, handle("1:"), QdiscSpec::Htb(htb))
            .expect("an htb");
        for (parent, name, class) in classes {
            let words = words(class);
            kernel.tc(&format!(
                "class add dev x0 parent {parent} classid {name} {words}"
            ));
            let class = ClassSpec::Htb(class.clone());
            spec.add_class(handle(parent), handle(name), class)
                .expect("a class");
        }
        for (at, limit) in limits {
            kernel.tc(&format!("qdisc add dev x0 parent {at} pfifo limit {limit}"));
            let pfifo = QdiscSpec::Pfifo { limit: *limit };
            spec.add(handle(at), Handle::NONE, pfifo).expect("a pfifo");
        }
        kernel.read();
        Pair {
            kernel,
            ours: Ours::of(spec),
            gated: gate.is_some(),
            started: Instant::now(),
            sent: 0,
            now: Time::ZERO,
            classes: classes.iter().map(|class| class.1.to_owned()).collect(),
        }
    }

    pub(super) fn send(&mut self, len: usize, priority: u32) {
        let bytes = frame(self.sent, len);
        let theirs = self.kernel.send(&bytes, priority);
        let queued = self.ours.send(&bytes, priority, self.now);
        assert_eq!(queued, theirs, "packet {}", self.sent);
        self.sent += 1;
    }

    pub(super) fn change(&mut self, name: &str, class: &HtbClassSpec) {
        let words = words(class);
        self.kernel
            .tc(&format!("class change dev x0 classid {name} {words}"));
        let class = ClassSpec::Htb(class.clone());
        self.edit(|tree| tree.change_class(handle(name), &class))
            .expect("a change");
    }

    pub(super) fn add(&mut self, parent: &str, name: &str, class: &HtbClassSpec) {
        let words = words(class);
        self.kernel.tc(&format!(
            "class add dev x0 parent {parent} classid {name} {words}"
        ));
        let class = ClassSpec::Htb(class.clone());
        self.edit(|tree| tree.add_class(handle(parent), handle(name), class))
            .expect("a class");
        self.classes.push(name.to_owned());
    }

    pub(super) fn delete(&mut self, name: &str) {
        let theirs = self
            .kernel
            .try_tc(&format!("class del dev x0 classid {name}"));
        let ours = self.edit(|tree| tree.delete_class(handle(name)));
        assert_eq!(
            ours.is_ok(),
            theirs.is_ok(),
            "{name}: {ours:?}, the kernel: {theirs:?}"
        );
        if ours.is_ok() {
            self.classes.retain(|class| class != name);
        }
    }

    /// Adds or deletes a filter for all packets.
    pub(super) fn filter(&mut self, class: &str, add: bool) {
        let verb = if add { "add" } else { "del" };
        let filter = format!("filter {verb} dev x0 parent 1: prio 1 protocol all");
        let rest = format!("u32 match u32 0 0 flowid {class}");
        self.kernel
            .tc(&format!("{filter} {}", if add { &rest } else { "" }));
        let filter = FilterSpec {
            prio: 1,
            ..FilterSpec::new(FilterKind::Matchall, handle(class))
        };
        self.edit(|tree| match add {
            true => tree.put_filter(FilterOp::Add, filter).map(|_| ()),
            false => tree.delete_filters(handle("1:"), filter.key()),
        })
        .expect("a filter");
    }

    pub(super) fn edit<T>(&mut self, f: impl FnOnce(&mut softnet_tc::LiveTree<'_>) -> T) -> T {
        let sim = self.ours.sim.as_mut().expect("it runs");
        let (tree, cx) = sim.tree();
        f(&mut tree.edit(cx.at(self.now)))
    }

    /// Opens the gate. The kernel's goes on when the next packet comes.
    pub(super) fn open(&mut self) {
        let opened = super::open(1 << 20);
        let words = super::words(&opened);
        self.kernel
            .tc(&format!("qdisc change dev x0 root handle 2: {words}"));
        self.ours.change("2:", &QdiscSpec::Tbf(opened), self.now);
    }

    /// Compares all numbers, and what has left in which order since the last time.
    pub(super) fn compare(&mut self, case: &str) {
        self.compare_within(Duration::MAX, case);
    }

    /// As [`compare`](Pair::compare), if the kernel had no more time than this since it began.
    /// Returns whether so.
    pub(super) fn compare_within(&mut self, limit: Duration, case: &str) -> bool {
        let root = as_tc(self.ours.stats(Handle::ROOT));
        let name = if self.gated { "2:" } else { "1:" };
        softnet_tests::wait_for("the kernel's packets to leave", || {
            self.kernel.stats(name)[0].packets >= root.packets
        });
        let theirs: Vec<u32> = self.kernel.read().iter().map(|r| number(&r.2)).collect();
        let ours: Vec<u32> = self.ours.left.drain(..).map(|left| left.0).collect();
        let mut expected = self.kernel.stats(name)[0];
        let all = self.kernel.classes();
        let elapsed = self.started.elapsed();
        if elapsed > limit {
            return false;
        }
        assert_eq!(ours, theirs, "{case}: order");
        if self.gated {
            // It counts timers, too.
            expected.overlimits = root.overlimits;
        }
        assert_eq!(root, expected, "{case}: root");
        let (tree, _) = self.ours.sim.as_mut().expect("it runs").tree();
        let mine = tree.classes();
        for name in &self.classes {
            let theirs = &all[name];
            let class = mine.iter().find(|class| class.class == handle(name));
            let class = class.expect("the class");
            let htb = class.htb.expect("a class of htb");
            let numbers = |s: softnet::qdisc::QdiscStats| (s.packets, s.bytes, s.drops, s.qlen);
            let place = format!("{case}: class {name}");
            let sent = (theirs.packets, theirs.bytes, theirs.drops, theirs.qlen);
            assert_eq!(numbers(class.stats), sent, "{place}");
            let counted = (htb.lended, htb.borrowed, htb.overlimits);
            let expected = (theirs.lended, theirs.borrowed, theirs.overlimits);
            assert_eq!(counted, expected, "{place}: lended, borrowed, overlimits");
            for (ours, theirs) in [(htb.tokens, theirs.tokens), (htb.ctokens, theirs.ctokens)] {
                // What came in since, and roundings of a tick.
                let ours = i64::from(ours);
                let least = ours - 100;
                let most = ours + 100 + (elapsed.as_nanos() / 64) as i64;
                assert!(
                    (least..=most).contains(&theirs),
                    "{place}: {theirs}, {least}..{most}"
                );
            }
        }
        true
    }
}
