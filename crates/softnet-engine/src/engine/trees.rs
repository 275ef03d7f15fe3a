//! The trees of ports: qdiscs, classes and filters, changed and read while packets flow.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use softnet::qdisc::QdiscStats;
use softnet::time::{Clock, Time};
use softnet_tc::{
    ClassStats, DeviceTree, FilterSpec, FilterStats, FlowStats, Handle, Live, QdiscSpec,
    SpecError, TreeSpec,
};

use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use crate::Device;

impl<D: Devices> Engine<D> {
    /// Changes the tree of a port while packets flow. The caller tells those who watch. `f` must
    /// not call the engine.
    ///
    /// # Errors
    /// If there is no such port, or what `f` fails with. Nothing is changed then.
    pub fn edit_tree<T>(
        &self,
        index: u32,
        f: impl FnOnce(&mut Live<'_, (&Device<D::Tx>, &Clock)>) -> Result<T, SpecError>,
    ) -> Result<T, EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let clock = state.clock.clone();
        let port = state.port_mut(index)?;
        let had_root = !port.tree.spec().is_empty();
        let result = f(&mut port.tree.on((&*port.device, &clock)))?;
        if had_root && port.tree.spec().is_empty() {
            let link = state.known_mut(index);
            link.has_default = link.settings.up;
        }
        let number = state.number(index)?;
        state.follow_hook(number);
        Ok(result)
    }

    /// Replaces a port's qdisc, or its whole tree. What is queued moves to the new one, in order;
    /// what does not fit is dropped and counted. The caller tells those who watch.
    ///
    /// # Errors
    /// If there is no such port or the parameters are wrong; nothing is changed then.
    pub fn set_qdisc(&self, index: u32, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        let qdisc = self.state().adopt_in(qdisc);
        self.edit_tree(index, |tree| tree.set(qdisc))?;
        self.state().resolve_actions();
        Ok(())
    }

    /// Makes the tree of a port what `spec` says; see [`Live::apply`].
    ///
    /// # Errors
    /// If there is no such port, or the tree does not fit it. Nothing is changed then.
    pub fn set_tree(&self, index: u32, spec: &TreeSpec) -> Result<(), EngineError> {
        let before = self.read_tree(index, |tree, _| {
            (tree.spec() != spec).then(|| tree.spec().clone())
        })?;
        if let Some(before) = before {
            let spec = self.state().adopt_actions(spec);
            if spec.has_shares() {
                self.control()?.follow_speed(index);
            }
            self.edit_tree(index, |tree| tree.apply(&spec))?;
            let mut state = self.state();
            state.resolve_actions();
            state.changes.note_tree(index, before);
        }
        Ok(())
    }

    /// The next handle for a qdisc of a port that is given none: of the numbers from 8001 to fffe,
    /// each is chosen once in this engine before one is chosen again, as in the kernel
    /// (`qdisc_alloc_handle`). [`Handle::NONE`] if the port uses all of them.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn choose_handle(&self, index: u32) -> Result<Handle, EngineError> {
        const NUMBERS: std::ops::Range<u16> = 0x8001..u16::MAX;
        let mut guard = self.state();
        let state = &mut *guard;
        let mut chosen = state.chosen;
        let spec = state.port(index)?.tree.spec();
        let free = |handle: &Handle| spec.node(*handle).is_none();
        let next = std::iter::repeat_with(|| {
            chosen = if NUMBERS.contains(&(chosen + 1)) {
                chosen + 1
            } else {
                NUMBERS.start
            };
            Handle::new(chosen, 0)
        });
        let handle = next.take(NUMBERS.len()).find(free).unwrap_or(Handle::NONE);
        state.chosen = chosen;
        Ok(handle)
    }

    /// A seed for a qdisc that is given none: another one each time.
    pub fn choose_seed(&self) -> u64 {
        match &mut self.state().seed {
            Some(seed) => {
                // Weyl's sequence: all that follow differ.
                *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                *seed
            }
            None => RandomState::new().hash_one(()),
        }
    }

    /// Seeds follow from this one, in the order in which they are chosen.
    pub fn choose_seeds_from(&self, seed: u64) {
        self.state().seed = Some(seed);
    }

    /// Reads the tree of a port, and the statistics of its transmit queues. No queue is taken from
    /// its owner. `f` must not call the engine.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn read_tree<T>(
        &self,
        index: u32,
        f: impl FnOnce(&DeviceTree, &[QdiscStats]) -> T,
    ) -> Result<T, EngineError> {
        let state = self.state();
        let port = state.port(index)?;
        Ok(f(&port.tree, &port.queue_stats()))
    }

    /// Flows of an `fq_codel` in the tree of a port, as [`Live::flows`] has them. Takes queues from
    /// their owners for a moment.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn class_flows(
        &self,
        index: u32,
        from: Handle,
        most: usize,
    ) -> Result<Vec<(Handle, FlowStats)>, EngineError> {
        let mut state = self.control()?;
        let clock = state.clock.clone();
        let port = state.port_mut(index)?;
        Ok(port.tree.on((&*port.device, &clock)).flows(from, most)?)
    }

    /// A port's qdiscs and classes, each before those below it; none if there is no such port.
    /// Reads what the queues have published, and takes none from its owner.
    ///
    /// With a qdisc at each transmit queue, the first is `mq` (or `mqprio`) with the sums of all
    /// queues, and queue 0 is its class `:1`, as in tc.
    pub fn classes(&self, index: u32) -> Vec<ClassStats> {
        let state = self.state();
        let port = state.port(index);
        port.map_or_else(|_| Vec::new(), |port| port.classes())
    }

    /// A port's filters and what they have counted, in the order in which `tc filter show` has
    /// them; none if there is no such port. As [`classes`](Engine::classes), it takes no queue
    /// from its owner.
    pub fn filters(&self, index: u32) -> Vec<(FilterSpec, FilterStats)> {
        let state = self.state();
        let port = state.port(index);
        port.map_or_else(|_| Vec::new(), |port| port.filters())
    }

    /// Samples what is estimated and due, of all ports and of actions; see
    /// [`DeviceTree::sample_rates`] and
    /// [`ActionTable::sample_rates`](softnet_tc::ActionTable::sample_rates). Returns how long it is
    /// until the next is due; `None` if nothing is estimated.
    pub fn sample_rates(&self) -> Option<Duration> {
        let mut state = self.state();
        let now = state.clock.now();
        let mut next = state.actions.sample_rates(now);
        for port in state.ports.iter_mut().flatten() {
            if port.tree.rates_due().is_some() {
                let queues = port.queue_stats();
                port.tree.sample_rates(now, &queues);
                next = next.into_iter().chain(port.tree.rates_due()).min();
            }
        }
        next.map(|due: Time| due.since(now))
    }
}
