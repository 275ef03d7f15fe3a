//! The link that packets were received on, which filters name (`indev`; `tcf_match_indev`).
//!
//! Packets carry the number of a port, which is used again when the port is gone. So an engine has
//! an [`IndevTable`] of the links that its filters name: it says which port each of them is when
//! the filter comes, and when links come, go or get other names. An engine's filters have an
//! [`Indev`] of their own each, which no other engine's and no specification has.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softnet::mem::Packet;

/// A table strikes out what no filter has from this length on.
const LEAST: usize = 8;

/// A link that packets were received on, by its name. A clone is the same one. As long as nobody
/// has found the link, and when it is gone, no packet matches.
#[derive(Clone)]
pub struct Indev(Arc<Shared>);

struct Shared {
    name: Mutex<String>,
    /// Number of the link, 0 for none, in the upper half; in the lower one that of its port plus 1,
    /// 0 for none. It says nothing about other memory.
    place: AtomicU64,
    /// It is in a table.
    known: bool,
}

impl Indev {
    /// The link of this name, for which nobody has looked yet.
    pub fn new(name: impl Into<String>) -> Indev {
        Indev::of(name.into(), false)
    }

    /// Another one of this name, for which nobody has looked yet.
    pub fn apart(&self) -> Indev {
        Indev::new(self.name())
    }

    fn of(name: String, known: bool) -> Indev {
        Indev(Arc::new(Shared {
            name: Mutex::new(name),
            place: AtomicU64::new(0),
            known,
        }))
    }

    /// Name of the link.
    pub fn name(&self) -> String {
        self.own_name().clone()
    }

    /// True if it is of no table.
    pub fn is_new(&self) -> bool {
        !self.0.known
    }

    /// Number of the link, if it is there.
    pub fn link(&self) -> Option<u32> {
        let link = (self.0.place.load(Ordering::Relaxed) >> 32) as u32;
        Some(link).filter(|&link| link != 0)
    }

    /// True if the packet was received on the link.
    #[inline]
    pub(super) fn has_received(&self, packet: &Packet) -> bool {
        let port = self.0.place.load(Ordering::Relaxed) & u64::from(u32::MAX);
        port == u64::from(packet.port()) + 1
    }

    fn own_name(&self) -> MutexGuard<'_, String> {
        let name = self.0.name.lock();
        name.unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, place: Option<(u32, Option<u16>)>) {
        let (link, port) = place.unwrap_or_default();
        let port = port.map_or(0, |port| u64::from(port) + 1);
        let place = u64::from(link) << 32 | port;
        self.0.place.store(place, Ordering::Relaxed);
    }
}

/// By the name.
impl PartialEq for Indev {
    fn eq(&self, other: &Indev) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.name() == other.name()
    }
}

impl Eq for Indev {}

impl fmt::Debug for Indev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Indev({:?})", self.name())
    }
}

/// The links that filters of an engine name as those that packets were received on. A link is its
/// number and that of its port, if it is one.
#[derive(Debug, Default)]
pub struct IndevTable {
    all: Vec<Indev>,
    /// Length at which those of filters that are no more are struck out. It is at least twice what
    /// the last time has left, so that adding one costs the same among many as among few.
    most: usize,
}

impl IndevTable {
    /// One for a filter, and its link, if that is there.
    pub fn add(&mut self, name: impl Into<String>, link: Option<(u32, Option<u16>)>) -> Indev {
        let indev = Indev::of(name.into(), true);
        indev.set(link);
        if self.all.len() >= self.most {
            self.all.retain(|own| Arc::strong_count(&own.0) > 1);
            self.most = LEAST.max(2 * self.all.len());
        }
        self.all.push(indev.clone());
        indev
    }

    /// Looks for the links that are not there, by their names.
    pub fn resolve(&self, link: impl Fn(&str) -> Option<(u32, Option<u16>)>) {
        for indev in self.all.iter().filter(|indev| indev.link().is_none()) {
            indev.set(link(&indev.name()));
        }
    }

    /// A link has another name.
    pub fn link_renamed(&self, link: u32, name: &str) {
        for indev in self.of(link) {
            *indev.own_name() = name.to_owned();
        }
    }

    /// A link is gone: nothing is received on it any more.
    pub fn link_gone(&self, link: u32) {
        self.of(link).for_each(|indev| indev.set(None));
    }

    fn of(&self, link: u32) -> impl Iterator<Item = &Indev> {
        self.all.iter().filter(move |own| own.link() == Some(link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_go_and_get_other_names() {
        let mut table = IndevTable::default();
        let here = table.add("a", Some((7, Some(0))));
        let later = table.add("b", None);
        assert!(!here.is_new() && !later.is_new());
        assert_eq!((here.link(), later.link()), (Some(7), None));
        let apart = here.apart();
        table.link_renamed(7, "z");
        assert_eq!([here.name(), later.name()], ["z", "b"]);
        assert!(apart.is_new());
        assert_eq!((apart.name(), apart.link()), ("a".to_owned(), None));
        // It is found once, and stays that link.
        table.resolve(|name| (name == "b").then_some((8, None)));
        assert_eq!((here.link(), later.link()), (Some(7), Some(8)));
        table.resolve(|_| Some((9, Some(9))));
        assert_eq!((here.link(), later.link()), (Some(7), Some(8)));
        table.link_gone(7);
        assert_eq!((here.link(), later.link()), (None, Some(8)));
        assert_eq!(here, Indev::new("z"));
        assert_ne!(here, later);
    }

    /// However many filters come and go, beside few or many that stay.
    #[test]
    fn a_table_does_not_grow_by_what_is_no_more() {
        for stay in [1, 100] {
            let mut table = IndevTable::default();
            let stays: Vec<Indev> = (0..stay).map(|_| table.add("a", None)).collect();
            for _ in 0..1000 {
                table.add("b", None);
            }
            assert!(
                table.all.len() <= LEAST.max(2 * stay),
                "{}",
                table.all.len()
            );
            table.resolve(|name| (name == "a").then_some((1, None)));
            assert!(stays.iter().all(|indev| indev.link() == Some(1)));
        }
    }
}
