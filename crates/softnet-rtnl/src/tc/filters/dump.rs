//! Dumps of filters and chains.

use softnet_engine::{Devices, Engine};
use softnet_tc::{FilterKey, FilterKind, Handle};

use super::home::{Home, OF_BLOCK, View};
use super::shown::{Part, Shown};
use super::{RTM_GETCHAIN, RTM_NEWTFILTER, chain, kinds, parent};
use crate::nl::{Chunk, Error, Full, Position, Progress};
use crate::tc::actions::ShownAt;
use crate::tc::place::Place;
use crate::tc::{Asked, TCA_CHAIN};

/// Which filters are asked for.
struct Filter {
    home: Home,
    chain: Option<u32>,
    /// 0: all.
    prio: u16,
    /// 0: all.
    protocol: u16,
    at: ShownAt,
}

/// Dumps the filters of a qdisc or class, or the chains that they are in. What is not there has
/// none (`tc_dump_tfilter`, `tc_dump_chain`).
pub(in crate::tc) fn dump<D: Devices>(
    engine: &Engine<D>,
    asked: &Asked<'_>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let Some(home) = home(engine, asked) else {
        return Ok(Progress::Done);
    };
    let filter = Filter {
        home,
        chain: asked.attrs.u32(TCA_CHAIN)?,
        prio: (asked.header.info >> 16) as u16,
        protocol: u16::from_be(asked.header.info as u16),
        at: ShownAt::of(engine),
    };
    let dumped = home.read(engine, |view| {
        Ok(match asked.request.kind {
            RTM_GETCHAIN => chain::dump(view.list, home, filter.chain, position, chunk),
            _ => dump_list(view, &filter, position, chunk),
        })
    });
    // What is not there has none.
    Ok(match dumped.unwrap_or(Ok(())) {
        Ok(()) => Progress::Done,
        Err(Full) => Progress::More,
    })
}

/// The place that is asked for: of a hook with a block, the block.
fn home<D: Devices>(engine: &Engine<D>, asked: &Asked<'_>) -> Option<Home> {
    if asked.header.ifindex == OF_BLOCK {
        return Some(Home::Block(asked.header.parent));
    }
    let link = asked.link(engine).ok()?;
    let home = Place::read(engine, link, |place| {
        let parent = parent(&place, Handle::from_raw(asked.header.parent));
        let hook = place.tree.spec().hook_of(parent);
        let side = hook.and_then(|hook| Some(hook.side(hook.side_of(parent).ok()?)));
        match side.map_or(0, |side| side.block) {
            0 => Home::Link(link, parent),
            block => Home::Block(block),
        }
    });
    home.ok()
}

/// The position is a filter, or with handle 0 a priority, which is shown before its filters.
fn dump_list(
    view: &View<'_>,
    filter: &Filter,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<(), Full> {
    // No priority is 0.
    let mut at = (position.key != 0).then_some(FilterKey {
        chain: position.stage,
        prio: (position.key >> 32) as u16,
        handle: position.key as u32,
    });
    let of_chain = |chain| FilterKey {
        chain,
        ..FilterKey::default()
    };
    let from = at.or_else(|| filter.chain.map(of_chain));
    let shown = view.list.shown_from(from);
    for (spec, stats) in shown.map(|filter| view.sum(filter)) {
        if filter.chain.is_some_and(|chain| chain != spec.chain) {
            // Those of a chain are one after the other.
            return Ok(());
        }
        if filter.prio != 0 && filter.prio != spec.prio
            || filter.protocol != 0 && filter.protocol != spec.protocol
        {
            continue;
        }
        kinds::ask_drivers(spec);
        let same = at.filter(|at| (at.chain, at.prio) == (spec.chain, spec.prio));
        let mut parts = [None, Some((spec.handle, Part::Filter(&stats)))];
        if same.is_none_or(|at| at.handle == 0) {
            parts[0] = Some((0, Part::Priority));
        }
        if spec.kind == FilterKind::FwClass {
            parts[1] = None;
        }
        for (handle, part) in parts.into_iter().flatten() {
            position.stage = spec.chain;
            position.key = u64::from(spec.prio) << 32 | u64::from(handle);
            let shown = Shown::new(filter.home, spec, part, filter.at);
            chunk.message(RTM_NEWTFILTER, 0, &shown.header(), |out| shown.put(out))?;
        }
        at = Some(spec.key());
    }
    Ok(())
}
