//! Meaning of `RTM_NEWQDISC`: `tc qdisc add`, `change`, `replace` and `link` differ in flags only,
//! and what they do depends on what is there.
//!
//! | flags | tc says |
//! |---|---|
//! | `CREATE`, `EXCL` | add |
//! | `CREATE`, `REPLACE` | replace |
//! | `REPLACE` | link |
//! | none | change |
//!
//! | asked for | there | meaning |
//! |---|---|---|
//! | parent, handle | that handle at the parent | change it |
//! | parent, handle | another one at the parent, no `REPLACE` | refused |
//! | parent, handle | that handle elsewhere | refused |
//! | parent, handle | neither | new |
//! | parent | nothing at the parent | new |
//! | parent | one of another kind, add, replace or change | new in its place |
//! | parent | one of the kind, or of another kind else | change it |
//! | handle | that handle | change it |
//!
//! A new one needs `CREATE`, but where it takes the place of another kind; a change must not have
//! `EXCL`, and names the kind that is there, or none.

use softnet_tc::Handle;

use super::place::{Found, INGRESS, Place};
use crate::nl::headers::TcMsg;
use crate::nl::{Errno, Error, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

/// Meaning of a request.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Meaning {
    /// A new qdisc, in place of what is at its parent.
    New,
    /// Other parameters of this one.
    Change(Found),
}

const ANOTHER_KIND: &str = "Invalid qdisc name: must match existing qdisc";

/// Meaning of a request (`__tc_modify_qdisc`).
pub(super) fn meaning(
    place: &Place<'_>,
    header: &TcMsg,
    flags: u16,
    kind: Option<&str>,
) -> Result<Meaning, Error> {
    let refuse = |errno, text: &'static str| Err(Error::new(errno).text(text));
    let has = |flag| flags & flag != 0;
    let (parent, handle) = (
        Handle::from_raw(header.parent),
        Handle::from_raw(header.handle),
    );
    let named = place.node(handle);
    let found = if parent == Handle::NONE {
        if handle == Handle::NONE {
            return refuse(Errno::EINVAL, "Handle cannot be zero");
        }
        named.map(Found::from)
    } else {
        // One that came by itself does not count.
        let attached = attached(place, parent)?.filter(|found| found.handle != Handle::NONE);
        let is_it = attached
            .as_ref()
            .is_some_and(|attached| attached.handle == handle);
        if handle != Handle::NONE && !is_it {
            if attached.is_some() && !has(NLM_F_REPLACE) {
                return refuse(Errno::EEXIST, "NLM_F_REPLACE needed to override");
            }
            if handle.minor() != 0 {
                return refuse(Errno::EINVAL, "Invalid minor handle");
            }
            if named.is_some() {
                let text = "Cannot move an existing qdisc to a different parent";
                return refuse(Errno::EINVAL, text);
            }
            return new(flags);
        }
        let Some(found) = attached else {
            return new(flags);
        };
        if handle == Handle::NONE && kind.is_some_and(|kind| kind != found.spec.kind()) {
            if has(NLM_F_CREATE) && (has(NLM_F_REPLACE) || has(NLM_F_EXCL)) {
                return new(flags);
            }
            if !has(NLM_F_CREATE) && !has(NLM_F_REPLACE) && !has(NLM_F_EXCL) {
                return Ok(Meaning::New);
            }
        }
        Some(found)
    };
    let Some(found) = found else {
        return refuse(Errno::ENOENT, "Specified qdisc not found");
    };
    if has(NLM_F_EXCL) {
        return refuse(Errno::EEXIST, "Exclusivity flag on, cannot modify");
    }
    if kind.is_some_and(|kind| kind != found.spec.kind()) {
        return refuse(Errno::EINVAL, ANOTHER_KIND);
    }
    Ok(Meaning::Change(found))
}

fn new(flags: u16) -> Result<Meaning, Error> {
    if flags & NLM_F_CREATE == 0 {
        let text = "Qdisc not found. To create specify NLM_F_CREATE flag";
        return Err(Error::new(Errno::ENOENT).text(text));
    }
    Ok(Meaning::New)
}

/// The qdisc at a parent.
fn attached(place: &Place<'_>, parent: Handle) -> Result<Option<Found>, Error> {
    if parent == Handle::ROOT {
        return Ok(place.root());
    }
    if parent == INGRESS {
        // Arriving packets have no qdisc here.
        return Ok(None);
    }
    match place.node(parent.qdisc()) {
        Some(above) => place.leaf(above, parent),
        None => Err(Error::new(Errno::ENOENT).text("Failed to find specified qdisc")),
    }
}

/// The qdisc that a deletion, or a request for one, names (`__tc_get_qdisc`).
pub(super) fn named(
    place: &Place<'_>,
    header: &TcMsg,
    kind: Option<&str>,
) -> Result<Found, Error> {
    let missing = |text: &'static str| Error::new(Errno::ENOENT).text(text);
    let (parent, handle) = (
        Handle::from_raw(header.parent),
        Handle::from_raw(header.handle),
    );
    let found = if parent == Handle::NONE {
        let node = place.node(handle);
        node.map(Found::from)
            .ok_or_else(|| missing("Failed to find qdisc with specified handle"))?
    } else {
        let found = if parent == Handle::ROOT {
            match place.root() {
                Some(root) => Some(root),
                // A link that was never up has one of no handle.
                None if handle != Handle::NONE => return Err(Error::invalid("Invalid handle")),
                None if kind.is_some_and(|kind| kind != "noop") => {
                    return Err(Error::invalid(ANOTHER_KIND));
                }
                None => return Err(missing("Cannot delete qdisc with handle of zero")),
            }
        } else if parent.major() == INGRESS.major() && place.node(parent.qdisc()).is_none() {
            None
        } else {
            let above = place.node(parent.qdisc());
            let above =
                above.ok_or_else(|| missing("Failed to find qdisc with specified classid"))?;
            place.leaf(above, parent)?
        };
        let found =
            found.ok_or_else(|| missing("Cannot find specified qdisc on specified device"))?;
        if handle != Handle::NONE && found.handle != handle {
            return Err(Error::invalid("Invalid handle"));
        }
        found
    };
    if kind.is_some_and(|kind| kind != found.spec.kind()) {
        return Err(Error::invalid(ANOTHER_KIND));
    }
    Ok(found)
}
