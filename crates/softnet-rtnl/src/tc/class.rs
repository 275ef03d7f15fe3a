//! `RTM_*TCLASS`: what `tc class` asks for.

use softnet_engine::{Devices, Engine};
use softnet_tc::{Handle, LinkDefaults, QdiscSpec};

use super::kinds;
use super::place::{Place, has_classes};
use super::refusal;
use super::shown::{Class, Flow};
use super::{
    Asked, RTM_DELTCLASS, RTM_NEWTCLASS, RTNLGRP_TC, TCA_EGRESS_BLOCK, TCA_INGRESS_BLOCK,
    TCA_OPTIONS,
};
use crate::nl::{
    Chunk, Errno, Error, Full, NLM_F_CREATE, NLM_F_EXCL, Position, Progress, Replies,
};

/// Flows that are read at once. As long as that takes, their queues are not served.
const FLOWS: usize = 256;

/// Subject of a request.
struct Named {
    /// The class; [`Handle::NONE`] if it names none.
    class: Handle,
    /// Parent that it is to have: a class that is there, or the qdisc.
    above: Handle,
    /// The qdisc's parameters.
    qdisc: QdiscSpec,
    /// The class as it is, if it is there.
    before: Option<Class>,
    link: LinkDefaults,
}

/// The qdisc and class of a request (`__tc_ctl_tclass`).
fn named(place: &Place<'_>, asked: &Asked<'_>) -> Result<Named, Error> {
    let parent = Handle::from_raw(asked.header.parent);
    let class = Handle::from_raw(asked.header.handle);
    let root = || place.root().map_or(Handle::NONE, |root| root.handle);
    let mut qdisc = class.qdisc();
    if parent != Handle::ROOT && parent.major() != 0 {
        if qdisc != Handle::NONE && qdisc != parent.qdisc() {
            return Err(Errno::EINVAL.into());
        }
        qdisc = parent.qdisc();
    } else if qdisc == Handle::NONE {
        qdisc = root();
    }
    let node = place.node(qdisc).ok_or(Errno::ENOENT)?;
    if !has_classes(&node.qdisc) {
        return Err(Errno::EINVAL.into());
    }
    let class = if class != Handle::NONE {
        qdisc.class(class.minor())
    } else if parent == Handle::ROOT {
        qdisc
    } else {
        Handle::NONE
    };
    // As in the kernel, one below a class that is not there is below the qdisc.
    let above = qdisc.class(parent.minor());
    let is_below = parent != Handle::ROOT && place.tree.has_class(above);
    Ok(Named {
        class,
        above: if is_below { above } else { qdisc },
        qdisc: node.qdisc.clone(),
        before: Class::new(place, place.class(class)),
        link: place.context(Handle::ROOT).link,
    })
}

/// Answers a request that is not a dump.
pub(super) fn request<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let named = Place::read(engine, link, |place| named(&place, asked))??;
    let request = &asked.request;
    match (request.kind, &named.before) {
        (RTM_NEWTCLASS, None) if !request.has(NLM_F_CREATE) => Err(Errno::ENOENT.into()),
        (RTM_NEWTCLASS, Some(_)) if request.has(NLM_F_EXCL) => Err(Errno::EEXIST.into()),
        (RTM_NEWTCLASS, _) => modify(engine, link, asked, named, replies),
        (_, None) => Err(Errno::ENOENT.into()),
        (RTM_DELTCLASS, Some(class)) => {
            let classes = named.qdisc.added_classes().ok_or(Errno::EOPNOTSUPP)?;
            if named.class.minor() == 0 {
                // The qdisc is one itself.
                return Err(Error::new(Errno::EBUSY).text(classes.in_use));
            }
            let edited = engine.edit_tree(link, |tree| tree.delete_class(named.class));
            edited.map_err(refusal::control)?;
            tell(replies, RTM_DELTCLASS, class);
            Ok(())
        }
        (_, Some(class)) => {
            replies.message(RTM_NEWTCLASS, 0, &class.header(), |out| class.put(out))
        }
    }
}

/// Adds a class, or gives one other parameters.
fn modify<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    named: Named,
    replies: &mut Replies,
) -> Result<(), Error> {
    let Named {
        class,
        above,
        qdisc,
        before,
        link: defaults,
    } = named;
    let blocks = [TCA_INGRESS_BLOCK, TCA_EGRESS_BLOCK];
    if blocks.iter().any(|&block| asked.attrs.has(block)) {
        let text = "Shared blocks are not supported for classes";
        return Err(Error::new(Errno::EOPNOTSUPP).text(text));
    }
    if class == Handle::ROOT {
        let text = "Cannot create traffic class with classid TC_H_ROOT";
        return Err(Error::invalid(text));
    }
    let parameters = before.as_ref().and_then(Class::spec);
    let options = asked.attrs.get(TCA_OPTIONS);
    if qdisc.added_classes().is_some_and(|classes| classes.root) {
        check_parent(engine, link, asked, class, before.as_ref())?;
    }
    let changed = kinds::parse_own_class(&qdisc, class, before.is_some(), options)?;
    if let Some(changed) = changed {
        if changed != qdisc {
            let edited = engine.edit_tree(link, |tree| tree.change(class.qdisc(), &changed));
            edited.map_err(refusal::control)?;
        }
        return tell_of(engine, link, class, None, replies);
    }
    let spec = kinds::parse_class(&qdisc, options, &defaults, parameters)?;
    if class == Handle::NONE {
        return Err(Errno::EINVAL.into());
    }
    let estimator = asked.estimator()?;
    let is_leaf = before.as_ref().is_none_or(Class::is_leaf);
    let warning = kinds::class_warning(class, &spec, &qdisc).filter(|_| is_leaf);
    let of_above = Place::read(engine, link, |place| {
        let above = place.tree.spec().class_node(above)?;
        kinds::warning_above(&above.spec)
    })?;
    let warning = warning.or_else(|| of_above.filter(|_| before.is_none()));
    let edited = engine.edit_tree(link, |tree| {
        match parameters {
            Some(before) if *before == spec => {}
            Some(_) => tree.change_class(class, &spec)?,
            None => tree.add_class(above, class, spec)?,
        }
        estimator.map_or(Ok(()), |estimator| tree.set_estimator(class, estimator))
    });
    edited.map_err(refusal::control)?;
    tell_of(engine, link, class, warning, replies)
}

