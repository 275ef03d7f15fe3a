//! Experiment `bulk-free`: packets allocated and freed on one thread, at several bulk sizes, and a
//! forwarding loop with transmit completion, packet by packet and in bulk. Against DPDK's mbuf
//! pool and general allocators.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::baselines::depot::Depot;
use crate::buffers::pinned::{self, BATCH, Cpus};
use crate::buffers::{Buffers, Figure, Reading, Schedule, Softnet, Sources};
use crate::error::BenchError;
use crate::options::Options;
use crate::peers::allocators::{General, Malloc, Mimalloc};
use crate::peers::dpdk::{Dpdk, Ops};
use crate::report::{Collector, OURS};

/// Packets in each pool.
const BUFFERS: usize = 8192;
const BULKS: &[usize] = &[1, 2, 4, 8, 16, 32, 64];
const SHORT_BULKS: &[usize] = &[1, 8, 32];
/// The baseline of the forwarding loop: Softnet's own pool, one packet at a time.
const PER_PACKET: &str = "per-packet";
/// DPDK's pool, freed to as MBUF_FAST_FREE lets a driver do, which the forwarding loop does in any
/// case.
const FAST_FREE: &str = "dpdk-fast-free";
const VARIANTS: &[&str] = &[
    OURS, "depot", PER_PACKET, "dpdk", FAST_FREE, "malloc", "jemalloc", "mimalloc", "snmalloc",
];

/// A pool or allocator that can be measured here.
trait Source {
    fn same_thread(&self, bulk: usize, time: Duration) -> Result<Reading, BenchError>;
    fn forward(&self, bulk: bool, time: Duration) -> Result<Reading, BenchError>;
}

struct Local<B> {
    buffers: B,
    cpu: usize,
}

impl<B: Buffers> Source for Local<B> {
    fn same_thread(&self, bulk: usize, time: Duration) -> Result<Reading, BenchError> {
        pinned::same_thread(&self.buffers, self.cpu, bulk, time)
    }

    fn forward(&self, bulk: bool, time: Duration) -> Result<Reading, BenchError> {
        pinned::forward(&self.buffers, self.cpu, bulk, time)
    }
}

/// Started at its first turn.
struct Peer {
    cpus: Cpus,
    fast_free: bool,
    dpdk: RefCell<Option<Dpdk>>,
}

impl Peer {
    fn with(
        &self,
        measure: impl FnOnce(&mut Dpdk) -> Result<Reading, BenchError>,
    ) -> Result<Reading, BenchError> {
        let mut dpdk = self.dpdk.borrow_mut();
        let dpdk = match &mut *dpdk {
            Some(dpdk) => dpdk,
            none => none.insert(Dpdk::start(self.cpus, BUFFERS, Ops::Ring)?),
        };
        measure(dpdk)
    }
}

impl Source for Peer {
    fn same_thread(&self, bulk: usize, time: Duration) -> Result<Reading, BenchError> {
        self.with(|dpdk| dpdk.same_thread(bulk, self.fast_free, time))
    }

    fn forward(&self, _bulk: bool, time: Duration) -> Result<Reading, BenchError> {
        self.with(|dpdk| dpdk.forward(BATCH, time))
    }
}

/// A variant that was left out when this program was built.
#[cfg(not(all(feature = "jemalloc", feature = "snmalloc")))]
struct NotBuilt(&'static str);

#[cfg(not(all(feature = "jemalloc", feature = "snmalloc")))]
impl Source for NotBuilt {
    fn same_thread(&self, _bulk: usize, _time: Duration) -> Result<Reading, BenchError> {
        let why = format!("built without the feature `{}`", self.0);
        Err(BenchError::Unavailable(why))
    }

    fn forward(&self, _bulk: bool, time: Duration) -> Result<Reading, BenchError> {
        self.same_thread(0, time)
    }
}

fn sources(cpus: Cpus) -> Result<Sources<dyn Source>, BenchError> {
    let cpu = cpus.b;
    fn local<B: Buffers + 'static>(buffers: B, cpu: usize) -> Rc<dyn Source> {
        Rc::new(Local { buffers, cpu })
    }
    let dpdk = |fast_free| -> Rc<dyn Source> {
        Rc::new(Peer {
            cpus,
            fast_free,
            dpdk: RefCell::new(None),
        })
    };
    Ok(vec![
        (OURS, local(Softnet::new(BUFFERS, true)?, cpu)),
        (PER_PACKET, local(Softnet::new(BUFFERS, true)?, cpu)),
        ("depot", local(Depot::new(BUFFERS)?, cpu)),
        ("dpdk", dpdk(false)),
        (FAST_FREE, dpdk(true)),
        ("malloc", local(General::<Malloc>::new(), cpu)),
        #[cfg(feature = "jemalloc")]
        (
            "jemalloc",
            local(General::<crate::peers::allocators::Jemalloc>::new(), cpu),
        ),
        #[cfg(not(feature = "jemalloc"))]
        ("jemalloc", Rc::new(NotBuilt("jemalloc"))),
        ("mimalloc", local(General::<Mimalloc>::new(), cpu)),
        #[cfg(feature = "snmalloc")]
        (
            "snmalloc",
            local(General::<crate::peers::allocators::Snmalloc>::new(), cpu),
        ),
        #[cfg(not(feature = "snmalloc"))]
        ("snmalloc", Rc::new(NotBuilt("snmalloc"))),
    ])
}

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Value, BenchError> {
    if !options.threads.is_empty() {
        eprintln!("softnet-bench: bulk-free: --threads has no meaning here and is ignored");
    }
    options.check_variants("bulk-free", VARIANTS)?;
    let schedule = Schedule::new(options, 1);
    let mut sources = sources(Cpus::choose()?)?;
    sources.retain(|(name, _)| options.wants(name));
    let mut results = Collector::default();
    let bulks = if schedule.short { SHORT_BULKS } else { BULKS };
    for &bulk in bulks {
        // Packet by packet is what bulk 1 is.
        let figures = sources.iter().filter(|(name, _)| *name != PER_PACKET);
        let figures = figures.map(|(name, source)| {
            let source = source.clone();
            Figure {
                name,
                params: vec![("bulk", json!(bulk))],
                measure: Box::new(move |time| source.same_thread(bulk, time)),
                slice: schedule.slice,
            }
        });
        schedule.run(figures.collect(), &mut results)?;
    }
    let forwarding = sources.iter().filter(|(name, _)| *name != FAST_FREE);
    let figures = forwarding.map(|(name, source)| {
        let (source, bulk) = (source.clone(), *name != PER_PACKET);
        Figure {
            name,
            params: vec![("path", json!("forward")), ("bulk", json!(BATCH))],
            measure: Box::new(move |time| source.forward(bulk, time)),
            slice: schedule.slice,
        }
    });
    schedule.run(figures.collect(), &mut results)?;
    let mut report = results.report("bulk-free", &["ns_per_packet"]);
    report["buffers"] = json!(BUFFERS);
    report["allocated_bytes"] = json!(crate::buffers::DATA + 64);
    Ok(report)
}
