//! Variants take turns, in a new random order in each round, so that neither a change of the
//! machine's speed nor what ran before favours one of them.

use std::io::IsTerminal as _;

use crate::error::BenchError;
use crate::options::Options;
use crate::random::Random;
use crate::report::{AGAIN, Collector, OURS, Param};

/// One of the things compared.
pub(crate) trait Variant {
    /// As in the report: `softnet`, or a baseline's or a peer's name.
    fn name(&self) -> &'static str;

    /// The parameters that all its rows have, for the row that says why there are none.
    fn params(&self) -> Vec<Param> {
        Vec::new()
    }

    /// Measures everything once and adds it to the report.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] if the machine lacks what it takes; anything else ends the
    /// experiment.
    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError>;
}

type Measure = Box<dyn Fn(&mut Collector) -> Result<(), BenchError>>;

/// A variant that is no more than what it measures in a turn.
pub(crate) struct Turn {
    pub(crate) name: &'static str,
    pub(crate) params: Vec<Param>,
    pub(crate) measure: Measure,
}

impl Variant for Turn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> Vec<Param> {
        self.params.clone()
    }

    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
        (self.measure)(results)
    }
}

/// Gives those of one case that are asked for their turns.
pub(crate) fn measure(
    options: &Options,
    rounds: usize,
    turns: Vec<Turn>,
    results: &mut Collector,
) -> Result<(), BenchError> {
    let boxed = |turn| Box::new(turn) as Box<dyn Variant>;
    let chosen = turns.into_iter().filter(|turn| options.wants(turn.name));
    let mut variants: Vec<_> = chosen.map(boxed).collect();
    interleave(rounds, &mut variants, results)
}

/// Gives each variant `rounds` turns, and [`OURS`] as many again that count as [`AGAIN`]: how far
/// these two are apart is what chance does. A variant that is unavailable gets one row with the
/// reason and no more turns.
pub(crate) fn interleave(
    rounds: usize,
    variants: &mut [Box<dyn Variant>],
    results: &mut Collector,
) -> Result<(), BenchError> {
    let compared = variants.len() > 1;
    let ours = variants.iter().position(|v| v.name() == OURS);
    let again = ours
        .filter(|_| compared && variants.iter().all(|v| v.name() != AGAIN))
        .map(|index| (index, true));
    let mut turns: Vec<_> = (0..variants.len()).map(|index| (index, false)).collect();
    turns.extend(again);
    let mut random = Random::of_now();
    let mut gone = vec![false; variants.len()];
    results.expect(variants.iter().map(|variant| variant.name()));
    for round in 1..=rounds {
        random.shuffle(&mut turns);
        for &(index, again) in &turns {
            let variant = &mut variants[index];
            if gone[index] {
                continue;
            }
            if std::io::stderr().is_terminal() {
                eprintln!("round {round} of {rounds}: {}", variant.name());
            }
            results.count_again(again);
            let turn = variant.turn(results);
            results.count_again(false);
            match turn {
                Err(BenchError::Unavailable(why)) => {
                    results.skip(variant.name(), &variant.params(), &why);
                    gone[index] = true;
                }
                other => other?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    struct Fake {
        name: &'static str,
        log: Rc<RefCell<Vec<&'static str>>>,
        error: fn() -> Option<BenchError>,
    }

    impl Variant for Fake {
        fn name(&self) -> &'static str {
            self.name
        }

        fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError> {
            self.log.borrow_mut().push(self.name);
            if let Some(error) = (self.error)() {
                return Err(error);
            }
            results.add(self.name, &[], &[("mpps", 1.0)]);
            Ok(())
        }
    }

    type Log = Rc<RefCell<Vec<&'static str>>>;

    fn three(error: fn() -> Option<BenchError>) -> (Log, Vec<Box<dyn Variant>>) {
        let log = Log::default();
        let variants = [OURS, "b", "c"].map(|name| {
            let error = if name == "b" { error } else { || None };
            Box::new(Fake {
                name,
                log: log.clone(),
                error,
            }) as Box<dyn Variant>
        });
        (log, variants.into())
    }

    #[test]
    fn variants_take_turns() {
        let (log, mut variants) = three(|| None);
        let mut results = Collector::default();
        interleave(20, &mut variants, &mut results).expect("no variant fails");
        let mut orders = std::collections::BTreeSet::new();
        for round in log.borrow().chunks(4) {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, ["b", "c", OURS, OURS]);
            orders.insert(round.to_vec());
        }
        assert!(orders.len() > 1);
        let report = results.report("x");
        let names = [0, 1, 2, 3].map(|row| report["rows"][row]["variant"].clone());
        assert_eq!(names, [OURS, AGAIN, "b", "c"]);
    }

    #[test]
    fn an_unavailable_variant_is_one_row_with_the_reason() {
        let (log, mut variants) = three(|| Some(BenchError::Unavailable("no such peer".into())));
        let mut results = Collector::default();
        interleave(2, &mut variants, &mut results).expect("being unavailable is no error");
        let tries = log.borrow().iter().filter(|name| **name == "b").count();
        assert_eq!((tries, log.borrow().len()), (1, 7));
        let report = results.report("x");
        assert_eq!(report["rows"][2]["skipped"], "no such peer");
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn a_failure_ends_the_experiment() {
        let (log, mut variants) = three(|| Some(BenchError::Measure("broken".into())));
        let result = interleave(2, &mut variants, &mut Collector::default());
        assert!(matches!(result, Err(BenchError::Measure(_))));
        assert_eq!(log.borrow().last(), Some(&"b"));
    }
}
