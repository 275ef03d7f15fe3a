//! Tests of the assumptions of the model.

use super::device::Work;
use super::machine::{Costs, Machine, Program};
use super::model::{self, Design, Load};
use super::topology::{distance, factors};
use super::*;

/// As measured once on the development machine, whose CPUs were near.
const COSTS: Costs = Costs {
    atomic: 5.5,
    load: 27.6,
    rmw: 21.8,
    upgrade: 20.0,
    stream: 2.8,
    flight: 0.37,
    distances: [1.0, 4.65, 8.57],
};

const WORK: Work = Work {
    make: 10.0,
    push: 5.0,
    call: 20.0,
    packet: 5.0,
    queued: 15.0,
    pause: 28.0,
    clock: 12.0,
    r#yield: 470.0,
};

const LOAD: Load = Load {
    design: Design::Adoption,
    cores: 2,
    queues: 2,
    work: WORK,
    packets: 20_000,
    seed: 1,
};

/// Runs one program a core; the virtual time in nanoseconds.
fn time<F: Future<Output = ()> + 'static>(
    programs: impl IntoIterator<Item = F>,
    machine: &Machine,
) -> f64 {
    let mut programs: Vec<Program> = programs
        .into_iter()
        .map(|program| Box::pin(program) as Program)
        .collect();
    machine.run(&mut programs, || false);
    machine.now() as f64 / 1e3
}

#[test]
fn a_line_that_the_core_has_costs_an_atomic_operation() {
    let machine = Machine::new(1, COSTS, 1);
    let (core, line) = (machine.core(0), machine.line());
    let program = async move {
        for _ in 0..1000 {
            let _ = core.rmw(line, |value| Some(value + 1)).await;
        }
        assert_eq!(core.load(line).await, 1000);
    };
    assert_eq!(time([program], &machine), 1000.0 * COSTS.atomic);
}

/// Nanoseconds of an access of the second core to a line that the first has written.
fn transfer_cost(load: bool) -> f64 {
    const LINES: usize = 4000;
    let machine = Machine::new(2, COSTS, 1);
    let lines: Vec<_> = (0..LINES).map(|_| machine.line()).collect();
    let own = machine.line();
    let programs = [machine.core(0), machine.core(1)].map(|core| {
        let lines = lines.clone();
        async move {
            if core.id == 0 {
                for line in lines {
                    core.store(line, 1).await;
                }
                return;
            }
            core.work(1e6);
            for line in lines {
                // After an atomic operation nothing is on its way any more.
                let _ = core.rmw(own, Some).await;
                let value = match load {
                    true => core.load(line).await,
                    false => core.rmw(line, Some).await.unwrap_or_default(),
                };
                assert_eq!(value, 1);
            }
        }
    });
    (time(programs, &machine) - 1e6) / LINES as f64 - COSTS.atomic
}

#[test]
fn a_line_of_another_core_costs_what_was_measured() {
    let near =
        |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.02, "{value}");
    near(transfer_cost(true), COSTS.load);
    near(transfer_cost(false), COSTS.rmw + COSTS.atomic);
}

#[test]
fn two_cores_that_contend_take_as_long_as_was_measured_and_lose_nothing() {
    for (rmw, measured) in [(21.8, 8.9), (130.0, 16.6), (130.0, 60.0)] {
        let costs = Costs { rmw, ..COSTS };
        let flight = model::flight(costs, measured);
        let contended = model::contended(Costs { flight, ..costs });
        assert!(
            (contended / measured - 1.0).abs() < 0.05,
            "{rmw}: {contended}, not {measured}"
        );
    }
    let machine = Machine::new(3, COSTS, 1);
    let line = machine.line();
    let programs = [0, 1, 2].map(|id| {
        let core = machine.core(id);
        async move {
            for _ in 0..500 {
                let mut was = core.load(line).await;
                while let Err(other) = core.swap(line, was, was + 1).await {
                    was = other;
                }
            }
            core.work(1e6);
            assert_eq!(core.load(line).await, 1500);
        }
    });
    time(programs, &machine);
}

