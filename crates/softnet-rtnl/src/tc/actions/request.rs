//! `RTM_NEWACTION`, `RTM_DELACTION` and `RTM_GETACTION`.

use softnet_engine::{Devices, Engine};
use softnet_tc::{Action, ActionKind};
use zerocopy::FromBytes;

use super::{
    ACTION, Bits, INDEX, KIND, LIST, Read, ShownAt, check_average, hardware, parse, put, refusal,
};
use crate::nl::headers::RtGenMsg;
use crate::nl::{
    Attr, Attrs, Chunk, Errno, Error, Full, NLM_F_REPLACE, NLM_F_ROOT, Policy, Position, Progress,
    Replies, Request, Rule, Validation,
};
use crate::tc::{RTM_DELACTION, RTM_GETACTION, RTM_NEWACTION, RTNLGRP_TC};

/// `TCA_ROOT_*`
const TAB: u16 = 1;
const ROOT_FLAGS: u16 = 2;
const COUNT: u16 = 3;
const TIME_DELTA: u16 = 4;
const POLICY: Policy = Policy::new(
    5,
    &[
        (TAB, Rule::NestedAny),
        (ROOT_FLAGS, Rule::Exact(8)),
        (TIME_DELTA, Rule::U32),
    ],
);
/// `TCA_ACT_FLAG_TERSE_DUMP`
const TERSE: u32 = 2;
/// `TCA_FCNT`
const FCNT: u16 = 6;
/// Actions in one message, and the bytes that they take about.
const MOST: usize = 32;
const MOST_BYTES: usize = 16 * 1024;

/// `struct tcamsg` has no field but the family, and is as long as all attributes are aligned.
fn read<'a>(request: &Request<'a>) -> Result<Attrs<'a>, Error> {
    request.attrs::<TcaMsg>(&POLICY, Validation::Liberal)
}

/// `struct tcamsg`
#[derive(Clone, Copy, Debug, Default, FromBytes, zerocopy::Immutable, zerocopy::IntoBytes)]
#[repr(C)]
struct TcaMsg {
    generic: u8,
    pad1: u8,
    pad2: u16,
}

/// `tc_ctl_action`
pub(crate) fn request<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let _: RtGenMsg = request.header()?;
    let attrs = read(request)?;
    let none = || Error::invalid("Netlink action attributes missing");
    let list = attrs.get(TAB).ok_or_else(none)?;
    match request.kind {
        RTM_NEWACTION => add(engine, request, &list, replies),
        RTM_DELACTION if request.has(NLM_F_ROOT) => flush(engine, request, &list, replies),
        RTM_DELACTION => delete(engine, request, &list, replies),
        _ => get(engine, request, &list, replies),
    }
}

/// `tcf_action_add`
fn add<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    list: &Attr<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let parsed = parse(list, &Read { filter: None })?;
    let replaces = request.has(NLM_F_REPLACE);
    let mut done: Vec<Action> = Vec::new();
    let mut made: Vec<Action> = Vec::new();
    let mut replaced: Vec<Action> = Vec::new();
    let mut all = || -> Result<(), Error> {
        for one in &parsed {
            let known = engine.actions(|table, _| table.get(one.name, one.index));
            let known = known.filter(|_| one.index != 0);
            let (mut spec, link) = one.spec(engine)?;
            let action = match known {
                Some(_) if !replaces => {
                    let help = "there is an action of this kind and index; use replace or change";
                    return Err(Error::new(Errno::EEXIST).help(help));
                }
                Some(known) => {
                    // It goes on; only a filter's request starts one.
                    spec.estimator = known.spec().estimator;
                    check_average(&spec)?;
                    let action = engine.change_action(spec).map_err(refusal)?;
                    replaced.push(action.clone());
                    action
                }
                None => {
                    check_average(&spec)?;
                    let new = engine.actions(|table, now| table.add(spec, true, now));
                    let new = new.map_err(refusal)?;
                    made.push(new.clone());
                    new
                }
            };
            if one.link.is_some() {
                action.set_link(link);
            }
            done.push(action);
        }
        Ok(())
    };
    if let Err(error) = all() {
        // All or none.
        for action in made {
            let kind = action.spec().kind.name();
            let _ = engine.actions(|table, _| table.delete(kind, action.index()));
        }
        return Err(error);
    }
    // The last one's is what is left.
    let mut specs = done.iter().rev().map(Action::spec);
    if let Some(text) = specs.find_map(hardware::warning) {
        replies.warning(text);
    }
    // The request lets go of what it replaced after that (`tca_put_bound_many`).
    let held = |action: &Action| replaced.iter().filter(|one| one.is_same(action)).count() as i32;
    let done = (RTM_NEWACTION, done.as_slice());
    tell(engine, request, done, held, replies);
    Ok(())
}

/// The actions that a list names by kind and index (`tcf_action_get_1`).
fn named<D: Devices>(engine: &Engine<D>, list: &Attr<'_>) -> Result<Vec<Action>, Error> {
    let list = list.nested(&LIST)?;
    let mut found = Vec::new();
    for attr in (1..=super::MAX).map_while(|number| list.get(number)) {
        let attrs = attr.nested(&ACTION)?;
        let index = attrs.u32(INDEX)?;
        let index = index.ok_or_else(|| Error::invalid("Invalid TC action index value"))?;
        let kind = kind(&attrs, "Specified TC action kind not found")?;
        let action = engine.actions(|table, _| table.get(kind, index));
        let missing = || refusal(softnet_tc::ActionError::Missing);
        found.push(action.ok_or_else(missing)?);
    }
    Ok(found)
}

