//! Links that filters name as those that packets were received on (`indev`).

use softnet_tc::{ChainTemplate, FilterKind, FilterSpec, Indev};

use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use super::state::State;

impl<D: Devices> Engine<D> {
    /// A link by its name, for filters of what it received. They follow it when it gets another
    /// name. Filters of trees and blocks that the engine is given as a whole find their links
    /// without this, also those that come later.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn indev(&self, name: &str) -> Result<Indev, EngineError> {
        let mut state = self.state();
        let found = state.indev_at(name);
        let found = found.ok_or_else(|| EngineError::NoLinkNamed(name.to_owned()))?;
        let indev = Indev::new(name);
        state.indevs.add(&indev, Some(found));
        Ok(indev)
    }
}

impl<D: Devices> State<D> {
    /// Has filters and templates know the links that they name.
    pub(super) fn adopt_indevs<'a>(
        &mut self,
        filters: impl Iterator<Item = &'a FilterSpec>,
        templates: impl Iterator<Item = Option<&'a ChainTemplate>>,
    ) {
        let of_filters = filters.filter_map(|filter| match &filter.kind {
            FilterKind::Flower(flower) => flower.indev.as_ref(),
            FilterKind::U32(of) => of.indev.as_ref(),
            _ => None,
        });
        let of_templates = templates.filter_map(|template| template?.flower.indev.as_ref());
        for indev in of_filters.chain(of_templates) {
            let found = self.indev_at(&indev.name());
            self.indevs.add(indev, found);
        }
    }

    /// The link of a name, and its port. A bridge has none: what it forwards was received on the
    /// links that are part of it.
    pub(super) fn indev_at(&self, name: &str) -> Option<(u32, Option<u16>)> {
        let index = *self.names.get(name)?;
        Some((index, self.number(index).ok()))
    }
}
