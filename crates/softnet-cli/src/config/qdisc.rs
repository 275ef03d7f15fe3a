//! `qdisc = { kind = "tbf", rate = "100mbit", … }`: tc's option names and units, to a
//! [`QdiscSpec`].

use softnet_tc::{
    AqmSpec, CodelSpec, DualPi2Spec, EtsSpec, Field, Form, FqCodelSpec, LinkDefaults, PrioSpec,
    QDISC_KINDS, QdiscKind, QdiscSpec, SpecError, SpecOption, TbfSpec, Unset,
};

use super::class;
use super::mqprio;
use super::netem;
use super::red;
use super::table::{Item, Table};
use super::units::{self, NOMINAL_SPEED, Share, UnitError};

/// The kinds, for messages.
fn kinds() -> String {
    let mut names: Vec<&str> = QDISC_KINDS.iter().map(|kind| kind.name).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

/// Keys of every kind of qdisc.
pub(super) const EVERYWHERE: &[&str] = &["kind", "parent", "handle", "stab", "estimator"];

/// Reads a qdisc of a device; none if it is wrong. `has_speed`: see [`read`].
pub(super) fn spec(table: &Table<'_>, link: LinkDefaults, has_speed: bool) -> Option<QdiscSpec> {
    let before = table.source.errors();
    let Some(item) = table.find("kind") else {
        return table.missing("kind", &format!("the qdisc's kind: {}", kinds()));
    };
    let Some(name) = item.as_text() else {
        let text = "not a text; write it like \"tbf\"";
        return item.problem(format!("is {}, {text}", item.is()));
    };
    let Some(kind) = QdiscKind::find(name) else {
        let text = "is not a qdisc of this version; use";
        return item.problem(format!("{name:?} {text} {}", kinds()));
    };
    let names: Vec<&str> = kind.options.iter().map(|option| option.name).collect();
    table.only(EVERYWHERE, name, &names);
    let mut spec = (kind.default)(&link);
    for option in kind.options {
        read(table, option, &mut spec, has_speed);
    }
    by_hand(table, &mut spec, &link);
    if table.source.errors() > before {
        return None;
    }
    if let Err(error) = spec.check() {
        let key = match error {
            // Its limit is computed.
            SpecError::Parameter {
                parameter: "limit", ..
            } if table.has("latency") => "latency",
            SpecError::Parameter { parameter, .. } => parameter,
            SpecError::Change(_)
            | SpecError::Filter(_)
            | SpecError::Tree(_)
            | SpecError::OneQueue(_)
            | SpecError::NoQueue { .. }
            | SpecError::Queues(_) => "kind",
        };
        return table.problem(key, error.to_string());
    }
    Some(spec)
}

/// The share of the link's speed that a rate is, if it is one.
pub(super) fn share(table: &Table<'_>, key: &str) -> Option<Share> {
    table.find(key)?.as_text()?.parse().ok()
}

/// The options that are shares of the link's speed.
pub(super) fn shares<S>(
    table: &Table<'_>,
    options: &[SpecOption<S>],
) -> impl Iterator<Item = (&'static str, Share)> {
    let rates = options.iter();
    let rates = rates.filter(|option| matches!(option.form, Form::Rate));
    rates.filter_map(move |option| Some((option.name, share(table, option.name)?)))
}

/// True if a rate of a qdisc's table is a share of the link's speed.
pub(super) fn has_shares(table: &Table<'_>) -> bool {
    let kind = table.find("kind").and_then(|item| item.as_text());
    let kind = kind.and_then(QdiscKind::find);
    kind.is_some_and(|kind| shares(table, kind.options).next().is_some())
}

/// A rate, or what a share comes to at the nominal speed.
fn rate_or_share(text: &str) -> Result<u64, UnitError> {
    match text.trim_end().ends_with('%') {
        true => text.parse::<Share>().map(|share| share.of(NOMINAL_SPEED)),
        false => units::rate(text),
    }
}

/// Reads an option as its form says. `has_speed`: the link tells its speed, so that rates may be
/// shares of it.
pub(super) fn read<S>(table: &Table<'_>, option: &SpecOption<S>, spec: &mut S, has_speed: bool) {
    let name = option.name;
    let Some(field) = (option.field)(spec) else {
        return;
    };
    if let (Unset::Required(what, _), false) = (option.unset, table.has(name)) {
        table.missing::<()>(name, what);
    }
    let ranged = |what, least, most, is_good: fn(&u64) -> bool| {
        table.parsed(name, what, |text| {
            let number = text.parse().ok()?;
            ((least..=most).contains(&number) && is_good(&number)).then_some(number)
        })
    };
    let number = match option.form {
        Form::Size => table.quantity(name, units::size),
        Form::Rate if has_speed => table.quantity(name, rate_or_share),
        Form::Rate => table.quantity(name, units::rate),
        Form::Time => table.quantity(name, units::time),
        Form::Percent => table.quantity(name, units::percent),
        Form::Flag => table.find(name).and_then(|item| item.flag()).map(u64::from),
        Form::Number(what, least, most) => ranged(what, least, most, |_| true),
        Form::PowerOf2(what, least, most) => ranged(what, least, most, |n| n.is_power_of_two()),
        Form::Mask(what) => table.parsed(name, what, |text| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok().map(u64::from),
            None => text.parse::<u32>().ok().map(u64::from),
        }),
        Form::List(what) => return list(table, name, what, field),
        Form::Word(words) => {
            let what = format!("one of {}", words.join(", "));
            table.parsed(name, &what, |text| {
                words
                    .iter()
                    .position(|word| *word == text)
                    .map(|at| at as u64)
            })
        }
        Form::Own => None,
    };
    if let Some(number) = number
        && let Err(most) = field.set(number)
    {
        table.problem::<()>(name, format!("{number} is too large; at most {most}"));
    }
}

