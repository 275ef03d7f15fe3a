//! Ports whose devices are not there: noticed, and opened again as soon as the system lets us.

use std::collections::BTreeMap;

use softnet_engine::PortEvent;

use crate::failure::{Exit, Failure, chain};
use crate::log::{Level, log, log_at};
use crate::reload::reason;
use crate::replace::{DYING, try_again};
use crate::setup::Engine;

/// Why a port's device is not there, by the number of its link.
pub(super) type Missing = BTreeMap<u32, Gone>;

/// A device that is not there.
pub(super) enum Gone {
    /// Noticed in this round. It is opened in the next: by then the workers have let go of the old
    /// device's queues, so that none of them can report the new device gone.
    Now,
    /// It could not be opened again, for the reason last reported.
    Because(String),
}

/// Opens all devices that a daemon which has just died may still be closing.
pub(super) fn open_all(engine: &Engine, missing: &mut Missing) -> Result<(), Failure> {
    let reopen_all = || {
        missing.retain(|&index, gone| !reopen(engine, index, gone));
        missing.is_empty()
    };
    try_again(DYING, reopen_all, |are_open| !are_open);
    let lines = missing.iter().map(|(&index, gone)| {
        let link = engine.link(index);
        let name = link.map_or_else(|_| String::new(), |link| link.settings.name.clone());
        let why = match gone {
            Gone::Because(why) => why.as_str(),
            Gone::Now => "its device is gone",
        };
        format!("port {name:?}: cannot be opened: {why}")
    });
    let lines: Vec<String> = lines.collect();
    match lines.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Exit::Config, lines.join("\n"))),
    }
}

/// Notices devices that are gone, and opens them again; tells of links that change.
pub(super) fn look_after(engine: &Engine, missing: &mut Missing) {
    let links = engine.links();
    let closed = links
        .values()
        .filter(|link| !link.open)
        .map(|link| link.index);
    let closed: Vec<u32> = closed.collect();
    open_again(missing, &closed, |index, gone| reopen(engine, index, gone));
    for event in engine.take_events() {
        let index = event.link();
        let (name, is_up) = match engine.link(index) {
            Ok(link) => (link.settings.name.clone(), link.settings.up),
            Err(_) => continue,
        };
        match event {
            // Nobody waits for what an administrator took down.
            PortEvent::Link(..) if !is_up => {}
            PortEvent::Link(_, link) => {
                let up = if link.up { "up" } else { "down" };
                let mtu = link.mtu.map(|mtu| format!(", MTU {mtu}"));
                let stats = engine.port_stats(index).ok();
                let status = stats.and_then(|stats| stats.status);
                let status = status.map(|status| format!(": {status}"));
                let (mtu, status) = (mtu.unwrap_or_default(), status.unwrap_or_default());
                log(format_args!("port {name:?}: link {up}{mtu}{status}"));
            }
            PortEvent::Gone(_) if missing.contains_key(&index) => {}
            PortEvent::Gone(_) => {
                log_at(
                    Level::Warning,
                    format_args!("port {name:?}: its device is gone"),
                );
                missing.insert(index, Gone::Now);
                if let Err(error) = engine.close_device(index) {
                    let what = format_args!("port {name:?}: {}", chain(&error));
                    log_at(Level::Warning, what);
                }
            }
        }
    }
}

/// Opens those that were missing before this round. After it, `missing` has the ports that are
/// closed and no other: the event of one that is open again, and gone at once, would be ignored.
fn open_again(
    missing: &mut Missing,
    closed: &[u32],
    mut reopen: impl FnMut(u32, &mut Gone) -> bool,
) {
    // A reload may have given a port a device, or have failed to give it back.
    missing.retain(|index, _| closed.contains(index));
    let new = closed.iter().filter(|index| !missing.contains_key(index));
    let new: Vec<_> = new.map(|&index| (index, Gone::Now)).collect();
    missing.retain(|&index, gone| !reopen(index, gone));
    missing.extend(new);
}

/// Opens a device again. False if it cannot be opened yet.
fn reopen(engine: &Engine, index: u32, gone: &mut Gone) -> bool {
    let Ok(link) = engine.link(index) else {
        // Deleted meanwhile.
        return true;
    };
    let name = link.settings.name.clone();
    let error = match engine.reopen_device(index) {
        Ok(()) => {
            log(format_args!("port {name:?}: open again"));
            return true;
        }
        Err(error) => reason(error),
    };
    if !matches!(gone, Gone::Because(reported) if *reported == error) {
        let what = format_args!("port {name:?}: cannot be opened yet: {error}");
        log_at(Level::Warning, what);
        *gone = Gone::Because(error);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_open_again_is_missing_no_longer() {
        let mut missing = Missing::from([1, 2, 3].map(|index| (index, Gone::Now)));
        let mut asked = Vec::new();
        open_again(&mut missing, &[2, 3, 4], |index, _| {
            asked.push(index);
            index == 2
        });
        assert_eq!(asked, [2, 3], "1 was opened by others, 4 is new");
        assert!(missing.keys().eq(&[3, 4]), "2 may be gone again at once");
    }
}
