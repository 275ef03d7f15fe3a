//! `qdisc = { kind = "tbf", rate = "100mbit", … }`: tc's option names and units, to a [`QdiscSpec`].

use std::ops::Range;

use softnet::qdisc::{QdiscSpec, SpecError, TbfSpec};
use toml::{Spanned, Value};

use super::error::Problem;
use super::file::QdiscTable;
use super::units::{self, UnitError};

/// Default length of a queue in packets: what Linux gives an Ethernet device (`txqueuelen`).
const TXQUEUELEN: u32 = 1000;
/// Bytes of an Ethernet header, which count as part of a packet's size.
const ETHERNET_HEADER: u64 = 14;

/// Where an option's quantity is measured in, and how its text is read.
type Read = fn(&str) -> Result<u64, UnitError>;

/// Reads the discipline of a port whose device has this MTU.
pub(super) fn spec(table: &Spanned<QdiscTable>, mtu: u32) -> Result<QdiscSpec, Problem> {
    let options = Options {
        table: table.get_ref(),
        span: table.span(),
    };
    let Some((_, kind)) = options.find("kind") else {
        let text =
            "is missing; add the discipline's kind: noqueue, pfifo, bfifo, pfifo_fast or tbf";
        return Err(options.problem("kind", options.span.clone(), text));
    };
    let Some(name) = kind.get_ref().as_str() else {
        let text = format!(
            "is {}, not a text; write it like \"tbf\"",
            kind.get_ref().type_str()
        );
        return Err(options.problem("kind", kind.span(), text));
    };
    match name {
        "noqueue" => options.only(name, &[]).map(|()| QdiscSpec::Noqueue),
        "pfifo_fast" => {
            options.only(name, &[])?;
            Ok(QdiscSpec::PfifoFast { limit: TXQUEUELEN })
        }
        "pfifo" => {
            options.only(name, &["limit"])?;
            let limit = options.small("limit", units::size)?.unwrap_or(TXQUEUELEN);
            Ok(QdiscSpec::Pfifo { limit })
        }
        "bfifo" => {
            options.only(name, &["limit"])?;
            let default = u64::from(TXQUEUELEN) * (u64::from(mtu) + ETHERNET_HEADER);
            let limit = options.quantity("limit", units::size)?.unwrap_or(default);
            Ok(QdiscSpec::Bfifo { limit })
        }
        "tbf" => tbf(&options),
        _ => Err(options.problem(
            "kind",
            kind.span(),
            format!(
                "{name:?} is not a discipline of this version; use noqueue, pfifo, bfifo, pfifo_fast or tbf"
            ),
        )),
    }
}

/// tc-tbf(8): `rate`, `burst`, one of `limit` and `latency`, and `peakrate` with `mtu`.
fn tbf(options: &Options<'_>) -> Result<QdiscSpec, Problem> {
    options.only(
        "tbf",
        &["rate", "burst", "limit", "latency", "peakrate", "mtu"],
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
        let text = "is missing; peakrate needs it (the size of its bucket, at least one packet, like \"1540\")";
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
            // As tc computes it: what the bucket lets through in that time, and the bucket; the smaller of both buckets.
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
            let text = "is missing; add latency (how long a packet may wait, like \"50ms\") or limit (in bytes)";
            return Err(options.problem("latency", options.span.clone(), text));
        }
    };
    let spec = QdiscSpec::Tbf(TbfSpec {
        rate,
        burst,
        limit,
        peakrate,
        mtu: mtu.unwrap_or_default(),
        link: Default::default(),
    });
    spec.check().map_err(|error| {
        let key = match error {
            SpecError::Rate => "rate",
            SpecError::Burst => "burst",
            SpecError::PeakRate => "peakrate",
            SpecError::PeakMtu => "mtu",
            SpecError::Bands => "bands",
            SpecError::Priomap => "priomap",
            SpecError::Change(_) | SpecError::Tree(_) => "kind",
        };
        options.problem(key, options.span_of(key), error.to_string())
    })?;
    Ok(spec)
}

/// The options of one discipline.
struct Options<'a> {
    table: &'a QdiscTable,
    /// The whole table.
    span: Range<usize>,
}

impl Options<'_> {
    fn find(&self, key: &str) -> Option<(&Spanned<String>, &Spanned<Value>)> {
        self.table.iter().find(|(name, _)| name.get_ref() == key)
    }

    fn span_of(&self, key: &str) -> Range<usize> {
        self.find(key)
            .map_or_else(|| self.span.clone(), |(_, value)| value.span())
    }

    fn problem(&self, key: &str, span: Range<usize>, text: impl Into<String>) -> Problem {
        Problem::new(span, format!("port.qdisc.{key}"), text)
    }

    /// Refuses options that `kind` does not have.
    fn only(&self, kind: &str, allowed: &[&str]) -> Result<(), Problem> {
        let unknown = self
            .table
            .keys()
            .filter(|key| *key.get_ref() != "kind" && !allowed.contains(&key.get_ref().as_str()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else { return Ok(()) };
        let text = if allowed.is_empty() {
            format!("{kind} has no options; remove it")
        } else {
            format!(
                "is not an option of {kind}; its options are {}",
                allowed.join(", ")
            )
        };
        Err(self.problem(key.get_ref(), key.span(), text))
    }

    /// A text with a unit, or a bare number.
    fn quantity(&self, key: &str, read: Read) -> Result<Option<u64>, Problem> {
        let Some((_, value)) = self.find(key) else {
            return Ok(None);
        };
        let text = match value.get_ref() {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            other => {
                let text = format!(
                    "is {}, not a quantity; write a number or a text with a unit",
                    other.type_str()
                );
                return Err(self.problem(key, value.span(), text));
            }
        };
        match read(&text) {
            Ok(number) => Ok(Some(number)),
            Err(error) => Err(self.problem(key, value.span(), error.to_string())),
        }
    }

    /// As [`quantity`](Self::quantity), and must be there.
    fn required(&self, key: &str, read: Read, what: &str) -> Result<u64, Problem> {
        self.quantity(key, read)?
            .ok_or_else(|| self.problem(key, self.span.clone(), format!("is missing; add {what}")))
    }

    /// As [`quantity`](Self::quantity), at most 32 bits.
    fn small(&self, key: &str, read: Read) -> Result<Option<u32>, Problem> {
        let Some(number) = self.quantity(key, read)? else {
            return Ok(None);
        };
        let small = u32::try_from(number).map_err(|_| {
            let text = format!("{number} is too large; at most {}", u32::MAX);
            self.problem(key, self.span_of(key), text)
        })?;
        Ok(Some(small))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<QdiscSpec, Problem> {
        #[derive(serde::Deserialize)]
        struct Outer {
            q: Spanned<QdiscTable>,
        }
        let outer: Outer = toml::from_str(&format!("q = {{ {text} }}")).expect("valid TOML");
        spec(&outer.q, 1500)
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
        let spec = tbf(
            r#"kind = "tbf", rate = "1mbit", burst = "10k", latency = "1s", peakrate = "2mbit", mtu = 1540"#,
        );
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
    fn errors_name_the_option() {
        for (text, key, part) in [
            (r#"rate = "1mbit""#, "kind", "is missing"),
            (r#"kind = "cake""#, "kind", "not a discipline"),
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
                r#"kind = "tbf", rate = "1mbit", burst = 9, limit = 9, peakrate = "1mbit", mtu = 9"#,
                "peakrate",
                "higher",
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
