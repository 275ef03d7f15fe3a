//! Files that systemd keeps over a restart or a crash of the daemon (its descriptor store).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use softnet_io::{HandOff, inherited_files};

use crate::config::STORED as PREFIX;
use crate::notify::Notify;
use crate::replace::named;
use crate::setup::Engine;

/// Devices when it was looked last, and the links of those ports.
type Seen = ((u64, usize), Vec<Option<u32>>);

/// The files in the store.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Ports whose files are there, and the number of each one's opening. 0: files of a daemon
    /// before this one.
    known: BTreeMap<String, u64>,
    seen: Option<Seen>,
}

impl Store {
    /// The store, and what was in it when this process was started, by port. To be called once, at
    /// the start.
    pub(crate) fn open() -> (Store, Vec<(String, HandOff)>) {
        let mut files: BTreeMap<String, Vec<OwnedFd>> = BTreeMap::new();
        for (name, file) in inherited_files(PREFIX) {
            files.entry(decoded(&name)).or_default().push(file);
        }
        let known = files.keys().map(|name| (name.clone(), 0)).collect();
        let handed = files.into_iter().map(|(name, files)| {
            let rest = Vec::new();
            (name, HandOff { files, rest })
        });
        (Store { known, seen: None }, handed.collect())
    }

    /// Has the store keep files of the devices as they are now.
    pub(crate) fn follow(&mut self, engine: &Engine, notify: &Notify) {
        let now = engine.devices().openings();
        if !notify.is_connected() || self.seen == Some((now, self.links(engine))) {
            return;
        }
        let mut devices = named(engine);
        devices.retain(|(_, device)| device.is_in_files());
        let is_open = |name: &str, serial: u64| {
            let mut devices = devices.iter();
            devices.any(|(port, device)| port == name && device.serial == serial)
        };
        if !self.retain(is_open, |name| notify.forget(name)) {
            // Again later.
            return;
        }
        for (name, device) in devices {
            if self.known.contains_key(&name) {
                continue;
            }
            let Ok(files) = device.files() else { return };
            // What another daemon has stored is another device's.
            let stored = encoded(&name);
            if !notify.forget(&stored) || !notify.store(&stored, &files) {
                // Again later.
                return;
            }
            self.known.insert(name, device.serial);
        }
        self.seen = Some((now, self.links(engine)));
    }

    /// The links that have the names of the ports whose files are there: after a change of names
    /// the files are other ports'.
    fn links(&self, engine: &Engine) -> Vec<Option<u32>> {
        let link = |name: &String| Some(engine.link_named(name).ok()?.index);
        self.known.keys().map(link).collect()
    }

    /// Has the files be forgotten of devices that are not open any more. False: some are still
    /// there, as `forget` says.
    fn retain(
        &mut self,
        is_open: impl Fn(&str, u64) -> bool,
        forget: impl Fn(&str) -> bool,
    ) -> bool {
        self.known
            .retain(|name, &mut serial| is_open(name, serial) || !forget(&encoded(name)));
        let mut known = self.known.iter();
        known.all(|(name, &serial)| is_open(name, serial))
    }
}

/// A port's name as one that systemd allows: of printable ASCII without colons.
fn encoded(name: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'%' | b':' | ..=b' ' | 127.. => format!("%{byte:02x}"),
        byte => char::from(byte).to_string(),
    };
    PREFIX.to_owned() + &name.bytes().map(encoded).collect::<String>()
}

/// The reverse, without the prefix.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let digits = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_systemd_allows() {
        for (name, shown) in [
            ("eth-a", "port-eth-a"),
            ("a:b%c", "port-a%3ab%25c"),
            ("ü", "port-%c3%bc"),
        ] {
            assert_eq!(encoded(name), shown);
            assert_eq!(decoded(&shown[PREFIX.len()..]), name);
        }
        assert_eq!(decoded("%zz%"), "%zz%");
    }

    /// The queue of messages is full while many ports go at once.
    #[test]
    fn files_that_could_not_be_forgotten_are_later() {
        let known = [("a", 1), ("b", 2)].map(|(name, serial)| (name.to_owned(), serial));
        let mut store = Store {
            known: known.into(),
            seen: None,
        };
        let is_open = |name: &str, _: u64| name == "a";
        assert!(!store.retain(is_open, |_| false));
        assert!(store.retain(is_open, |name| name == "port-b"));
        assert!(store.known.keys().eq(["a"]));
    }
}
