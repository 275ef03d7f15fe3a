//! How received packets are shared out to workers: `rps`, `rfs` of a port
//! (`/sys/class/net/DEV/queues/rx-N/rps_cpus`), `max_backlog` and `busy_poll` of the engine
//! (`net.core.netdev_max_backlog`, `net.core.busy_poll`).

use std::time::Duration;

use softnet_engine::EngineConfig;
use softnet_engine::rx::{BACKLOG_LIMIT, Rfs, SteeringSpec};

use super::error::Problem;
use super::file::{EngineTable, PortTable};
use super::range::number;
use super::units;

/// Longest time that an idle worker may poll before it sleeps: beyond, sleeping costs nothing in
/// comparison.
const BUSY_POLL_MAX: Duration = Duration::from_millis(1);

/// The engine's settings.
pub(super) fn engine(table: &EngineTable) -> Result<EngineConfig, Problem> {
    let mut config = EngineConfig::default();
    if let Some(value) = &table.max_backlog {
        config.max_backlog = number("engine.max_backlog", value, (1, BACKLOG_LIMIT as i64))?;
    }
    if let Some(value) = &table.busy_poll {
        let problem = |text| Problem::new(value.span(), "engine.busy_poll", text);
        let text = value.get_ref();
        let time = units::time(text).map_err(|e| problem(e.to_string()))?;
        config.busy_poll = Duration::from_nanos(time);
        if config.busy_poll > BUSY_POLL_MAX {
            return Err(problem(format!(
                "{text:?} is out of range; use 0s (never) to 1ms"
            )));
        }
    }
    Ok(config)
}

/// A port's steering, in an engine of `workers` workers.
pub(super) fn steering(table: &PortTable, workers: usize) -> Result<SteeringSpec, Problem> {
    let last = workers as i64 - 1;
    let rps = table.rps.iter();
    let rps = rps.map(|worker| {
        number("port.rps", worker, (0, last)).map_err(|problem| {
            let n = worker.get_ref();
            let text = match last {
                0 => format!("there is no worker {n}; the only one is 0"),
                last => format!("there is no worker {n}; they are numbered 0 to {last}"),
            };
            Problem { text, ..problem }
        })
    });
    let rfs = match &table.rfs {
        None => Rfs::Off,
        Some(value) => match value.get_ref().as_str() {
            "off" => Rfs::Off,
            "follow" => Rfs::Follow,
            "record" => Rfs::Record,
            unknown => {
                let text = format!(
                    "{unknown:?} is not a way to steer flows; use \"follow\" (to the worker that \
                     reads the other direction), \
                     \"record\" (this port's workers read it) or \"off\""
                );
                return Err(Problem::new(value.span(), "port.rfs", text));
            }
        },
    };
    Ok(SteeringSpec {
        rps: rps.collect::<Result<_, _>>()?,
        rfs,
    })
}
