//! Hooks of ports, and the blocks of filters that they share: the control path's side.

use std::collections::HashMap;
use std::sync::Arc;

use softnet_tc::{
    Action, Block, FilterError, FilterKey, FilterList, FilterOp, FilterSelector, FilterSpec, Side,
    SpecError,
};

use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use super::state::State;
use crate::forward::{Copies, HookCounts, Hooks, Targets};

impl<D: Devices> Engine<D> {
    /// Counters of a port's hooks, from when their qdisc was added.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn hook_counts(&self, index: u32) -> Result<HookCounts, EngineError> {
        let state = self.state();
        let hooks = state.port(index)?.hooks.as_ref();
        Ok(hooks.map_or_else(HookCounts::default, |hooks| hooks.counts()))
    }

    /// Reads a block of filters. `f` must not call the engine.
    ///
    /// # Errors
    /// If no hook has it.
    pub fn read_block<T>(
        &self,
        number: u32,
        f: impl FnOnce(&Block) -> T,
    ) -> Result<T, EngineError> {
        let state = self.state();
        let block = state.filter_blocks.get(&number);
        block.map(f).ok_or_else(|| no_block(number))
    }

    /// Numbers of the blocks.
    pub fn blocks(&self) -> Vec<u32> {
        self.state().filter_blocks.keys().copied().collect()
    }

    /// Adds or changes a filter of a block; see [`FilterList::put`].
    ///
    /// # Errors
    /// If no hook has the block, or as there. Nothing is changed then.
    pub fn put_in_block(
        &self,
        number: u32,
        op: FilterOp,
        filter: FilterSpec,
    ) -> Result<FilterKey, EngineError> {
        self.edit_block(number, |block| block.put(op, filter))
    }

    /// Removes filters of a block; see [`FilterList::delete`].
    ///
    /// # Errors
    /// If no hook has the block, or as there. Nothing is changed then.
    pub fn delete_in_block(
        &self,
        number: u32,
        which: FilterSelector<'_>,
    ) -> Result<(), EngineError> {
        self.edit_block(number, |block| block.delete(which))
    }

    /// Gives a block other filters, if they are others.
    ///
    /// # Errors
    /// If no hook has it.
    pub(super) fn set_block(&self, number: u32, list: &FilterList) -> Result<(), EngineError> {
        match self.read_block(number, |block| block.list() == list)? {
            true => Ok(()),
            false => {
                let list = self.state().adopt_in_block(list);
                self.edit_block(number, |block| {
                    block.set(list);
                    Ok(())
                })?;
                self.state().resolve_actions();
                Ok(())
            }
        }
    }

    /// Changes the filters of a block.
    ///
    /// # Errors
    /// If no hook has it, or what `f` fails with. Nothing is changed then.
    pub fn edit_block<T>(
        &self,
        number: u32,
        f: impl FnOnce(&mut Block) -> Result<T, FilterError>,
    ) -> Result<T, EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let block = state.filter_blocks.get_mut(&number);
        let block = block.ok_or_else(|| no_block(number))?;
        let result = f(block).map_err(SpecError::from)?;
        let copies = Copies::new(block.filters());
        state.give_block(number, copies.as_ref());
        Ok(result)
    }
}

fn no_block(number: u32) -> EngineError {
    EngineError::Qdisc(FilterError::UnknownBlock(number).into())
}

