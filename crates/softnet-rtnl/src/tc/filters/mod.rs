//! `RTM_*TFILTER` and `RTM_*CHAIN`: what `tc filter` and `tc chain` ask for.
//!
//! Source: `net/sched/cls_api.c`.

mod action;
mod basic;
mod chain;
mod dump;
mod flower;
mod fw;
mod home;
mod indev;
mod kinds;
mod matchall;
mod shown;
#[cfg(test)]
mod tests;
mod u32;

use softnet_engine::{Devices, Engine};
use softnet_tc::{
    ActionList, FilterError, FilterKey, FilterKind, FilterList, FilterOp, FilterSelector,
    FilterSpec, Handle, QdiscSpec, Side,
};

use super::actions::{self, ShownAt};
use super::place::Place;
use super::{
    Asked, RTM_DELCHAIN, RTM_DELTFILTER, RTM_GETCHAIN, RTM_GETTFILTER, RTM_NEWCHAIN,
    RTM_NEWTFILTER, RTNLGRP_TC, TCA_CHAIN, TCA_OPTIONS, TCA_RATE, refusal,
};
use crate::nl::{Errno, Error, NLM_F_CREATE, NLM_F_EXCL, Replies};

pub(in crate::tc) use self::chain::tell as tell_chain;
pub(super) use self::dump::dump;
pub(in crate::tc) use self::home::{Home, OF_BLOCK};
pub(in crate::tc) use self::shown::{Part, Shown};

/// `TC_ACT_EXT_VAL_MASK`
const MAX_CHAIN: u32 = (1 << 28) - 1;

/// The filters that a request is about.
#[derive(Clone, Copy)]
struct Which<'a> {
    home: Home,
    key: FilterKey,
    /// 0: any.
    protocol: u16,
    kind: Option<&'a str>,
}

impl<'a> Which<'a> {
    /// For a request that is not a dump (`__tcf_qdisc_find`).
    fn read<D: Devices>(engine: &Engine<D>, asked: &Asked<'a>) -> Result<Which<'a>, Error> {
        let home = match asked.header.ifindex {
            OF_BLOCK => Home::Block(asked.header.parent),
            _ => {
                let named = Handle::from_raw(asked.header.parent);
                let link = asked.link(engine)?;
                Home::Link(
                    link,
                    Place::read(engine, link, |place| parent(&place, named))?,
                )
            }
        };
        let which = Which {
            home,
            key: FilterKey {
                chain: asked.attrs.u32(TCA_CHAIN)?.unwrap_or(0),
                prio: (asked.header.info >> 16) as u16,
                handle: asked.header.handle,
            },
            protocol: u16::from_be(asked.header.info as u16),
            kind: asked.kind()?,
        };
        home.read(engine, |_| Ok(()))?;
        if which.key.chain > MAX_CHAIN {
            return Err(refusal::filter(&FilterError::Chain(which.key.chain)));
        }
        Ok(which)
    }

    fn selector(&self) -> FilterSelector<'a> {
        FilterSelector {
            key: self.key,
            protocol: self.protocol,
            kind: self.kind,
        }
    }
}

/// The filters of a parent.
fn list<'p>(place: &Place<'p>, parent: Handle) -> Result<&'p FilterList, Error> {
    let list = match place.root() {
        // What came by itself has no filters.
        Some(root) if parent == Handle::NONE => Err(match root.spec {
            QdiscSpec::Mq | QdiscSpec::CakeMq(_) => FilterError::NoBlocks(root.handle),
            _ => FilterError::NotClassful(root.handle),
        }),
        _ => place.tree.spec().filters_of(parent),
    };
    list.map_err(|error| refusal::filter(&error))
}

/// The filters' parent that a request names: the qdisc at the root if none.
fn parent(place: &Place<'_>, named: Handle) -> Handle {
    let root = place.root().filter(|_| named == Handle::NONE);
    root.map_or(named, |root| root.handle)
}

