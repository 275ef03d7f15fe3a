//! Variants take turns: A B C A B C …, so that a change of the machine's speed meets all of them.

use std::io::IsTerminal as _;

use crate::error::BenchError;
use crate::report::{Collector, Param};

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
    /// [`BenchError::Unavailable`] if the machine lacks what it takes; anything else ends the experiment.
    fn turn(&mut self, results: &mut Collector) -> Result<(), BenchError>;
}

/// Gives each variant `rounds` turns. A variant that is unavailable gets one row with the reason and no more turns.
pub(crate) fn interleave(
    rounds: usize,
    variants: &mut [Box<dyn Variant>],
    results: &mut Collector,
) -> Result<(), BenchError> {
    let mut skipped = vec![false; variants.len()];
    for round in 1..=rounds {
        for (variant, skipped) in variants.iter_mut().zip(&mut skipped) {
            if *skipped {
                continue;
            }
            if std::io::stderr().is_terminal() {
                eprintln!("round {round} of {rounds}: {}", variant.name());
            }
            match variant.turn(results) {
                Err(BenchError::Unavailable(why)) => {
                    *skipped = true;
                    results.skip(variant.name(), &variant.params(), &why);
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
        let variants = ["a", "b", "c"].map(|name| {
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
        interleave(2, &mut variants, &mut results).expect("no variant fails");
        assert_eq!(*log.borrow(), ["a", "b", "c", "a", "b", "c"]);
    }

    #[test]
    fn an_unavailable_variant_is_one_row_with_the_reason() {
        let (log, mut variants) = three(|| Some(BenchError::Unavailable("no such peer".into())));
        let mut results = Collector::default();
        interleave(2, &mut variants, &mut results).expect("being unavailable is no error");
        assert_eq!(*log.borrow(), ["a", "b", "c", "a", "c"]);
        let report = results.report("x", &[]);
        assert_eq!(report["rows"][1]["skipped"], "no such peer");
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn a_failure_ends_the_experiment() {
        let (log, mut variants) = three(|| Some(BenchError::Measure("broken".into())));
        let result = interleave(2, &mut variants, &mut Collector::default());
        assert!(matches!(result, Err(BenchError::Measure(_))));
        assert_eq!(*log.borrow(), ["a", "b"]);
    }
}
