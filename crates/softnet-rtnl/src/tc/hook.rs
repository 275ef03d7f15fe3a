//! `RTM_*QDISC` for the qdiscs at a link's hooks, `ingress` and `clsact` (`sch_ingress.c`).

use softnet::qdisc::QdiscStats;
use softnet_engine::{Devices, Engine, HookCounts};
use softnet_tc::{Handle, Hook, HookKind, QdiscKind};

use super::{
    Asked, RTM_DELQDISC, RTM_NEWQDISC, RTNLGRP_TC, TCA_EGRESS_BLOCK, TCA_HW_OFFLOAD,
    TCA_INGRESS_BLOCK, TCA_KIND, TCA_OPTIONS, TCA_RATE, TCA_STAB, kinds, refusal, stats,
};
use crate::nl::headers::TcMsg;
use crate::nl::{Errno, Error, Message, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Replies};

const ANOTHER_KIND: &str = "Invalid qdisc name: must match existing qdisc";

/// A qdisc at the hooks, as messages show it.
pub(super) struct Shown {
    index: u32,
    hook: Hook,
    counts: HookCounts,
}

impl Shown {
    /// That of a link, if it has one.
    pub(super) fn of<D: Devices>(engine: &Engine<D>, index: u32) -> Option<Shown> {
        let hook = engine.read_tree(index, |tree, _| tree.spec().hook().cloned());
        Some(Shown {
            index,
            hook: hook.ok()??,
            counts: engine.hook_counts(index).ok()?,
        })
    }

    /// One that is gone, or of which nothing was counted.
    pub(super) fn uncounted(index: u32, hook: &Hook) -> Shown {
        Shown {
            index,
            hook: hook.clone(),
            counts: HookCounts::default(),
        }
    }

    pub(super) fn header(&self) -> TcMsg {
        TcMsg {
            ifindex: i32::try_from(self.index).unwrap_or(i32::MAX),
            parent: Hook::PARENT.raw(),
            handle: Hook::HANDLE.raw(),
            info: 1,
            ..TcMsg::default()
        }
    }

    pub(super) fn put(&self, out: &mut Message<'_>) {
        out.put_str(TCA_KIND, self.hook.kind.name());
        for (kind, side) in [
            (TCA_INGRESS_BLOCK, &self.hook.ingress),
            (TCA_EGRESS_BLOCK, &self.hook.egress),
        ] {
            if side.block != 0 {
                out.put_u32(kind, side.block);
            }
        }
        out.nest(TCA_OPTIONS, |_| {});
        out.put_u8(TCA_HW_OFFLOAD, 0);
        let counted = QdiscStats {
            packets: self.counts.packets,
            bytes: self.counts.bytes,
            drops: self.counts.drops,
            ..QdiscStats::default()
        };
        stats::put(Some(&counted), None, None, out);
    }

    pub(super) fn tell(&self, kind: u16, flags: u16, replies: &mut Replies) {
        let header = TcMsg {
            // Nothing refers to one that is gone.
            info: (kind != RTM_DELQDISC).into(),
            ..self.header()
        };
        replies.publish(RTNLGRP_TC, kind, flags, &header, |out| self.put(out));
    }
}

fn refuse<T>(errno: Errno, text: &'static str) -> Result<T, Error> {
    Err(Error::new(errno).text(text))
}

/// True if a request names the hooks' qdisc, not one in the tree.
pub(super) fn is_meant<D: Devices>(engine: &Engine<D>, link: u32, header: &TcMsg) -> bool {
    let named = || {
        let there = engine.read_tree(link, |tree, _| {
            let spec = tree.spec();
            spec.hook().is_some() && spec.node(Hook::HANDLE).is_none()
        });
        header.handle == Hook::HANDLE.raw() && there.unwrap_or(false)
    };
    match header.parent {
        0 => named(),
        parent => parent == Hook::PARENT.raw(),
    }
}

