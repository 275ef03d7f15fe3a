//! The actions that filters share by their numbers, and those that were made for that
//! (`tc actions`; the kernel's `act_api.c`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use softnet::time::Time;

use super::instance::WeakAction;
use super::{Action, ActionKind, ActionList, ActionSpec, MirredTo};

/// Actions of one kind at most: more are refused, so that no client takes all memory.
const MOST: usize = 1 << 16;
/// Refusals for each time that the table is searched for those that are gone.
const REFUSALS: u32 = 1024;

/// Why an action cannot be made, changed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// One of this number and kind (`EEXIST`).
    #[error("there is an action of this kind and index; replace it, or choose another index")]
    Exists,
    /// None of this number and kind (`ENOENT`).
    #[error("TC action with specified index not found")]
    Missing,
    /// Filters have it (`EPERM`).
    #[error("Failed to delete TC action: filters have it; remove them before it")]
    Bound,
    /// No number is left, or there are as many as there may be (`ENOSPC`).
    #[error("there are 65536 actions of this kind, which are all that there may be")]
    Full,
}

impl ActionError {
    /// The kernel's number for it (`errno.h`).
    pub fn errno(self) -> i32 {
        match self {
            ActionError::Bound => 1,
            ActionError::Missing => 2,
            ActionError::Exists => 17,
            ActionError::Full => 28,
        }
    }
}

#[derive(Debug)]
struct Entry {
    action: WeakAction,
    /// Made to stay, whether filters have it or not.
    kept: Option<Action>,
}

/// All actions of a program, by kind and number.
#[derive(Debug, Default)]
pub struct ActionTable {
    kinds: [BTreeMap<u32, Entry>; ActionKind::NAMES.len()],
    /// Numbers below this one are in use, by kind.
    free_from: [Arc<AtomicU32>; ActionKind::NAMES.len()],
    /// Times that there were too many.
    refused: u32,
    /// The time of the next sample of a rate; `None`: none is estimated.
    rates_due: Option<Time>,
}

fn number(kind: &str) -> Option<usize> {
    ActionKind::NAMES.iter().position(|name| *name == kind)
}

impl ActionTable {
    /// The action of a kind and number.
    pub fn get(&self, kind: &str, index: u32) -> Option<Action> {
        self.kinds[number(kind)?].get(&index)?.action.get()
    }

