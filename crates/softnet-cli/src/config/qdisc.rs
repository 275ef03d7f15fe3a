//! `qdisc = { kind = "tbf", rate = "100mbit", … }`: tc's option names and units, to a
//! [`QdiscSpec`].

use softnet_tc::{
    AqmSpec, CodelSpec, Field, Form, FqCodelSpec, LinkDefaults, PrioSpec, QDISC_KINDS, QdiscKind,
    QdiscSpec, SpecError, SpecOption, TbfSpec, Unset,
};
use toml::Value;

use super::error::Problem;
use super::htb;
use super::mqprio;
use super::options::Options;
use super::units;

/// The kinds, for messages.
fn kinds() -> String {
    let mut names: Vec<&str> = QDISC_KINDS.iter().map(|kind| kind.name).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

/// Reads a qdisc of a device.
pub(super) fn spec(options: &Options<'_>, link: LinkDefaults) -> Result<QdiscSpec, Problem> {
    let Some((_, kind)) = options.find("kind") else {
        let text = format!("is missing; add the qdisc's kind: {}", kinds());
        return Err(options.problem("kind", options.span.clone(), text));
    };
    let Some(name) = kind.get_ref().as_str() else {
        let text = format!(
            "is {}, not a text; write it like \"tbf\"",
            kind.get_ref().type_str()
        );
        return Err(options.problem("kind", kind.span(), text));
    };
    let Some(kind) = QdiscKind::find(name) else {
        let text = format!("{name:?} is not a qdisc of this version; use {}", kinds());
        return Err(options.problem("kind", kind.span(), text));
    };
    let names: Vec<&str> = kind.options.iter().map(|option| option.name).collect();
    options.only(name, &names)?;
    let mut spec = (kind.default)(&link);
    for option in kind.options {
        read(options, option, &mut spec)?;
    }
    by_hand(options, &mut spec)?;
    spec.check().map_err(|error| {
        let key = match error {
            SpecError::Parameter { parameter, .. } => parameter,
            SpecError::Change(_)
            | SpecError::Filter(_)
            | SpecError::Tree(_)
            | SpecError::OneQueue(_)
            | SpecError::NoQueue { .. }
            | SpecError::Queues(_) => "kind",
        };
        options.problem(key, options.span_of(key), error.to_string())
    })?;
    Ok(spec)
}

/// Reads an option as its form says.
pub(super) fn read<S>(
    options: &Options<'_>,
    option: &SpecOption<S>,
    spec: &mut S,
) -> Result<(), Problem> {
    let name = option.name;
    let Some(field) = (option.field)(spec) else {
        return Ok(());
    };
    if let (Unset::Required(what, _), None) = (option.unset, options.find(name)) {
        return Err(options.missing(name, what));
    }
    let ranged = |what, least, most, is_good: fn(&u64) -> bool| {
        options.parsed(name, what, |text| {
            let number = text.parse().ok()?;
            ((least..=most).contains(&number) && is_good(&number)).then_some(number)
        })
    };
    let number = match option.form {
        Form::Size => options.quantity(name, units::size)?,
        Form::Rate => options.quantity(name, units::rate)?,
        Form::Time => options.quantity(name, units::time)?,
        Form::Flag => options.flag(name)?.map(u64::from),
        Form::Number(what, least, most) => ranged(what, least, most, |_| true)?,
        Form::PowerOf2(what, least, most) => ranged(what, least, most, |n| n.is_power_of_two())?,
        Form::Mask(what) => options.parsed(name, what, |text| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok().map(u64::from),
            None => text.parse::<u32>().ok().map(u64::from),
        })?,
        Form::List(what) => return list(options, name, what, field),
        Form::Own => None,
    };
    number.map_or(Ok(()), |number| {
        field.set(number).map_err(|most| {
            let text = format!("{number} is too large; at most {most}");
            options.problem(name, options.span_of(name), text)
        })
    })
}

/// A list of numbers, or a text with them.
fn list(options: &Options<'_>, key: &str, what: &str, field: Field<'_>) -> Result<(), Problem> {
    let Some((_, list)) = options.find(key) else {
        return Ok(());
    };
    let numbers: Option<Vec<u32>> = match list.get_ref() {
        Value::String(text) => text.split_whitespace().map(|n| n.parse().ok()).collect(),
        Value::Array(list) => {
            let number = |value: &Value| value.as_integer().and_then(|n| n.try_into().ok());
            list.iter().map(number).collect()
        }
        _ => None,
    };
    if numbers.is_some_and(|numbers| field.set_list(&numbers)) {
        return Ok(());
    }
    Err(options.problem(key, list.span(), format!("is not a list of {what}")))
}

