//! `qdisc = { kind = "tbf", rate = "100mbit", … }`: tc's option names and units, to a
//! [`QdiscSpec`].

use std::str::FromStr;
use std::time::Duration;

use softnet_tc::{
    AqmSpec, CodelSpec, FqCodelSpec, FqSpec, MAX_BANDS, PrioSpec, QdiscSpec, SpecError, TbfSpec,
};
use toml::Value;

use super::error::Problem;
use super::htb;
use super::model::LinkConfig;
use super::mqprio;
use super::options::Options;
use super::range::MTU_DEFAULT;
use super::units;

/// Bytes of an Ethernet header, which count as part of a packet's size.
const ETHERNET_HEADER: u64 = 14;

/// The kinds, for messages.
const KINDS: &str = concat!(
    "noqueue, pfifo, bfifo, pfifo_head_drop, pfifo_fast, prio, tbf, htb, codel, fq_codel, ",
    "fq, mq or mqprio"
);

/// What defaults depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    /// Longest IP packet.
    pub(super) mtu: u32,
    /// Frames that a queue holds where nothing else is said.
    pub(super) tx_queue_len: u32,
}

impl Default for Device {
    fn default() -> Device {
        Device {
            mtu: MTU_DEFAULT,
            tx_queue_len: LinkConfig::default().tx_queue_len,
        }
    }
}

