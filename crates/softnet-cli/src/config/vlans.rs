//! VLANs of a bridge or of a port of one (`pvid`, `vlans`, `untagged`), as `bridge vlan` sets them.

use softnet_engine::forward::{PortVlans, VLAN_IDS, VlanFlags};
use softnet_tc::Unset::Words;
use toml::Value;

use super::form::{Form, Number, int};
use super::key::{Key, keys};
use super::table::{Item, Table};
use super::write::Writer;

pub(super) static VLANS: &[Key<PortVlans>] = keys! { PortVlans =>
    /// the VLAN of frames that arrive without a tag, 1 to 4094 (bridge(8), `bridge vlan`)
    "pvid": Words("the bridge's `vlan_default_pvid`, untagged, if neither this nor `vlans` nor
        `untagged` is given; else none"), "0";
    /// list of VLANs that pass, besides `pvid` and `untagged`: numbers, and ranges like `"30-40"`
    "vlans": Words("none"), "[\"x\"]";
    /// list of VLANs whose frames leave without a tag
    "untagged": Words("the `pvid`"), "[4095]";
};

/// A VLAN.
pub(super) const VLAN: Number = Number(*VLAN_IDS.start() as i64, *VLAN_IDS.end() as i64);

/// The VLANs of a table; none if it says nothing about them. By default the pvid is the one VLAN
/// whose frames leave without a tag.
pub(super) fn read(table: &Table<'_>) -> Option<PortVlans> {
    if !VLANS.iter().any(|key| table.has(key.name)) {
        return None;
    }
    let pvid = table.find("pvid").and_then(|item| VLAN.read(item));
    let untagged = match table.find("untagged") {
        Some(untagged) => list(untagged),
        None => pvid.into_iter().collect(),
    };
    let vlans = table.find("vlans").map(list).unwrap_or_default();
    let mut set = PortVlans::default();
    for vlan in vlans.into_iter().chain(untagged.clone()).chain(pvid) {
        let flags = VlanFlags {
            pvid: pvid == Some(vlan),
            untagged: untagged.contains(&vlan),
        };
        set.add(vlan, flags);
    }
    Some(set)
}

fn list(list: Item<'_>) -> Vec<u16> {
    let vlan = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let vlan = digits.then(|| text.parse().ok()).flatten();
        vlan.filter(|vlan| VLAN_IDS.contains(vlan))
    };
    let mut vlans = [false; *VLAN_IDS.end() as usize + 1];
    for item in list.list().into_iter().flatten() {
        let number = item.as_integer().map(|number| number.to_string());
        let range = number.as_deref().or(item.as_text()).and_then(|text| {
            let ends = text.split_once('-').filter(|_| number.is_none());
            let (first, last) = ends.unwrap_or((text, text));
            vlan(first).zip(vlan(last))
        });
        match range {
            Some((first, last)) if first <= last => {
                vlans[usize::from(first)..=usize::from(last)].fill(true);
            }
            _ => drop(item.problem::<()>(format!(
                "{} is no VLAN; use numbers from 1 to 4094, and ranges like \"30-40\"",
                item.written()
            ))),
        }
    }
    VLAN_IDS.filter(|&vlan| vlans[usize::from(vlan)]).collect()
}

pub(super) fn write(w: &mut Writer, vlans: Option<&PortVlans>) {
    let Some(vlans) = vlans else {
        return;
    };
    let pvid = vlans.pvid();
    if let Some(pvid) = pvid {
        w.put("pvid", int(pvid));
    }
    let numbers = |of: &dyn Fn(u16) -> bool| {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (vlan, _) in vlans.iter().filter(|&(vlan, _)| of(vlan)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == vlan => *last = vlan,
                _ => ranges.push((vlan, vlan)),
            }
        }
        let value = |&(first, last): &(u16, u16)| match first == last {
            true => int(first),
            false => format!("{first}-{last}").into(),
        };
        Value::Array(ranges.iter().map(value).collect())
    };
    w.put("vlans", numbers(&|vlan| Some(vlan) != pvid));
    let is_default = |(vlan, flags): (u16, VlanFlags)| flags.untagged == (pvid == Some(vlan));
    if !vlans.iter().all(is_default) {
        w.put("untagged", numbers(&|vlan| vlans.is_untagged(vlan)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, write};

    const PORTS: &str = "[[port]]\nname = \"a\"\ndriver = \"null\"\n[[bridge]]\nname = \"br0\"\n\
                         ports = [\"a\"]\n";

    fn error(text: &str) -> String {
        let error = parse("x.toml", text).expect_err(text).to_string();
        error.split_once(": ").expect("a place").1.to_owned()
    }

    #[test]
    fn vlans_are_numbers_and_ranges() {
        for (keys, written) in [
            ("pvid = 20", "pvid = 20\nvlans = []\n"),
            (
                "pvid = 20\nuntagged = []",
                "pvid = 20\nvlans = []\nuntagged = []\n",
            ),
            (
                "vlans = [7, \"30-32\", 33]\nuntagged = [\"31-33\", 9]",
                "vlans = [7, 9, \"30-33\"]\nuntagged = [9, \"31-33\"]\n",
            ),
            ("vlans = []", "vlans = []\n"),
        ] {
            let text = PORTS.replacen("\"null\"\n", &format!("\"null\"\n{keys}\n"), 1);
            let config = parse("x.toml", &text).expect(&text);
            let text = write(&config);
            assert!(
                text.contains(&format!("\n{written}")),
                "{written} in\n{text}"
            );
            assert_eq!(parse("x.toml", &text).expect(&text).links, config.links);
        }
    }

    #[test]
    fn stations_are_behind_members_in_vlans_that_they_have() {
        let fdb = "[[fdb]]\naddress = \"02:00:00:00:00:07\"\nport = \"a\"\n";
        let text = PORTS.to_owned() + fdb;
        let config = parse("x.toml", &text).expect(&text);
        assert_eq!(config.links.ports[0].member.stations.len(), 1);
        let alone = PORTS.replace("ports = [\"a\"]\n", "") + fdb;
        for (text, said) in [
            (
                alone,
                "key `fdb.port`: port \"a\" is in no bridge; list it in one, or remove this",
            ),
            (
                text.clone() + "vlan = 2\n",
                "key `fdb.vlan`: port \"a\" is not in VLAN 2; add it to its vlans",
            ),
            (
                text.clone() + fdb,
                "key `fdb.address`: is there already; a station is at one port of a bridge",
            ),
            (
                text.clone() + "state = \"permanent\"\nsticky = true\n",
                "key `fdb.sticky`: a permanent entry cannot be sticky; remove one of both",
            ),
        ] {
            assert_eq!(error(&text), said);
        }
        parse("x.toml", &(text + "vlan = 1\n")).expect("the default pvid");
    }
}
