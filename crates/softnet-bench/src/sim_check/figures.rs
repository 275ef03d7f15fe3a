//! Rates and sojourns, as the simulation tells them and as a capture shows them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::senders::{Senders, scaled};
use crate::error::BenchError;
use crate::numbers::{median, percentile, supports};
use crate::report::Field;

/// Difference of sojourns that is allowed, as a share of the nearest simulated one.
const ALLOWED: f64 = 0.15;
/// Seconds of a day, by which lines of a capture tell the time.
const DAY: f64 = 86_400.0;

/// Figures of the senders of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Figures {
    /// Bits of frames per second, of all together.
    bits: f64,
    frames: f64,
    /// Percentiles of each connection, their mean weighted by frames, ns.
    p50: f64,
    p99: f64,
}

impl Figures {
    /// Adds a connection's.
    fn add(&mut self, bits: f64, frames: f64, [p50, p99]: [f64; 2]) {
        self.bits += bits;
        self.frames += frames;
        if frames > 0.0 {
            let weight = frames / self.frames;
            self.p50 += (p50 - self.p50) * weight;
            self.p99 += (p99 - self.p99) * weight;
        }
    }
}

/// Figures of these names in what `softnet sim --json` printed.
pub(super) fn simulated(told: &Value, names: &[&str]) -> Vec<Figures> {
    let flows = told["flows"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let of = |name: &&str| {
        let mut figures = Figures::default();
        for flow in flows.iter().filter(|flow| flow["name"] == **name) {
            let [frames, p50, p99] =
                ["frames", "p50", "p99"].map(|key| number(&flow["sojourn_ns"][key]));
            figures.add(number(&flow["rate_bps"]), frames, [p50, p99]);
        }
        figures
    };
    names.iter().map(of).collect()
}

/// Figures of each name in the lines of a capture, from `start` on for so long.
///
/// # Errors
/// If the capture lacks frames: it began too late, or missed some.
pub(super) fn measured(
    told: &str,
    senders: &Senders,
    start: SystemTime,
    time: Duration,
) -> Result<Vec<Figures>, BenchError> {
    let lacks = |why: &str| BenchError::Measure(format!("`softnet capture` {why}"));
    match told
        .lines()
        .rev()
        .find_map(|line| line.split_once("missed: "))
    {
        Some((_, "0")) => {}
        Some((_, missed)) => return Err(lacks(&format!("missed {missed} frames"))),
        None => return Err(lacks("did not end")),
    }
    let start = start.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (start, time) = (start.as_secs_f64(), time.as_secs_f64());
    let (mut is_whole, mut connections) = (false, BTreeMap::<u16, (f64, Vec<f64>)>::new());
    for (at, port, bytes, waited) in told.lines().filter_map(left) {
        let since = (at - start).rem_euclid(DAY);
        // What connections begin with comes before.
        is_whole |= since > DAY / 2.0;
        if since < time {
            let connection = connections.entry(port).or_default();
            connection.0 += bytes;
            connection.1.push(waited);
        }
    }
    if !is_whole {
        return Err(lacks("began too late"));
    }
    let of = |name: &&str| {
        let mut figures = Figures::default();
        let own = connections.iter();
        let own = own.filter(|(port, _)| senders.with_port(**port) == Some(*name));
        for (_, (bytes, waited)) in own {
            let percentiles = [0.5, 0.99].map(|fraction| percentile(waited, fraction));
            figures.add(bytes * 8.0 / time, waited.len() as f64, percentiles);
        }
        figures
    };
    Ok(senders.names().iter().map(of).collect())
}

/// A frame that left, by a line of a capture: the second of the day, the source port, bytes, and
/// nanoseconds in the tree. None for other frames and other lines.
fn left(line: &str) -> Option<(f64, u16, f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[clock, "out", _, from, ..] = &words[..] else {
        return None;
    };
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).map(|word| word.trim_end_matches(','))
    };
    let at = clock.split(':').try_fold(0.0_f64, |sum, part| {
        let part: f64 = part.parse().ok()?;
        Some(sum * 60.0 + part)
    })?;
    let port = from.rsplit_once(':')?.1.parse().ok()?;
    let units = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let waited = scaled(after("waited")?, &units)?;
    Some((at, port, after("length")?.parse().ok()?, waited))
}

/// Names of the fields of a percentile: of the simulation's runs the middle one, the least and the
/// most; measured, their difference as a part of what is allowed, delay of a timer.
#[rustfmt::skip] // A table.
const SOJOURNS: [[&str; 6]; 2] = [
    ["sim_sojourn_p50_ns", "sim_sojourn_p50_least_ns", "sim_sojourn_p50_most_ns",
        "sojourn_p50_ns", "sojourn_p50_apart", "wake_p50_ns"],
    ["sim_sojourn_p99_ns", "sim_sojourn_p99_least_ns", "sim_sojourn_p99_most_ns",
        "sojourn_p99_ns", "sojourn_p99_apart", "wake_p99_ns"],
];

/// A figure of the simulation's runs: the middle one, the least and the most.
fn spread(runs: &[Figures], of: impl Fn(&Figures) -> f64) -> [f64; 3] {
    let all: Vec<f64> = runs.iter().map(of).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    [median(&all), least, most]
}