/// Answers a request that is not a dump.
pub(super) fn request<D: Devices>(
    engine: &Engine<D>,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let prio = asked.header.info >> 16;
    match asked.request.kind {
        RTM_NEWTFILTER if prio == 0 && !asked.request.has(NLM_F_CREATE) => {
            return Err(refusal::filter(&FilterError::ZeroPrio));
        }
        RTM_DELTFILTER
            if prio == 0
                && (asked.header.info != 0
                    || asked.header.handle != 0
                    || asked.kind()?.is_some()) =>
        {
            return Err(refusal::filter(&FilterError::Flush));
        }
        RTM_GETTFILTER if prio == 0 => return Err(refusal::filter(&FilterError::ZeroPrio)),
        _ => {}
    }
    let which = Which::read(engine, asked)?;
    match asked.request.kind {
        RTM_NEWTFILTER => put(engine, which, asked, replies),
        RTM_DELTFILTER => delete(engine, which, asked, replies),
        RTM_GETTFILTER => get(engine, which, asked, replies),
        _ => chain::request(engine, which, asked, replies),
    }
}

/// Adds a filter, or changes one (`tc_new_tfilter`).
fn put<D: Devices>(
    engine: &Engine<D>,
    mut which: Which<'_>,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let home = which.home;
    let at = ShownAt::of(engine);
    let (op, mut spec, effect, makes_chain) = home.read(engine, |view| {
        let list = view.list;
        let makes_chain = !list.has_chain(which.key.chain);
        // Those of a priority are of one kind and protocol.
        let beside = list.one_each(which.key.chain, which.key.prio).next();
        let beside = beside.filter(|beside| beside.prio == which.key.prio);
        let kind = which
            .kind
            .or_else(|| beside.map(|beside| beside.kind.name()));
        if which.protocol == 0 {
            which.protocol = beside.map_or(0, |beside| beside.protocol);
        }
        let Some(kind) = kind.filter(|_| which.protocol != 0) else {
            let text = "Filter kind and protocol must be specified";
            return Err(Error::invalid(text));
        };
        let op = check(list, &which, asked.request.flags)?;
        kinds::check_kind(kind)?;
        // Whatever is wrong with its options.
        if kind != "flower" && list.template(which.key.chain).is_some() {
            return Err(refusal::filter(&FilterError::TemplateKind));
        }
        let before = list.get(which.key).ok().map(|(before, _)| before);
        let options = asked.attrs.get(TCA_OPTIONS);
        let parsed = kinds::parse(kind, options, &which, before, list)?;
        let spec = FilterSpec {
            parent: home.parent(),
            chain: which.key.chain,
            prio: which.key.prio,
            protocol: which.protocol,
            handle: parsed.handle,
            kind: parsed.kind,
            class: parsed.effect.class,
            actions: ActionList::default(),
            skip_hw: parsed.effect.flags.skip_hw,
        };
        Ok((op, spec, parsed.effect, makes_chain))
    })?;
    indev::find(engine, spec.kind.indev_mut())?;
    let rate = asked.attrs.get(TCA_RATE);
    let binds = actions::Binds {
        filter: effect.flags,
        at_ingress: spec.parent == Side::Ingress.parent(),
    };
    spec.actions = actions::bind(engine, &effect.actions, binds, rate)?;
    let is_fw_class = spec.kind == FilterKind::FwClass;
    // The kernel shows the priority alone of a new `matchall`, too (`mall_change`).
    let alone = [
        FilterKind::FwClass,
        FilterKind::U32Root,
        FilterKind::Matchall,
    ];
    let is_priority = alone.contains(&spec.kind);
    let key = home.put(engine, op, spec)?;
    if makes_chain {
        chain::tell(home, RTM_NEWCHAIN, key.chain, None, replies);
    }
    let flags = asked.request.flags;
    home.read(engine, |view| {
        if is_fw_class && view.list.get(key).is_err() {
            return Ok(());
        }
        let found = view.list.get(key);
        let found = found.map_err(|error| refusal::filter(&error))?;
        let (spec, stats) = view.sum(found);
        let part = match is_priority {
            true => Part::Priority,
            false => Part::Filter(&stats),
        };
        let shown = Shown::new(home, spec, part, at);
        tell(replies, RTM_NEWTFILTER, flags, &shown);
        Ok(())
    })
}

