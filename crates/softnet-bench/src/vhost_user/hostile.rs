//! Frames that two machines on one worker exchange while a third attacks its port, against an
//! honest load with the same work for CPUs: frames that are dropped when they are received, as fast
//! as the port takes them, or threads that compute as much as the attacker and the port's thread do
//! meanwhile; and against no load, which says what share of the worker the attacker takes.
//!
//! Attack and load take turns of a fraction of a second with the same machines: how fast two CPUs
//! exchange cache lines changes by a factor of three from one second to the next where they are
//! virtual, for both alike.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use softnet_tests::attack::{ATTACKS, Attack, Load, Scene, Victims};

use crate::buffers::pinned::{self, Cpus};
use crate::control::compute;
use crate::cpu;
use crate::error::BenchError;
use crate::in_process::conserved;
use crate::interleave::{self, Turn};
use crate::options::{Options, SHORT};
use crate::random::Random;
use crate::report::{AGAIN, Collector, OURS, Param};

/// The honest load.
pub(super) const EQUAL_LOAD: &str = "equal-load";
/// No load: the machines have the worker to themselves.
pub(super) const UNLOADED: &str = "unloaded";
/// Threads whose CPU time is the attack's: that of the attacker, and those of ports.
const THREADS: [&str; 2] = ["attacker", "vhost-user"];
/// The attacks of a short run, one for each kind of honest load.
const SHORT_ATTACKS: [&str; 2] = ["runts", "reconnects"];
/// Time that counts of a turn, and before it.
const SLICE: Duration = Duration::from_millis(300);
const BEFORE: Duration = Duration::from_millis(100);

/// Lets the victims exchange frames for some time. Returns how many came.
fn exchange(victims: &mut Victims, time: Duration) -> u32 {
    let (start, before) = (Instant::now(), victims.received());
    while start.elapsed() < time {
        victims.turn(true);
    }
    victims.received() - before
}

/// Seconds that the attack's threads have run.
fn run_times() -> Result<[f64; 2], BenchError> {
    let [attacker, ports] = THREADS.map(cpu::of_threads);
    Ok([attacker?, ports?])
}

/// Runs `measure` while other threads do `loads` until they are told to end.
fn beside<T>(
    loads: &[&(dyn Fn(&AtomicBool) + Sync)],
    measure: impl FnOnce() -> T,
) -> Result<T, BenchError> {
    let done = AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        let mut started = Ok(());
        for load in loads {
            let thread = std::thread::Builder::new().name(THREADS[0].to_owned());
            let spawned = thread.spawn_scoped(scope, move || load(done));
            started = started.and_then(|()| spawned.map(drop));
        }
        let result = started.map(|()| measure());
        done.store(true, Ordering::Relaxed);
        result.map_err(|e| BenchError::io("starting a thread", e))
    })
}

/// Frames of the victims, and seconds that the attack's threads ran.
type Slice = (u32, [f64; 2]);

/// Frames that the victims exchange in one turn.
fn slice(victims: &mut Victims) -> Result<Slice, BenchError> {
    exchange(victims, BEFORE);
    let before = run_times()?;
    let frames = exchange(victims, SLICE);
    let after = run_times()?;
    Ok((frames, std::array::from_fn(|n| after[n] - before[n])))
}

/// Parts of a turn, in any order; the equal load is made from what the attack has taken.
#[derive(Clone, Copy)]
enum Part {
    Pair,
    Again,
    Unloaded,
}

/// Loads beside the victims, as their sums stand.
const VARIANTS: [&str; 4] = [OURS, EQUAL_LOAD, AGAIN, UNLOADED];

/// Millions of frames per second that the victims get beside each of [`VARIANTS`]. The worker has
/// a CPU, `cpu`, for itself.
fn measure(attack: &Attack, cpu: usize, time: Duration) -> Result<[f64; 4], BenchError> {
    let Some(scene) = Scene::build(Some(cpu)) else {
        let why = "needs /dev/net/tun and network namespaces";
        return Err(BenchError::Unavailable(why.to_owned()));
    };
    let mut victims = Victims::connect(&scene);
    let attacker = Mutex::new(scene.attacker(false));
    let lock = || attacker.lock().unwrap_or_else(PoisonError::into_inner);
    let hostile = |done: &AtomicBool| {
        while !done.load(Ordering::Relaxed) {
            lock().step(attack);
        }
    };
    let flood = |done: &AtomicBool| {
        while !done.load(Ordering::Relaxed) {
            lock().flood_honestly();
        }
    };
    let mut sums = [0; VARIANTS.len()];
    let turns = time.div_duration_f64(SLICE).round().max(1.0) as u32;
    let mut parts = [Part::Pair, Part::Again, Part::Unloaded].repeat(turns as usize);
    Random::of_now().shuffle(&mut parts);
    for part in parts {
        match part {
            Part::Pair => {
                let (frames, run_times) = beside(&[&hostile], || slice(&mut victims))??;
                sums[0] += frames;
                // What it has sent is not to be read meanwhile.
                lock().rest();
                let share = run_times.map(|time| time / SLICE.as_secs_f64());
                let spin = share.map(|share| move |done: &AtomicBool| _ = compute(share, done));
                let (frames, _) = match attack.beside {
                    Load::Flood => beside(&[&flood], || slice(&mut victims))??,
                    Load::Spin => beside(&[&spin[0], &spin[1]], || slice(&mut victims))??,
                };
                sums[1] += frames;
            }
            Part::Again => {
                sums[2] += beside(&[&hostile], || slice(&mut victims))??.0;
                lock().rest();
            }
            Part::Unloaded => sums[3] += slice(&mut victims)?.0,
        }
    }
    drop((attacker, victims));
    conserved(&scene.stop())?;
    let mpps = |frames| f64::from(frames) / (SLICE * turns).as_secs_f64() / 1e6;
    Ok(sums.map(mpps))
}

fn params(attack: &Attack) -> Vec<Param> {
    vec![("path", json!("hostile")), ("attack", json!(attack.name))]
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, time) = super::turns(options);
    let cpus = Cpus::choose()?;
    for attack in ATTACKS {
        let left_out = options.seconds < SHORT && !SHORT_ATTACKS.contains(&attack.name);
        if left_out || !only.allows(&params(attack)) || !options.threads.is_empty() {
            continue;
        }
        let params = params(attack);
        let of = params.clone();
        let measure = move |results: &mut Collector| {
            // All threads that this one starts share its CPU.
            let measure = || measure(attack, cpus.a, time);
            let mpps = pinned::on_cpu(cpus.b, measure)?;
            for (variant, mpps) in VARIANTS.into_iter().zip(mpps) {
                results.add(variant, &of, &[("mpps", mpps)]);
            }
            Ok(())
        };
        let both = Turn::new(OURS, &params, measure);
        let slices = VARIANTS.len() as u32;
        let rounds = rounds.clone().of(&both.params, time);
        let rounds = rounds.in_turns_of((time + BEFORE) * slices + BEFORE);
        interleave::measure(options, rounds, vec![both], results)?;
    }
    Ok(())
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    ATTACKS.iter().map(params).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_both_kinds_of_loads() {
        let beside = SHORT_ATTACKS.map(|name| {
            let attack = ATTACKS.iter().find(|attack| attack.name == name);
            attack.map(|attack| attack.beside)
        });
        assert_eq!(beside, [Some(Load::Flood), Some(Load::Spin)]);
    }
}
