//! tc's words of `netem`.

use std::time::Duration;

use softnet_tc::units::{percent, rate, time};
use softnet_tc::{Distribution, LossModel, NetemSpec, QdiscSpec};

use super::tc::Words;

/// The options, in the order in which tc takes them.
pub(super) fn spec(words: &mut Words<'_>) -> QdiscSpec {
    let mut spec = NetemSpec::default();
    while let Some(name) = words.next() {
        match name {
            "limit" => spec.limit = words.number(),
            "delay" => {
                spec.delay = duration(words).expect("a time");
                if let Some(jitter) = duration(words) {
                    spec.jitter = jitter;
                    chance(words, &mut spec.delay_correlation);
                }
            }
            "distribution" => {
                // That of `record.py`.
                assert_eq!(words.of(), "three");
                spec.distribution = Distribution::new([-8192, 0, 8192]);
            }
            "loss" if words.accept("state") => {
                let mut p = [0; 5];
                p.iter_mut().for_each(|p| chance(words, p));
                let [p13, p31, p32, p23, p14] = p;
                spec.loss_model = LossModel::State([p13, p31, p32, p14, p23]);
            }
            "loss" if words.accept("gemodel") => {
                let mut p = [0; 4];
                p.iter_mut().for_each(|p| chance(words, p));
                let [p, r, lost, k] = p;
                spec.loss_model = LossModel::Gemodel([p, r, u32::MAX - lost, k]);
            }
            "loss" => chance(words, &mut spec.loss),
            "ecn" => spec.ecn = true,
            "duplicate" => chance(words, &mut spec.duplicate),
            "corrupt" => chance(words, &mut spec.corrupt),
            "reorder" => {
                chance(words, &mut spec.reorder);
                spec.gap = spec.gap.max(1);
            }
            "gap" => {
                spec.gap = words.number();
                if spec.reorder == 0 {
                    spec.reorder = u32::MAX;
                }
            }
            "rate" => {
                spec.rate = rate(words.of()).expect("a rate");
                let next = words.0.first();
                if let Some(overhead) = next.and_then(|word| word.parse().ok()) {
                    spec.packet_overhead = overhead;
                    words.next();
                    spec.cell_size = words.number();
                    spec.cell_overhead = words.number() as i32;
                }
            }
            "seed" => spec.seed = Some(words.of().parse().expect("a number")),
            other => panic!("{other}"),
        }
    }
    QdiscSpec::Netem(spec)
}

/// A time with its unit, if the next word is one.
fn duration(words: &mut Words<'_>) -> Option<Duration> {
    let word = words.0.first().filter(|word| word.ends_with('s'))?;
    let nanos = time(word).ok()?;
    words.next();
    Some(Duration::from_nanos(nanos))
}

/// A probability, if the next word is one.
fn chance(words: &mut Words<'_>, of: &mut u32) {
    if let Some(word) = words.0.first().filter(|word| word.ends_with('%')) {
        *of = percent(word).expect("a probability") as u32;
        words.next();
    }
}
