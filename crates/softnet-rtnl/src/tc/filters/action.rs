//! A filter's effect on packets: the class that they go to, and its actions.

use softnet_tc::{FilterSpec, Handle};

use crate::nl::{Attrs, Error, Message};
use crate::tc::actions::{self, FilterFlags, Parsed, Read, ShownAt};

/// Effect on packets that match.
#[derive(Clone, Debug, Default)]
pub(super) struct Effect {
    pub(super) class: Option<Handle>,
    pub(super) actions: Vec<Parsed>,
    pub(super) flags: FilterFlags,
}

impl Effect {
    /// From a kind's attributes for both.
    pub(super) fn parse(
        attrs: &Attrs<'_>,
        class: u16,
        (action, police): (u16, Option<u16>),
        flags: FilterFlags,
    ) -> Result<Effect, Error> {
        let class = attrs.u32(class)?.map(Handle::from_raw);
        let read = Read {
            filter: Some(flags),
        };
        let old = police.and_then(|police| attrs.get(police));
        let actions = match (old, attrs.get(action)) {
            (Some(police), _) => Some(vec![actions::parse_police(&police, &read)?]),
            (None, list) => list.map(|list| actions::parse(&list, &read)).transpose()?,
        };
        Ok(Effect {
            class: class.filter(|&class| class != Handle::NONE),
            actions: actions.unwrap_or_default(),
            flags,
        })
    }
}

/// Writes the actions (`tcf_exts_dump`), into the attribute for them or that of an old `police`.
pub(super) fn dump(
    kinds: (u16, Option<u16>),
    spec: &FilterSpec,
    at: &ShownAt,
    out: &mut Message<'_>,
) {
    actions::put_list(kinds, &spec.actions, at, out);
}
