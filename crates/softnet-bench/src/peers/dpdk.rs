//! DPDK's mbuf pool, measured by a small C program that is compiled when libdpdk is there and
//! then answers commands.
//!
//! At its best setting: pages of 2 MB where the system gives them, frees as with MBUF_FAST_FREE,
//! and for each figure the cache size that is best for it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::buffers::pinned::{Cpus, HandOff, Path};
use crate::buffers::{Counts, Reading};
use crate::error::BenchError;
use crate::peers::hugepages::Hugepages;
use crate::peers::place::Place;
use crate::process::{self, Dialogue};

const SOURCE: &str = include_str!("../../peers/dpdk_mbuf.c");
/// Packets in a core's cache: what is tried. DPDK allows 512 at most.
const CACHES: [usize; 3] = [128, 256, 512];
/// Bytes that a packet takes, with what the pool adds, and megabytes for all else.
const PACKET: usize = 2560;
const BASE_MB: usize = 64;
/// Time that the program may take to start, or longer than a command asks it to measure.
const PATIENCE: Duration = Duration::from_secs(60);
/// The program's lcores.
pub(crate) const MAX_THREADS: usize = 64;

/// The memory of a program that uses DPDK.
#[derive(Debug)]
pub(crate) struct Memory {
    megabytes: usize,
    pages: Option<Hugepages>,
}

/// True if a program had to run with pages of 4 KB.
static SMALL_PAGES: AtomicBool = AtomicBool::new(false);

impl Memory {
    /// In pages of 2 MB, if the system gives so many.
    pub(crate) fn new(megabytes: usize) -> Memory {
        let pages = Hugepages::reserve(megabytes);
        if pages.is_none() {
            SMALL_PAGES.store(true, Ordering::Relaxed);
        }
        Memory { megabytes, pages }
    }

    /// EAL's option to have all of it in one file, as it is anyway in pages of 4 KB.
    pub(crate) fn as_one_file(&self) -> Option<&'static str> {
        self.pages.as_ref().map(|_| "--single-file-segments")
    }

    /// EAL's options for it. `--in-memory` is refused together with `--no-huge`.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let megabytes = self.megabytes.to_string();
        let pages: &[&str] = match self.pages {
            Some(_) => &["--in-memory"],
            None => &["--no-huge", "--no-shconf"],
        };
        let others = ["--no-pci", "--no-telemetry", "--log-level", "error", "-m"];
        let all = pages.iter().chain(&others).copied();
        all.chain([megabytes.as_str()]).map(str::to_owned).collect()
    }
}

/// The memory that the programs had, for their rows.
pub(crate) fn pages() -> &'static str {
    if SMALL_PAGES.load(Ordering::Relaxed) {
        "pages of 4 KB: the system gave none of 2 MB"
    } else {
        "pages of 2 MB"
    }
}

/// The running program with a pool for each size of cache.
#[derive(Debug)]
pub(crate) struct Dpdk {
    program: Dialogue,
    /// The best cache for a command, as an index.
    best: HashMap<String, usize>,
    _memory: Memory,
}

impl Dpdk {
    /// Compiles the program if that was not done before, and starts it with pools of `buffers`
    /// packets.
    ///
    /// # Errors
    /// [`BenchError::Unavailable`] if libdpdk or a C compiler is missing, or DPDK does not start
    /// here.
    pub(crate) fn start(cpus: Cpus, buffers: usize) -> Result<Dpdk, BenchError> {
        let program = compile("dpdk_mbuf", SOURCE)?;
        // A pool's memory is used best by one less than a power of two.
        let buffers = buffers.next_power_of_two() - 1;
        let numbers = [cpus.a, cpus.b, buffers].map(|n| n.to_string());
        let memory = Memory::new(BASE_MB + ((CACHES.len() * buffers * PACKET) >> 20));
        let mut command = program.command();
        command
            .args(numbers)
            .args([&CACHES.map(|n| n.to_string()).join(","), "--"])
            .args(memory.arguments());
        let mut dpdk = Dpdk {
            program: Dialogue::start(&mut command)?,
            best: HashMap::new(),
            _memory: memory,
        };
        match dpdk.program.hear("\n", PATIENCE) {
            Ok(_) => Ok(dpdk),
            Err(why) => Err(BenchError::Unavailable(format!(
                "DPDK does not start here: {why}"
            ))),
        }
    }

