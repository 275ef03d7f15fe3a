//! `RTM_*QDISC`: what `tc qdisc` asks for.

use softnet_engine::{Devices, Engine, LinkInfo};
use softnet_tc::{Handle, HookKind, QdiscKind, QdiscSpec};

use super::hook;
use super::kinds;
use super::modify::{self, Meaning};
use super::place::{Found, Place};
use super::refusal;
use super::shown::Shown;
use super::{
    Asked, RTM_DELQDISC, RTM_NEWQDISC, RTNLGRP_TC, TCA_DUMP_INVISIBLE, TCA_EGRESS_BLOCK,
    TCA_INGRESS_BLOCK, TCA_OPTIONS, TCA_RATE,
};
use crate::nl::{Chunk, Errno, Error, Full, NLM_F_REPLACE, Position, Progress, Replies};

/// Adds a qdisc, or changes one.
pub(super) fn modify<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    if hook::is_meant(engine, link, &asked.header) {
        return hook::modify(engine, link, asked, replies);
    }
    let kind = asked.kind()?;
    let flags = asked.request.flags;
    let meaning = Place::read(engine, link, |place| {
        modify::meaning(&place, &asked.header, flags, kind)
    })??;
    match meaning {
        Meaning::New => add(engine, link, asked, replies),
        Meaning::Change(found) => change(engine, link, asked, found, replies),
    }
}

/// A new qdisc, in place of what is at its parent (`qdisc_create`, `qdisc_graft`).
fn add<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let parent = Handle::from_raw(asked.header.parent);
    if asked.kind()?.and_then(HookKind::find).is_some() {
        let help = "it is for the parent ffff:fff1";
        return Err(Error::new(Errno::EINVAL).help(help));
    }
    let name = asked.kind()?.unwrap_or_default();
    let kind = QdiscKind::find(name).ok_or_else(|| kinds::unknown(name))?;
    let is_queue = Place::read(engine, link, |place| !place.is_traffic_class(parent))?;
    if !is_queue {
        let help = "Attach qdiscs to the queues of the traffic class";
        return Err(Error::invalid("No device queue given").help(help));
    }
    let mut handle = Handle::from_raw(asked.header.handle);
    if handle == Handle::NONE {
        handle = engine.choose_handle(link).map_err(refusal::control)?;
        if handle == Handle::NONE {
            let text = "Maximum number of qdisc handles was exceeded";
            return Err(Error::new(Errno::ENOSPC).text(text));
        }
    }
    check_blocks(asked)?;
    let stab = asked.stab()?;
    let (mut spec, old, attaches_itself) = Place::read(engine, link, |place| {
        let parent = place.class(parent);
        let context = place.context(parent);
        let is_per_queue = (kind.default)(&context.link).is_per_queue();
        if is_per_queue && (parent != Handle::ROOT || place.tree.queues() < 2) {
            let help = format!(
                "{} is for the root of a link with several transmit queues",
                kind.name
            );
            return Err(Error::new(Errno::EOPNOTSUPP).help(help));
        }
        let options = asked.attrs.get(TCA_OPTIONS);
        let spec = kinds::parse(kind.name, options, &context, None)?;
        if asked.attrs.has(TCA_RATE) && is_per_queue {
            let text = "Cannot attach rate estimator to a multi-queue root qdisc";
            return Err(Error::new(Errno::EOPNOTSUPP).text(text));
        }
        let old = before(&place, parent, &spec, stab.is_some())?;
        let attaches = is_per_queue || spec.adds_classes();
        Ok((spec, old, attaches))
    })??;
    if let QdiscSpec::Netem(netem) = &mut spec {
        netem.seed.get_or_insert_with(|| engine.choose_seed());
    }
    let estimator = asked.estimator()?;
    let edited = engine.edit_tree(link, |tree| {
        tree.replace(parent, handle, spec)?;
        // That it can be set has been checked.
        if stab.is_some() {
            tree.set_stab(handle, stab)?;
        }
        estimator.map_or(Ok(()), |estimator| tree.set_estimator(handle, estimator))
    });
    edited.map_err(refusal::control)?;
    Place::read(engine, link, |place| place.warn_of_qdisc(handle, replies))?;
    // At a root the kernel tells before the queues have the new one, if that attaches itself.
    let waits = parent == Handle::ROOT && attaches_itself;
    if let Some(mut old) = old {
        old.references = if waits { old.references } else { 1 };
        tell(replies, RTM_DELQDISC, 0, &old);
    }
    tell_of(engine, link, handle, waits, NLM_F_REPLACE, replies)
}

