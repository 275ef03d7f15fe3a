//! VLANs of a bridge or of a port of one (`pvid`, `vlans`, `untagged`), and stations behind ports
//! (`[[fdb]]`), as `bridge vlan` and `bridge fdb` set them.

use std::collections::HashSet;

use softnet_engine::forward::{FdbState, PortVlans, VLAN_IDS, VlanFlags};
use softnet_engine::{BridgeSpec, FdbSpec, PortSpec};
use softnet_io::DeviceSpec;
use toml::{Spanned, Value};

use super::check;
use super::error::Problem;
use super::file::FdbTable;
use super::range::number;

/// VLANs as a file lists them: numbers, and texts like `"30-40"`.
pub(super) type List = Spanned<Vec<Spanned<Value>>>;

const NUMBERS: (i64, i64) = (*VLAN_IDS.start() as i64, *VLAN_IDS.end() as i64);

/// The VLANs of a table, which is a `kind`; none if it says nothing about them. By default the pvid
/// is the one VLAN whose frames leave without a tag.
pub(super) fn vlans(
    kind: &str,
    pvid: Option<&Spanned<i64>>,
    vlans: Option<&List>,
    untagged: Option<&List>,
) -> Result<Option<PortVlans>, Problem> {
    if pvid.is_none() && vlans.is_none() && untagged.is_none() {
        return Ok(None);
    }
    let pvid = pvid.map(|value| number(&format!("{kind}.pvid"), value, NUMBERS));
    let pvid: Option<u16> = pvid.transpose()?;
    let untagged = match untagged {
        Some(untagged) => list(&format!("{kind}.untagged"), untagged)?,
        None => pvid.into_iter().collect(),
    };
    let vlans = vlans.map(|vlans| list(&format!("{kind}.vlans"), vlans));
    let mut set = PortVlans::default();
    let all = vlans.transpose()?.unwrap_or_default();
    for vlan in all.into_iter().chain(untagged.clone()).chain(pvid) {
        let flags = VlanFlags {
            pvid: pvid == Some(vlan),
            untagged: untagged.contains(&vlan),
        };
        set.add(vlan, flags);
    }
    Ok(Some(set))
}

fn list(key: &str, list: &List) -> Result<Vec<u16>, Problem> {
    let vlan = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let vlan = digits.then(|| text.parse().ok()).flatten();
        vlan.filter(|vlan| VLAN_IDS.contains(vlan))
    };
    let mut vlans = Vec::new();
    for value in list.get_ref() {
        let range = match value.get_ref() {
            Value::Integer(number) => vlan(&number.to_string()).map(|vlan| vlan..=vlan),
            Value::String(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let ends = vlan(first).zip(vlan(last));
                ends.map(|(first, last)| first..=last)
            }
            _ => None,
        };
        match range {
            Some(range) if !range.is_empty() => vlans.extend(range),
            _ => {
                let text = format!(
                    "{} is no VLAN; use numbers from 1 to 4094, and ranges like \"30-40\"",
                    value.get_ref()
                );
                return Err(Problem::new(value.span(), key, text));
            }
        }
    }
    Ok(vlans)
}

/// Adds the stations to the ports that they are behind.
pub(super) fn stations(
    tables: &[FdbTable],
    ports: &mut [PortSpec<DeviceSpec>],
    bridges: &[BridgeSpec],
) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    for table in tables {
        let (span, name) = (table.port.span(), table.port.get_ref());
        let problem = |text| Problem::new(span.clone(), "fdb.port", text);
        let port = ports.iter_mut().find(|port| port.settings.name == *name);
        let port = port.ok_or_else(|| {
            problem(format!(
                "there is no port {name:?}; add a [[port]] of that name or correct it"
            ))
        })?;
        let bridge = bridges.iter();
        let mut bridge =
            bridge.filter(|bridge| Some(&bridge.settings.name) == port.master.as_ref());
        let bridge = bridge.next().ok_or_else(|| {
            problem(format!(
                "port {name:?} is in no bridge; list it in one, or remove this"
            ))
        })?;
        let station = station(table)?;
        if let (Some(vlan), Some(value)) = (station.vlan, &table.vlan) {
            let has = match &port.member.vlans {
                Some(vlans) => vlans.contains(vlan),
                None => bridge.options.default_pvid == Some(vlan),
            };
            if !has {
                let text = format!("port {name:?} is not in VLAN {vlan}; add it to its vlans");
                return Err(Problem::new(value.span(), "fdb.vlan", text));
            }
        }
        if !seen.insert((&bridge.settings.name, station.address, station.vlan)) {
            let text = "is there already; a station is at one port of a bridge";
            return Err(Problem::new(table.address.span(), "fdb.address", text));
        }
        port.member.stations.push(station);
    }
    for port in ports {
        let stations = &mut port.member.stations;
        stations.sort_unstable_by_key(|station| (station.vlan, station.address));
    }
    Ok(())
}

fn station(table: &FdbTable) -> Result<FdbSpec, Problem> {
    let vlan = table.vlan.as_ref();
    let vlan = vlan.map(|value| number("fdb.vlan", value, NUMBERS));
    let state = match table
        .state
        .as_ref()
        .map(|state| (state.get_ref().as_str(), state))
    {
        None | Some(("static", _)) => FdbState::Static,
        Some(("permanent", _)) => FdbState::Permanent,
        Some((other, state)) => {
            let text = format!("there is no state {other:?}; use static or permanent");
            return Err(Problem::new(state.span(), "fdb.state", text));
        }
    };
    let sticky = table.sticky.as_ref().filter(|sticky| *sticky.get_ref());
    if let (FdbState::Permanent, Some(sticky)) = (state, sticky) {
        let text = "a permanent entry cannot be sticky; remove one of both";
        return Err(Problem::new(sticky.span(), "fdb.sticky", text));
    }
    Ok(FdbSpec {
        address: check::mac("fdb.address", &table.address)?,
        vlan: vlan.transpose()?,
        state,
        sticky: sticky.is_some(),
    })
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
