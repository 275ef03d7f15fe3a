//! The actions of filters, which those of all ports share.

use softnet::time::Time;
use softnet_tc::{Action, ActionError, ActionSpec, ActionTable, TreeSpec};

use super::devices::Devices;
use super::life::Engine;
use super::state::State;

impl<D: Devices> Engine<D> {
    /// Reads or changes the table of actions; `f` is told the time, and must not call the engine.
    pub fn actions<T>(&self, f: impl FnOnce(&mut ActionTable, Time) -> T) -> T {
        let mut state = self.state();
        let now = state.clock.now();
        f(&mut state.actions, now)
    }

    /// Gives an action other parameters, for all filters that have it, while packets flow.
    ///
    /// # Errors
    /// If there is none of its kind and number.
    pub fn change_action(&self, spec: ActionSpec) -> Result<Action, ActionError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let clock = state.clock.clone();
        let action = state.actions.change(spec, clock.now())?;
        if action.binds() > 0 {
            for port in state.ports.iter_mut().flatten() {
                let mut live = port.tree.on((&*port.device, &clock));
                // A port that is being closed has no queue that could be changed.
                let _ = live.refresh_actions(&action);
            }
            state.follow_hooks();
            state.refresh_blocks(&action);
        }
        Ok(action)
    }
}

impl<D: Devices> State<D> {
    /// The same tree with actions that are in the table.
    pub(super) fn adopt_actions(&mut self, spec: &TreeSpec) -> TreeSpec {
        let now = self.clock.now();
        let mut spec = spec.clone();
        let table = &mut self.actions;
        spec.map_actions(|list| table.adopt(list, now));
        spec
    }

    /// Says which links `mirred` sends to, as far as there are links of those names.
    pub(super) fn resolve_actions(&self) {
        self.actions.resolve(|name| self.names.get(name).copied());
    }
}
