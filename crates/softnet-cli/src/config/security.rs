//! What a port may send into its bridge: `allowed_macs`, `allowed_ips`, `max_macs` and `storm`; and
//! what the bridge does at the port: `isolated`, `learning`, … (bridge(8)).

use softnet_engine::MemberSpec;
use softnet_engine::forward::{BridgePortOptions, MAX_MACS, PortSecurity, StormLimits};
use softnet_tc::Prefix;
use toml::Spanned;

use super::error::Problem;
use super::file::PortTable;
use super::range::number;
use super::{check, flower, vlans};

/// A port's limits.
pub(super) fn security(table: &PortTable) -> Result<PortSecurity, Problem> {
    let mut security = PortSecurity::default();
    if let Some(list) = &table.allowed_macs {
        let key = "port.allowed_macs";
        let macs = not_empty(key, list)?.iter();
        let macs = macs.map(|text| check::mac(key, text));
        security.allowed_macs = macs.collect::<Result<_, _>>()?;
    }
    if let Some(list) = &table.allowed_ips {
        let ips = not_empty("port.allowed_ips", list)?.iter();
        security.allowed_ips = ips.map(prefix).collect::<Result<_, _>>()?;
    }
    if let Some(value) = &table.max_macs {
        let max = number("port.max_macs", value, (1, MAX_MACS.into()))?;
        if table.allowed_macs.is_some() {
            let text = "says nothing beside allowed_macs; remove one of both";
            return Err(Problem::new(value.span(), "port.max_macs", text));
        }
        security.max_macs = Some(max);
    }
    if let Some(storm) = &table.storm {
        let limit = |name: &str, value: &Option<Spanned<i64>>| {
            let key = format!("port.storm.{name}");
            let value = value.as_ref();
            value
                .map(|value| number(&key, value, (0, u32::MAX.into())))
                .transpose()
        };
        security.storm = StormLimits {
            broadcast: limit("broadcast", &storm.broadcast)?,
            multicast: limit("multicast", &storm.multicast)?,
            unknown_unicast: limit("unknown_unicast", &storm.unknown_unicast)?,
        };
    }
    Ok(security)
}

type Flag<'a> = (&'static str, &'a Option<Spanned<bool>>, &'a mut bool);

/// The flags of a member of a bridge: key, value, and what they set.
fn flags<'a>(table: &'a PortTable, member: &'a mut BridgePortOptions) -> [Flag<'a>; 7] {
    let BridgePortOptions {
        isolated,
        locked,
        learning,
        flood,
        mcast_flood,
        bcast_flood,
        hairpin,
    } = member;
    [
        ("isolated", &table.isolated, isolated),
        ("locked", &table.locked, locked),
        ("learning", &table.learning, learning),
        ("flood", &table.flood, flood),
        ("mcast_flood", &table.mcast_flood, mcast_flood),
        ("bcast_flood", &table.bcast_flood, bcast_flood),
        ("hairpin", &table.hairpin, hairpin),
    ]
}

/// What a port's bridge does at it.
pub(super) fn member(table: &PortTable) -> Result<MemberSpec, Problem> {
    let mut member = MemberSpec {
        vlans: vlans::vlans(
            "port",
            table.pvid.as_ref(),
            table.vlans.as_ref(),
            table.untagged.as_ref(),
        )?,
        ..MemberSpec::default()
    };
    for (_, value, flag) in flags(table, &mut member.options) {
        *flag = value.as_ref().map_or(*flag, |value| *value.get_ref());
    }
    Ok(member)
}

/// What says something of a member of a bridge alone.
pub(super) fn check_alone(table: &PortTable) -> Result<(), Problem> {
    let mut default = BridgePortOptions::default();
    let flags = flags(table, &mut default).into_iter();
    let changed = flags.filter_map(|(key, value, default)| {
        let value = value.as_ref().filter(|value| value.get_ref() != default);
        Some((key, value?.span()))
    });
    let vlans = [
        ("pvid", table.pvid.as_ref().map(Spanned::span)),
        ("vlans", table.vlans.as_ref().map(Spanned::span)),
        ("untagged", table.untagged.as_ref().map(Spanned::span)),
    ];
    let vlans = vlans
        .into_iter()
        .filter_map(|(key, span)| Some((key, span?)));
    changed.chain(vlans).next().map_or(Ok(()), |(key, span)| {
        let text = "the port is in no bridge; list it in one, or remove this";
        Err(Problem::new(span, format!("port.{key}"), text))
    })
}

fn not_empty<'a, T>(key: &str, list: &'a Spanned<Vec<T>>) -> Result<&'a [T], Problem> {
    let values = list.get_ref();
    if values.is_empty() {
        let text = "is empty, so that nothing could be sent; remove it to allow all";
        return Err(Problem::new(list.span(), key, text));
    }
    Ok(values)
}