/// Operation of a request, as far as that does not depend on the options.
fn check(list: &FilterList, which: &Which<'_>, flags: u16) -> Result<FilterOp, Error> {
    let creates = flags & NLM_F_CREATE != 0;
    let excludes = flags & NLM_F_EXCL != 0;
    let refusal = match list.get(which.selector()) {
        Err(error @ (FilterError::Protocol(_) | FilterError::Kind { .. })) => Some(error),
        Ok(_) if excludes => Some(FilterError::Exists(which.key.prio)),
        Err(_) if !creates => Some(FilterError::Create),
        _ => None,
    };
    match refusal {
        Some(error) => Err(refusal::filter(&error)),
        None if !creates => Ok(FilterOp::Change),
        None if excludes => Ok(FilterOp::Add),
        None => Ok(FilterOp::Replace),
    }
}

/// Removes a filter, those of a priority, or those of a chain (`tc_del_tfilter`).
fn delete<D: Devices>(
    engine: &Engine<D>,
    which: Which<'_>,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let FilterKey {
        chain,
        prio,
        handle,
    } = which.key;
    let (home, flags) = (which.home, asked.request.flags);
    let at = ShownAt::of(engine);
    let has_chain = || home.read(engine, |view| Ok(view.list.has_chain(chain)));
    let was_there = has_chain()?;
    let gone = home.read(engine, |view| {
        let list = view.list;
        if handle != 0 {
            let gone = list.get(which.key).ok();
            let gone = gone.map(|gone| view.sum(gone));
            let gone = gone.map(|(spec, stats)| (spec.clone(), Some(stats)));
            return Ok(gone.into_iter().collect());
        }
        let gone = list.one_each(chain, prio);
        let gone = gone.take_while(|spec| prio == 0 || spec.prio == prio);
        Ok::<Vec<_>, Error>(gone.map(|spec| (spec.clone(), None)).collect())
    })?;
    home.delete(engine, which.selector())?;
    for (spec, stats) in &gone {
        let part = stats.as_ref().map_or(Part::Priority, Part::Filter);
        let shown = Shown::new(home, spec, part, at);
        tell(replies, RTM_DELTFILTER, flags, &shown);
    }
    if was_there && !has_chain()? {
        chain::tell(home, RTM_DELCHAIN, chain, None, replies);
    }
    Ok(())
}

/// Shows one filter (`tc_get_tfilter`).
fn get<D: Devices>(
    engine: &Engine<D>,
    which: Which<'_>,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let at = ShownAt::of(engine);
    which
        .home
        .read(engine, |view| match view.list.get(which.selector()) {
            Ok(found) => {
                let (spec, stats) = view.sum(found);
                kinds::ask_drivers(spec);
                let shown = Shown::new(which.home, spec, Part::Filter(&stats), at);
                let (flags, header) = (asked.request.flags, shown.header());
                replies.message(RTM_NEWTFILTER, flags, &header, |out| shown.put(out))
            }
            Err(error @ FilterError::NoChain) => Err(Error {
                errno: Errno::EINVAL,
                ..refusal::filter(&error)
            }),
            Err(error) => Err(refusal::filter(&error)),
        })
}

/// With the flags of the request, as the kernel does it.
pub(in crate::tc) fn tell(replies: &mut Replies, kind: u16, flags: u16, shown: &Shown<'_>) {
    replies.publish(RTNLGRP_TC, kind, flags, &shown.header(), |out| {
        shown.put(out);
    });
}
