//! The figures of a turn as a row of the report.

use super::load::Outcome;
use crate::numbers::percentiles;
use crate::report::{Collector, Param};

/// Adds one turn's figures to the report.
pub(crate) fn add(
    variant: &'static str,
    params: &[Param],
    offered: Option<f64>,
    outcome: &Outcome,
    results: &mut Collector,
) {
    let mpkt = outcome.delivered as f64 / 1e6;
    let mut fields = vec![("mpps", mpkt / outcome.time.as_secs_f64())];
    if let Some(offered) = offered {
        fields.push(("offered_mpps", offered / 1e6));
    }
    fields.push(("drops", outcome.drops as f64));
    let call = ["p50_ns", "p99_ns", "p999_ns"];
    let times = match offered {
        None => ["sojourn_p50_ns", "sojourn_p99_ns", "sojourn_p999_ns"],
        Some(_) => ["latency_p50_ns", "latency_p99_ns", "latency_p999_ns"],
    };
    for (names, counts) in [(call, &outcome.call), (times, &outcome.sojourn)] {
        let of = names.into_iter().zip([0.5, 0.99, 0.999]);
        let at = |fraction| counts.percentile(fraction);
        fields.extend(percentiles(of, counts.total() as usize, at));
    }
    if mpkt > 0.0 {
        fields.push(("cpu_s_per_mpkt", outcome.cpu.as_secs_f64() / mpkt));
    }
    if let Some(waited) = outcome.waited {
        fields.push(("wait_ms", waited.as_secs_f64() * 1e3));
    }
    results.add(variant, params, &fields);
}