impl<D: Devices> State<D> {
    /// Has a port's hooks run what its tree says by now.
    pub(super) fn follow_hook(&mut self, number: u16) {
        let port = self.slot_mut(number);
        let changed = Side::ALL.map(|side| port.tree.take_hook_change(side));
        if changed.iter().all(Option::is_none) {
            return;
        }
        let hook = port.tree.spec().hook().cloned();
        let index = port.index;
        let had = port.hooks.is_some();
        if had != hook.is_some() {
            let targets = self.targets.clone();
            let hooks = hook.is_some().then(|| Hooks::new(number, index, targets));
            let old = std::mem::replace(&mut self.slot_mut(number).hooks, hooks.map(Arc::new));
            // Views that workers still have must not run it.
            for (old, side) in old.iter().flat_map(|old| Side::ALL.map(|side| (old, side))) {
                old.set(side, None);
            }
        }
        let blocks = hook
            .iter()
            .flat_map(|hook| Side::ALL.map(|side| hook.side(side).block));
        let copies = self.workers.len();
        for block in blocks.filter(|&block| block != 0) {
            let blocks = &mut self.filter_blocks;
            blocks.entry(block).or_insert_with(|| Block::new(copies));
        }
        self.forget_blocks();
        for (side, changed) in Side::ALL.into_iter().zip(changed) {
            let block = hook.as_ref().map_or(0, |hook| hook.side(side).block);
            let copies = match (block, changed) {
                (0, Some(filters)) => Copies::new(filters),
                (0, None) => continue,
                (block, _) => {
                    let block = self.filter_blocks.get(&block);
                    block.and_then(|block| Copies::new(block.filters()))
                }
            };
            if let Some(hooks) = &self.slot(number).hooks {
                hooks.set(side, copies);
            }
        }
        self.attach_departure(number);
        self.set_targets();
        if had != hook.is_some() {
            self.publish_soon();
        }
    }

    /// As [`follow_hook`](State::follow_hook), for all ports.
    pub(super) fn follow_hooks(&mut self) {
        let numbers = (0..self.ports.len()).filter(|&number| self.ports[number].is_some());
        let numbers: Vec<u16> = numbers.map(|number| number as u16).collect();
        numbers
            .into_iter()
            .for_each(|number| self.follow_hook(number));
    }

    /// Has blocks run an action as it is now.
    pub(super) fn refresh_blocks(&mut self, action: &Action) {
        let mut changed = Vec::new();
        for (&number, block) in &mut self.filter_blocks {
            if block.refresh(action) {
                changed.push((number, Copies::new(block.filters())));
            }
        }
        for (number, copies) in changed {
            self.give_block(number, copies.as_ref());
        }
    }

    /// Forgets blocks that no hook has any more.
    pub(super) fn forget_blocks(&mut self) {
        if self.filter_blocks.is_empty() {
            return;
        }
        let used = self.links_of_blocks();
        self.filter_blocks
            .retain(|block, _| used.contains_key(block));
    }

    /// Numbers of the links whose hooks have a block, by its number.
    fn links_of_blocks(&self) -> HashMap<u32, Vec<u32>> {
        let mut of = HashMap::<u32, Vec<u32>>::new();
        for port in self.ports.iter().flatten() {
            for side in Side::ALL {
                let hook = port.tree.spec().hook();
                let block = hook.map_or(0, |hook| hook.side(side).block);
                if block != 0 {
                    let links = of.entry(block).or_default();
                    if links.last() != Some(&port.index) {
                        links.push(port.index);
                    }
                }
            }
        }
        of
    }

    /// Gives the hooks that have a block its filters.
    fn give_block(&self, number: u32, copies: Option<&Arc<Copies>>) {
        for port in self.ports.iter().flatten() {
            let (Some(hook), Some(hooks)) = (port.tree.spec().hook(), &port.hooks) else {
                continue;
            };
            for side in Side::ALL {
                if hook.side(side).block == number {
                    let was_active = hooks.is_active(side);
                    hooks.set(side, copies.cloned());
                    if side == Side::Egress
                        && was_active != copies.is_some()
                        && let Some(link) = self.links.get(&port.index)
                    {
                        self.attach_departure(link.number);
                    }
                }
            }
        }
    }

    /// Takes note of the links that actions may send to.
    pub(super) fn set_targets(&self) {
        let ports = self.ports.iter().flatten();
        let links = ports.map(|port| (port.index, Arc::downgrade(&port.device)));
        self.targets.set(Targets {
            links: links.collect(),
            blocks: self.links_of_blocks(),
        });
    }
}
