//! Links that filters name as those that packets were received on (`indev`).

use softnet_tc::Indev;

use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use super::state::State;

impl<D: Devices> Engine<D> {
    /// A link by its name, for filters of what it received. They follow it when it gets another
    /// name. Filters of trees and blocks that the engine is given as a whole find their links
    /// without this, also those that come later: it makes copies, which follow theirs.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn indev(&self, name: &str) -> Result<Indev, EngineError> {
        let mut state = self.state();
        let found = state.indev_at(name);
        let found = found.ok_or_else(|| EngineError::NoLinkNamed(name.to_owned()))?;
        Ok(state.indevs.add(name, Some(found)))
    }
}

impl<D: Devices> State<D> {
    /// One of the engine's own for the link that a specification names.
    pub(super) fn adopt_indev(&mut self, indev: &Indev) -> Indev {
        let name = indev.name();
        let found = self.indev_at(&name);
        self.indevs.add(name, found)
    }

    /// The link of a name, and its port. A bridge has none: what it forwards was received on the
    /// links that are part of it.
    pub(super) fn indev_at(&self, name: &str) -> Option<(u32, Option<u16>)> {
        let index = *self.names.get(name)?;
        Some((index, self.number(index).ok()))
    }
}
