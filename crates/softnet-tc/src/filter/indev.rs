//! The link that packets were received on, which filters name (`indev`; `tcf_match_indev`).
//!
//! Packets carry the number of a port, which is used again when the port is gone. So an engine has
//! an [`IndevTable`] of the links that its filters name: it says which port each of them is when
//! the filter comes, and when links come, go or get other names.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softnet::mem::Packet;

/// A link that packets were received on, by its name. A clone is the same one. As long as nobody
/// has found the link, and when it is gone, no packet matches.
#[derive(Clone)]
pub struct Indev(Arc<Shared>);

struct Shared {
    name: Mutex<String>,
    /// Number of the link, 0 for none, in the upper half; in the lower one that of its port plus 1,
    /// 0 for none. It says nothing about other memory.
    place: AtomicU64,
    /// It was put in a table.
    known: AtomicBool,
}

impl Indev {
    /// The link of this name, for which nobody has looked yet.
    pub fn new(name: impl Into<String>) -> Indev {
        Indev(Arc::new(Shared {
            name: Mutex::new(name.into()),
            place: AtomicU64::new(0),
            known: AtomicBool::new(false),
        }))
    }

    /// Name of the link.
    pub fn name(&self) -> String {
        self.own_name().clone()
    }

    /// True if it was never put in a table.
    pub fn is_new(&self) -> bool {
        !self.0.known.load(Ordering::Relaxed)
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
pub struct IndevTable(Vec<Indev>);

impl IndevTable {
    /// Takes note of one that filters have, and of its link.
    pub fn add(&mut self, indev: &Indev, link: Option<(u32, Option<u16>)>) {
        indev.set(link);
        let known = indev.0.known.swap(true, Ordering::Relaxed);
        if known && self.0.iter().any(|own| Arc::ptr_eq(&own.0, &indev.0)) {
            return;
        }
        if self.0.len() == self.0.capacity() {
            // Those of filters that are no more, instead of more room.
            self.0.retain(|own| Arc::strong_count(&own.0) > 1);
        }
        self.0.push(indev.clone());
    }

    /// Looks for the links that are not there, by their names.
    pub fn resolve(&self, link: impl Fn(&str) -> Option<(u32, Option<u16>)>) {
        for indev in self.0.iter().filter(|indev| indev.link().is_none()) {
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
        self.0.iter().filter(move |own| own.link() == Some(link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_go_and_get_other_names() {
        let mut table = IndevTable::default();
        let (here, later) = (Indev::new("a"), Indev::new("b"));
        table.add(&here, Some((7, Some(0))));
        assert!(!here.is_new() && later.is_new());
        table.add(&later, None);
        assert_eq!((here.link(), later.link()), (Some(7), None));
        table.link_renamed(7, "z");
        assert_eq!([here.name(), later.name()], ["z", "b"]);
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

    /// However many filters come and go, and however often one is given again.
    #[test]
    fn a_table_does_not_grow_by_what_is_no_more() {
        let mut table = IndevTable::default();
        let stays = Indev::new("a");
        for _ in 0..1000 {
            table.add(&stays, None);
            table.add(&Indev::new("b"), None);
        }
        assert!(table.0.len() < 10, "{}", table.0.len());
        table.resolve(|name| (name == "a").then_some((1, None)));
        assert_eq!(stays.link(), Some(1));
    }
}
