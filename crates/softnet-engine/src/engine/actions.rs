//! Actions on what leaves a port: redirected or mirrored to another port.

use std::sync::{Arc, Weak};

use super::devices::Devices;
use super::error::EngineError;
use super::info::LinkKind;
use super::life::Engine;
use super::spec::ActionSpec;
use super::state::State;
use crate::forward::{Actions, Departure, Mirred};
use softnet::tx::Egress;
use softnet_tc::{AnyQdisc, Side};

impl<D: Devices> Engine<D> {
    /// As [`set_actions`](Engine::set_actions), with the targets' names. What a port has already
    /// is not touched.
    pub(super) fn set_action_specs(
        &self,
        index: u32,
        actions: &[ActionSpec],
    ) -> Result<(), EngineError> {
        let actions = actions.iter().map(|action| {
            Ok(ActionSpec {
                mode: action.mode,
                dir: action.dir,
                to: self.link_named(&action.to)?.index,
            })
        });
        let actions: Vec<_> = actions.collect::<Result<_, EngineError>>()?;
        match self.link(index)?.actions() == actions {
            true => Ok(()),
            false => self.set_actions(index, &actions),
        }
    }

    /// Attaches actions to what leaves a port, in place of those it has, in this order; their
    /// targets are numbers of links.
    ///
    /// # Errors
    /// If the port or the target of an action is not there. Nothing is changed then.
    pub fn set_actions(&self, index: u32, actions: &[ActionSpec<u32>]) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let number = state.number(index)?;
        for action in actions {
            state.number(action.to)?;
        }
        if let LinkKind::Port { actions: known, .. } = &mut state.known_mut(index).kind {
            *known = actions.to_vec();
        }
        if state.held.stale {
            // Workers may be sent packets of the targets as soon as it sends there.
            state.publish();
        }
        state.attach_actions(number);
        Ok(())
    }
}

impl<D: Devices> State<D> {
    /// Attaches the actions of a port that has another device, and those that send there.
    pub(super) fn apply_actions(&mut self, number: u16) {
        let index = self.slot(number).index;
        let links = self.links.clone();
        for link in links.values().filter(|link| !link.is_bridge()) {
            if link.index == index || link.actions().iter().any(|action| action.to == index) {
                self.attach_actions(link.number);
            }
        }
    }

    fn attach_actions(&mut self, number: u16) {
        let actions = self.link_at(number).map_or(&[][..], |link| link.actions());
        let action = |action: &ActionSpec<u32>| {
            // Nothing, if it was removed: what is redirected there is dropped.
            let to = self.port(action.to);
            let to = to.map_or_else(|_| Weak::new(), |to| Arc::downgrade(&to.device));
            Mirred::new(action.mode, action.dir, number, to)
        };
        let actions: Vec<_> = actions.iter().map(action).collect();
        self.slot_mut(number).actions = Arc::new(Actions::new(actions));
        self.attach_departure(number);
    }

    /// Attaches the egress hook of a port, if it has filters, and its actions, if it has some.
    pub(super) fn attach_departure(&self, number: u16) {
        let port = self.slot(number);
        let actions = port.actions.clone();
        let hooks = port.hooks.clone();
        let hooks = hooks.filter(|hooks| hooks.is_active(Side::Egress));
        let is_any = hooks.is_some() || !actions.is_empty();
        let departure =
            || -> Box<dyn Egress<D::Tx, AnyQdisc>> { Box::new(Departure { hooks, actions }) };
        port.device.set_egress(is_any.then(departure));
    }
}
