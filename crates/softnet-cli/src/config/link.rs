//! Keys that ports and bridges have in common: names, and what `ip link set` changes.

use std::collections::HashMap;

use softnet_engine::{ALIAS_MAX, Settings};
use softnet_tc::Unset::Value;

use super::form::{Flag, Number, Text};
use super::key::{self, Key, keys};
use super::table::{Item, Table};

pub(super) static LINK: &[Key<Settings>] = keys! { Settings =>
    /// packets that a queue holds where its qdisc says nothing else
    "txqueuelen": Value, "-1"
        => Number(0, u32::MAX as i64), |s| Some(&mut s.tx_queue_len);
    /// a text for people, at most 255 bytes
    "alias": Value, "\"a\\u0000\""
        => Text(alias, |text| Some(text.clone())), |s| Some(&mut s.alias);
    /// number of the group of links that it belongs to
    "group": Value, "-1"
        => Number(0, u32::MAX as i64), |s| Some(&mut s.group);
    /// whether it is taken up; the TAP device of a port that is down has no carrier
    "up": Value, "1"
        => Flag, |s| Some(&mut s.up);
};

fn alias(text: &str) -> Result<String, String> {
    if text.len() > ALIAS_MAX || text.contains('\0') {
        return Err(format!("is no alias; use at most {ALIAS_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// Reads the keys, and the name.
pub(super) fn read<'a>(
    table: &'a Table<'_>,
    kind: &'static str,
    names: &mut Names<'a>,
    settings: &mut Settings,
) {
    key::read(LINK, table, settings, None);
    if let Some(item) = table.find("name")
        && let Some(name) = item.text()
    {
        // A name that is no good is not kept: members would have copies of it, however long.
        if names.add(kind, item, name) {
            settings.name = name.to_owned();
        }
    }
}

/// Ports by name.
pub(super) type Named<'a> = HashMap<&'a str, usize>;

/// Names in use. Ports and bridges share one space of names, as interfaces do in Linux.
#[derive(Default)]
pub(super) struct Names<'a>(HashMap<&'a str, (&'static str, Item<'a>)>);

impl<'a> Names<'a> {
    /// Returns whether it is a name that a link can have.
    fn add(&mut self, kind: &'static str, item: Item<'a>, name: &'a str) -> bool {
        let why = Settings::wrong_name(name);
        if let Some(why) = why {
            let text = format!("{name:?} {why}; choose a valid interface name");
            item.problem::<()>(text);
        }
        match self.0.get(name) {
            Some((first, at)) => {
                let line = at.line();
                let text = format!(
                    "{name:?} is the name of the {first} in line {line} already; choose another"
                );
                item.problem::<()>(text);
            }
            None => drop(self.0.insert(name, (kind, item))),
        }
        why.is_none()
    }
}
