//! Ports: who runs their queues, what they may send, and what is refused.

use softnet::tx::{ServedBy, TxPolicy};
use softnet_engine::forward::PortSecurity;

use super::parse;

fn policy(rest: &str) -> Result<TxPolicy, String> {
    let text = format!("[[port]]\nname = \"a\"\ndriver = \"null\"\n{rest}\n");
    parse("x.toml", &text)
        .map(|config| config.links.ports[0].options.policy.clone())
        .map_err(|error| error.to_string())
}

#[test]
fn a_port_says_who_runs_its_queues() {
    assert_eq!(policy(""), Ok(TxPolicy::default()));
    let worker = policy("served_by = \"worker\"\nburst = 65535").expect("valid");
    assert_eq!(
        (worker.served_by, worker.max_burst),
        (ServedBy::Worker, 65_535)
    );
    let senders = policy("served_by = \"senders\"\nburst = 1").expect("valid");
    assert_eq!(
        (senders.served_by, senders.max_burst),
        (ServedBy::Senders, 1)
    );
}

#[test]
fn a_policy_that_cannot_be_is_refused() {
    for (rest, expected) in [
        (
            "served_by = \"nobody\"",
            "x.toml:4:13: key `port.served_by`: \"nobody\" cannot run a transmit queue; \
             use \"senders\" (the one that finds it idle) or \"worker\" (its worker alone)",
        ),
        (
            "served_by = 1",
            "x.toml:4:13: key `port.served_by`: is the number 1; use a string in quotes",
        ),
        (
            "burst = 0",
            "x.toml:4:9: key `port.burst`: 0 is out of range; use 1 to 65535",
        ),
        (
            "burst = 65536",
            "x.toml:4:9: key `port.burst`: 65536 is out of range; use 1 to 65535",
        ),
        (
            "burst = \"many\"",
            "x.toml:4:9: key `port.burst`: is the string \"many\"; use a whole number",
        ),
    ] {
        assert_eq!(policy(rest), Err(expected.to_owned()));
    }
}

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
fn limits_that_cannot_be_are_refused() {
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
