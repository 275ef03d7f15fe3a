//! Counters of the engine that runs: for metrics, and for `softnet stats`.

use std::collections::BTreeMap;
use std::sync::{Mutex, Weak};

use softnet_engine::EngineStats;

use super::lock;
use crate::metrics::Sample;
use crate::selection::Selection;
use crate::setup::Engine;

/// Counters for metrics as they are now; none when the daemon ends.
pub(super) fn sample(engine: &Weak<Mutex<Engine>>, classes: usize) -> Option<Sample> {
    let engine = engine.upgrade()?;
    let engine = lock(&engine);
    let groups = engine.rate_groups().into_iter();
    let groups = groups.map(|(name, spec)| (name, (spec, Vec::new())));
    let mut groups: BTreeMap<_, _> = groups.collect();
    for link in engine.links().values() {
        let group = link
            .options()
            .and_then(|options| options.rate_group.as_ref());
        if let Some((_, ports)) = group.and_then(|group| groups.get_mut(group)) {
            ports.push(link.settings.name.clone());
        }
    }
    let mut stats = engine.stats();
    // Filters, of which there may be as many, have no metrics.
    for port in &mut stats.ports {
        if let Ok(link) = engine.link_named(&port.name) {
            port.classes = engine.classes(link.index);
        }
    }
    Some(Sample {
        stats,
        groups,
        classes,
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// All counters, with those of qdiscs, classes and filters where they are selected. Takes no queue
/// from its owner.
pub(super) fn selected(engine: &Engine, selection: &Selection) -> EngineStats {
    let mut stats = engine.stats();
    for port in &mut stats.ports {
        if selection.has_classes(&port.name)
            && let Ok(link) = engine.link_named(&port.name)
        {
            port.classes = engine.classes(link.index);
            port.filters = engine.filters(link.index);
        }
    }
    stats
}
