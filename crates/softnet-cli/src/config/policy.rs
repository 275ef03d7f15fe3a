//! Who runs a port's transmit queues (`served_by`), and how many packets may wait for it
//! (`burst`).

use softnet::tx::{ServedBy, TxPolicy};

use super::error::Problem;
use super::file::PortTable;
use super::range::number;

/// The list on which packets wait counts to 65,535.
const BURST_MAX: i64 = u16::MAX as i64;

/// A port's policy.
pub(super) fn policy(table: &PortTable) -> Result<TxPolicy, Problem> {
    let mut policy = TxPolicy::default();
    if let Some(value) = &table.served_by {
        policy.served_by = match value.get_ref().as_str() {
            "senders" => ServedBy::Senders,
            "worker" => ServedBy::Worker,
            unknown => {
                let text = format!(
                    "{unknown:?} cannot run a transmit queue; use \"senders\" (the one that finds \
                     it idle) \
                     or \"worker\" (its worker alone)"
                );
                return Err(Problem::new(value.span(), "port.served_by", text));
            }
        };
    }
    if let Some(value) = &table.burst {
        policy.max_burst = number("port.burst", value, (1, BURST_MAX))?;
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

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
    fn what_cannot_be_is_named() {
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
}
