//! Actions (`TCA_ACT_*`): those of filters, and `RTM_*ACTION`, what `tc actions` asks for.
//!
//! Source: `net/sched/act_api.c`.

mod csum;
mod gact;
mod hardware;
mod mirred;
mod pedit;
mod police;
mod request;
mod simple;
mod skbedit;
mod skbmod;
mod vlan;

use softnet::qdisc::QdiscStats;
use softnet::time::Time;
use softnet_engine::{Devices, Engine};
use softnet_tc::{
    Action, ActionError, ActionKind, ActionList, ActionSpec, Control, EstimatorSpec, MirredTo,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use self::request::{dump, request};
use super::{extras, stats};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const INDEX: u16 = 3;
const STATS: u16 = 4;
const COOKIE: u16 = 6;
const FLAGS: u16 = 7;
const HW_STATS: u16 = 8;
const USED_HW_STATS: u16 = 9;
const IN_HW_COUNT: u16 = 10;

/// `TCA_ACT_MAX_PRIO`
const MAX: u16 = 32;
const LIST: Policy = Policy::new(MAX, &[]);
const ACTION: Policy = Policy::new(
    10,
    &[
        (KIND, Rule::Str { max: 15 }),
        (INDEX, Rule::U32),
        (COOKIE, Rule::Binary { max: 16 }),
        (OPTIONS, Rule::NestedAny),
        (FLAGS, Rule::Exact(size_of::<Bits>())),
        (HW_STATS, Rule::Exact(size_of::<Bits>())),
    ],
);

/// `TCA_ACT_FLAGS_*`: what programs may set.
const NO_PERCPU_STATS: u32 = 1;
const SKIP_HW: u32 = 2;
const SKIP_SW: u32 = 4;
/// One that a filter has in an attribute of its own for it (`TCA_OLD_COMPAT`). No program can set
/// it.
const OLD: u32 = 1 << 31;
/// `TCA_ACT_HW_STATS_ANY`
const HW_STATS_ANY: u32 = 3;

/// `struct nla_bitfield32`
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct Bits {
    value: u32,
    selector: u32,
}

/// `tc_gen`: at the front of each kind's parameters.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct Generic {
    index: u32,
    capab: u32,
    action: i32,
    refcnt: i32,
    bindcnt: i32,
}

/// `struct tcf_t`, in hundredths of a second.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
struct Times {
    install: u64,
    lastuse: u64,
    expires: u64,
    firstuse: u64,
}

/// Circumstances of an action that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// Flags of the filter that it is for; `None`: it stands alone.
    pub(super) filter: Option<FilterFlags>,
}

/// The flags of a filter that its actions have to have, too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilterFlags {
    pub(super) skip_hw: bool,
}

/// An action that a request has.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    name: &'static str,
    index: u32,
    /// Kind and way on, or what is wrong with them, which does not matter where the index names one
    /// that there is.
    result: Result<(ActionKind, Control), Error>,
    /// The link of `mirred`; 0: none is named.
    link: Option<u32>,
    cookie: Vec<u8>,
    flags: u32,
    hw_stats: Option<u8>,
}

impl Parsed {
    fn new(index: u32, result: impl FnOnce() -> Result<(ActionKind, Control), Error>) -> Parsed {
        Parsed {
            name: "",
            index,
            result: result(),
            link: None,
            cookie: Vec::new(),
            flags: 0,
            hw_stats: None,
        }
    }

    /// Things that a test looks at.
    #[cfg(test)]
    pub(super) fn parts(&self) -> (ActionKind, Control, Vec<u8>) {
        let (kind, control) = self.result.clone().unwrap();
        (kind, control, self.cookie.clone())
    }