/// What no form says, and how options of one kind depend on each other.
fn by_hand(options: &Options<'_>, spec: &mut QdiscSpec) -> Result<(), Problem> {
    match spec {
        QdiscSpec::Prio(prio) => {
            let default = PrioSpec::default().bands;
            if prio.bands < default && options.find("priomap").is_none() {
                let text = format!(
                    "is missing; the default map has bands 0 to {}, and this qdisc has 0 to {}",
                    default - 1,
                    prio.bands - 1
                );
                return Err(options.problem("priomap", options.span_of("bands"), text));
            }
        }
        QdiscSpec::Tbf(spec) => tbf(options, spec)?,
        QdiscSpec::Codel(CodelSpec { aqm, .. }) | QdiscSpec::FqCodel(FqCodelSpec { aqm, .. }) => {
            selector(options, aqm)?;
        }
        QdiscSpec::Htb(htb) => htb.default = htb::minor(options)?.unwrap_or(htb.default),
        QdiscSpec::Mqprio(map) => *map = mqprio::map(options)?,
        _ => {}
    }
    Ok(())
}

/// `limit` or `latency`, `peakrate` with `mtu`, and what a packet costs on the link.
fn tbf(options: &Options<'_>, spec: &mut TbfSpec) -> Result<(), Problem> {
    let mtu = options.small("mtu", units::size)?;
    if spec.peakrate.is_some() && mtu.is_none() {
        let text = "is missing; peakrate needs it (the size of its bucket, at least one packet, \
                    like \"1540\")";
        return Err(options.problem("mtu", options.span_of("peakrate"), text));
    }
    if spec.peakrate.is_none() && mtu.is_some() {
        let text = "has no effect without peakrate; remove it or add peakrate";
        return Err(options.problem("mtu", options.span_of("mtu"), text));
    }
    spec.mtu = mtu.unwrap_or_default();
    let has_limit = options.find("limit").is_some();
    match (has_limit, options.quantity("latency", units::time)?) {
        (true, None) => {}
        (false, Some(latency)) => {
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
        (true, Some(_)) => {
            let text = "limit and latency say the same thing; keep one of them";
            return Err(options.problem("latency", options.span_of("latency"), text));
        }
        (false, None) => {
            let what = "latency (how long a packet may wait, like \"50ms\") or limit (in bytes)";
            return Err(options.missing("latency", what));
        }
    }
    spec.link = options.link_cost()?;
    Ok(())
}

fn selector(options: &Options<'_>, aqm: &mut AqmSpec) -> Result<(), Problem> {
    let key = "ce_threshold_selector";
    let what = "a traffic class and a mask, like \"0x01/0x03\"";
    let selector = options.parsed(key, what, |text| {
        let byte = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let (value, mask) = text.split_once('/')?;
        Some((byte(value)?, byte(mask)?))
    })?;
    if selector.is_some() && aqm.ce_threshold.is_none() {
        let text = "has no effect without ce_threshold; remove it or add ce_threshold";
        return Err(options.problem(key, options.span_of(key), text));
    }
    (aqm.ce_threshold_selector, aqm.ce_threshold_mask) = selector.unwrap_or_default();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use softnet_tc::{FqSpec, LinkCost, LinkLayer};

    use super::*;

    fn read(text: &str) -> Result<QdiscSpec, Problem> {
        #[derive(serde::Deserialize)]
        struct Outer {
            q: toml::Spanned<super::super::file::OptionTable>,
        }
        let outer: Outer = toml::from_str(&format!("q = {{ {text} }}")).expect("valid TOML");
        let options = Options {
            table: outer.q.get_ref(),
            span: outer.q.span(),
            path: "port.qdisc",
        };
        spec(&options, LinkDefaults::default())
    }

    fn tbf(text: &str) -> TbfSpec {
        match read(text) {
            Ok(QdiscSpec::Tbf(spec)) => spec,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn limit_follows_from_latency_as_in_tc() {
        let spec = tbf(r#"kind = "tbf", rate = "100mbit", burst = "32k", latency = "50ms""#);
        let limit = 12_500_000 / 20 + 32_768;
        assert_eq!(
            spec,
            TbfSpec {
                rate: 12_500_000,
                burst: 32_768,
                limit,
                peakrate: None,
                mtu: 0,
                link: Default::default()
            }
        );
        let spec = tbf(concat!(
            r#"kind = "tbf", rate = "1mbit", burst = "10k", "#,
            r#"latency = "1s", peakrate = "2mbit", mtu = 1540"#
        ));
        assert_eq!(spec.limit, 125_000 + 10_240, "the smaller of both");
        assert_eq!((spec.peakrate, spec.mtu), (Some(250_000), 1540));
        let spec = tbf(r#"kind = "tbf", rate = 8000, burst = 2000, limit = "1kb""#);
        assert_eq!((spec.rate, spec.burst, spec.limit), (1000, 2000, 1024));
    }

    #[test]
    fn simple_kinds_and_their_defaults() {
        assert_eq!(read(r#"kind = "noqueue""#), Ok(QdiscSpec::Noqueue));
        assert_eq!(
            read(r#"kind = "pfifo_fast""#),
            Ok(QdiscSpec::PfifoFast { limit: 1000 })
        );
        assert_eq!(
            read(r#"kind = "pfifo""#),
            Ok(QdiscSpec::Pfifo { limit: 1000 })
        );
        assert_eq!(
            read(r#"kind = "pfifo", limit = "1k""#),
            Ok(QdiscSpec::Pfifo { limit: 1024 })
        );
        assert_eq!(
            read(r#"kind = "bfifo""#),
            Ok(QdiscSpec::Bfifo { limit: 1_514_000 })
        );
        assert_eq!(
            read(r#"kind = "bfifo", limit = 9000"#),
            Ok(QdiscSpec::Bfifo { limit: 9000 })
        );
    }

    #[test]
    fn prio_and_framing() {
        let prio = |text: &str| match read(text) {
            Ok(QdiscSpec::Prio(spec)) => spec,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(prio(r#"kind = "prio""#), PrioSpec::default());
        let spec =
            prio(r#"kind = "prio", bands = 2, priomap = "1 1 1 1 1 1 0 0 1 1 1 1 1 1 1 1""#);
        assert_eq!(
            (
                spec.bands,
                spec.priomap[6],
                spec.priomap[7],
                spec.priomap[8]
            ),
            (2, 0, 0, 1)
        );
        let spec =
            prio(r#"kind = "prio", bands = "4", priomap = [3,3,3,3,3,3,0,0,1,1,1,1,1,1,1,2]"#);
        assert_eq!((spec.bands, spec.priomap[0], spec.priomap[15]), (4, 3, 2));
        let spec = tbf(concat!(
            r#"kind = "tbf", rate = "1mbit", burst = "10k", limit = "10k", "#,
            r#"overhead = 38, mpu = 84, linklayer = "adsl""#
        ));
        let link = LinkCost {
            overhead: 38,
            mpu: 84,
            linklayer: LinkLayer::Atm,
        };
        assert_eq!(spec.link, link);
    }

    #[test]
    fn codel_and_fq_codel() {
        assert_eq!(
            read(r#"kind = "codel""#),
            Ok(QdiscSpec::Codel(CodelSpec::default()))
        );
        let all = concat!(
            r#"limit = 7, target = "3ms", interval = 50000, ecn = false, "#,
            r#"ce_threshold = "500us", ce_threshold_selector = "0x1/3""#
        );
        let aqm = AqmSpec {
            target: Duration::from_millis(3),
            interval: Duration::from_millis(50),
            ecn: false,
            ce_threshold: Some(Duration::from_micros(500)),
            ce_threshold_selector: 1,
            ce_threshold_mask: 3,
        };
        let codel = CodelSpec {
            limit: 7,
            aqm: aqm.clone(),
        };
        let text = format!(r#"kind = "codel", {all}"#);
        assert_eq!(read(&text), Ok(QdiscSpec::Codel(codel)));
        let more = r#"flows = 64, quantum = 300, memory_limit = "4m", drop_batch = 8"#;
        let fq_codel = FqCodelSpec {
            limit: 7,
            memory_limit: 4 << 20,
            flows: 64,
            quantum: Some(300),
            drop_batch: 8,
            aqm,
        };
        let text = format!(r#"kind = "fq_codel", {all}, {more}"#);
        assert_eq!(read(&text), Ok(QdiscSpec::FqCodel(fq_codel)));
    }

    #[test]
    fn fq() {
        assert_eq!(read(r#"kind = "fq""#), Ok(QdiscSpec::Fq(FqSpec::default())));
        let text = concat!(
            r#"kind = "fq", limit = 7, flow_limit = 8, quantum = "3k", initial_quantum = 9000, "#,
            r#"orphan_mask = "0xff", refill_delay = "1ms", pacing = false, maxrate = "8mbit", "#,
            r#"low_rate_threshold = "80kbit", timer_slack = 20, horizon = "2s", "#,
            r#"horizon_drop = false, ce_threshold = "3ms", "#,
            r#"priomap = "0 1 2 0 0 0 0 0 0 0 0 0 0 0 0 0", weights = [20000, 30000, 40000]"#
        );
        let mut priomap = [0; 16];
        (priomap[1], priomap[2]) = (1, 2);
        let spec = FqSpec {
            limit: 7,
            flow_limit: 8,
            quantum: Some(3072),
            initial_quantum: Some(9000),
            orphan_mask: 255,
            refill_delay: Duration::from_millis(1),
            pacing: false,
            maxrate: Some(1_000_000),
            low_rate_threshold: 10_000,
            timer_slack: Duration::from_micros(20),
            horizon: Duration::from_secs(2),
            horizon_drop: false,
            ce_threshold: Some(Duration::from_millis(3)),
            priomap,
            weights: [20_000, 30_000, 40_000],
            ..FqSpec::default()
        };
        assert_eq!(read(text), Ok(QdiscSpec::Fq(spec)));
    }

    #[test]
    fn errors_name_the_option() {
        for (text, key, part) in [
            (r#"rate = "1mbit""#, "kind", "is missing"),
            (r#"kind = "cake""#, "kind", "not a qdisc"),
            (r#"kind = 7"#, "kind", "integer"),
            (
                r#"kind = "pfifo", limit = "10p""#,
                "limit",
                "unit of a size",
            ),
            (r#"kind = "pfifo", limit = -1"#, "limit", "not a number"),
            (r#"kind = "pfifo", limit = [1]"#, "limit", "array"),
            (r#"kind = "pfifo", limit = "99g""#, "limit", "too large"),
            (r#"kind = "pfifo_fast", bands = 3"#, "bands", "no options"),
            (
                r#"kind = "tbf", rate = "1mbit", burst = "9k""#,
                "latency",
                "is missing",
            ),
            (
                r#"kind = "tbf", burst = "9k", limit = 9"#,
                "rate",
                "is missing",
            ),
            (
                r#"kind = "tbf", rate = "1mbit", limit = 9"#,
                "burst",
                "is missing",
            ),
            (
                r#"kind = "tbf", rate = "9%", burst = "9k", limit = 9"#,
                "rate",
                "percentage",
            ),
            (
                r#"kind = "tbf", rate = 1, burst = "9k", limit = 9"#,
                "rate",
                "1 byte/s",
            ),
            (
                r#"kind = "tbf", rate = "1mbit", burst = 0, limit = 9"#,
                "burst",
                "burst",
            ),
            (
                r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, latency = 9"#,
                "latency",
                "keep one",
            ),
            (
                r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, mtu = 9"#,
                "mtu",
                "no effect",
            ),
            (
                r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, peakrate = "2mbit""#,
                "mtu",
                "peakrate needs it",
            ),
            (
                concat!(
                    r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, "#,
                    r#"peakrate = "1mbit", mtu = 9"#
                ),
                "peakrate",
                "higher",
            ),
            (r#"kind = "prio", bands = 17"#, "bands", "2 to 16"),
            (r#"kind = "prio", bands = 2"#, "priomap", "bands 0 to 2"),
            (
                r#"kind = "prio", priomap = [1, 2]"#,
                "priomap",
                "list of 16",
            ),
            (
                r#"kind = "prio", bands = 2, priomap = "2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0""#,
                "priomap",
                "bands 0 to 1",
            ),
            (
                r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, overhead = -1"#,
                "overhead",
                "0 to 65535",
            ),
            (
                concat!(
                    r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, "#,
                    r#"linklayer = "carrier pigeon""#
                ),
                "linklayer",
                "atm or adsl",
            ),
            (
                r#"kind = "tbf", rat = "1mbit""#,
                "rat",
                "its options are rate, burst",
            ),
        ] {
            let problem = read(text).expect_err(text);
            assert_eq!(
                problem.key,
                format!("port.qdisc.{key}"),
                "{text}: {}",
                problem.text
            );
            assert!(problem.text.contains(part), "{text}: {}", problem.text);
        }
    }
}
