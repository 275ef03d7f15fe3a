//! What a port does with packets: qdisc, queue map, actions, steering. Changed while packets flow.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::state::State;
use super::{Engine, EngineError, MirredSpec, PortId};
use crate::Device;
use crate::forward::{Actions, Mirred};
use crate::rx::{Command, FlowTable, RxQueue, SteeringSpec};
use softnet::qdisc::QdiscStats;
use softnet::time::{Clock, Time};
use softnet::tx::{Egress, Features, QueueMap, TxRing};
use softnet_tc::rate::RateGroup;
use softnet_tc::{
    AnyQdisc, ClassStats, DeviceTree, FilterSpec, FilterStats, Live, QdiscSpec, SpecError,
};

/// The limits of a group of ports, one each way.
#[derive(Clone, Debug)]
pub struct RateLimits {
    /// What is sent to the ports.
    pub to: Arc<RateGroup>,
    /// What is received from them.
    pub from: Arc<RateGroup>,
}

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Replaces a port's qdisc, or its whole tree. What is queued moves to the new one, in order;
    /// what does not fit is dropped and counted.
    ///
    /// # Errors
    /// If there is no such port or the parameters are wrong; nothing is changed then.
    pub fn set_qdisc(&self, port: PortId, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        self.edit_tree(port, |tree| tree.set(qdisc.clone()))
    }

    /// Gives the qdisc at a port's root other parameters of its kind.
    ///
    /// # Errors
    /// If there is no such port, or the parameters are wrong or of another kind; nothing is changed
    /// then.
    pub fn change_qdisc(&self, port: PortId, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        self.edit_tree(port, |tree| {
            let root = tree.spec().root().map(|root| root.handle);
            tree.change(root.ok_or_else(|| SpecError::Change(qdisc.kind()))?, qdisc)
        })
    }

    /// Changes a port's tree while packets flow.
    ///
    /// # Errors
    /// If there is no such port, or what `f` fails with.
    pub fn edit_tree<T>(
        &self,
        port: PortId,
        f: impl FnOnce(&mut Live<'_, (&Device<R>, &Clock)>) -> Result<T, SpecError>,
    ) -> Result<T, EngineError> {
        let mut state = self.state();
        let port = self.port_mut(&mut state, port)?;
        let queues = (&*port.device, &self.clock);
        Ok(f(&mut port.tree.on(queues))?)
    }

    /// A port's qdiscs and classes, each before those below it; none if there is no such port.
    /// Reads what the queues have published, and takes none from its owner.
    ///
    /// With a qdisc at each transmit queue, the first is `mq` (or `mqprio`) with the sums of all
    /// queues, and queue 0 is its class `:1`, as in tc.
    pub fn classes(&self, port: PortId) -> Vec<ClassStats> {
        let mut state = self.state();
        let port = self.port_mut(&mut state, port);
        port.map_or_else(|_| Vec::new(), |port| port.classes())
    }

    /// A port's filters and what they have counted, in the order in which `tc filter show` has
    /// them; none if there is no such port. As [`classes`](Engine::classes), it takes no queue
    /// from its owner.
    pub fn filters(&self, port: PortId) -> Vec<(FilterSpec, FilterStats)> {
        let mut state = self.state();
        let port = self.port_mut(&mut state, port);
        port.map_or_else(|_| Vec::new(), |port| port.filters())
    }

    /// Shares a port's transmit queues out among traffic classes, workers and receive queues. The
    /// classes of an `mqprio` at its root are in force instead of these as long as it is there.
    ///
    /// # Errors
    /// If there is no such port or the map does not fit it; nothing is changed then.
    pub fn set_queue_map(&self, port: PortId, map: &QueueMap) -> Result<(), EngineError> {
        let state = self.state();
        self.port(&state, port)?.device.set_queue_map(map)?;
        Ok(())
    }

    /// Says what a port's driver does by itself from now on: a guest reconnected with other
    /// features. What is queued is made fit for them, or dropped.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_features(&self, port: PortId, features: Features) -> Result<(), EngineError> {
        let mut state = self.state();
        let port = self.port_mut(&mut state, port)?;
        port.set_features(features);
        Ok(())
    }

    /// Whether the default qdisc of a port is `noqueue` from now on.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_no_queue(&self, port: PortId, no_queue: bool) -> Result<(), EngineError> {
        self.edit_tree(port, |tree| {
            tree.set_no_queue(no_queue);
            Ok(())
        })
    }

    /// Whether a port's tree has an instance at each transmit queue from now on
    /// ([`QdiscEnv::parallel`](softnet_tc::QdiscEnv::parallel)). What is queued moves.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_parallel(&self, port: PortId, parallel: bool) -> Result<(), EngineError> {
        self.edit_tree(port, |tree| {
            tree.set_parallel(parallel);
            Ok(())
        })
    }

    /// The longest IP packet of a port from now on, in bytes.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_mtu(&self, port: PortId, mtu: u32) -> Result<(), EngineError> {
        let mut state = self.state();
        let port = self.port_mut(&mut state, port)?;
        let features = Features {
            mtu,
            ..port.features
        };
        port.set_features(features);
        Ok(())
    }

    /// Frames that a queue of the port holds where its qdisc is told nothing else, from now on. A
    /// `pfifo_fast` that stands there by default takes that many at once, as in the kernel.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_tx_queue_len(&self, port: PortId, frames: u32) -> Result<(), EngineError> {
        let mut state = self.state();
        let port = self.port_mut(&mut state, port)?;
        let queues = (&*port.device, &self.clock);
        port.tree.on(queues).set_tx_queue_len(frames)?;
        Ok(())
    }

    /// Takes a port up or down. One that is down neither forwards what it receives nor is
    /// forwarded to; what waits in its queues is dropped, and so is what is sent there. When this
    /// returns, every worker knows.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_up(&self, port: PortId, up: bool) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.port_mut(state, port)?;
        if known.up == up {
            return Ok(());
        }
        known.up = up;
        let device = known.device.clone();
        if up && known.open {
            device.activate().expect(super::state::OUTSIDE);
        }
        if up {
            self.publish_soon(state);
        } else {
            self.publish_and_sync(state);
            device.deactivate().expect(super::state::OUTSIDE);
            state.forget_learnt(port.index);
        }
        Ok(())
    }

    /// Reads a port's tree, and the statistics of its transmit queues. No queue is taken from its
    /// owner.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn read_tree<T>(
        &self,
        port: PortId,
        f: impl FnOnce(&DeviceTree, &[QdiscStats]) -> T,
    ) -> Result<T, EngineError> {
        let state = self.state();
        let port = self.port(&state, port)?;
        Ok(f(&port.tree, &port.queue_stats()))
    }

    /// Samples what is estimated and due, of all ports; see [`DeviceTree::sample_rates`]. Returns
    /// how long it is until the next is due; `None` if nothing is estimated.
    pub fn sample_rates(&self) -> Option<Duration> {
        let mut state = self.state();
        let now = self.clock.now();
        let mut next = None;
        for port in state.ports.iter_mut().flatten() {
            if port.tree.rates_due().is_some() {
                let queues = port.queue_stats();
                port.tree.sample_rates(now, &queues);
                next = next.into_iter().chain(port.tree.rates_due()).min();
            }
        }
        next.map(|due: Time| due.since(now))
    }

    /// Attaches actions to a port's egress, in place of those it has, in this order.
    ///
    /// # Errors
    /// If the port or the target of an action is none of this engine; nothing is changed then.
    pub fn set_actions(&self, port: PortId, actions: &[MirredSpec]) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        for action in actions {
            self.port(state, action.to)?;
        }
        self.port_mut(state, port)?.actions = actions.to_vec();
        if state.held.stale {
            // Workers may be sent packets of the targets as soon as it sends there.
            self.publish(state);
        }
        self.attach_actions(state, port.index);
        Ok(())
    }

    /// A port has another device: attaches its actions, and those of other ports that send there.
    pub(super) fn apply_actions(&self, state: &State<Q, R>, number: u16) {
        for (index, port) in (0..).zip(&state.ports) {
            let actions = port.iter().flat_map(|port| &port.actions);
            let mut actions = actions.filter(|a| self.port(state, a.to).is_ok());
            if index == number || actions.any(|action| action.to.index == number) {
                self.attach_actions(state, index);
            }
        }
    }

    fn attach_actions(&self, state: &State<Q, R>, number: u16) {
        let Some(port) = &state.ports[usize::from(number)] else {
            return;
        };
        let action = |a: &MirredSpec| {
            // Nothing, if it was removed: what is redirected there is dropped.
            let to = self.port(state, a.to);
            let to = to.map_or_else(|_| Weak::new(), |to| Arc::downgrade(&to.device));
            Mirred::new(a.mode, a.dir, to)
        };
        let actions: Vec<_> = port.actions.iter().map(action).collect();
        let egress = (!actions.is_empty())
            .then(|| Box::new(Actions::new(actions)) as Box<dyn Egress<R, AnyQdisc>>);
        port.device.set_egress(egress);
    }

    /// Steers what a port receives to workers by `spec` from now on: packets of a flow stay in
    /// order.
    ///
    /// # Errors
    /// If there is no such port, or `spec` names a worker that does not exist; nothing is changed
    /// then.
    pub fn set_steering(&self, port: PortId, spec: &SteeringSpec) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let workers = state.workers.len();
        if let Some(&worker) = spec.rps.iter().find(|&&worker| worker >= workers) {
            return Err(EngineError::NoSuchWorker { worker, workers });
        }
        self.port_mut(state, port)?.steering.clone_from(spec);
        // Every worker that packets may be steered to must know the port first.
        state.sync();
        for napi in &self.port(state, port)?.napis {
            let steer = Command::Steer(napi.clone(), spec.clone());
            state.workers[napi.worker()].tell(steer);
        }
        state.sync();
        Ok(())
    }

    /// Limits what a port sends and what is received from it, each together with the other ports
    /// of the group, or no more. What is over the limit waits: in the port's qdiscs, whichever
    /// they are, and where its driver has what it received. Nothing is dropped for it.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_rate_group(
        &self,
        port: PortId,
        group: Option<&RateLimits>,
    ) -> Result<(), EngineError> {
        self.edit_tree(port, |tree| {
            tree.set_group(group.map(|group| group.to.clone()));
            Ok(())
        })?;
        let mut guard = self.state();
        let state = &mut *guard;
        let from = group.map(|group| group.from.clone());
        self.port_mut(state, port)?.group.clone_from(&from);
        state.sync();
        for napi in &self.port(state, port)?.napis {
            let limit = from.as_ref().map(|group| Box::new(group.join()));
            let limit = Command::Limit(napi.clone(), limit);
            state.workers[napi.worker()].tell(limit);
        }
        state.sync();
        Ok(())
    }

    /// The clock that everything in it goes by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Where consumers of flows are recorded, for ports that [follow](crate::rx::Rfs::Follow)
    /// them. A program whose own threads consume packets records here on which worker's CPU they
    /// run.
    pub fn flows(&self) -> &Arc<FlowTable> {
        &self.flows
    }
}