/// The parent that a request names must be there, and that of the class if that is (the kernel's
/// `hfsc_change_class`).
fn check_parent<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    class: Handle,
    before: Option<&Class>,
) -> Result<(), Error> {
    let parent = Handle::from_raw(asked.header.parent);
    let named = class.class(parent.minor());
    if class.minor() == 0 {
        if ![Handle::NONE, Handle::ROOT].contains(&parent) {
            return Err(Errno::EINVAL.into());
        }
        let help = "The class of the qdisc has no curves; give them to classes below it";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help));
    }
    match before {
        _ if parent == Handle::NONE => Ok(()),
        Some(before) if before.is_below(named) && parent != Handle::ROOT => Ok(()),
        Some(_) => Err(Errno::EINVAL.into()),
        None if parent == Handle::ROOT => Err(Errno::EEXIST.into()),
        None if named.minor() == 0 => Ok(()),
        None => {
            let is_there = Place::read(engine, link, |place| place.tree.has_class(named))?;
            is_there.then_some(()).ok_or_else(|| Errno::ENOENT.into())
        }
    }
}

/// Tells of a class as it is now, and warns of it.
fn tell_of<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    class: Handle,
    warning: Option<String>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let after = Place::read(engine, link, |place| {
        place.warn(class, warning, replies);
        Class::new(&place, class)
    })?;
    if let Some(class) = after {
        tell(replies, RTM_NEWTCLASS, &class);
    }
    Ok(())
}

pub(super) fn tell(replies: &mut Replies, kind: u16, class: &Class) {
    replies.publish(RTNLGRP_TC, kind, 0, &class.header(), |out| class.put(out));
}

/// Dumps the classes of a link, or of one of its qdiscs, by name. Among them are the flows of an
/// `fq_codel` that have packets.
pub(super) fn dump<D: Devices>(
    engine: &Engine<D>,
    asked: &Asked<'_>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let link = asked.link(engine).ok();
    let link = link.filter(|&index| engine.read_tree(index, |_, _| ()).is_ok());
    let Some(index) = link else {
        return Ok(Progress::Done);
    };
    let of = Handle::from_raw(asked.header.parent);
    let of = (of != Handle::NONE).then(|| of.qdisc());
    loop {
        let dumped = Place::read(engine, index, |place| {
            dump_link(&place, of, position, chunk)
        })?;
        let flow = match dumped {
            Ok(Some(flow)) => flow,
            Ok(None) => return Ok(Progress::Done),
            Err(Full) => return Ok(Progress::More),
        };
        match dump_flows(engine, index, flow, position, chunk)? {
            Ok(true) => {}
            Ok(false) => return Ok(Progress::Done),
            Err(Full) => return Ok(Progress::More),
        }
    }
}

/// Dumps flows from one on. False: nothing can follow.
fn dump_flows<D: Devices>(
    engine: &Engine<D>,
    index: u32,
    from: Handle,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Result<bool, Full>, Error> {
    let flows = engine.class_flows(index, from, FLOWS);
    let flows = flows.map_err(refusal::control)?;
    let last = match flows.last() {
        Some((last, _)) if flows.len() == FLOWS => *last,
        _ => from.class(u16::MAX),
    };
    for (class, stats) in flows {
        position.key = class.raw().into();
        let flow = Flow {
            index,
            class,
            stats,
        };
        let put = chunk.message(RTM_NEWTCLASS, 0, &flow.header(), |out| flow.put(out));
        if put.is_err() {
            return Ok(Err(Full));
        }
    }
    let next = last.raw().checked_add(1);
    position.key = next.unwrap_or_default().into();
    Ok(Ok(next.is_some()))
}

/// Dumps classes, to the end or to a qdisc whose flows come next: then returns the first of them
/// that may be there.
fn dump_link(
    place: &Place<'_>,
    of: Option<Handle>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Option<Handle>, Full> {
    let mut from = Handle::from_raw(position.key as u32);
    if let Some(of) = of {
        from = from.max(of);
    }
    let default_mq = place.is_default_mq();
    loop {
        let next = if default_mq {
            let minor = from.minor().max(1);
            let is_queue = from.major() == 0 && usize::from(minor) <= place.tree.queues();
            is_queue.then(|| Handle::new(0, minor))
        } else {
            place.tree.next_class_or_flow(from, place.queues)
        };
        let Some(class) = next.filter(|class| of.is_none_or(|of| class.qdisc() == of)) else {
            return Ok(None);
        };
        position.key = class.raw().into();
        let qdisc = place.node(class.qdisc()).map(|node| &node.qdisc);
        if matches!(qdisc, Some(QdiscSpec::FqCodel(_))) {
            return Ok(Some(class));
        }
        if let Some(class) = Class::new(place, class) {
            chunk.message(RTM_NEWTCLASS, 0, &class.header(), |out| class.put(out))?;
        }
        match class.raw().checked_add(1) {
            Some(next) => from = Handle::from_raw(next),
            None => return Ok(None),
        }
    }
}
