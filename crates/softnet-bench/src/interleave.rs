//! Variants take turns, in a new random order in each round, so that neither a change of the
//! machine's speed nor what ran before favours one of them.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BenchError;
use crate::judge::{self, Longer};
use crate::options::Options;
use crate::random::Random;
use crate::report::{AGAIN, Collector, OURS, Param};
use crate::speed::Watch;

/// Time to set up a variant in this process and to warm up, about.
const SETUP: Duration = Duration::from_millis(50);

type Measure = Box<dyn Fn(&mut Collector) -> Result<(), BenchError>>;

/// One of the things compared.
pub(crate) struct Turn {
    /// As in the report: `softnet`, or a baseline's or a peer's name.
    pub(crate) name: &'static str,
    /// The parameters that all its rows have, for the row that says why there are none.
    pub(crate) params: Vec<Param>,
    /// Measures everything once and adds it to the report. Errors but
    /// [`BenchError::Unavailable`], if the machine lacks what it takes, end the experiment.
    pub(crate) measure: Measure,
}

impl Turn {
    /// A turn of the variant `name` that calls `measure`.
    pub(crate) fn new(
        name: &'static str,
        params: &[Param],
        measure: impl Fn(&mut Collector) -> Result<(), BenchError> + 'static,
    ) -> Turn {
        Turn {
            name,
            params: params.to_vec(),
            measure: Box::new(measure),
        }
    }
}

/// Rounds of one cell: what each variant is measured at in its turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    /// The experiment, if only what its goals need is to be measured.
    pub(crate) judged: Option<String>,
    /// The cells to which that is restricted, if it is.
    pub(crate) longer: Option<Arc<Longer>>,
    /// Nothing is measured, only counted.
    pub(crate) plan: bool,
    /// The machine's speed is watched.
    pub(crate) watch: bool,
    /// [`OURS`] has no turns that count as [`AGAIN`].
    pub(crate) short: bool,
    pub(crate) params: Vec<Param>,
    /// Turns measure other cells, too, which have these parameters and others.
    pub(crate) several: bool,
    pub(crate) window: Duration,
    pub(crate) turn: Duration,
}

impl Rounds {
    /// Rounds of the cell with these parameters.
    pub(crate) fn of(mut self, params: &[Param], window: Duration) -> Rounds {
        self.params = params.to_vec();
        self.window = window;
        self.turn = window.mul_f64(1.1) + SETUP;
        self
    }

    /// For turns that measure several cells, whose common parameters are known.
    pub(crate) fn of_several(mut self) -> Rounds {
        self.several = true;
        self
    }

    /// For turns that take about as long as this, not one window.
    pub(crate) fn in_turns_of(mut self, turn: Duration) -> Rounds {
        self.turn = turn;
        self
    }

    /// True if this variant is to be measured.
    pub(crate) fn want(&self, variant: &str) -> bool {
        let needed =
            |experiment: &String| judge::needs(experiment, variant, &self.params, self.several);
        let chosen = |longer: &Arc<Longer>| longer.has(&self.params, self.several);
        self.judged.as_ref().is_none_or(needed) && self.longer.as_ref().is_none_or(chosen)
    }
}

/// Measures several things in one turn, in a random order; the results are as they were asked.
pub(crate) fn in_any_order<T: Copy, R>(
    of: &[T],
    each: impl Fn(T) -> Result<R, BenchError>,
) -> Result<Vec<(T, R)>, BenchError> {
    let mut order: Vec<_> = of.iter().copied().enumerate().collect();
    Random::of_now().shuffle(&mut order);
    let results: Result<Vec<_>, BenchError> = order
        .into_iter()
        .map(|(at, what)| Ok((at, what, each(what)?)))
        .collect();
    let mut results = results?;
    results.sort_by_key(|result| result.0);
    Ok(results
        .into_iter()
        .map(|(_, what, result)| (what, result))
        .collect())
}

/// Gives those of one case that are asked for their turns.
pub(crate) fn measure(
    options: &Options,
    rounds: Rounds,
    mut turns: Vec<Turn>,
    results: &mut Collector,
) -> Result<(), BenchError> {
    turns.retain(|turn| options.wants(turn.name));
    interleave(rounds, turns, results)
}