/// The qdisc that others hear is gone when a new one is attached; refuses what cannot be attached
/// there (`qdisc_graft`).
fn before(
    place: &Place<'_>,
    parent: Handle,
    new: &QdiscSpec,
    stab: bool,
) -> Result<Option<Shown>, Error> {
    if parent == Handle::ROOT {
        return Ok(place.root().map(|old| place.shown(old)));
    }
    if *new == QdiscSpec::Noqueue {
        return Err(Error::invalid("Cannot assign noqueue to a class"));
    }
    if stab && place.tree.spec().check_stab(parent).is_err() {
        return Err(Error::invalid("STAB not supported on a non root"));
    }
    let above = place.node(parent.qdisc());
    if above.is_some_and(|above| matches!(above.qdisc, QdiscSpec::CakeMq(_))) {
        let text = "can't replace cake_mq sub-qdiscs";
        let help = "All queues are one cake; change it at the root";
        return Err(Error::new(Errno::EOPNOTSUPP).text(text).help(help));
    }
    let old = above.map(|above| place.leaf(above, parent));
    let Some(old) = old.transpose()?.flatten() else {
        if above.is_some_and(|above| !above.qdisc.has_child_by_default()) {
            return Ok(None);
        }
        let help = format!("{parent} has classes below it; attach qdiscs to those");
        return Err(Error::new(Errno::EINVAL).help(help));
    };
    Ok(is_shown(place, &old).then(|| place.shown(old)))
}

/// True if a qdisc is not one that came with a class (`TCQ_F_INVISIBLE`).
fn is_shown(place: &Place<'_>, found: &Found) -> bool {
    let above = place.node(found.parent.qdisc()).map(|node| &node.qdisc);
    found.handle != Handle::NONE
        || found.parent == Handle::ROOT
        || above.is_none_or(QdiscSpec::is_per_queue)
}

fn check_blocks(asked: &Asked<'_>) -> Result<(), Error> {
    for (block, zero, refused) in [
        (
            TCA_INGRESS_BLOCK,
            "Ingress block index cannot be 0",
            "Ingress block sharing is not supported",
        ),
        (
            TCA_EGRESS_BLOCK,
            "Egress block index cannot be 0",
            "Egress block sharing is not supported",
        ),
    ] {
        match asked.attrs.u32(block)? {
            Some(0) => return Err(Error::invalid(zero)),
            Some(_) => return Err(Error::new(Errno::EOPNOTSUPP).text(refused)),
            None => {}
        }
    }
    Ok(())
}

/// Other parameters of a qdisc (`qdisc_change`).
fn change<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    found: Found,
    replies: &mut Replies,
) -> Result<(), Error> {
    let Found {
        parent,
        handle,
        spec: before,
    } = found;
    let options = asked.attrs.get(TCA_OPTIONS);
    let context = Place::read(engine, link, |place| place.context(parent))?;
    let spec = kinds::parse(before.kind(), options, &context, Some(&before))?;
    if options.is_some() {
        let blocks = [TCA_INGRESS_BLOCK, TCA_EGRESS_BLOCK];
        if blocks.iter().any(|&block| asked.attrs.has(block)) {
            let text = "Change of blocks is not supported";
            return Err(Error::new(Errno::EOPNOTSUPP).text(text));
        }
    }
    let stab = asked.stab()?;
    let is_per_queue = spec.is_per_queue();
    let estimator = asked.estimator().unwrap_or_default();
    let estimator = estimator.filter(|_| !is_per_queue);
    let edited = engine.edit_tree(link, |tree| {
        if stab.is_some() {
            tree.spec().check_stab(parent)?;
        }
        if spec != before {
            tree.change(handle, &spec)?;
        }
        // As in the kernel, a change that names none takes it away.
        if tree
            .spec()
            .node(handle)
            .is_some_and(|node| node.stab != stab)
        {
            tree.set_stab(handle, stab)?;
        }
        estimator.map_or(Ok(()), |estimator| tree.set_estimator(handle, estimator))
    });
    edited.map_err(refusal::control)?;
    Place::read(engine, link, |place| place.warn_of_qdisc(handle, replies))?;
    tell_of(engine, link, handle, false, 0, replies)
}

/// Deletes a qdisc and all below it.
pub(super) fn delete<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    if let Some(gone) = hook::named(engine, link, asked)? {
        return hook::delete(engine, link, asked, &gone, replies);
    }
    let kind = asked.kind()?;
    let gone = Place::read(engine, link, |place| {
        let found = modify::named(&place, &asked.header, kind)?;
        Ok::<_, Error>(place.shown(found))
    })??;
    if asked.header.parent == 0 {
        return Err(Error::invalid("Classid cannot be zero"));
    }
    if gone.handle == Handle::NONE {
        let text = "Cannot delete qdisc with handle of zero";
        return Err(Error::new(Errno::ENOENT).text(text));
    }
    let edited = engine.edit_tree(link, |tree| tree.delete(gone.handle));
    edited.map_err(refusal::control)?;
    let gone = Shown {
        references: 1,
        ..gone
    };
    tell(replies, RTM_DELQDISC, 0, &gone);
    Ok(())
}