    /// Parameters of the action, if they are right.
    fn spec<D: Devices>(&self, engine: &Engine<D>) -> Result<(ActionSpec, Option<u32>), Error> {
        let (mut kind, control) = self.result.clone()?;
        let link = self.link.map(|index| engine.link(index).map_err(|_| index));
        let link = link.transpose().map_err(mirred::no_link)?;
        if let (ActionKind::Mirred(mirred), Some(link)) = (&mut kind, &link) {
            mirred.to = MirredTo::Dev(link.settings.name.clone());
        }
        let spec = ActionSpec {
            control,
            index: self.index,
            cookie: self.cookie.clone(),
            skip_hw: self.flags & SKIP_HW != 0,
            flags: self.flags & (NO_PERCPU_STATS | OLD),
            hw_stats: self.hw_stats,
            ..ActionSpec::new(kind)
        };
        Ok((spec, link.map(|link| link.index)))
    }
}

fn missing(kind: &str) -> Error {
    let text = format!("Missing required {kind} parameters");
    Error::new(Errno::EINVAL).text(text)
}

/// `tcf_action_check_ctrlact`
fn control(raw: i32, read: &Read) -> Result<Control, Error> {
    let control = Control::from_raw(raw);
    let control = control.ok_or_else(|| Error::invalid("invalid control action"))?;
    match control.chain() {
        Some(_) if read.filter.is_none() => {
            let help = "only a filter's own action has chains to go to";
            Err(Error::invalid("can't goto NULL proto/chain").help(help))
        }
        _ => Ok(control),
    }
}

/// A way on for some packets only.
fn fallback(raw: i32) -> Result<Control, Error> {
    match Control::from_raw(raw) {
        Some(Control::Goto(_)) => Err(Error::invalid("goto chain not allowed on fallback")),
        Some(control) => Ok(control),
        None => Err(Error::invalid("invalid control action")),
    }
}

fn unknown(name: &str) -> Error {
    let names = ActionKind::NAMES.join(", ");
    let help = format!("Softnet has no action {name:?}; it has {names}");
    let error = Error::new(Errno::ENOENT).text("Failed to load TC action module");
    error.help(help)
}

/// The actions of a list, in the order of their numbers, from 1 on (`tcf_action_init`).
pub(super) fn parse(list: &Attr<'_>, read: &Read) -> Result<Vec<Parsed>, Error> {
    let list = list.nested(&LIST)?;
    let numbers = (1..=MAX).map_while(|number| list.get(number));
    numbers.map(|attr| parse_one(&attr, read)).collect()
}

fn parse_one(attr: &Attr<'_>, read: &Read) -> Result<Parsed, Error> {
    let attrs = attr.nested(&ACTION)?;
    let name = attrs.str(KIND)?;
    let name = name.ok_or_else(|| Error::invalid("TC action kind must be specified"))?;
    let known = ActionKind::NAMES.iter().find(|known| **known == name);
    let name = *known.ok_or_else(|| unknown(name).at(attr))?;
    let options = attrs.get(OPTIONS);
    let mut parsed = match name {
        "gact" => gact::parse(options, read),
        "police" => police::parse(options, read),
        "mirred" => mirred::parse(options, read),
        "skbedit" => skbedit::parse(options, read),
        "vlan" => vlan::parse(options, read),
        "pedit" => pedit::parse(options, read),
        "csum" => csum::parse(options, read),
        "skbmod" => skbmod::parse(options, read),
        _ => simple::parse(options, read),
    }
    .map_err(|error| error.at(attr))?;
    parsed.name = name;
    if let Some(cookie) = attrs.get(COOKIE) {
        parsed.cookie = cookie.data.to_vec();
    }
    if let Some(flags) = attrs.fixed::<Bits>(FLAGS)? {
        let skips = flags.value & (SKIP_HW | SKIP_SW);
        let known = NO_PERCPU_STATS | SKIP_HW | SKIP_SW;
        if flags.value & !known != 0 || skips == SKIP_HW | SKIP_SW {
            return Err(Error::from(Errno::EINVAL).at(attr));
        }
        if skips == SKIP_SW {
            let help = "there is no hardware to have the action; leave skip_sw out";
            return Err(Error::from(Errno::EINVAL).help(help).at(attr));
        }
        parsed.flags = flags.value;
    }
    if let Some(stats) = attrs.fixed::<Bits>(HW_STATS)? {
        let chosen = stats.value & stats.selector;
        if chosen & !HW_STATS_ANY != 0 {
            return Err(Error::from(Errno::EINVAL).at(attr));
        }
        parsed.hw_stats = Some(chosen as u8).filter(|_| chosen != HW_STATS_ANY);
    }
    Ok(parsed)
}