/// Gives each variant its turns, and [`OURS`] as many again that count as [`AGAIN`]: how far these
/// two are apart is what chance does, which is not asked in short runs. A variant that is
/// unavailable gets one row with the reason and no more turns. A round in which the machine changed
/// its speed is measured again.
pub(crate) fn interleave(
    rounds: Rounds,
    mut variants: Vec<Turn>,
    results: &mut Collector,
) -> Result<(), BenchError> {
    variants.retain(|variant| rounds.want(variant.name));
    let mut turns: Vec<_> = variants.iter().map(|variant| (variant, false)).collect();
    let ours = variants.iter().find(|variant| variant.name == OURS);
    let again = ours
        .filter(|_| !rounds.short && variants.len() > 1)
        .filter(|_| variants.iter().all(|v| v.name != AGAIN))
        .map(|ours| (ours, true));
    turns.extend(again);
    if turns.is_empty() {
        return Ok(());
    }
    if rounds.plan {
        results.plan(rounds.count * turns.len(), rounds.turn);
        return Ok(());
    }
    let mut random = Random::of_now();
    let mut watch = Watch::new(rounds.watch)?;
    results.expect(variants.iter().map(|variant| variant.name));
    for round in 0..rounds.count {
        loop {
            random.shuffle(&mut turns);
            results.start_round(round, rounds.window);
            let before = (results.clone(), turns.clone());
            one_round(&mut turns, results, &mut watch)?;
            if !watch.measure_again() {
                break;
            }
            (*results, turns) = before;
        }
    }
    results.watched(&watch);
    Ok(())
}

/// Gives each its turn; those that are not available have none any more.
fn one_round(
    turns: &mut Vec<(&Turn, bool)>,
    results: &mut Collector,
    watch: &mut Watch,
) -> Result<(), BenchError> {
    let mut gone = Vec::new();
    watch.look()?;
    for &(variant, again) in turns.iter() {
        if gone.contains(&variant.name) {
            continue;
        }
        if std::io::stderr().is_terminal() {
            eprintln!("{}", variant.name);
        }
        results.count_again(again);
        let turn = (variant.measure)(results);
        results.count_again(false);
        match turn {
            Err(BenchError::Unavailable(why)) => {
                results.skip(variant.name, &variant.params, &why);
                gone.push(variant.name);
            }
            other => other?,
        }
        watch.look()?;
    }
    turns.retain(|(variant, _)| !gone.contains(&variant.name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<&'static str>>>;

    fn three(error: fn() -> Option<BenchError>) -> (Log, Vec<Turn>) {
        let log = Log::default();
        let variants = [OURS, "b", "c"].map(|name| {
            let log = log.clone();
            let measure = move |results: &mut Collector| {
                log.borrow_mut().push(name);
                match error() {
                    Some(error) if name == "b" => return Err(error),
                    _ => results.add(name, &[], &[("mpps", 1.0)]),
                }
                Ok(())
            };
            Turn::new(name, &[], measure)
        });
        (log, variants.into())
    }

    fn rounds(count: usize) -> Rounds {
        Rounds {
            count,
            ..Rounds::default()
        }
    }

    #[test]
    fn variants_take_turns() {
        let (log, variants) = three(|| None);
        let mut results = Collector::default();
        interleave(rounds(20), variants, &mut results).expect("no variant fails");
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
    fn a_short_run_measures_nothing_twice() {
        let (log, variants) = three(|| None);
        let short = Rounds {
            short: true,
            ..rounds(1)
        };
        interleave(short, variants, &mut Collector::default()).expect("no variant fails");
        log.borrow_mut().sort_unstable();
        assert_eq!(*log.borrow(), ["b", "c", OURS]);
    }

    #[test]
    fn an_unavailable_variant_is_one_row_with_the_reason() {
        let (log, variants) = three(|| Some(BenchError::Unavailable("no such peer".into())));
        let mut results = Collector::default();
        interleave(rounds(2), variants, &mut results).expect("being unavailable is no error");
        let tries = log.borrow().iter().filter(|name| **name == "b").count();
        assert_eq!((tries, log.borrow().len()), (1, 7));
        let report = results.report("x");
        assert_eq!(report["rows"][2]["skipped"], "no such peer");
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn a_failure_ends_the_experiment() {
        let (log, variants) = three(|| Some(BenchError::Measure("broken".into())));
        let result = interleave(rounds(2), variants, &mut Collector::default());
        assert!(matches!(result, Err(BenchError::Measure(_))));
        assert_eq!(log.borrow().last(), Some(&"b"));
    }
}