/// Answers with a qdisc. (The kernel answers to a request with `NLM_F_ECHO` only.)
pub(super) fn get<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    if let Some(shown) = hook::named(engine, link, asked)? {
        return replies.message(RTM_NEWQDISC, 0, &shown.header(), |out| shown.put(out));
    }
    let kind = asked.kind()?;
    let shown = Place::read(engine, link, |place| {
        let found = modify::named(&place, &asked.header, kind)?;
        if !is_shown(&place, &found) {
            return Err(Error::new(Errno::EINVAL));
        }
        Ok(place.shown(found))
    })??;
    replies.message(RTM_NEWQDISC, 0, &shown.header(), |out| shown.put(out))
}

/// Tells of a qdisc as it is now, or as it was before the queues had it.
fn tell_of<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    handle: Handle,
    before_queues: bool,
    flags: u16,
    replies: &mut Replies,
) -> Result<(), Error> {
    let shown = Place::read(engine, link, |place| {
        let node = place.node(handle);
        node.map(|node| place.shown(node.into()))
    })?;
    if let Some(mut shown) = shown {
        shown.references = if before_queues { 1 } else { shown.references };
        tell(replies, RTM_NEWQDISC, flags, &shown);
    }
    Ok(())
}

pub(super) fn tell(replies: &mut Replies, kind: u16, flags: u16, shown: &Shown) {
    replies.publish(RTNLGRP_TC, kind, flags, &shown.header(), |out| {
        shown.put(out);
    });
}

/// Parts of a link's dump, in [`Position::stage`].
const ROOT: u32 = 0;
/// Qdiscs that were attached elsewhere, by handle.
const ATTACHED: u32 = 1;
/// Qdiscs that come with classes, by class.
const WITH_CLASSES: u32 = 2;
/// That of the hooks.
const HOOKS: u32 = 3;

/// Dumps the qdiscs of a link, or of all (`tc_dump_qdisc`).
pub(super) fn dump<D: Devices>(
    engine: &Engine<D>,
    asked: &Asked<'_>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let invisible = asked.attrs.has(TCA_DUMP_INVISIBLE);
    for (&index, link) in engine.links().range(position.link..) {
        if ![0, index.cast_signed()].contains(&asked.header.ifindex) {
            continue;
        }
        if index != position.link {
            *position = Position {
                link: index,
                ..Position::default()
            };
        }
        let dumped = match link.is_bridge() {
            false => Place::read(engine, index, |place| {
                dump_link(&place, invisible, position, chunk)
            })?
            .and_then(|()| {
                position.stage = HOOKS;
                let Some(shown) = hook::Shown::of(engine, index) else {
                    return Ok(());
                };
                chunk.message(RTM_NEWQDISC, 0, &shown.header(), |out| shown.put(out))
            }),
            true => dump_bridge(link, chunk),
        };
        if let Err(Full) = dumped {
            return Ok(Progress::More);
        }
    }
    Ok(Progress::Done)
}

/// A bridge has no queue, and what stands for that.
fn dump_bridge<S>(link: &LinkInfo<S>, chunk: &mut Chunk<'_>) -> Result<(), Full> {
    if !link.has_default {
        return Ok(());
    }
    let shown = Shown::noqueue(link.index);
    chunk.message(RTM_NEWQDISC, 0, &shown.header(), |out| shown.put(out))
}

fn dump_link(
    place: &Place<'_>,
    invisible: bool,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<(), Full> {
    let mut put = |found: Found| {
        let shown = place.shown(found);
        chunk.message(RTM_NEWQDISC, 0, &shown.header(), |out| shown.put(out))
    };
    if position.stage == HOOKS {
        return Ok(());
    }
    if position.stage == ROOT {
        place.root().map_or(Ok(()), &mut put)?;
        (position.stage, position.key) = (ATTACHED, 0);
    }
    if position.stage == ATTACHED {
        let from = Handle::from_raw(position.key as u32);
        for node in place.tree.spec().nodes_from(from) {
            position.key = node.handle.raw().into();
            if node.parent != Handle::ROOT {
                put(node.into())?;
            }
        }
        (position.stage, position.key) = (WITH_CLASSES, 0);
    }
    let root = place.tree.spec().root();
    let queues_of = match root {
        Some(root) => root.qdisc.is_per_queue().then_some(root.handle),
        None => place.is_default_mq().then_some(Handle::NONE),
    };
    let mut class = Handle::from_raw(position.key as u32);
    loop {
        class = if invisible && root.is_some() {
            match place.tree.next_class(class) {
                Some(class) => class,
                None => return Ok(()),
            }
        } else {
            // Those of the queues of `mq` alone.
            let Some(above) = queues_of else {
                return Ok(());
            };
            let minor = class.minor().max(1);
            if usize::from(minor) > place.tree.queues() {
                return Ok(());
            }
            above.class(minor)
        };
        position.key = class.raw().into();
        if place.tree.spec().child_of(class).is_none()
            && let Some(default) = place.default_at(class)
        {
            put(default)?;
        }
        let Some(next) = class.raw().checked_add(1) else {
            return Ok(());
        };
        class = Handle::from_raw(next);
    }
}
