//! tc's words of `sfq`, `red`, `pie`, `fq_pie`, `dualpi2` and of the curves of `hfsc`.

use std::time::Duration;

use softnet_tc::units::{rate, size, time};
use softnet_tc::{
    DualPi2Spec, FqPieSpec, PieLawSpec, PieSpec, QdiscSpec, RedCurve, RedSpec, ServiceCurve,
    SfqSpec, red_idle_table, red_probability_log, red_weight,
};

use super::tc::Words;

/// Options from which tc computes a [`RedCurve`].
#[derive(Default)]
struct Curve {
    min: u32,
    max: u32,
    avpkt: u32,
    burst: u32,
    probability: f64,
}

impl Curve {
    /// Takes an option's value, if it is one of these.
    fn take(&mut self, name: &str, words: &mut Words<'_>) -> bool {
        match name {
            "min" => self.min = words.number(),
            "max" => self.max = words.number(),
            "avpkt" => self.avpkt = words.number(),
            "burst" => self.burst = words.number(),
            "probability" => self.probability = words.of().parse().expect("a probability"),
            _ => return false,
        }
        true
    }

    fn made(&self) -> RedCurve {
        let (min, max) = (self.min, self.max);
        RedCurve {
            min,
            max,
            wlog: red_weight(min, self.burst, self.avpkt).expect("a burst"),
            plog: red_probability_log(min, max, self.probability).expect("a probability"),
            cell_log: 0,
            max_p: (self.probability * 2_f64.powi(32)) as u32,
        }
    }
}

pub(super) fn red(words: &mut Words<'_>) -> QdiscSpec {
    let (mut spec, mut curve) = (RedSpec::default(), Curve::default());
    let mut bandwidth = 0;
    while let Some(name) = words.next() {
        match name {
            "limit" => spec.limit = words.number(),
            "bandwidth" => bandwidth = rate(words.of()).expect("a rate"),
            "ecn" => spec.ecn = true,
            "harddrop" => spec.harddrop = true,
            "nodrop" => spec.nodrop = true,
            name => assert!(curve.take(name, words), "{name}"),
        }
    }
    spec.curve = curve.made();
    let table = red_idle_table(spec.curve.wlog, curve.avpkt, bandwidth);
    (spec.curve.cell_log, *spec.stab) = table.expect("a bandwidth");
    QdiscSpec::Red(spec)
}

pub(super) fn sfq(words: &mut Words<'_>) -> QdiscSpec {
    let (mut spec, mut curve) = (SfqSpec::default(), Curve::default());
    let mut has_red = false;
    while let Some(name) = words.next() {
        match name {
            "limit" => spec.limit = Some(words.number()),
            "flows" => spec.flows = words.number(),
            "depth" => spec.depth = words.number(),
            "divisor" => spec.divisor = words.number(),
            "quantum" => spec.quantum = Some(words.number()),
            "headdrop" => spec.headdrop = true,
            "redflowlimit" => has_red = words.number() > 0,
            "ecn" => spec.ecn = true,
            "harddrop" => spec.harddrop = true,
            name => assert!(curve.take(name, words), "{name}"),
        }
    }
    spec.red = has_red.then(|| curve.made());
    QdiscSpec::Sfq(spec)
}

fn duration(text: &str) -> Duration {
    Duration::from_nanos(time(text).expect("a time"))
}

/// An option of both kinds with PIE, if it is one.
fn pie_law(law: &mut PieLawSpec, name: &str, words: &mut Words<'_>) -> bool {
    match name {
        "target" => law.target = duration(words.of()),
        "tupdate" => law.tupdate = duration(words.of()),
        "alpha" => law.alpha = words.number(),
        "beta" => law.beta = words.number(),
        "ecn" => law.ecn = true,
        "bytemode" => law.bytemode = true,
        _ => return false,
    }
    true
}

pub(super) fn pie(words: &mut Words<'_>) -> QdiscSpec {
    let mut spec = PieSpec::default();
    while let Some(name) = words.next() {
        match name {
            "limit" => spec.limit = words.number(),
            name => assert!(pie_law(&mut spec.law, name, words), "{name}"),
        }
    }
    QdiscSpec::Pie(spec)
}

pub(super) fn fq_pie(words: &mut Words<'_>) -> QdiscSpec {
    let mut spec = FqPieSpec::default();
    while let Some(name) = words.next() {
        match name {
            "limit" => spec.limit = words.number(),
            "flows" => spec.flows = words.number(),
            "quantum" => spec.quantum = Some(words.number()),
            "ecn_prob" => spec.ecn_prob = words.number(),
            name => assert!(pie_law(&mut spec.law, name, words), "{name}"),
        }
    }
    QdiscSpec::FqPie(spec)
}

pub(super) fn dualpi2(words: &mut Words<'_>) -> QdiscSpec {
    let mut spec = DualPi2Spec::default();
    while let Some(name) = words.next() {
        match name {
            "limit" => spec.limit = words.number(),
            "target" => spec.target = duration(words.of()),
            "tupdate" => spec.tupdate = duration(words.of()),
            // In Hz, of which the interface has 256 parts.
            "alpha" => spec.alpha = hertz(words.of()),
            "beta" => spec.beta = hertz(words.of()),
            "coupling_factor" => spec.coupling_factor = words.number() as u8,
            "step_thresh" => match words.of().strip_suffix("pkt") {
                Some(packets) => spec.step_packets = Some(packets.parse().expect("a number")),
                None => panic!("a time"),
            },
            "min_qlen_step" => spec.min_qlen_step = words.number(),
            "drop_on_overload" => spec.drop_on_overload = true,
            "overflow" => spec.drop_on_overload = false,
            "drop_enqueue" => spec.drop_enqueue = true,
            "drop_dequeue" => spec.drop_enqueue = false,
            "classic_protection" => {
                let percent = words.of().trim_end_matches('%');
                spec.classic_protection = percent.parse().expect("a number");
            }
            other => panic!("{other}"),
        }
    }
    QdiscSpec::DualPi2(spec)
}

fn hertz(text: &str) -> u32 {
    (text.parse::<f64>().expect("a number") * 256.0) as u32
}

/// A curve of a class of `hfsc`.
pub(super) fn curve(words: &mut Words<'_>) -> ServiceCurve {
    let bytes = |text: &str| rate(text).expect("a rate") as u32;
    let micros = |text: &str| duration(text).as_micros() as u32;
    if words.accept("m2") {
        return ServiceCurve::linear(bytes(words.of()));
    }
    if words.accept("umax") {
        let umax = size(words.of()).expect("a size");
        assert!(words.accept("dmax"));
        let dmax = micros(words.of());
        assert!(words.accept("rate"));
        return ServiceCurve::of_delay(umax, dmax, bytes(words.of())).expect("a curve");
    }
    assert!(words.accept("m1"));
    let m1 = bytes(words.of());
    assert!(words.accept("d"));
    let d = micros(words.of());
    assert!(words.accept("m2"));
    ServiceCurve {
        m1,
        d,
        m2: bytes(words.of()),
    }
}
