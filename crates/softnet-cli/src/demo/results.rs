//! The output of the demo: a table for people, or the object that `--json` promises (DESIGN.md,
//! section 4).

use std::time::Duration;

use serde_json::{Map, Value, json};
use softnet::stats::DropReason;
use softnet_engine::{Conservation, EngineStats};

use super::traffic::ping::{RoundTrips, Via};
use super::traffic::tcp::Transfer;
use super::traffic::trace::Trace;
use super::traffic::udp::Count;
use super::{plot, svg};
use crate::report;

/// One stream of datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpResult {
    pub(super) sent: u64,
    pub(super) count: Count,
    /// Datagrams per second; none if flat out.
    pub(super) asked_pps: Option<f64>,
}

impl UdpResult {
    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.count.received)
    }
}

/// TCP through the rate limit.
#[derive(Clone, Debug)]
pub(super) struct Shaped {
    /// Bytes per second.
    pub(super) asked: u64,
    /// Bytes on the wire behind the limit, Ethernet headers included.
    pub(super) bytes: u64,
    /// In this time.
    pub(super) elapsed: Duration,
    pub(super) ping: RoundTrips,
}

impl Shaped {
    fn asked_mbps(&self) -> f64 {
        self.asked as f64 * 8.0 / 1e6
    }

    fn measured_mbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9) / 1e6
    }
}

/// Pings beside bulk TCP through a slow link.
#[derive(Clone, Debug)]
pub(super) struct Bufferbloat {
    /// Bytes per second.
    pub(super) rate: u64,
    /// The time of a phase.
    pub(super) length: Duration,
    pub(super) pfifo: Bloat,
    pub(super) fq_codel: Bloat,
    pub(super) cake: Bloat,
}

/// Round trips with one qdisc.
#[derive(Clone, Debug)]
pub(super) struct Bloat {
    /// Without those at the beginning, when TCP was still slow.
    pub(super) ping: RoundTrips,
    pub(super) trace: Trace,
}

impl Bufferbloat {
    /// The traces with their names.
    pub(super) fn traces(&self) -> [(&'static str, &Trace); 3] {
        [
            ("pfifo", &self.pfifo.trace),
            ("fq_codel", &self.fq_codel.trace),
            ("cake", &self.cake.trace),
        ]
    }
}

/// The results of the measurements.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) seconds: u64,
    pub(super) workers: usize,
    /// From the start of the process to the first ping's answer.
    pub(super) start: Duration,
    pub(super) via: Via,
    pub(super) ping: RoundTrips,
    pub(super) ping_under_tcp: RoundTrips,
    pub(super) tcp: Transfer,
    pub(super) flat: UdpResult,
    pub(super) paced: UdpResult,
    pub(super) shaped: Shaped,
    pub(super) bufferbloat: Bufferbloat,
}

impl Measured {
    /// With the final counters.
    pub(super) fn conclude(self, stats: &EngineStats) -> Results {
        Results {
            measured: self,
            conservation: stats.conservation(),
            drops: stats.drops(),
        }
    }
}

/// Everything that is printed.
#[derive(Clone, Debug)]
pub(super) struct Results {
    measured: Measured,
    conservation: Conservation,
    drops: Vec<(DropReason, u64)>,
}

impl Results {
    /// Fails if packets are unaccounted for.
    pub(super) fn verdict(&self) -> Result<(), String> {
        if self.conservation.holds() {
            return Ok(());
        }
        let sum = report::conservation(&self.conservation);
        Err(format!(
            "packets are unaccounted for ({sum}); this is a bug in softnet"
        ))
    }

    /// One object, one line.
    pub(super) fn json(&self) -> String {
        let m = &self.measured;
        let c = &self.conservation;
        let drops: Map<String, Value> = self
            .drops
            .iter()
            .map(|&(reason, n)| (reason.name().to_owned(), n.into()))
            .collect();
        let object = json!({
            "seconds": m.seconds,
            "workers": m.workers,
            "start_ms": rounded(m.start.as_secs_f64() * 1e3, 1),
            "tcp_gbps": rounded(m.tcp.gbps(), 3),
            "udp_pps": m.flat.count.pps().round() as u64,
            "udp_flat": udp_json(&m.flat),
            "udp_paced": udp_json(&m.paced),
            "ping_via": m.via.to_string(),
            "ping_us": ping_json(&m.ping),
            "loaded_ping_us": ping_json(&m.ping_under_tcp),
            "shaped": {
                "rate_mbps": rounded(m.shaped.asked_mbps(), 3),
                "measured_mbps": rounded(m.shaped.measured_mbps(), 3),
                "loaded_ping_us": ping_json(&m.shaped.ping),
            },
            "bufferbloat": {
                "rate_mbps": m.bufferbloat.rate as f64 * 8.0 / 1e6,
                "pfifo": ping_json(&m.bufferbloat.pfifo.ping),
                "fq_codel": ping_json(&m.bufferbloat.fq_codel.ping),
                "cake": ping_json(&m.bufferbloat.cake.ping),
            },
            "conservation": {
                "rx": c.rx,
                "copied": c.copied,
                "tx": c.tx,
                "dropped": c.dropped,
                "queued": c.queued,
                "holds": c.holds(),
            },
            "drops": drops,
        });
        format!("{object}\n")
    }

