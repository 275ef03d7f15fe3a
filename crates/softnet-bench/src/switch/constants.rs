//! Case `constants`: the ordinary traffic of the experiment with one of the daemon's constants set
//! to something else than its default, so that the defaults are a choice.

use serde_json::json;

use super::{PING_INTERVAL, PINGS, Run, iperf};
use crate::error::BenchError;
use crate::interleave::{self, Turn};
use crate::options::{Options, SHORT};
use crate::report::{Collector, OURS, Param};
use crate::switches::{Softnet, Switch as _};

/// Value of the parameter `case`.
const NAME: &str = "constants";
/// Lines of the section `[engine]`.
const CONSTANTS: [&str; 9] = [
    "",
    "busy_poll = \"0s\"",
    "busy_poll = \"10us\"",
    "busy_poll = \"200us\"",
    "buffers = 4096",
    "buffers = 262144",
    "max_backlog = 100",
    "max_backlog = 10000",
    "workers = 1",
];

fn params(constant: &str) -> Vec<Param> {
    let constant = if constant.is_empty() {
        "default"
    } else {
        constant
    };
    vec![("case", json!(NAME)), ("constant", json!(constant))]
}

/// Measures the case and adds its rows.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, slice) = options.program_turns();
    let seconds = options.seconds;
    let few = if seconds < SHORT { 2 } else { CONSTANTS.len() };
    let chosen = CONSTANTS
        .into_iter()
        .take(few)
        .filter(|constant| only.allows(&params(constant)));
    let turn = |constant: &'static str| {
        let measure = move |results: &mut Collector| {
            let softnet = Softnet::with(OURS, constant);
            softnet.prepare()?;
            let base = params(constant);
            let switch = &softnet;
            Run {
                switch,
                slice,
                seconds,
                base,
            }
            .alone(results)
        };
        Turn::new(OURS, &params(constant), measure)
    };
    let turns = chosen.map(turn).collect();
    let time = iperf::whole(slice) * 2 + slice + PINGS as u32 * PING_INTERVAL;
    let case = [("case", json!(NAME))];
    let rounds = rounds.of(&case, slice).of_several().in_turns_of(time);
    interleave::measure(options, rounds, turns, results)
}