    /// Allocates and frees on one core: as an application does, or as a driver with
    /// MBUF_FAST_FREE.
    pub(crate) fn same_thread(
        &mut self,
        bulk: usize,
        fast_free: bool,
        time: Duration,
    ) -> Result<Reading, BenchError> {
        let command = if fast_free { "fast" } else { "same" };
        self.measure(&format!("{command} {bulk}"), time)
    }

    /// The forwarding loop.
    pub(crate) fn forward(&mut self, batch: usize, time: Duration) -> Result<Reading, BenchError> {
        self.measure(&format!("forward {batch}"), time)
    }

    /// Hands packets over.
    pub(crate) fn hand_off(
        &mut self,
        plan: HandOff,
        time: Duration,
    ) -> Result<Reading, BenchError> {
        let (pairs, bulk) = (plan.threads / 2, plan.bulk);
        let command = match plan.path {
            Path::OneWay | Path::Sleeping => format!("cross {pairs} {bulk}"),
            Path::BothWays => format!("both {pairs} {bulk}"),
            Path::OneCpu => format!("onecpu {pairs} {bulk}"),
            Path::OneThread => format!("local {bulk}"),
        };
        self.measure(&command, time)
    }

    /// Measures with the cache that is best for this command, which the first time is found out.
    fn measure(&mut self, command: &str, time: Duration) -> Result<Reading, BenchError> {
        let cache = match self.best.get(command) {
            Some(&cache) => cache,
            None => {
                let run = |cache| self.run(cache, command, time);
                let best = fastest(0..CACHES.len(), run)?.unwrap_or_default();
                self.best.insert(command.to_owned(), best);
                best
            }
        };
        self.run(cache, command, time)
    }

    fn run(&mut self, cache: usize, command: &str, time: Duration) -> Result<Reading, BenchError> {
        let ms = time.as_millis().max(1);
        self.program
            .say(&format!("cache {cache}\n{command} {ms}"))?;
        let line = self.program.hear("\n", 2 * time + PATIENCE)?;
        let answer: Value = serde_json::from_str(&line).unwrap_or_default();
        match (answer["packets"].as_u64(), answer["ns"].as_u64()) {
            (Some(packets), Some(ns)) => Ok(Reading {
                packets,
                time: Duration::from_nanos(ns),
                counts: Counts::default(),
            }),
            _ => Err(BenchError::command(
                "dpdk_mbuf",
                format!("answered `{command}` with `{}`", line.trim()),
            )),
        }
    }
}

/// The setting with which most packets pass in a time: the first of several.
pub(crate) fn fastest<S: Copy>(
    settings: impl IntoIterator<Item = S>,
    mut run: impl FnMut(S) -> Result<Reading, BenchError>,
) -> Result<Option<S>, BenchError> {
    let (mut best, mut most) = (None, 0.0);
    for setting in settings {
        let reading = run(setting)?;
        let rate = reading.packets as f64 / reading.time.as_secs_f64();
        if best.is_none() || rate > most {
            (best, most) = (Some(setting), rate);
        }
    }
    Ok(best)
}

/// The version of the library, as pkg-config knows it.
pub(crate) fn version() -> Option<String> {
    let printed = pkg_config(&Place::of_peers(), "--modversion");
    printed.ok().map(|text| text.trim().to_owned())
}

fn pkg_config(place: &Place, question: &str) -> Result<String, BenchError> {
    let lacks = || BenchError::Unavailable(place.lacks("libdpdk", "libdpdk-dev"));
    let program = place.find("pkg-config").ok_or_else(lacks)?;
    let mut command = place.command(&program);
    process::output(command.args([question, "libdpdk"])).map_err(|_| lacks())
}

/// A compiled program, in the place where its library is.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    place: Place,
    path: PathBuf,
}

impl Program {
    fn command(&self) -> Command {
        self.place.command(&self.path)
    }

    /// Runs it to its end, with DPDK's own arguments behind these.
    ///
    /// # Errors
    /// If it fails, or its last line is not a JSON object.
    pub(crate) fn run(&self, arguments: &[String], memory: &Memory) -> Result<Answer, BenchError> {
        let mut command = self.command();
        command.args(arguments).arg("--").args(memory.arguments());
        let mut answer = Answer {
            name: self.name,
            printed: process::output(&mut command)?,
            fields: Value::Null,
        };
        let line = answer.printed.lines().next_back().unwrap_or_default();
        answer.fields = serde_json::from_str(line).map_err(|_| answer.wrong())?;
        Ok(answer)
    }
}