/// The `police` that a filter has in an attribute for it (`tcf_exts_validate`).
pub(super) fn parse_police(attr: &Attr<'_>, read: &Read) -> Result<Parsed, Error> {
    let mut parsed = police::parse(Some(*attr), read).map_err(|error| error.at(attr))?;
    parsed.name = "police";
    parsed.flags = OLD;
    Ok(parsed)
}

fn refusal(error: ActionError) -> Error {
    let text = match error {
        // The kernel has no text for it.
        ActionError::Missing => "TC action with specified index not found".to_owned(),
        other => other.to_string(),
    };
    Error::new(Errno(error.errno())).text(text)
}

/// The estimator that a filter's new actions have, each its own (`TCA_RATE` of its request).
fn estimator(rate: Option<Attr<'_>>) -> Result<Option<EstimatorSpec>, Error> {
    // Unlike for a qdisc, the kernel has no text for it.
    let plain = |error: Error| Error {
        text: None,
        ..error
    };
    let estimator = rate.map(|rate| extras::parse_estimator(&rate).map_err(plain));
    estimator.transpose()
}

/// An average rate is one that is estimated (`tcf_police_init`, which has no text for it).
fn check_average(spec: &ActionSpec) -> Result<(), Error> {
    match spec.lacks_estimator() {
        true => {
            let help = "an avrate needs an estimator, which tc takes before the filter's kind, \
                        like estimator 1s 8s";
            Err(Error::new(Errno::EINVAL).help(help))
        }
        false => Ok(()),
    }
}

/// A filter that actions are for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binds {
    pub(super) filter: FilterFlags,
    pub(super) at_ingress: bool,
}

/// The actions of a filter: those that their index names, as they are, and new ones. `rate` is the
/// `TCA_RATE` of its request.
pub(super) fn bind<D: Devices>(
    engine: &Engine<D>,
    parsed: &[Parsed],
    Binds { filter, at_ingress }: Binds,
    rate: Option<Attr<'_>>,
) -> Result<ActionList, Error> {
    let mut actions: Vec<Action> = Vec::new();
    for one in parsed {
        let known = engine.actions(|table, _| table.get(one.name, one.index));
        let mismatch = || Error::invalid("Mismatch between action and filter offload flags");
        if let Some(known) = known.filter(|_| one.index != 0) {
            let own = known.binds() > 0 && !engine.actions(|table, _| table.is_kept(&known));
            if !own && known.spec().skip_hw != filter.skip_hw {
                return Err(mismatch());
            }
            actions.push(known);
            continue;
        }
        let (mut spec, link) = one.spec(engine)?;
        if spec.skip_hw && !filter.skip_hw {
            return Err(mismatch());
        }
        let queue = matches!(&spec.kind, ActionKind::Skbedit(edit) if edit.queue.is_some());
        if queue && at_ingress {
            let text = "act_skbedit: \"queue_mapping\" option on receive side is hardware only, \
                        use skip_sw";
            return Err(Error::new(Errno::EOPNOTSUPP).text(text));
        }
        spec.skip_hw = filter.skip_hw;
        spec.estimator = estimator(rate)?;
        check_average(&spec)?;
        let made = engine.actions(|table, now| table.add(spec, false, now));
        let made = made.map_err(refusal)?;
        made.set_link(link);
        actions.push(made);
    }
    Ok(actions.into_iter().collect())
}

/// Writes the actions of a filter (`tcf_action_dump`).
pub(super) fn put_list(
    (kind, police): (u16, Option<u16>),
    list: &ActionList,
    shown: &ShownAt,
    out: &mut Message<'_>,
) {
    if list.is_empty() {
        return;
    }
    if let (Some(kind), [action]) = (police, list.as_slice())
        && action.spec().flags & OLD != 0
    {
        return out.nest(kind, |out| put_options(action, shown, out));
    }
    out.nest(kind, |out| {
        for (number, action) in (1..).zip(list.as_slice()) {
            out.nest(number, |out| put(action, shown, false, out));
        }
    });
}