/// Adds one, or changes it (`__tc_modify_qdisc` with `TC_H_INGRESS`).
pub(super) fn modify<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let flags = asked.request.flags;
    let has = |flag| flags & flag != 0;
    let kind = asked.kind()?;
    let handle = Handle::from_raw(asked.header.handle);
    let read = engine.read_tree(link, |tree, _| {
        let spec = tree.spec();
        let named = spec.node(handle).map(|node| node.qdisc.kind());
        (spec.hook().cloned(), named)
    });
    let (known, named) = read.map_err(refusal::control)?;
    if let Some(known) = &known {
        let is_kind = kind.is_none_or(|kind| kind == known.kind.name());
        let is_new = if handle == Handle::NONE {
            let replaces = has(NLM_F_CREATE) && (has(NLM_F_REPLACE) || has(NLM_F_EXCL));
            let changes = !has(NLM_F_CREATE) && !has(NLM_F_REPLACE) && !has(NLM_F_EXCL);
            !is_kind && (replaces || changes)
        } else if handle == Hook::HANDLE {
            false
        } else if !has(NLM_F_REPLACE) {
            return refuse(Errno::EEXIST, "NLM_F_REPLACE needed to override");
        } else {
            true
        };
        if !is_new {
            if has(NLM_F_EXCL) {
                return refuse(Errno::EEXIST, "Exclusivity flag on, cannot modify");
            }
            if !is_kind {
                return Err(Error::invalid(ANOTHER_KIND));
            }
            return change(engine, link, asked, replies);
        }
    }
    if handle != Handle::NONE {
        if handle.minor() != 0 {
            return Err(Error::invalid("Invalid minor handle"));
        }
        if let Some(named) = named {
            if has(NLM_F_EXCL) {
                return refuse(Errno::EEXIST, "Exclusivity flag on, cannot override");
            }
            if kind.is_some_and(|kind| kind != named) {
                return Err(Error::invalid(ANOTHER_KIND));
            }
            return Err(Error::invalid("Ingress cannot graft directly"));
        }
    }
    if !has(NLM_F_CREATE) {
        let text = "Qdisc not found. To create specify NLM_F_CREATE flag";
        return refuse(Errno::ENOENT, text);
    }
    add(engine, link, asked, known.as_ref(), replies)
}

fn add<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    old: Option<&Hook>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let name = asked.kind()?.unwrap_or_default();
    let Some(kind) = HookKind::find(name) else {
        return Err(match QdiscKind::find(name) {
            Some(_) => {
                Error::invalid("Specified parent ID is reserved for ingress and clsact Qdiscs")
            }
            None => kinds::unknown(name),
        });
    };
    let mut hook = Hook::new(kind);
    if let Some(block) = asked.attrs.u32(TCA_INGRESS_BLOCK)? {
        if block == 0 {
            return Err(Error::invalid("Ingress block index cannot be 0"));
        }
        hook.ingress.block = block;
    }
    if let Some(block) = asked.attrs.u32(TCA_EGRESS_BLOCK)? {
        if block == 0 {
            return Err(Error::invalid("Egress block index cannot be 0"));
        }
        if kind == HookKind::Ingress {
            let text = "Egress block sharing is not supported";
            return refuse(Errno::EOPNOTSUPP, text);
        }
        hook.egress.block = block;
    }
    if asked.attrs.has(TCA_STAB) {
        return Err(Error::invalid("STAB not supported on a non root"));
    }
    if asked.attrs.has(TCA_RATE) {
        let help = "rates are not estimated at hooks";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help));
    }
    let old = old.and_then(|_| Shown::of(engine, link));
    let edited = engine.edit_tree(link, |tree| tree.set_hook(Some(hook)));
    edited.map_err(refusal::control)?;
    if let Some(old) = old {
        old.tell(RTM_DELQDISC, 0, replies);
    }
    if let Some(new) = Shown::of(engine, link) {
        new.tell(RTM_NEWQDISC, NLM_F_REPLACE, replies);
    }
    Ok(())
}

/// It has no parameters (`qdisc_change`).
fn change<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    if asked.attrs.has(TCA_OPTIONS) {
        let text = "Change operation not supported by specified qdisc";
        return Err(Error::invalid(text));
    }
    if let Some(shown) = Shown::of(engine, link) {
        shown.tell(RTM_NEWQDISC, 0, replies);
    }
    Ok(())
}

/// The one that a request names; `None`: it names another (`__tc_get_qdisc`).
pub(super) fn named<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
) -> Result<Option<Shown>, Error> {
    let parent = Handle::from_raw(asked.header.parent);
    let of_hook = parent != Handle::ROOT && parent.major() == Hook::PARENT.major();
    if !of_hook && !is_meant(engine, link, &asked.header) {
        return Ok(None);
    }
    let Some(shown) = Shown::of(engine, link) else {
        return Ok(None);
    };
    let handle = asked.header.handle;
    if handle != 0 && handle != Hook::HANDLE.raw() {
        return Err(Error::invalid("Invalid handle"));
    }
    let kind = asked.kind()?;
    if kind.is_some_and(|kind| kind != shown.hook.kind.name()) {
        return Err(Error::invalid(ANOTHER_KIND));
    }
    Ok(Some(shown))
}

/// Deletes the one that was named.
pub(super) fn delete<D: Devices>(
    engine: &Engine<D>,
    link: u32,
    asked: &Asked<'_>,
    gone: &Shown,
    replies: &mut Replies,
) -> Result<(), Error> {
    if asked.header.parent == 0 {
        return Err(Error::invalid("Classid cannot be zero"));
    }
    let edited = engine.edit_tree(link, |tree| tree.set_hook(None));
    edited.map_err(refusal::control)?;
    gone.tell(RTM_DELQDISC, 0, replies);
    Ok(())
}