/// A list of numbers, or a text with them.
fn list(table: &Table<'_>, key: &str, what: &str, field: Field<'_>) {
    if let Some(numbers) = numbers(table, key, what)
        && !field.set_list(&numbers)
    {
        table.problem::<()>(key, format!("is not a list of {what}"));
    }
}

fn numbers(table: &Table<'_>, key: &str, what: &str) -> Option<Vec<u32>> {
    let item = table.find(key)?;
    let numbers: Option<Vec<u32>> = match (item.as_text(), item.as_list()) {
        (Some(text), _) => text.split_whitespace().map(|n| n.parse().ok()).collect(),
        (_, Some(list)) => {
            let number = |item: &Item<'_>| u32::try_from(item.as_integer()?).ok();
            list.iter().map(number).collect()
        }
        _ => None,
    };
    numbers.or_else(|| item.problem(format!("is not a list of {what}")))
}

/// Options that no form says, and how those of one kind depend on each other.
fn by_hand(table: &Table<'_>, spec: &mut QdiscSpec, link: &LinkDefaults) {
    match spec {
        QdiscSpec::Prio(prio) => {
            let default = PrioSpec::default().bands;
            if prio.bands < default && !table.has("priomap") {
                let text = format!(
                    "is missing; the default map has bands 0 to {}, and this qdisc has 0 to {}",
                    default - 1,
                    prio.bands.saturating_sub(1)
                );
                table.problem_at::<()>(table.span_of("bands"), "priomap", text);
            }
        }
        QdiscSpec::Tbf(spec) => tbf(table, spec),
        QdiscSpec::Codel(CodelSpec { aqm, .. }) | QdiscSpec::FqCodel(FqCodelSpec { aqm, .. }) => {
            selector(table, aqm);
        }
        QdiscSpec::Htb(htb) => htb.default = class::minor(table).unwrap_or(htb.default),
        QdiscSpec::Hfsc(hfsc) => hfsc.default = class::minor(table).unwrap_or(hfsc.default),
        QdiscSpec::Ets(ets) => *ets = self::ets(table, ets.clone(), link),
        QdiscSpec::Red(spec) => red::red(table, spec),
        QdiscSpec::Sfq(spec) => red::sfq(table, spec),
        QdiscSpec::DualPi2(spec) => dualpi2(table, spec),
        QdiscSpec::Netem(spec) => netem::read(table, spec),
        QdiscSpec::Mqprio(map) => *map = mqprio::map(table).unwrap_or_default(),
        QdiscSpec::Cake(cake) | QdiscSpec::CakeMq(cake) => {
            let what = "a number of bytes from -64 to 256";
            cake.overhead = table.parsed("overhead", what, |text| {
                let number = text.parse().ok()?;
                (-64..=256).contains(&number).then_some(number)
            });
        }
        _ => {}
    }
}