/// Puts what an old `police` has counted beside the options of its filter (`tcf_exts_dump_stats`).
pub(in crate::tc) fn put_old_stats(list: &ActionList, out: &mut Message<'_>) {
    if let [action] = list.as_slice()
        && action.spec().flags & OLD != 0
    {
        stats::put_old(&counted(action), action.rate(), out);
    }
}

fn counted(action: &Action) -> QdiscStats {
    let stats = action.stats();
    QdiscStats {
        bytes: stats.bytes,
        packets: stats.packets,
        drops: stats.drops,
        overlimits: stats.overlimits,
        ..QdiscStats::default()
    }
}

/// Circumstances in which an action is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShownAt {
    pub(super) now: Time,
    /// References that the request itself has, shown among those of an action.
    pub(super) held: i32,
}

impl ShownAt {
    pub(crate) fn of<D: Devices>(engine: &Engine<D>) -> ShownAt {
        ShownAt {
            now: engine.clock().now(),
            held: 0,
        }
    }
}

/// Writes one action (`tcf_action_dump_1`).
fn put(action: &Action, shown: &ShownAt, terse: bool, out: &mut Message<'_>) {
    let spec = action.spec();
    out.put_str(KIND, spec.kind.name());
    out.nest(STATS, |out| {
        stats::put_counts(&counted(action), action.rate(), out);
    });
    if terse {
        out.put_u32(INDEX, action.index());
    }
    if !spec.cookie.is_empty() {
        out.put_bytes(COOKIE, &spec.cookie);
    }
    if terse {
        return;
    }
    if let Some(value) = spec.hw_stats {
        let bits = Bits {
            value: value.into(),
            selector: HW_STATS_ANY,
        };
        out.put(HW_STATS, &bits);
    }
    // No driver has it.
    if action.shows_hw_stats() {
        let bits = Bits {
            value: 0,
            selector: HW_STATS_ANY,
        };
        out.put(USED_HW_STATS, &bits);
    }
    let flags = spec.flags & !OLD | if spec.skip_hw { SKIP_HW } else { 0 };
    if flags != 0 {
        let bits = Bits {
            value: flags,
            selector: flags,
        };
        out.put(FLAGS, &bits);
    }
    out.put_u32(IN_HW_COUNT, 0);
    out.nest(OPTIONS, |out| put_options(action, shown, out));
}

/// Writes the parameters of an action, and its times.
fn put_options(action: &Action, shown: &ShownAt, out: &mut Message<'_>) {
    let spec = action.spec();
    let stats = action.stats();
    let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let parms = Generic {
        index: action.index(),
        capab: 0,
        action: spec.control.raw(),
        refcnt: count(action.references()).saturating_add(shown.held),
        bindcnt: count(action.binds()),
    };
    // `jiffies_to_clock_t`
    let since = |time: Time| shown.now.nanos().saturating_sub(time.nanos()) / 10_000_000;
    let [first, last] = stats.used;
    let used = first != Time::ZERO;
    let times = Times {
        install: since(stats.installed),
        lastuse: since(if used { last } else { stats.installed }),
        expires: 0,
        firstuse: if used { since(first) } else { 0 },
    };
    let time = match &spec.kind {
        ActionKind::Gact(gact) => gact::dump(gact, &parms, out),
        ActionKind::Police(police) => police::dump(police, &parms, out),
        ActionKind::Mirred(mirred) => mirred::dump(mirred, action.link(), &parms, out),
        ActionKind::Skbedit(edit) => skbedit::dump(edit, &parms, out),
        ActionKind::Vlan(vlan) => vlan::dump(vlan, &parms, out),
        ActionKind::Pedit(pedit) => pedit::dump(pedit, &parms, out),
        ActionKind::Csum(csum) => csum::dump(csum, &parms, out),
        ActionKind::Skbmod(skbmod) => skbmod::dump(skbmod, &parms, out),
        ActionKind::Simple(simple) => simple::dump(simple, &parms, out),
    };
    out.put(time, &times);
}