/// Reads a qdisc of a device.
pub(super) fn spec(options: &Options<'_>, device: Device) -> Result<QdiscSpec, Problem> {
    let Some((_, kind)) = options.find("kind") else {
        let text = format!("is missing; add the qdisc's kind: {KINDS}");
        return Err(options.problem("kind", options.span.clone(), text));
    };
    let Some(name) = kind.get_ref().as_str() else {
        let text = format!(
            "is {}, not a text; write it like \"tbf\"",
            kind.get_ref().type_str()
        );
        return Err(options.problem("kind", kind.span(), text));
    };
    let frames = || {
        options.only(name, &["limit"])?;
        Ok(options
            .small("limit", units::size)?
            .unwrap_or(device.tx_queue_len))
    };
    let spec = match name {
        "noqueue" => options.only(name, &[]).map(|()| QdiscSpec::Noqueue)?,
        "pfifo_fast" => {
            options.only(name, &[])?;
            QdiscSpec::PfifoFast {
                limit: device.tx_queue_len,
            }
        }
        "pfifo" => QdiscSpec::Pfifo { limit: frames()? },
        "pfifo_head_drop" => QdiscSpec::PfifoHeadDrop { limit: frames()? },
        "bfifo" => {
            options.only(name, &["limit"])?;
            let default =
                u64::from(device.tx_queue_len) * (u64::from(device.mtu) + ETHERNET_HEADER);
            let limit = options.quantity("limit", units::size)?.unwrap_or(default);
            QdiscSpec::Bfifo { limit }
        }
        "mq" => {
            options.only(name, &[])?;
            QdiscSpec::Mq
        }
        "mqprio" => mqprio::spec(options)?,
        "prio" => prio(options)?,
        "tbf" => tbf(options)?,
        "htb" => htb::spec(options)?,
        "codel" => codel(options)?,
        "fq_codel" => fq_codel(options)?,
        "fq" => fq(options)?,
        _ => {
            let text = format!("{name:?} is not a qdisc of this version; use {KINDS}");
            return Err(options.problem("kind", kind.span(), text));
        }
    };
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

/// tc-prio(8): `bands` and `priomap`, which is a list of 16 numbers or a text with them, as in tc.
fn prio(options: &Options<'_>) -> Result<QdiscSpec, Problem> {
    options.only("prio", &["bands", "priomap"])?;
    let default = PrioSpec::default();
    let bands = options.parsed("bands", "a number of bands from 2 to 16", |text| {
        text.parse().ok().filter(|n| (2..=MAX_BANDS).contains(n))
    })?;
    let bands = bands.unwrap_or(default.bands);
    let Some(priomap) = priomap(options)? else {
        let priomap = default.priomap;
        if bands < default.bands {
            let text = format!(
                "is missing; the default map has bands 0 to {}, and this qdisc has 0 to {}",
                default.bands - 1,
                bands - 1
            );
            return Err(options.problem("priomap", options.span_of("bands"), text));
        }
        return Ok(QdiscSpec::Prio(PrioSpec { bands, priomap }));
    };
    Ok(QdiscSpec::Prio(PrioSpec { bands, priomap }))
}

fn priomap(options: &Options<'_>) -> Result<Option<[u8; 16]>, Problem> {
    numbers(
        options,
        "priomap",
        "16 bands, one for each priority; write it like \"1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\"",
    )
}

/// A list of numbers, or a text with them.
fn numbers<T: FromStr + TryFrom<i64>, const N: usize>(
    options: &Options<'_>,
    key: &str,
    what: &str,
) -> Result<Option<[T; N]>, Problem> {
    let Some((_, list)) = options.find(key) else {
        return Ok(None);
    };
    let numbers: Option<Vec<T>> = match list.get_ref() {
        Value::String(text) => text.split_whitespace().map(|n| n.parse().ok()).collect(),
        Value::Array(list) => {
            let number = |value: &Value| value.as_integer().and_then(|n| n.try_into().ok());
            list.iter().map(number).collect()
        }
        _ => None,
    };
    match numbers.and_then(|numbers| numbers.try_into().ok()) {
        Some(numbers) => Ok(Some(numbers)),
        None => {
            let text = format!("is not a list of {what}");
            Err(options.problem(key, list.span(), text))
        }
    }
}

/// tc-tbf(8): `rate`, `burst`, one of `limit` and `latency`, `peakrate` with `mtu`, and what a
/// packet costs on the link.
fn tbf(options: &Options<'_>) -> Result<QdiscSpec, Problem> {
    options.only(
        "tbf",
        &[
            "rate",
            "burst",
            "limit",
            "latency",
            "peakrate",
            "mtu",
            "overhead",
            "mpu",
            "linklayer",
        ],
    )?;
    let rate = options.required(
        "rate",
        units::rate,
        "the rate to shape to, like \"100mbit\"",
    )?;
    let burst = options.required("burst", units::size, "the bucket's size, like \"32k\"")?;
    let peakrate = options.quantity("peakrate", units::rate)?;
    let mtu = options.small("mtu", units::size)?;
    if peakrate.is_some() && mtu.is_none() {
        let text = "is missing; peakrate needs it (the size of its bucket, at least one packet, \
                    like \"1540\")";
        return Err(options.problem("mtu", options.span_of("peakrate"), text));
    }
    if peakrate.is_none() && mtu.is_some() {
        let text = "has no effect without peakrate; remove it or add peakrate";
        return Err(options.problem("mtu", options.span_of("mtu"), text));
    }
    let limit = options.quantity("limit", units::size)?;
    let latency = options.quantity("latency", units::time)?;
    let limit = match (limit, latency) {
        (Some(limit), None) => limit,
        (None, Some(latency)) => {
            // As tc computes it: what the bucket lets through in that time, and the bucket; the
            // smaller of both buckets.
            let waiting = |rate: u64, bucket: u64| {
                (rate as f64 * (latency as f64 / 1e9) + bucket as f64) as u64
            };
            let at_rate = waiting(rate, burst);
            peakrate.map_or(at_rate, |peak| {
                at_rate.min(waiting(peak, u64::from(mtu.unwrap_or_default())))
            })
        }
        (Some(_), Some(_)) => {
            let text = "limit and latency say the same thing; keep one of them";
            return Err(options.problem("latency", options.span_of("latency"), text));
        }
        (None, None) => {
            let text = "is missing; add latency (how long a packet may wait, like \"50ms\") or \
                        limit (in bytes)";
            return Err(options.problem("latency", options.span.clone(), text));
        }
    };
    Ok(QdiscSpec::Tbf(TbfSpec {
        rate,
        burst,
        limit,
        peakrate,
        mtu: mtu.unwrap_or_default(),
        link: options.link_cost()?,
    }))
}

/// tc-codel(8).
fn codel(options: &Options<'_>) -> Result<QdiscSpec, Problem> {
    options.only("codel", &[&["limit"], &AQM[..]].concat())?;
    let default = CodelSpec::default();
    Ok(QdiscSpec::Codel(CodelSpec {
        limit: options
            .small("limit", units::size)?
            .unwrap_or(default.limit),
        aqm: aqm(options, default.aqm)?,
    }))
}

/// tc-fq_codel(8).
fn fq_codel(options: &Options<'_>) -> Result<QdiscSpec, Problem> {
    let own = ["limit", "flows", "quantum", "memory_limit", "drop_batch"];
    options.only("fq_codel", &[&own[..], &AQM[..]].concat())?;
    let default = FqCodelSpec::default();
    let number = |key| options.small(key, units::size);
    Ok(QdiscSpec::FqCodel(FqCodelSpec {
        limit: number("limit")?.unwrap_or(default.limit),
        memory_limit: number("memory_limit")?.unwrap_or(default.memory_limit),
        flows: number("flows")?.unwrap_or(default.flows),
        quantum: number("quantum")?,
        drop_batch: number("drop_batch")?.unwrap_or(default.drop_batch),
        aqm: aqm(options, default.aqm)?,
    }))
}

/// tc-fq(8).
fn fq(options: &Options<'_>) -> Result<QdiscSpec, Problem> {
    options.only(
        "fq",
        &[
            "limit",
            "flow_limit",
            "quantum",
            "initial_quantum",
            "buckets",
            "orphan_mask",
            "refill_delay",
            "pacing",
            "maxrate",
            "low_rate_threshold",
            "timer_slack",
            "horizon",
            "horizon_drop",
            "ce_threshold",
            "priomap",
            "weights",
        ],
    )?;
    let default = FqSpec::default();
    let number = |key| options.small(key, units::size);
    let orphan_mask = options.parsed(
        "orphan_mask",
        "a mask of 32 bits, like \"0x3ff\"",
        |text| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
    )?;
    let buckets = options.parsed("buckets", "a power of 2 from 2 to 262144", |text| {
        let good = |n: &u32| n.is_power_of_two() && (2..=1 << 18).contains(n);
        text.parse().ok().filter(good)
    })?;
    let weights = "3 numbers of bytes, one for each band; write it like \"589824 196608 65536\"";
    Ok(QdiscSpec::Fq(FqSpec {
        limit: number("limit")?.unwrap_or(default.limit),
        flow_limit: number("flow_limit")?.unwrap_or(default.flow_limit),
        quantum: number("quantum")?,
        initial_quantum: number("initial_quantum")?,
        orphan_mask: orphan_mask.unwrap_or(default.orphan_mask),
        buckets_log: buckets.map_or(default.buckets_log, |n: u32| n.ilog2() as u8),
        refill_delay: time(options, "refill_delay")?.unwrap_or(default.refill_delay),
        pacing: options.flag("pacing")?.unwrap_or(default.pacing),
        maxrate: options.quantity("maxrate", units::rate)?,
        low_rate_threshold: options
            .quantity("low_rate_threshold", units::rate)?
            .unwrap_or(default.low_rate_threshold),
        timer_slack: time(options, "timer_slack")?.unwrap_or(default.timer_slack),
        horizon: time(options, "horizon")?.unwrap_or(default.horizon),
        horizon_drop: options
            .flag("horizon_drop")?
            .unwrap_or(default.horizon_drop),
        ce_threshold: time(options, "ce_threshold")?,
        priomap: priomap(options)?.unwrap_or(default.priomap),
        weights: numbers(options, "weights", weights)?.unwrap_or(default.weights),
    }))
}

fn time(options: &Options<'_>, key: &str) -> Result<Option<Duration>, Problem> {
    let time = options.quantity(key, units::time)?;
    Ok(time.map(Duration::from_nanos))
}

/// Options of CoDel in either kind.
const AQM: [&str; 5] = [
    "target",
    "interval",
    "ecn",
    "ce_threshold",
    "ce_threshold_selector",
];

fn aqm(options: &Options<'_>, default: AqmSpec) -> Result<AqmSpec, Problem> {
    let time = |key| time(options, key);
    let ce_threshold = time("ce_threshold")?;
    let selector = options.parsed(
        "ce_threshold_selector",
        "a traffic class and a mask, like \"0x01/0x03\"",
        |text| {
            let byte = |text: &str| match text.strip_prefix("0x") {
                Some(digits) => u8::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            };
            let (value, mask) = text.split_once('/')?;
            Some((byte(value)?, byte(mask)?))
        },
    )?;
    if selector.is_some() && ce_threshold.is_none() {
        let key = "ce_threshold_selector";
        let text = "has no effect without ce_threshold; remove it or add ce_threshold";
        return Err(options.problem(key, options.span_of(key), text));
    }
    let (ce_threshold_selector, ce_threshold_mask) = selector.unwrap_or_default();
    Ok(AqmSpec {
        target: time("target")?.unwrap_or(default.target),
        interval: time("interval")?.unwrap_or(default.interval),
        ecn: options.flag("ecn")?.unwrap_or(default.ecn),
        ce_threshold,
        ce_threshold_selector,
        ce_threshold_mask,
    })
}

#[cfg(test)]
mod tests {
    use softnet_tc::{LinkCost, LinkLayer};

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
        spec(&options, Device::default())
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