    /// Actions of a kind from a number on, in their numbers' order.
    pub fn iter(&self, kind: &str, from: u32) -> impl Iterator<Item = Action> + use<'_> {
        let kind = number(kind).map(|kind| &self.kinds[kind]);
        let entries = kind.into_iter().flat_map(move |kind| kind.range(from..));
        entries.filter_map(|(_, entry)| entry.action.get())
    }

    /// True if an action was made to stay.
    pub fn is_kept(&self, action: &Action) -> bool {
        action.state().kept.load(Ordering::Relaxed) != 0
    }

    /// A new action, for a filter, or to stay.
    ///
    /// # Errors
    /// If there is one of its number, or no number for it.
    pub fn add(
        &mut self,
        spec: ActionSpec,
        stays: bool,
        now: Time,
    ) -> Result<Action, ActionError> {
        let kind = spec.kind.number();
        if self.get(spec.kind.name(), spec.index).is_some() {
            return Err(ActionError::Exists);
        }
        let action = Action::new(spec);
        self.put(kind, &action, stays, now)?;
        Ok(action)
    }

    fn put(
        &mut self,
        kind: usize,
        action: &Action,
        stays: bool,
        now: Time,
    ) -> Result<(), ActionError> {
        let entries = &mut self.kinds[kind];
        if entries.len() >= MOST {
            self.refused = self.refused.wrapping_add(1);
            if self.refused % REFUSALS != 1 {
                return Err(ActionError::Full);
            }
            entries.retain(|_, entry| entry.action.get().is_some());
            self.free_from[kind].store(1, Ordering::Relaxed);
            if entries.len() >= MOST {
                return Err(ActionError::Full);
            }
        }
        let index = match action.spec().index {
            0 => self.choose(kind).ok_or(ActionError::Full)?,
            index => index,
        };
        action.install(index, &self.free_from[kind], now);
        action.state().kept.store(stays.into(), Ordering::Relaxed);
        let entry = Entry {
            action: action.downgrade(),
            kept: stays.then(|| action.clone()),
        };
        self.kinds[kind].insert(index, entry);
        self.look_for_rates(action);
        Ok(())
    }

    fn look_for_rates(&mut self, action: &Action) {
        if action.spec().estimator.is_some() {
            self.rates_due = Some(Time::ZERO);
        }
    }

    /// Samples the counters of actions whose rates are estimated and due. Returns when to call this
    /// next; `None`: nothing is estimated. A rate counts from the first call after its action was
    /// added.
    pub fn sample_rates(&mut self, now: Time) -> Option<Time> {
        if self.rates_due.is_some_and(|due| due <= now) {
            let entries = self.kinds.iter().flat_map(BTreeMap::values);
            let due = entries.filter_map(|entry| entry.action.get()?.sample_rate(now));
            self.rates_due = due.min();
        }
        self.rates_due
    }

    /// The lowest number that is free.
    fn choose(&mut self, kind: usize) -> Option<u32> {
        let entries = &self.kinds[kind];
        let mut free = self.free_from[kind].load(Ordering::Relaxed).max(1);
        for (&index, entry) in entries.range(free..) {
            if index != free || entry.action.get().is_none() {
                break;
            }
            free = free.checked_add(1)?;
        }
        self.free_from[kind].store(free.saturating_add(1), Ordering::Relaxed);
        Some(free)
    }

    /// Other parameters for an action, in one step for all who look at the table. Filters have it
    /// as it was until they are [given](crate::FilterList::refresh) it.
    ///
    /// # Errors
    /// If there is none of its kind and number.
    pub fn change(&mut self, spec: ActionSpec, now: Time) -> Result<Action, ActionError> {
        let kind = spec.kind.number();
        let index = spec.index;
        let before = self.get(spec.kind.name(), index);
        let before = before.ok_or(ActionError::Missing)?;
        let action = before.changed(spec, now);
        self.look_for_rates(&action);
        if let Some(entry) = self.kinds[kind].get_mut(&index) {
            entry.action = action.downgrade();
            if let Some(kept) = &mut entry.kept {
                *kept = action.clone();
            }
        }
        Ok(action)
    }

    /// Removes an action that no filter has.
    ///
    /// # Errors
    /// If there is none, or a filter has it.
    pub fn delete(&mut self, kind: &str, index: u32) -> Result<Action, ActionError> {
        let action = self.get(kind, index).ok_or(ActionError::Missing)?;
        if action.binds() > 0 {
            return Err(ActionError::Bound);
        }
        self.remove(action.spec().kind.number(), index);
        Ok(action)
    }

    fn remove(&mut self, kind: usize, index: u32) {
        self.kinds[kind].remove(&index);
        self.free_from[kind].fetch_min(index, Ordering::Relaxed);
    }

    /// Removes actions of a kind in their order, up to one that a filter has. Returns how many
    /// were removed, and whether one is left.
    pub fn flush(&mut self, kind: &str) -> (u32, bool) {
        let mut gone = 0;
        loop {
            let first = self.iter(kind, 0).next();
            let Some(action) = first else { break };
            if action.binds() > 0 {
                return (gone, true);
            }
            self.remove(action.spec().kind.number(), action.index());
            gone += 1;
        }
        (gone, false)
    }

    /// The actions of a filter, each of which is in the table afterwards: that of the same number
    /// there takes the place of one that has a number of its own. `None`: they are.
    pub fn adopt(&mut self, list: &ActionList, now: Time) -> Option<ActionList> {
        let is_known = |table: &ActionTable, action: &Action| {
            let known = table.get(action.spec().kind.name(), action.index());
            known.is_some_and(|known| known.is_same(action))
        };
        if list.as_slice().iter().all(|action| is_known(self, action)) {
            return None;
        }
        let adopted = list.as_slice().iter().map(|action| {
            if is_known(self, action) {
                return action.clone();
            }
            let spec = action.spec();
            match self.get(spec.kind.name(), spec.index) {
                Some(known) => known,
                None => {
                    // The list may be a configuration's, which is no filter that has it.
                    let own = Action::new(spec.clone());
                    // Beyond what there may be, it is the filter's alone.
                    let _ = self.put(spec.kind.number(), &own, false, now);
                    own
                }
            }
        });
        let adopted: Vec<Action> = adopted.collect();
        Some(adopted.into_iter().collect())
    }

    /// Says which link each `mirred` sends to, by the links' names.
    pub fn resolve(&self, link: impl Fn(&str) -> Option<u32>) {
        for action in self.iter("mirred", 0) {
            if let ActionKind::Mirred(mirred) = &action.spec().kind
                && let MirredTo::Dev(name) = &mirred.to
                && action.link().is_none()
            {
                action.set_link(link(name));
            }
        }
    }

    /// A link is gone: nothing is sent there any more.
    pub fn link_gone(&self, link: u32) {
        for action in self.iter("mirred", 0) {
            if action.link() == Some(link) {
                action.set_link(None);
            }
        }
    }
}
