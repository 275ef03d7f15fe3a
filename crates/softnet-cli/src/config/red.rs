//! The options of RED, in `red` and in the flows of `sfq`: as `tc` computes its numbers from sizes,
//! bursts and rates, or the numbers themselves, which a request of `tc` gave.

use softnet_tc::{RedCurve, RedSpec, SfqSpec, red_idle_table, red_probability_log, red_weight};

use super::table::Table;
use super::units;

/// `tc` takes 10 Mbit/s where no bandwidth is given.
const BANDWIDTH: u64 = 1_250_000;
const AVPKT: u32 = 1000;
const PROBABILITY: f64 = 0.02;

/// Thresholds and weights of a queue that takes so many bytes, and those of its average packet.
fn curve(table: &Table<'_>, limit: u32) -> Option<(RedCurve, u32)> {
    let before = table.source.errors();
    let max = table.small("max", units::size).unwrap_or(limit / 4);
    let min = table.small("min", units::size).unwrap_or(max / 3);
    let positive = |key| {
        table.parsed(key, "a number from 1 to 4294967295", |text| {
            text.parse::<u32>().ok().filter(|&number| number > 0)
        })
    };
    let avpkt = positive("avpkt").unwrap_or(AVPKT);
    let usual = (u64::from(min) * 2 + u64::from(max)) / (3 * u64::from(avpkt));
    let burst = positive("burst").unwrap_or_else(|| usual.clamp(1, u32::MAX.into()) as u32);
    let what = "a number from 0 to 1, like \"0.02\"";
    let probability = table.parsed("probability", what, |text| {
        text.parse::<f64>().ok().filter(|p| (0.0..=1.0).contains(p))
    });
    let probability = probability.unwrap_or(PROBABILITY);
    let wlog = table.parsed("wlog", "a number from 0 to 31", |text| {
        text.parse().ok().filter(|log| (0..32).contains(log))
    });
    // Any byte, as a request may have it.
    let plog = table.parsed("plog", "a number from 0 to 255", |text| text.parse().ok());
    if table.source.errors() > before {
        return None;
    }
    if max < min {
        return table.problem("max", "must be at least min");
    }
    let Some(wlog) = wlog.or_else(|| red_weight(min, burst, avpkt)) else {
        let text = format!("burst {burst} is too small for min {min} and avpkt {avpkt}");
        return table.problem("burst", text);
    };
    let Some(plog) = plog.or_else(|| red_probability_log(min, max, probability)) else {
        return table.problem("probability", "is too small");
    };
    let curve = RedCurve {
        min,
        max,
        wlog,
        plog,
        cell_log: 0,
        // As `tc` rounds it.
        max_p: (probability * 2_f64.powi(32)) as u32,
    };
    Some((curve, avpkt))
}

pub(super) fn red(table: &Table<'_>, spec: &mut RedSpec) {
    if spec.limit == 0 {
        // It is missing or wrong, which has been said, or it is this number.
        if table
            .find("limit")
            .is_some_and(|limit| limit.as_integer() == Some(0))
        {
            table.problem::<()>("limit", "must be at least 1 byte");
        }
        return;
    }
    let Some((curve, avpkt)) = curve(table, spec.limit) else {
        return;
    };
    spec.curve = curve;
    if table.has("idle_table") {
        if let Some((cell_log, stab)) = table.parsed("idle_table", IDLE_TABLE, read_idle_table) {
            spec.curve.cell_log = cell_log;
            *spec.stab = stab;
        }
        return;
    }
    let bandwidth = match table.has("bandwidth") {
        true => table.quantity("bandwidth", units::rate),
        false => Some(BANDWIDTH),
    };
    let Some(bandwidth) = bandwidth else {
        return;
    };
    match red_idle_table(spec.curve.wlog, avpkt, bandwidth) {
        Some((cell_log, stab)) => {
            spec.curve.cell_log = cell_log;
            *spec.stab = stab;
        }
        None => {
            table.problem::<()>("bandwidth", "is too low for avpkt and burst");
        }
    }
}

pub(super) fn sfq(table: &Table<'_>, spec: &mut SfqSpec) {
    let red = [
        "min",
        "max",
        "avpkt",
        "burst",
        "probability",
        "wlog",
        "plog",
    ];
    let limit = table.small("redflowlimit", units::size).unwrap_or(0);
    if limit > 0 || red.iter().any(|key| table.has(key)) {
        spec.red = curve(table, limit).map(|(curve, _)| curve);
        if spec.red.as_ref().is_some_and(|curve| curve.min == 0) {
            table.problem::<()>(
                "min",
                "must be at least 1 byte; give redflowlimit, or min and max",
            );
        }
    }
}

const IDLE_TABLE: &str = "a power of 2 and 256 numbers below 32, like \"10 0x13 1x243\"";

fn read_idle_table(text: &str) -> Option<(u8, [u8; 256])> {
    let mut words = text.split_whitespace();
    let cell_log = words.next()?.parse().ok()?;
    let mut numbers = Vec::new();
    for word in words {
        let (shift, count) = word.split_once('x')?;
        let count: usize = count.parse().ok()?;
        if numbers.len() + count > 256 {
            return None;
        }
        numbers.resize(numbers.len() + count, shift.parse().ok()?);
    }
    Some((cell_log, numbers.try_into().ok()?))
}

/// A table as [`read_idle_table`] reads it.
pub(super) fn idle_table(spec: &RedSpec) -> String {
    let runs = spec.stab.chunk_by(|a, b| a == b);
    let runs: Vec<String> = runs
        .map(|run| format!("{}x{}", run[0], run.len()))
        .collect();
    format!("{} {}", spec.curve.cell_log, runs.join(" "))
}