fn kind(attrs: &Attrs<'_>, text: &'static str) -> Result<&'static str, Error> {
    let name = attrs.str(KIND)?.unwrap_or_default();
    let known = ActionKind::NAMES.iter().find(|known| **known == name);
    known.copied().ok_or_else(|| Error::invalid(text))
}

fn get<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    list: &Attr<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let found = named(engine, list)?;
    let shown = ShownAt::of(engine);
    replies.message(RTM_GETACTION, request.flags, &TcaMsg::default(), |out| {
        out.nest(TAB, |out| put_all(&found, 1, &shown, false, out));
    })
}

/// `tcf_action_delete`
fn delete<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    list: &Attr<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let found = named(engine, list)?;
    for action in &found {
        let kind = action.spec().kind.name();
        let gone = engine.actions(|table, _| table.delete(kind, action.index()));
        gone.map_err(refusal)?;
    }
    // Without the reference that the table had.
    let gone = (RTM_DELACTION, found.as_slice());
    tell(engine, request, gone, |_| -1, replies);
    Ok(())
}

/// `tca_action_flush`
fn flush<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    list: &Attr<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let list = list.nested(&LIST)?;
    let text = "Invalid netlink attributes while flushing TC action";
    let first = list.get(1).ok_or_else(|| Error::invalid(text))?;
    let attrs = first.nested(&ACTION)?;
    let kind = kind(&attrs, "Cannot flush unknown TC action")?;
    let (gone, left) = engine.actions(|table, _| table.flush(kind));
    match (gone, left) {
        (0, true) => {
            let help = "filters have the first action; remove them before it";
            return Err(Error::new(Errno::EPERM).help(help));
        }
        (_, true) => replies.warning("Unable to flush all TC actions"),
        _ => {}
    }
    let header = TcaMsg::default();
    replies.publish(RTNLGRP_TC, RTM_DELACTION, request.flags, &header, |out| {
        out.nest(TAB, |out| {
            out.nest(0, |out| {
                out.put_str(KIND, kind);
                out.put_u32(FCNT, gone);
            });
        });
    });
    Ok(())
}

fn tell<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    (kind, actions): (u16, &[Action]),
    held: impl Fn(&Action) -> i32,
    replies: &mut Replies,
) {
    let shown = ShownAt::of(engine);
    let header = TcaMsg::default();
    replies.publish(RTNLGRP_TC, kind, request.flags, &header, |out| {
        out.nest(TAB, |out| {
            for (number, action) in (1..).zip(actions) {
                let shown = ShownAt {
                    held: held(action),
                    ..shown
                };
                out.nest(number, |out| put(action, &shown, false, out));
            }
        });
    });
}

fn put_all(
    actions: &[Action],
    from: u16,
    shown: &ShownAt,
    terse: bool,
    out: &mut crate::nl::Message<'_>,
) {
    for (number, action) in (from..).zip(actions) {
        out.nest(number, |out| put(action, shown, terse, out));
    }
}

/// About what an action takes in a message, at most.
fn size(action: &Action) -> usize {
    let keys = match &action.spec().kind {
        ActionKind::Pedit(pedit) => pedit.keys.len() * 48,
        _ => 0,
    };
    400 + keys
}

/// Dumps the actions of a kind (`tc_dump_action`). The position is the index of the next one.
pub(crate) fn dump<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let attrs = read(request)?;
    let Some(list) = attrs.get(TAB) else {
        return Ok(Progress::Done);
    };
    let list = list.nested(&LIST)?;
    let Some(first) = list.get(1) else {
        return Ok(Progress::Done);
    };
    let of = first.nested(&ACTION)?;
    // As the kernel, one that is not known has none.
    let Ok(kind) = kind(&of, "") else {
        return Ok(Progress::Done);
    };
    let flags = attrs.fixed::<Bits>(ROOT_FLAGS)?;
    let terse = flags.is_some_and(|flags| flags.value & flags.selector & TERSE != 0);
    let shown = ShownAt::of(engine);
    let since = attrs.u32(TIME_DELTA)?.filter(|&delta| delta != 0);
    let since = since.map(|millis| {
        let nanos = u64::from(millis) * 1_000_000;
        shown.now.nanos().saturating_sub(nanos)
    });
    loop {
        let from = u32::try_from(position.key).unwrap_or(u32::MAX);
        let mut bytes = 0;
        let mut part: Vec<Action> = Vec::new();
        let mut next = None;
        engine.actions(|table, _| {
            for action in table.iter(kind, from) {
                let stats = action.stats();
                let last = stats.used[1].max(stats.installed);
                if since.is_some_and(|since| last.nanos() < since) {
                    continue;
                }
                bytes += size(&action);
                if part.len() == MOST || bytes > MOST_BYTES && !part.is_empty() {
                    next = Some(action.index());
                    break;
                }
                // The kernel asks all drivers that may have it (`tcf_action_update_hw_stats`).
                if hardware::fits(action.spec()) {
                    action.show_hw_stats(true);
                }
                part.push(action);
            }
        });
        if part.is_empty() {
            return Ok(Progress::Done);
        }
        let header = TcaMsg::default();
        let written = chunk.message(RTM_GETACTION, 0, &header, |out| {
            out.put_u32(COUNT, part.len() as u32);
            out.nest(TAB, |out| put_all(&part, 0, &shown, terse, out));
        });
        if let Err(Full) = written {
            return Ok(Progress::More);
        }
        match next {
            Some(next) => position.key = next.into(),
            None => return Ok(Progress::Done),
        }
    }
}