/// The fields of a row; `delays` are those of a timer, ns. What is measured differs by its distance
/// from the nearest run of the simulation, and not at all between the least and the most of them.
pub(super) fn fields(runs: &[Figures], measured: &Figures, delays: &[f64]) -> Vec<Field> {
    let [middle, least, most] = spread(runs, |run| run.bits);
    let error = (measured.bits / measured.bits.clamp(least, most) - 1.0).abs() * 100.0;
    let mut fields = vec![
        ("sim_mbps", middle / 1e6),
        ("sim_least_mbps", least / 1e6),
        ("sim_most_mbps", most / 1e6),
        ("measured_mbps", measured.bits / 1e6),
        ("sim_error_percent", error),
    ];
    let [p50, p99] = SOJOURNS;
    for (fraction, names, theirs, ours) in [
        (0.5, p50, spread(runs, |run| run.p50), measured.p50),
        (0.99, p99, spread(runs, |run| run.p99), measured.p99),
    ] {
        if supports(measured.frames as usize, fraction) {
            let wake = percentile(delays, fraction);
            let [middle, least, most] = theirs;
            let nearest = ours.clamp(least, most);
            let apart = (ours - nearest).abs() / (ALLOWED * nearest).max(2.0 * wake);
            let figures = [middle, least, most, ours, apart, wake];
            fields.extend(names.into_iter().zip(figures));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SCRIPT: &str = "# generate: name=bulk,tcp=2,rtt=20ms,for=1s\n\
                          # generate: name=call,rate=1mbit,for=1s\n";

    #[test]
    fn a_line_of_a_capture_is_read() {
        let line = "08:30:01.500000001 out b0 10.0.0.1:20001 > 10.99.0.2:443 tcp, length 1514, \
                    queue 0, class 1:20, waited 1.25ms";
        let at = 8.0 * 3600.0 + 30.0 * 60.0 + 1.500_000_001;
        assert_eq!(left(line), Some((at, 20_001, 1514.0, 1.25e6)));
        assert_eq!(left(&line.replace(" out ", " in ")), None);
        assert_eq!(left("softnet: port \"b0\": missed: 0"), None);
        let waited = |text: &str| left(&line.replace("1.25ms", text)).map(|left| left.3);
        assert_eq!(waited("0ns"), Some(0.0));
        assert_eq!(waited("12.5µs"), Some(12_500.0));
        assert_eq!(waited("1.5s"), Some(1.5e9));
        assert_eq!(waited("4"), None);
    }

    #[test]
    fn connections_are_weighted_by_frames() {
        let flow = |name: &str, rate: u64, frames: u64, ns: u64| {
            json!({"name": name, "rate_bps": rate,
                "sojourn_ns": {"frames": frames, "p50": ns, "p99": 2 * ns}})
        };
        let told = json!({"flows": [
            flow("bulk", 3000, 30, 100), flow("bulk", 1000, 10, 500), flow("call", 1, 0, 0),
        ]});
        let bulk = Figures {
            bits: 4000.0,
            frames: 40.0,
            p50: 200.0,
            p99: 400.0,
        };
        let figures = simulated(&told, &["bulk", "call"]);
        assert_eq!(figures[0], bulk);
        assert_eq!(figures[1].frames, 0.0);
    }

    #[test]
    fn a_capture_that_lacks_frames_is_refused() {
        let line = |at: &str, port: u16| {
            format!("{at} out b0 10.0.0.1:{port} > 10.99.0.2:80 tcp, length 1000, waited 5µs\n")
        };
        let end = "softnet: port \"b0\": packets captured: 4, missed: ";
        let connected = line("23:59:59.900", 20_000);
        // The senders start in the last tenth of a day and send on over midnight.
        let sent = line("23:59:59.960", 20_000) + &line("00:00:00.500", 20_001);
        let late = line("00:00:02", 20_000);
        let start = UNIX_EPOCH + Duration::from_millis(86_399_950);
        let senders = Senders::of(SCRIPT);
        let read = |told: &str| measured(told, &senders, start, Duration::from_secs(1));
        let all = format!("{connected}{sent}{late}{end}0\n");
        let figures = read(&all).expect("all is there");
        assert_eq!(
            (figures[0].bits, figures[0].frames, figures[0].p50),
            (16_000.0, 2.0, 5000.0)
        );
        assert!(read(&format!("{connected}{sent}{end}7\n")).is_err());
        assert!(read(&format!("{sent}{end}0\n")).is_err());
        assert!(read(&(connected + &sent)).is_err());
    }

    #[test]
    fn sojourns_may_differ_by_a_share_or_by_delays() {
        let of = |bits, p50| Figures {
            bits,
            frames: 100.0,
            p50,
            p99: p50,
        };
        let differ = |simulated: &[f64], measured, wake| {
            let runs: Vec<_> = simulated.iter().map(|&p50| of(100.0, p50)).collect();
            let fields = fields(&runs, &of(99.0, measured), &[wake]);
            // Too few frames for more than the median.
            assert_eq!(fields.len(), 11);
            assert_eq!(fields[9].0, "sojourn_p50_apart");
            fields[9].1
        };
        assert_eq!(differ(&[1000.0], 1150.0, 10.0), 1.0);
        assert_eq!(differ(&[0.0], 100.0, 100.0), 0.5);
        let runs = [1000.0, 3000.0, 1500.0];
        assert_eq!(differ(&runs, 2000.0, 10.0), 0.0, "between two runs");
        assert_eq!(differ(&runs, 3450.0, 10.0), 1.0);
        assert_eq!(differ(&runs, 700.0, 10.0), 2.0);
    }

    #[test]
    fn a_rate_differs_from_the_nearest_run() {
        let of = |bits| Figures {
            bits,
            ..Figures::default()
        };
        let fields = |measured| fields(&[of(200e6), of(80e6), of(100e6)], &of(measured), &[1.0]);
        let all: Vec<f64> = fields(160e6).iter().map(|field| field.1).collect();
        assert_eq!(all, [100.0, 80.0, 200.0, 160.0, 0.0]);
        assert_eq!(fields(250e6)[4], ("sim_error_percent", 25.0));
        assert_eq!(fields(60e6)[4], ("sim_error_percent", 25.0));
    }
}
