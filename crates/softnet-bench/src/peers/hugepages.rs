//! Pages of 2 MB for peers that want them: taken from the system for as long as they are needed.

use std::fs::File;
use std::io;

use rustix::fs::FlockOperation;

use crate::cleanup::{self, Guard, Leftover};

const DIRECTORY: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Pages on top of those that the system has anyway; given back with the value.
#[derive(Debug)]
pub(crate) struct Hugepages {
    _guard: Guard,
}

impl Hugepages {
    /// Makes sure that `megabytes` of free pages are there. `None`: the system gives none.
    pub(crate) fn reserve(megabytes: usize) -> Option<Hugepages> {
        let pages = megabytes.div_ceil(2) as u64;
        let free = read("free_hugepages")?;
        let made = cleanup::make(|| {
            change(pages as i64)?;
            Ok::<_, io::Error>(((), Leftover::Taken(pages, give_back)))
        });
        let pages_there = free + pages;
        let ((), guard) = made.ok()?;
        // Less than asked for is no error to the system. What we took goes with the guard.
        (read("free_hugepages")? >= pages_there).then_some(Hugepages { _guard: guard })
    }
}

/// Gives pages back to the system; those still in use when their user ends.
fn give_back(pages: u64) -> io::Result<()> {
    change(-(pages as i64))
}

fn change(by: i64) -> io::Result<()> {
    // The system takes the sum, not a difference: one change at a time, of all processes that know
    // the rule.
    let lock = File::open(DIRECTORY)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    let count = |file| read(file).ok_or(io::ErrorKind::NotFound);
    // What was given back while it was in use still counts, as surplus.
    let pages = count("nr_hugepages")?.saturating_sub(count("surplus_hugepages")?);
    let pages = pages.saturating_add_signed(by);
    std::fs::write(format!("{DIRECTORY}/nr_hugepages"), pages.to_string())
}

fn read(file: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("{DIRECTORY}/{file}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn reserved_pages_are_released() {
        if read("nr_hugepages").is_none() {
            println!("skipped: the kernel has no pages of 2 MB");
            return;
        }
        if Hugepages::reserve(8).is_none() {
            println!("skipped: the system gives no pages of 2 MB");
            return;
        }
        // Other tests of this program take and give back too, maybe in between.
        let taken = (0..100).find_map(|_| {
            let before = read("nr_hugepages")?;
            let pages = Hugepages::reserve(8)?;
            let more = read("nr_hugepages")? >= before.saturating_add(4);
            more.then_some((before, pages))
        });
        let (before, pages) = taken.expect("four pages more");
        drop(pages);
        let deadline = Instant::now() + Duration::from_secs(60);
        while read("nr_hugepages") > Some(before) {
            assert!(
                Instant::now() < deadline,
                "more than {before} pages are left"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