/// `quanta` and `priomap`, which may be shorter than there are bands and priorities.
fn ets(table: &Table<'_>, mut spec: EtsSpec, link: &LinkDefaults) -> EtsSpec {
    let (bands, strict) = (spec.bands, spec.strict.min(spec.bands));
    spec.priomap = [bands.saturating_sub(1) as u8; 16];
    if let Some(map) = numbers(table, "priomap", "bands, one for each priority") {
        let known = map.iter().all(|&band| band < u32::from(bands));
        if !known || map.len() > spec.priomap.len() {
            let last = bands.saturating_sub(1);
            let text = format!("is not a list of at most 16 bands, which are 0 to {last}");
            table.problem::<()>("priomap", text);
        }
        for (place, band) in spec.priomap.iter_mut().zip(map) {
            *place = u8::try_from(band).unwrap_or(0);
        }
    }
    let quanta = numbers(table, "quanta", "quanta in bytes").unwrap_or_default();
    if quanta.len() > usize::from(bands - strict) {
        let text = "has more values than there are bands that are not strict";
        table.problem::<()>("quanta", text);
    }
    if quanta
        .iter()
        .any(|&quantum| EtsSpec::quantum(quantum) != quantum)
    {
        let text = "is not a list of quanta between 256 and 1048576 bytes";
        table.problem::<()>("quanta", text);
    }
    spec.with_quanta(&quanta, link)
}

/// `limit` or `latency`, `peakrate` with `mtu`, and what a packet costs on the link.
fn tbf(table: &Table<'_>, spec: &mut TbfSpec) {
    let mtu = table.small("mtu", units::size);
    if table.has("peakrate") && !table.has("mtu") {
        let text = "is missing; peakrate needs it (the size of its bucket, at least one packet, \
                    like \"1540\")";
        table.problem_at::<()>(table.span_of("peakrate"), "mtu", text);
    }
    if !table.has("peakrate") && table.has("mtu") {
        let text = "has no effect without peakrate; remove it or add peakrate";
        table.problem::<()>("mtu", text);
    }
    spec.mtu = mtu.unwrap_or_default();
    // Where a share is refused, that is all there is to say.
    let follows = |key: &str, rate: u64| rate > 0 && share(table, key).is_some();
    let follows = follows("rate", spec.rate) || follows("peakrate", spec.peakrate.unwrap_or(0));
    match (table.has("limit"), table.find("latency")) {
        (true, None) => {}
        (false, Some(latency)) if follows => {
            let text = "depends on the rate, which follows the link's speed; give limit, the \
                        bytes that may wait";
            latency.problem::<()>(text);
        }
        (false, Some(latency)) => {
            let latency = latency.quantity(units::time).unwrap_or(0);
            // As tc computes it: what the bucket lets through in that time, and the bucket; the
            // smaller of both buckets.
            let waiting = |rate: u64, bucket: u64| {
                (rate as f64 * (latency as f64 / 1e9) + bucket as f64) as u64
            };
            let at_rate = waiting(spec.rate, spec.burst);
            spec.limit = spec.peakrate.map_or(at_rate, |peak| {
                at_rate.min(waiting(peak, u64::from(spec.mtu)))
            });
        }
        (true, Some(latency)) => {
            let text = "limit and latency say the same thing; keep one of them";
            latency.problem::<()>(text);
        }
        (false, None) => {
            let what = "latency (how long a packet may wait, like \"50ms\") or limit (in bytes)";
            table.missing::<()>("latency", what);
        }
    }
    spec.link = table.link_cost();
}

/// Numbers of 8 bits.
fn dualpi2(table: &Table<'_>, spec: &mut DualPi2Spec) {
    let byte = |key: &str, least: u8, most: u8, field: &mut u8| {
        let what = format!("a number from {least} to {most}");
        let read = |text: &str| text.parse().ok().filter(|n| (least..=most).contains(n));
        *field = table.parsed(key, &what, read).unwrap_or(*field);
    };
    byte("coupling_factor", 1, 255, &mut spec.coupling_factor);
    byte("classic_protection", 0, 100, &mut spec.classic_protection);
    byte("ecn_mask", 1, 3, &mut spec.ecn_mask);
}

fn selector(table: &Table<'_>, aqm: &mut AqmSpec) {
    let key = "ce_threshold_selector";
    let what = "a traffic class and a mask, like \"0x01/0x03\"";
    let selector = table.parsed(key, what, |text| {
        let byte = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let (value, mask) = text.split_once('/')?;
        Some((byte(value)?, byte(mask)?))
    });
    (aqm.ce_threshold_selector, aqm.ce_threshold_mask) = selector.unwrap_or_default();
}

#[cfg(test)]
mod tests;
