//! A tree and the link behind it, packet by packet.

use std::collections::BTreeMap;

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Next, Qdisc, QdiscStats, WireSize};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;

use super::classes::{Classes, Span};
use super::instances::{Cpus, Instances};
use super::report::{ClassReport, Report};
use super::stories::Stories;
use super::story::Story;
use super::{SimLink, flow_hash, is_marked};
use crate::filter::{Classified, Filters};
use crate::handle::Handle;
use crate::qdisc::{QdiscEnv, SpecError};
use crate::tree::{Side, Tree, TreeSpec};

/// A tree in virtual time.
#[derive(Debug)]
pub struct Simulator {
    tree: Instances,
    /// The tree may have been changed since `classes` and `egress` were made of it.
    is_changed: bool,
    classes: Classes,
    /// Filters of `clsact` for what leaves. They run before the tree.
    egress: Filters,
    link: SimLink,
    now: Time,
    /// When the link can take the next packet, and what that nanosecond has to spare, in
    /// billionths of a byte.
    free: Time,
    remainder: u64,
    cx: Cx,
    drops: DropCounters,
    offered: (u64, u64),
    first: Option<Time>,
    /// Statistics of the classes as the window began.
    opened: BTreeMap<Handle, QdiscStats>,
    /// [Ports](Packet::port) of packets that were dropped, for whoever tells flows apart by them.
    pub(super) lost: Vec<u16>,
    pub(super) keeps_lost: bool,
    stories: Stories,
}

impl Simulator {
    /// Nothing has arrived yet.
    pub fn new(tree: Tree, link: SimLink) -> Simulator {
        Simulator::with(Instances::one(tree), link)
    }

    /// A tree on several CPUs, which share the link.
    ///
    /// # Errors
    /// As [`DeviceTree::new`](crate::DeviceTree::new).
    pub fn parallel(
        spec: impl Into<TreeSpec>,
        cpus: Cpus,
        env: &QdiscEnv,
        link: SimLink,
    ) -> Result<Simulator, SpecError> {
        Ok(Simulator::with(Instances::new(spec, cpus, env)?, link))
    }

    fn with(tree: Instances, link: SimLink) -> Simulator {
        Simulator {
            cx: Cx::new(&tree.tree().env().pool),
            tree,
            is_changed: true,
            classes: Classes::default(),
            egress: Filters::none(),
            link,
            now: Time::ZERO,
            free: Time::ZERO,
            remainder: 0,
            drops: DropCounters::new(),
            offered: (0, 0),
            first: None,
            opened: BTreeMap::new(),
            lost: Vec::new(),
            keeps_lost: false,
            stories: Stories::default(),
        }
    }