/// An address, or a network: no address with the length of its network's prefix.
fn prefix(value: &Spanned<String>) -> Result<Prefix, Problem> {
    let text = value.get_ref();
    let problem = |text| Problem::new(value.span(), "port.allowed_ips", text);
    let prefix = flower::prefix(text).ok_or_else(|| {
        problem(format!(
            "{text:?} is no IP address or prefix; write it like \"10.9.0.1\", \"10.9.0.0/24\" or \
             \"fd00::/64\""
        ))
    })?;
    let (network, address) = (prefix.network(), prefix.address());
    if network != address {
        let bits = prefix.bits();
        return Err(problem(format!(
            "{text:?} is an address within a network; write \"{address}\" for the address or \
             \"{network}/{bits}\" for the network"
        )));
    }
    Ok(prefix)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn security(rest: &str) -> Result<PortSecurity, String> {
        let text = format!("[[port]]\nname = \"a\"\ndriver = \"null\"\n{rest}\n");
        parse("x.toml", &text)
            .map(|config| config.links.ports[0].options.security.clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_port_says_what_it_may_send() {
        assert_eq!(security(""), Ok(PortSecurity::default()));
        let all = security(
            "allowed_macs = [\"02:00:00:00:00:01\"]\n\
             allowed_ips = [\"10.0.0.5\", \"10.1.0.0/16\", \"fd00::5\", \"::/0\"]\n\
             storm = { broadcast = 0, multicast = 4294967295 }",
        )
        .expect("valid");
        assert_eq!(all.allowed_macs.len(), 1);
        let ips: Vec<_> = all.allowed_ips.iter().map(ToString::to_string).collect();
        assert_eq!(ips, ["10.0.0.5/32", "10.1.0.0/16", "fd00::5/128", "::/0"]);
        assert_eq!(
            (
                all.storm.broadcast,
                all.storm.multicast,
                all.storm.unknown_unicast
            ),
            (Some(0), Some(u32::MAX), None)
        );
        assert_eq!(
            security("max_macs = 256").expect("valid").max_macs,
            Some(256)
        );
    }

    #[test]
    fn members_of_bridges_are_isolated_and_locked() {
        let text = "[[port]]\nname = \"a\"\ndriver = \"null\"\nisolated = true\nlocked = true\n\
                    [[bridge]]\nname = \"br0\"\nports = [\"a\"]\n";
        let config = parse("x.toml", text).expect("valid");
        let member = config.links.ports[0].member.options;
        assert!(member.isolated && member.locked);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (rest, expected) in [
            (
                "locked = true",
                "x.toml:4:10: key `port.locked`: the port is in no bridge; list it in one, or \
                 remove this",
            ),
            (
                "allowed_macs = [\"02:00:00:00:00:01\", \"x\"]",
                "x.toml:4:38: key `port.allowed_macs`: \"x\" is not an Ethernet address; write it \
                 like \"02:00:00:00:00:01\"",
            ),
            (
                "allowed_ips = []",
                "x.toml:4:15: key `port.allowed_ips`: is empty, so that nothing could be sent; \
                 remove it to allow all",
            ),
            (
                "allowed_ips = [\"10.0.0.5/24\"]",
                "x.toml:4:16: key `port.allowed_ips`: \"10.0.0.5/24\" is an address within a \
                 network; write \"10.0.0.5\" for the address or \"10.0.0.0/24\" for the network",
            ),
            (
                "allowed_ips = [\"fd00::5/64\"]",
                "x.toml:4:16: key `port.allowed_ips`: \"fd00::5/64\" is an address within a \
                 network; write \"fd00::5\" for the address or \"fd00::/64\" for the network",
            ),
            (
                "allowed_ips = [\"10.0.0.0/33\"]",
                "x.toml:4:16: key `port.allowed_ips`: \"10.0.0.0/33\" is no IP address or prefix; \
                 write it like \"10.9.0.1\", \"10.9.0.0/24\" or \"fd00::/64\"",
            ),
            (
                "allowed_macs = [\"02:00:00:00:00:01\"]\nmax_macs = 1",
                "x.toml:5:12: key `port.max_macs`: says nothing beside allowed_macs; remove one \
                 of both",
            ),
            (
                "max_macs = 257",
                "x.toml:4:12: key `port.max_macs`: 257 is out of range; use 1 to 256",
            ),
            (
                "storm = { broadcast = -1 }",
                "x.toml:4:23: key `port.storm.broadcast`: -1 is out of range; use 0 to 4294967295",
            ),
        ] {
            assert_eq!(security(rest), Err(expected.to_owned()));
        }
    }
}