#[test]
fn store_reaches_other_cores_after_its_transfer() {
    let machine = Machine::new(2, COSTS, 1);
    let line = machine.line();
    let programs = [machine.core(0), machine.core(1)].map(|core| async move {
        if core.id == 0 {
            core.store(line, 1).await;
            assert_eq!(core.load(line).await, 1);
            core.work(1e3);
            assert_eq!(core.load(line).await, 2);
            return;
        }
        core.work(100.0);
        core.store(line, 2).await;
        assert_eq!(core.load(line).await, 2);
    });
    time(programs, &machine);
}

#[test]
fn the_same_seed_gives_the_same_figure() {
    for design in [Design::Busylock, Design::Adoption, Design::AllCores] {
        let run = |seed| {
            let load = Load {
                design,
                cores: 5,
                seed,
                ..LOAD
            };
            model::mpps(&load, COSTS)
        };
        assert_eq!(run(1), run(1), "{design:?}");
        assert_ne!(run(1), run(2), "{design:?}");
    }
}

#[test]
fn every_design_delivers_in_every_shape() {
    for design in [Design::Busylock, Design::Adoption, Design::AllCores] {
        for (cores, queues) in [(1, 1), (1, 3), (2, 1), (9, 1), (24, 3), (40, 1)] {
            let load = Load {
                design,
                cores,
                queues,
                packets: 30_000,
                ..LOAD
            };
            let mpps = model::mpps(&load, COSTS);
            let most = 1e3 / WORK.make * cores as f64;
            assert!(
                mpps > 0.01 && mpps < most,
                "{design:?} {cores} {queues}: {mpps}"
            );
        }
    }
}

/// Nothing is shared there. And one rate for all of them costs nothing as long as the draws do not
/// wait for each other.
#[test]
fn a_queue_for_each_core_scales_with_them() {
    let run = |design, cores| {
        let load = Load {
            design,
            cores,
            queues: cores,
            ..LOAD
        };
        model::mpps(&load, COSTS)
    };
    let one = run(Design::Adoption, 1);
    for cores in [2, 8, 64] {
        let each = run(Design::Adoption, cores) / cores as f64;
        assert!(
            (each / one - 1.0).abs() < 0.03,
            "{cores}: {each}, not {one}"
        );
    }
    let shared = run(Design::AllCores, 4) / run(Design::Adoption, 4);
    assert!(shared > 0.9 && shared < 1.01, "{shared}");
    // Each draw is a transfer of the one word, so many cores are bound by it.
    let bound = run(Design::AllCores, 512) / run(Design::Adoption, 512);
    assert!(bound < 0.5, "{bound}");
}

#[test]
fn a_lock_costs_more_where_it_is_shared() {
    let run = |queues| {
        let load = Load {
            design: Design::Busylock,
            queues,
            ..LOAD
        };
        model::mpps(&load, COSTS)
    };
    assert!(run(1) < run(2));
}

#[test]
fn distances_are_those_of_clusters_and_sockets() {
    assert_eq!(
        [(0, 7), (7, 8), (0, 127), (127, 128)].map(|(a, b)| distance(a, b)),
        [0, 1, 1, 2]
    );
    // The CPUs that were measured are the least distance, whichever that is.
    for rmw in [20.0, 130.0] {
        let [near, other, far] = factors(rmw);
        assert_eq!(near, 1.0);
        assert!(other >= near && far > other);
    }
}

#[test]
fn measured_cases_are_among_the_compared_ones() {
    let cells: Vec<_> = shape::cells(&CORES)
        .iter()
        .map(|cell| (cell.variant, cell.params()))
        .collect();
    for (variant, shape) in shape::MEASURED {
        for cores in [1, 2] {
            let cell = Cell {
                variant,
                shape,
                cores,
            };
            assert!(cells.contains(&(variant, cell.params())));
        }
    }
}