    /// The pings of the bufferbloat as an SVG picture.
    pub(super) fn svg(&self) -> String {
        let b = &self.measured.bufferbloat;
        let traces = b.traces().map(|(name, trace)| {
            let points = trace.points.iter();
            let points: Vec<svg::Point> = points.map(|point| (point.at, point.time)).collect();
            (name, points)
        });
        svg::draw("Ping beside bulk TCP at 50 Mb/s", &traces, b.length)
    }

    /// The summary.
    pub(super) fn table(&self) -> String {
        let m = &self.measured;
        let (s, b) = (&m.shaped, &m.bufferbloat);
        let error = (s.measured_mbps() / s.asked_mbps() - 1.0) * 100.0;
        let workers = if m.workers == 1 {
            "1 worker"
        } else {
            &format!("{} workers", m.workers)
        };
        let ready = m.start.as_secs_f64() * 1e3;
        [
            "host A ── eth0 ══ port a ─ switch ─ \
             port b ══ eth0 ── host B"
                .to_owned(),
            format!("  {workers}, first ping answered {ready:.0} ms after start"),
            String::new(),
            "unshaped (pfifo_fast)".to_owned(),
            row("TCP, one connection", &format!("{:.2} Gb/s", m.tcp.gbps())),
            row("UDP, 64 bytes, flat out", &udp_text(&m.flat)),
            row("UDP, 64 bytes, paced", &udp_text(&m.paced)),
            row("ping, idle", &ping_text(&m.ping)),
            row("ping, beside TCP", &ping_text(&m.ping_under_tcp)),
            String::new(),
            "shaped (tbf rate 100mbit burst 128k latency 50ms)".to_owned(),
            row(
                "TCP, bits on the wire",
                &format!(
                    "asked {:.2} Mb/s, measured {:.2} Mb/s ({error:+.2} %)",
                    s.asked_mbps(),
                    s.measured_mbps()
                ),
            ),
            row("ping, beside TCP", &ping_text(&s.ping)),
            String::new(),
            "bufferbloat: ping beside bulk TCP (rate 50mbit)".to_owned(),
            row("pfifo limit 1000", &ping_text(&b.pfifo.ping)),
            row("fq_codel", &ping_text(&b.fq_codel.ping)),
            row("cake", &ping_text(&b.cake.ping)),
            String::new(),
            plot::draw(&b.traces(), b.length),
            "packets".to_owned(),
            format!("  {}", report::conservation(&self.conservation)),
            format!(
                "  dropped {}; pings by {}",
                report::drops(&self.drops),
                m.via
            ),
            String::new(),
        ]
        .join("\n")
    }
}

fn row(what: &str, value: &str) -> String {
    format!("  {what:<25}{value}")
}

fn udp_text(udp: &UdpResult) -> String {
    let kpps = udp.count.pps() / 1e3;
    let (sent, lost) = (udp.sent, udp.lost());
    let order = match udp.count.reordered {
        0 => String::new(),
        n => format!(", {n} out of order"),
    };
    let percent = lost as f64 * 100.0 / (sent as f64).max(1.0);
    let lost = match udp.asked_pps {
        Some(asked) => format!("of {:.1} k asked; {lost} of {sent} lost", asked / 1e3),
        None => format!("delivered; {percent:.1} % of {sent} lost"),
    };
    format!("{kpps:.1} k packets/s {lost}{order}")
}

fn ping_text(trips: &RoundTrips) -> String {
    let time = |percent| match trips.percentile(percent) {
        None => "none".to_owned(),
        Some(t) if t < Duration::from_millis(10) => format!("{} µs", t.as_micros()),
        Some(t) => format!("{:.1} ms", t.as_secs_f64() * 1e3),
    };
    let (p50, p99) = (time(50), time(99));
    format!(
        "p50 {p50}, p99 {p99} ({} answers, {} lost)",
        trips.answers(),
        trips.lost
    )
}

fn ping_json(trips: &RoundTrips) -> Value {
    let micros = |percent| {
        trips
            .percentile(percent)
            .map(|t| rounded(t.as_secs_f64() * 1e6, 1))
    };
    json!({
        "p50": micros(50),
        "p99": micros(99),
        "answers": trips.answers(),
        "lost": trips.lost,
    })
}

fn udp_json(udp: &UdpResult) -> Value {
    json!({
        "asked_pps": udp.asked_pps.map(|pps| pps.round() as u64),
        "sent": udp.sent,
        "received": udp.count.received,
        "lost": udp.lost(),
        "reordered": udp.count.reordered,
        "pps": udp.count.pps().round() as u64,
    })
}

/// To so many decimal places.
fn rounded(value: f64, places: i32) -> f64 {
    let scale = 10f64.powi(places);
    (value * scale).round() / scale
}