    /// CPUs that the tree runs on: one, if it can have one instance only.
    pub fn cpus(&self) -> usize {
        self.tree.cpus.len()
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Time at which something leaves, or the tree is to be asked again; none if nothing waits.
    #[inline]
    pub fn due(&self) -> Option<Time> {
        self.tree.next().map(|(time, _)| time)
    }

    /// The tree, to change it between arrivals. Of one on several CPUs nothing can be changed.
    pub fn tree(&mut self) -> (&mut Tree, &mut Cx) {
        self.is_changed = true;
        (&mut self.tree.first, self.cx.at(self.now))
    }

    /// Tells the story of the packet that arrives as the `number`th from now on.
    pub fn tell(&mut self, number: u64) {
        self.stories.ask(number);
    }

    /// The story, as far as it has come.
    pub fn story(&self) -> Option<&Story> {
        self.stories.kept()
    }

    /// Tells the stories of all packets that arrive from now on; see
    /// [`take_stories`](Simulator::take_stories).
    pub fn tell_all(&mut self) {
        self.stories.all = true;
    }

    /// The stories of the packets that left since they were taken, in the order of departures:
    /// none of what did not arrive as it left, such as a copy or a segment.
    pub fn take_stories(&mut self) -> Vec<Option<Story>> {
        std::mem::take(&mut self.stories.left)
    }

    /// Looks at the tree again if somebody may have changed it.
    #[inline]
    fn refresh(&mut self) {
        if self.is_changed {
            self.look_again();
        }
    }

    #[cold]
    fn look_again(&mut self) {
        self.is_changed = false;
        self.classes.rebuild(&self.tree);
        if let Some(copies) = self.tree.first.tree.take_hook_change(Side::Egress) {
            self.egress = copies.into_iter().next().unwrap_or_default();
        }
    }

    /// A packet arrives at `time`, or now if that has passed. What leaves until then goes to
    /// `depart` first, with the time at which the link begins to send it.
    ///
    /// # Errors
    /// The errors of `depart`; the simulation cannot go on then.
    pub fn arrive<E>(
        &mut self,
        mut packet: Packet,
        time: Time,
        depart: &mut (impl FnMut(Time, &Packet) -> Result<(), E> + ?Sized),
    ) -> Result<(), E> {
        // What is due at this very moment was asked for before the packet came.
        self.run_until(time, depart)?;
        self.pass_to(time);
        self.first.get_or_insert(self.now);
        self.offered.0 += packet.wire_packets();
        self.offered.1 += packet.wire_len();
        packet.set_timestamp(self.now);
        if packet.flow_hash().is_none() {
            packet.set_flow_hash(flow_hash(&packet));
        }
        self.refresh();
        let cpu = self.tree.cpu_of(&packet);
        let told = self.stories.arrived(&packet, self.now, &self.tree);
        if let Some(packet) = self.hook(packet) {
            let mut list = PacketList::from(packet);
            self.tree.at(cpu).enqueue(&mut list, self.cx.at(self.now));
        }
        if let Some(before) = told {
            self.stories.enqueued(before, &self.tree);
        }
        self.settle();
        self.reinject(cpu);
        match self.tree.late() {
            0 => self.run(cpu, depart),
            late => {
                // One that has begun to run is not any later.
                let timer = &mut self.tree.cpus[cpu].timer;
                let at = self.now.plus_nanos(late);
                *timer = Some(timer.map_or(at, |timer| timer.min(at)));
                Ok(())
            }
        }
    }

    /// Has the filters for what leaves look at a packet. Returned if it goes on.
    #[inline]
    fn hook(&mut self, mut packet: Packet) -> Option<Packet> {
        if self.egress.is_empty() {
            return Some(packet);
        }
        match self.egress.classify(&mut packet, self.cx.at(self.now)) {
            Classified::Class(_) | Classified::None => return Some(packet),
            Classified::Drop(reason) => self.cx.dropped.push(packet, reason),
            Classified::Redirect(target) => self.cx.elsewhere.push(target, packet),
            Classified::Consumed => self.cx.dropped.push(packet, DropReason::FilterStolen),
        }
        None
    }

    /// Lets everything leave that may leave up to `time`.
    ///
    /// # Errors
    /// As [`arrive`](Simulator::arrive).
    #[inline]
    pub fn run_until<E>(
        &mut self,
        time: Time,
        depart: &mut (impl FnMut(Time, &Packet) -> Result<(), E> + ?Sized),
    ) -> Result<(), E> {
        while let Some((timer, cpu)) = self.tree.next().filter(|&(timer, _)| timer <= time) {
            self.pass_to(timer);
            self.run(cpu, depart)?;
        }
        Ok(())
    }

    /// Lets everything leave that ever will, and says what happened.
    ///
    /// # Errors
    /// As [`arrive`](Simulator::arrive).
    pub fn finish<E>(
        mut self,
        depart: &mut impl FnMut(Time, &Packet) -> Result<(), E>,
    ) -> Result<Report, E> {
        self.run_until(Time(u64::MAX - 1), depart)?;
        self.refresh();
        let span = self
            .first
            .map_or(0, |first| self.now.since(first).as_nanos() as u64);
        Ok(Report::new(
            &self.tree,
            &self.classes,
            self.offered,
            span,
            self.drops.nonzero(),
        ))
    }

    /// Runs the queue of a CPU as long as something may leave now.
    fn run<E>(
        &mut self,
        cpu: usize,
        depart: &mut (impl FnMut(Time, &Packet) -> Result<(), E> + ?Sized),
    ) -> Result<(), E> {
        self.tree.runs(cpu);
        self.refresh();
        loop {
            if self.free > self.now {
                // The link is sending; the tree is asked again when it is free.
                let is_empty = self.tree.stats(cpu).qlen == 0;
                self.tree.cpus[cpu].timer = (!is_empty).then_some(self.free);
                return Ok(());
            }
            // One frame at a time, so that the classes' numbers tell which it concerns.
            let mut out = PacketList::new();
            let next = (self.tree.at(cpu)).dequeue(1, &mut out, self.cx.at(self.now));
            self.settle();
            let empty = out.is_empty();
            for packet in &out {
                let is_marked = is_marked(packet);
                let class = (self.classes).left(&self.tree, packet, is_marked, self.now);
                self.stories.left(packet, class, self.now);
            }
            let again = self.reinject(cpu);
            for packet in out {
                if let Some(rate) = self.link.rate {
                    self.occupy(&packet, rate);
                }
                depart(self.now, &packet)?;
            }
            match next {
                _ if again => {}
                Next::Idle => return Ok(()),
                Next::At(time) => {
                    // Later than now, whatever a qdisc from outside says: time has to go on.
                    let time = time.max(self.now.plus_nanos(1)).max(self.free);
                    let late = self.tree.late();
                    self.tree.cpus[cpu].timer = Some(time.plus_nanos(late));
                    return Ok(());
                }
                Next::Ready if empty => {
                    self.tree.cpus[cpu].timer = Some(self.now.plus_nanos(1));
                    return Ok(());
                }
                Next::Ready => {}
            }
        }
    }

    /// Time passes.
    fn pass_to(&mut self, time: Time) {
        let from = self.now;
        self.now = self.now.max(time);
        if !self.stories.is_idle() {
            // The link is free from then on, if it was not.
            let sending = self.free.min(self.now).since(from).as_nanos() as u64;
            let all = self.now.since(from).as_nanos() as u64;
            self.stories.waited(sending, all - sending);
        }
    }

    /// Enqueues at the root what a qdisc wants to have there: once, as a transmit queue does.
    /// False: there was nothing.
    #[inline]
    fn reinject(&mut self, cpu: usize) -> bool {
        let is_any = !self.cx.reinject.is_empty();
        if is_any {
            self.reinject_some(cpu);
        }
        is_any
    }

    fn reinject_some(&mut self, cpu: usize) {
        let mut again = self.cx.reinject.take();
        if std::mem::take(&mut self.cx.copied) > 0 {
            self.offered.0 += again.wire_packets();
            self.offered.1 += again.iter().map(Packet::wire_len).sum::<u64>();
        }
        (self.tree.at(cpu)).enqueue(&mut again, self.cx.at(self.now));
        let more = self.cx.reinject.take();
        self.cx.dropped.append(more, DropReason::RecursionLimit);
        self.settle();
    }

    /// Notes what was dropped, and frees it. There is no other link: what actions send there is
    /// dropped, and copies are as if they had not been made.
    #[inline]
    fn settle(&mut self) {
        if !self.cx.elsewhere.is_empty() || self.cx.dropped.wire_packets() != 0 {
            self.settle_some();
        }
    }

    fn settle_some(&mut self) {
        if !self.cx.elsewhere.is_empty() {
            let copied = self.cx.elsewhere.take_copied();
            let mut lost = 0_u64;
            for (_, list) in self.cx.elsewhere.drain() {
                lost += list.wire_packets();
                if copied == 0 {
                    self.stories.sent_elsewhere(&list);
                }
            }
            let lost = lost.saturating_sub(copied);
            self.cx.dropped.note(DropReason::NoForward, lost);
        }
        if self.cx.dropped.wire_packets() == 0 {
            return;
        }
        self.classes.dropped(&self.tree, &self.cx.dropped);
        self.stories.dropped(&self.cx.dropped, self.now);
        if self.keeps_lost {
            let ports = self.cx.dropped.packets().iter().map(Packet::port);
            self.lost.extend(ports);
        }
        self.cx.dropped.settle(&self.drops);
    }

    /// Begins a window of reports.
    pub(super) fn open(&mut self) {
        self.refresh();
        let stats = self.tree.classes().into_iter();
        self.opened = stats.map(|class| (class.class, class.stats)).collect();
        self.classes.turn();
    }

    /// Reports on the classes since the window began.
    pub(super) fn since_opened(&mut self, nanos: u64) -> Vec<ClassReport> {
        self.refresh();
        ClassReport::all(&self.tree, &self.classes, Span::Window, nanos, &self.opened)
    }

    /// The link sends a packet from now on. Exact: what a nanosecond has left over is kept for the
    /// next packet that follows at once.
    fn occupy(&mut self, packet: &Packet, rate: u64) {
        if rate == 0 {
            return;
        }
        let need = u128::from(self.link.cost.cost(WireSize::from(packet))) * 1_000_000_000;
        let saved = if self.free == self.now {
            self.remainder
        } else {
            0
        };
        let owed = need.saturating_sub(u128::from(saved));
        let nanos = owed.div_ceil(u128::from(rate));
        let spare = nanos * u128::from(rate) + u128::from(saved) - need;
        self.remainder = u64::try_from(spare).unwrap_or(u64::MAX);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.free = self.now.plus_nanos(nanos);
    }
}
