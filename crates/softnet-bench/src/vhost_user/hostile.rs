//! What two machines on one worker exchange while a third attacks its port, against an honest load
//! with the same work for CPUs: frames that are dropped when they are received, as fast as the port
//! takes them, or threads that compute as much as the attacker and the port's thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use softnet_tests::attack::{ATTACKS, Attack, Load, Scene, Victims};

use super::SHORT;
use crate::buffers::pinned::{self, Cpus};
use crate::cpu;
use crate::error::BenchError;
use crate::interleave::{self, Turn};
use crate::options::Options;
use crate::report::{Collector, OURS, Param};

/// The honest load.
pub(super) const EQUAL_LOAD: &str = "equal-load";
/// Threads whose CPU time is the attack's: that of the attacker, and those of ports.
const THREADS: [&str; 2] = ["attacker", "vhost-user"];
/// The attacks of a short run, one for each kind of honest load.
const SHORT_ATTACKS: [&str; 2] = ["runts", "reconnects"];
/// In which a thread computes for its share.
const SLICE: Duration = Duration::from_millis(1);

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

/// Computes for a share of the time.
fn compute(share: f64, done: &AtomicBool) {
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let run_time = || Duration::new(now().tv_sec as u64, now().tv_nsec as u32);
    while !done.load(Ordering::Relaxed) {
        let (start, before) = (Instant::now(), run_time());
        while run_time() - before < SLICE.mul_f64(share) {
            std::hint::spin_loop();
        }
        std::thread::sleep(SLICE.saturating_sub(start.elapsed()));
    }
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

/// Millions of frames per second that the victims get. The worker has a CPU, `cpu`, for itself.
fn measure(attack: &Attack, variant: &str, cpu: usize, time: Duration) -> Result<f64, BenchError> {
    let Some(scene) = Scene::build(Some(cpu)) else {
        let why = "needs /dev/net/tun and network namespaces";
        return Err(BenchError::Unavailable(why.to_owned()));
    };
    let mut victims = Victims::connect(&scene);
    let hostile = |done: &AtomicBool| {
        let mut attacker = scene.attacker(false);
        while !done.load(Ordering::Relaxed) {
            attacker.step(attack);
        }
    };
    let flood = |done: &AtomicBool| {
        let mut attacker = scene.attacker(false);
        while !done.load(Ordering::Relaxed) {
            attacker.flood_honestly();
        }
    };
    let warm_up = time / 4;
    let mut both = || {
        exchange(&mut victims, warm_up);
        exchange(&mut victims, time)
    };
    let frames = match (variant, attack.beside) {
        (OURS, _) => beside(&[&hostile], both)?,
        (_, Load::Flood) => beside(&[&flood], both)?,
        (_, Load::Spin) => {
            let (start, before) = (Instant::now(), run_times()?);
            let after = beside(&[&hostile], || {
                both();
                run_times()
            })??;
            let elapsed = start.elapsed().as_secs_f64();
            let share = |n: usize| (after[n] - before[n]) / elapsed;
            let attacker = |done: &AtomicBool| compute(share(0), done);
            let port = |done: &AtomicBool| compute(share(1), done);
            beside(&[&attacker, &port], both)?
        }
    };
    drop(victims);
    let sums = scene.stop().conservation();
    if !sums.holds() {
        return Err(BenchError::Measure(format!(
            "softnet lost count of packets: {sums:?}"
        )));
    }
    Ok(f64::from(frames) / time.as_secs_f64() / 1e6)
}

fn params(attack: &Attack) -> Vec<Param> {
    vec![("path", json!("hostile")), ("attack", json!(attack.name))]
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (turns, time) = super::turns(options);
    let cpus = Cpus::choose()?;
    for attack in ATTACKS {
        let left_out = options.seconds < SHORT && !SHORT_ATTACKS.contains(&attack.name);
        if left_out || !only.allows(&params(attack)) || !options.threads.is_empty() {
            continue;
        }
        let turn = |name: &'static str| Turn {
            name,
            params: params(attack),
            measure: Box::new(move |results| {
                // All threads that this one starts share its CPU.
                let measure = || measure(attack, name, cpus.a, time);
                let mpps = pinned::on_cpu(cpus.b, measure)?;
                results.add(name, &params(attack), &[("mpps", mpps)]);
                Ok(())
            }),
        };
        let all = [OURS, EQUAL_LOAD].map(turn).into();
        interleave::measure(options, turns, all, results)?;
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