/// The output of a program.
#[derive(Debug)]
pub(crate) struct Answer {
    name: &'static str,
    printed: String,
    /// The last line of the output.
    pub(crate) fields: Value,
}

impl Answer {
    /// A field that is a number.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn number(&self, field: &str) -> Result<u64, BenchError> {
        self.fields[field].as_u64().ok_or_else(|| self.wrong())
    }

    /// It is not what was expected.
    pub(crate) fn wrong(&self) -> BenchError {
        let text: String = self.printed.trim().chars().take(200).collect();
        BenchError::command(self.name, format!("printed `{text}`"))
    }
}

/// Options of the compiler: the best for this CPU, and branches as in our own code
/// (`.cargo/config.toml`).
const OPTIONS: &[&str] = if cfg!(target_arch = "x86_64") {
    &[
        "-O3",
        "-march=native",
        "-Wa,-mbranches-within-32B-boundaries",
    ]
} else {
    &["-O3", "-march=native"]
};

/// Compiles a C program that uses libdpdk, unless that was done before; the result lies beside
/// our own program, or among the temporary files of the place that has the library.
///
/// # Errors
/// [`BenchError::Unavailable`] if libdpdk or a C compiler is missing.
pub(crate) fn compile(name: &'static str, text: &str) -> Result<Program, BenchError> {
    let place = Place::of_peers();
    let ask = |question| pkg_config(&place, question);
    let (version, cflags, libs) = (ask("--modversion")?, ask("--cflags")?, ask("--libs")?);
    let lacks = || BenchError::Unavailable(place.lacks("C compiler", "gcc"));
    let compiler = place
        .find("cc")
        .or_else(|| place.find("gcc"))
        .ok_or_else(lacks)?;
    let own = std::env::current_exe().map_err(|e| BenchError::io("finding our own program", e))?;
    let own = own.parent().map(|d| d.join("peers")).unwrap_or_default();
    let directory = place.shared(&own);
    std::fs::create_dir_all(&directory)
        .map_err(|e| BenchError::io(format!("making {}", directory.display()), e))?;
    let mut hash = DefaultHasher::new();
    (text, &version, &cflags, OPTIONS).hash(&mut hash);
    let program = directory.join(format!("{name}-{:016x}", hash.finish()));
    let path = place.inside(&program);
    if program.is_file() {
        return Ok(Program { name, place, path });
    }
    // Under a name of our own first: another run may be doing the same.
    let unfinished = program.with_extension(std::process::id().to_string());
    let source = unfinished.with_extension("c");
    std::fs::write(&source, text)
        .map_err(|e| BenchError::io(format!("writing {}", source.display()), e))?;
    let files = [&unfinished, &source].map(|file| place.inside(file));
    let compiled = process::output(
        place
            .command(&compiler)
            .args(cflags.split_whitespace())
            // After DPDK's own flags, which ask for an old processor.
            .args(OPTIONS)
            .arg("-o")
            .args(files)
            .args(libs.split_whitespace()),
    );
    // Not ours any more, whether it could be removed or not.
    let _ = std::fs::remove_file(&source);
    compiled?;
    std::fs::rename(&unfinished, &program)
        .map_err(|e| BenchError::io(format!("naming {}", program.display()), e))?;
    Ok(Program { name, place, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_measures_what_it_is_asked_to() {
        let cpus = Cpus::choose().expect("a process has a CPU");
        let mut dpdk = match Dpdk::start(cpus, 8192) {
            Ok(dpdk) => dpdk,
            Err(BenchError::Unavailable(why)) => return softnet_tests::skip(&why),
            Err(other) => panic!("{other}"),
        };
        let time = Duration::from_millis(10);
        // On a busy machine a thread may not get its CPU in the time.
        let passes = |measure: &mut dyn FnMut() -> Result<Reading, BenchError>| {
            (0..1000).any(|_| measure().expect("it answers").packets > 0)
        };
        for fast_free in [false, true] {
            assert!(passes(&mut || dpdk.same_thread(8, fast_free, time)));
        }
        for path in [Path::OneWay, Path::BothWays, Path::OneCpu, Path::OneThread] {
            let plan = HandOff {
                path,
                threads: 2,
                bulk: 8,
            };
            assert!(passes(&mut || dpdk.hand_off(plan, time)), "{plan:?}");
        }
        assert!(passes(&mut || dpdk.forward(32, time)));
        assert!(
            dpdk.forward(48, time).is_err(),
            "a batch that does not fit the ring"
        );
    }
}
