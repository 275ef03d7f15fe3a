//! Chance in Linux and here: how far apart drops are, by chi-square.

use std::collections::HashSet;

use super::{Recording, Replay, read};

/// Numbers of packets from a drop to the next one, by how many they are.
#[derive(Debug, Default)]
struct Gaps(Vec<u64>);

impl Gaps {
    /// Gaps between the letters `drop`; those before the first do not count.
    fn of(letters: &str, drop: char) -> Gaps {
        let mut gaps = Gaps::default();
        let mut last = None;
        for (at, _) in letters.char_indices().filter(|&(_, letter)| letter == drop) {
            if let Some(before) = last.replace(at) {
                let gap = at - before;
                gaps.0.resize(gaps.0.len().max(gap + 1), 0);
                gaps.0[gap] += 1;
            }
        }
        gaps
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Pearson's chi-square against probabilities of gaps, which add up to 1: true if so far off
    /// is chance in one run of 1,000.
    fn fit(&self, probability: impl Fn(usize) -> f64) -> bool {
        let total = self.total() as f64;
        assert!(total > 100.0, "{self:?} are too few");
        let (mut sum, mut bins) = (0.0, 0);
        let (mut found, mut expected, mut rest) = (0, 0.0, 1.0);
        for gap in 0..2000 {
            found += self.0.get(gap).copied().unwrap_or(0);
            expected += probability(gap) * total;
            rest -= probability(gap);
            // The last bin takes what would be too few for one of their own.
            if expected >= 8.0 && rest * total >= 8.0 {
                sum += (found as f64 - expected).powi(2) / expected;
                (found, expected, bins) = (0, 0.0, bins + 1);
            }
        }
        expected += rest.max(0.0) * total;
        assert!(expected > 0.0 || found == 0, "{self:?} cannot be");
        sum += (found as f64 - expected).powi(2) / expected;
        // The quantile by Wilson and Hilferty; 3.09 is that of the normal distribution.
        let freedom = f64::from(bins);
        let ninth = 2.0 / (9.0 * freedom);
        let most = freedom * (1.0 - ninth + 3.09 * ninth.sqrt()).powi(3);
        println!("chi-square {sum:.1} of at most {most:.1}, {total} gaps");
        sum <= most
    }
}

/// Fates of the last burst of a recording, and the probability then, if it is shown.
struct Fates {
    letters: String,
    probability: Option<f64>,
}

/// The fates in Linux, and here.
fn fates(name: &str) -> [Fates; 2] {
    let text = read(name);
    let mut recording = Recording::new(name, &text);
    let txqueuelen = recording.accept("txqueuelen ").expect("the queue's length");
    let mut replay = Replay::new(txqueuelen.parse().expect("a number"), 1);
    let probability = |replay: &Replay| {
        let xstats = replay.tree.xstats("2:".parse().expect("a handle"))?;
        let found = xstats.iter().find(|(name, _)| *name == "prob")?;
        Some(found.1 as f64 / 2_f64.powi(64))
    };
    let mut first = 0;
    let (mut letters, mut recorded) = ([String::new(), String::new()], None);
    while let Some(line) = recording.lines.next() {
        let (word, rest) = line.text.split_once(' ').unwrap_or((line.text, ""));
        match word {
            "send" => _ = replay.send(rest),
            "burst" => {
                let outcomes = recording.accept("outcomes ").expect("what became of them");
                first = replay.sent;
                letters = [outcomes.to_owned(), replay.burst(rest)];
            }
            // What the senders were not told shows here.
            "out" if rest.len() > 1000 => {
                let recorded: Vec<&str> = rest.split(' ').collect();
                replay.wait();
                let here = replay.left.drain(..).map(|(number, _)| number);
                let here: Vec<String> = here.collect();
                let here: Vec<&str> = here.iter().map(String::as_str).collect();
                let burst = first..first + letters[0].len() as u16;
                letters = [recorded, here].map(|left| {
                    let left: HashSet<&str> = left.into_iter().collect();
                    let fate = |number: u16| left.contains(&*number.to_string());
                    burst
                        .clone()
                        .map(|n| if fate(n) { '.' } else { 'x' })
                        .collect()
                });
            }
            "tc" => replay.tc(rest).expect("done"),
            "sleep" => replay.advance(1_000_000_000 * rest.parse::<u64>().expect("seconds")),
            "until" => {
                while probability(&replay).is_some_and(|found| found < 0.1) {
                    replay.advance(100_000_000);
                }
            }
            "prob" => recorded = Some(rest.parse().expect("a probability")),
            _ => {}
        }
    }
    let probabilities = [recorded, probability(&replay)];
    let [linux, here] = letters;
    [(linux, probabilities[0]), (here, probabilities[1])].map(|(letters, probability)| Fates {
        letters,
        probability,
    })
}

/// RED marks the packets in a queue of constant length at intervals of 1 to 20, each as often as
/// the others (Floyd and Jacobson, 1993, method 2).
#[test]
fn red_chance() {
    // The average is in the middle between the thresholds, where `probability` is 0.1.
    let uniform = |gap| if (1..=20).contains(&gap) { 0.05 } else { 0.0 };
    for fates in fates("red_chance") {
        let gaps = Gaps::of(&fates.letters, '.');
        assert!(gaps.fit(uniform), "{gaps:?}");
        // As far apart on average, but each by its own chance.
        let chance = 1.0 / 10.5;
        let geometric = |gap: usize| match gap.checked_sub(1) {
            Some(passed) => (1.0_f64 - chance).powi(passed as i32) * chance,
            None => 0.0,
        };
        assert!(!gaps.fit(geometric), "{gaps:?}");
    }
}

/// PIE's intervals at a probability (RFC 8033 5.4): none until it adds up to 0.85.
fn pie_gaps(probability: f64) -> Vec<f64> {
    let mut left = 1.0;
    let gap = |gap: usize| {
        let sum = gap as f64 * probability;
        let hit = match sum {
            0.0..0.85 => 0.0,
            0.85..8.5 => probability,
            _ => 1.0,
        };
        let here = left * hit;
        left -= here;
        here
    };
    (0..2000).map(gap).collect()
}

#[test]
fn pie_chance() {
    for fates in fates("pie_chance") {
        let probability = fates.probability.expect("it is shown");
        let gaps = Gaps::of(&fates.letters, 'x');
        let expected = pie_gaps(probability);
        assert!(gaps.fit(|gap| expected[gap]), "{probability} {gaps:?}");
        let other = pie_gaps(probability * 1.25);
        assert!(!gaps.fit(|gap| other[gap]), "{probability} {gaps:?}");
    }
}

/// A flow's probability is not shown: it is the one of that mean interval.
#[test]
fn fq_pie_chance() {
    for fates in fates("fq_pie_chance") {
        let gaps = Gaps::of(&fates.letters, 'x');
        let mean = |gaps: &[f64]| {
            (0..)
                .zip(gaps)
                .map(|(gap, p)| f64::from(gap) * p)
                .sum::<f64>()
        };
        let found: Vec<f64> = gaps
            .0
            .iter()
            .map(|&n| n as f64 / gaps.total() as f64)
            .collect();
        let mut permille = (10..900).map(f64::from).map(|p| pie_gaps(p / 1000.0));
        let fitting = permille.find(|expected| mean(expected) <= mean(&found));
        let expected = fitting.expect("a probability");
        assert!(gaps.fit(|gap| expected[gap]), "{gaps:?}");
    }
}
