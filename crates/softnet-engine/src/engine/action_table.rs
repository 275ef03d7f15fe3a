//! The actions of filters, which those of all ports share.

use softnet::time::Time;
use softnet_tc::{
    Action, ActionError, ActionKind, ActionSpec, ActionTable, FilterList, MirredTo, QdiscSpec,
    TreeSpec,
};

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
        self.state().change_action(spec)
    }
}

impl<D: Devices> State<D> {
    fn change_action(&mut self, spec: ActionSpec) -> Result<Action, ActionError> {
        let clock = self.clock.clone();
        let action = self.actions.change(spec, clock.now())?;
        if action.binds() > 0 {
            for port in self.ports.iter_mut().flatten() {
                let mut live = port.tree.on((&*port.device, &clock));
                // A port that is being closed has no queue that could be changed.
                let _ = live.refresh_actions(&action);
            }
            self.follow_hooks();
            self.refresh_blocks(&action);
        }
        Ok(action)
    }

    /// The same tree with actions that are in the table, and filters that know the links that they
    /// name.
    pub(super) fn adopt_actions(&mut self, spec: &TreeSpec) -> TreeSpec {
        let now = self.clock.now();
        let mut spec = spec.clone();
        let table = &mut self.actions;
        spec.map_actions(|list| table.adopt(list, now));
        spec.map_indevs(|indev| self.adopt_indev(indev));
        spec
    }

    /// As [`adopt_actions`](State::adopt_actions), for what may be a tree.
    pub(super) fn adopt_in(&mut self, qdisc: &QdiscSpec) -> QdiscSpec {
        match qdisc {
            QdiscSpec::Tree(tree) => QdiscSpec::Tree(self.adopt_actions(tree)),
            other => other.clone(),
        }
    }

    /// As [`adopt_actions`](State::adopt_actions), for the filters of a block.
    pub(super) fn adopt_in_block(&mut self, list: &FilterList) -> FilterList {
        let now = self.clock.now();
        let mut list = list.clone();
        let table = &mut self.actions;
        list.map_actions(|actions| table.adopt(actions, now));
        list.map_indevs(|indev| self.adopt_indev(indev));
        list
    }

    /// Has actions that send to a link, and filters of what it received, name it as it is called
    /// now, and those that wait for a link of this name find it.
    pub(super) fn follow_name(&mut self, link: u32, name: &str) {
        self.indevs.link_renamed(link, name);
        let of_link = self.actions.iter("mirred", 0);
        let of_link: Vec<Action> = of_link.filter(|a| a.link() == Some(link)).collect();
        for action in of_link {
            let mut spec = action.spec().clone();
            spec.index = action.index();
            if let ActionKind::Mirred(mirred) = &mut spec.kind {
                mirred.to = MirredTo::Dev(name.into());
                // It is in the table.
                let _ = self.change_action(spec);
            }
        }
        self.resolve_actions();
    }

    /// Says which links `mirred` sends to, and which those are that filters look for, as far as
    /// there are links of those names.
    pub(super) fn resolve_actions(&self) {
        self.actions.resolve(|name| self.names.get(name).copied());
        self.indevs.resolve(|name| self.indev_at(name));
    }
}
