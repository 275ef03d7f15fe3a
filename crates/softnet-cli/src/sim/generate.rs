//! `--generate KEY=VALUE,…`: a flow in words.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use softnet::time::Time;
use softnet_tc::sim::{Flow, Pattern};

use crate::config::units;

/// Reads a flow.
pub(super) fn flow(text: &str) -> Result<Flow, String> {
    let mut flow = Flow {
        rate: 0,
        size: 1514..=1514,
        start: Time::ZERO,
        duration: 0,
        pattern: Pattern::Constant,
        seed: 1,
        source: (Ipv4Addr::new(10, 0, 0, 1).into(), 10_000),
        destination: (Ipv4Addr::new(10, 0, 0, 2).into(), 9),
        dscp: 0,
        priority: 0,
        mark: 0,
    };
    let mut seen = Vec::new();
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        if seen.contains(&key) {
            return Err(format!("{key} is given twice"));
        }
        seen.push(key);
        let number = |what: &str| format!("{key}: {value:?} is not {what}");
        match key {
            "rate" => flow.rate = units::rate(value).map_err(|error| format!("rate: {error}"))?,
            "for" => {
                flow.duration = units::time(value).map_err(|error| format!("for: {error}"))?
            }
            "start" => {
                flow.start = Time(units::time(value).map_err(|error| format!("start: {error}"))?);
            }
            "size" => {
                flow.size =
                    range(value).ok_or_else(|| number("a length or a range like 64-1500"))?
            }
            "pattern" => {
                flow.pattern =
                    pattern(value).ok_or_else(|| number("constant, poisson or bursts:N"))?;
            }
            "seed" => flow.seed = value.parse().map_err(|_| number("a number"))?,
            "src" => flow.source.0 = value.parse::<IpAddr>().map_err(|_| number("an address"))?,
            "dst" => {
                flow.destination.0 = value.parse::<IpAddr>().map_err(|_| number("an address"))?
            }
            "sport" => flow.source.1 = value.parse().map_err(|_| number("a port"))?,
            "dport" => flow.destination.1 = value.parse().map_err(|_| number("a port"))?,
            "dscp" => flow.dscp = value.parse().map_err(|_| number("a code point"))?,
            "prio" => flow.priority = value.parse().map_err(|_| number("a priority"))?,
            "mark" => flow.mark = value.parse().map_err(|_| number("a mark"))?,
            _ => {
                let keys = "rate, for, size, start, pattern, src, dst, sport, dport, dscp, prio, \
                            mark, seed";
                return Err(format!("{key:?} is unknown; known: {keys}"));
            }
        }
    }
    for key in ["rate", "for"] {
        if !seen.contains(&key) {
            return Err(format!(
                "`{key}` is missing; a flow is written like rate=8mbit,for=10s"
            ));
        }
    }
    // What the flow itself knows better.
    flow.arrivals().map_err(|error| error.to_string())?;
    Ok(flow)
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    Some(least.parse().ok()?..=most.parse().ok()?)
}

fn pattern(text: &str) -> Option<Pattern> {
    match text {
        "constant" => Some(Pattern::Constant),
        "poisson" => Some(Pattern::Poisson),
        _ => text
            .strip_prefix("bursts:")?
            .parse()
            .ok()
            .map(Pattern::Bursts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_in_words() {
        let plain = flow("rate=8mbit,for=10s").expect("a flow");
        assert_eq!((plain.rate, plain.duration), (1_000_000, 10_000_000_000));
        let all = flow(
            "rate=1mbit,for=1s,size=64-1500,start=5ms,pattern=bursts:8,src=fd00::1,dst=fd00::2,\
             sport=1,dport=53,dscp=46,prio=6,mark=7,seed=9",
        )
        .expect("a flow");
        assert_eq!(
            (all.size, all.start, all.pattern),
            (64..=1500, Time(5_000_000), Pattern::Bursts(8))
        );
        assert_eq!(
            (
                all.destination.1,
                all.dscp,
                all.priority,
                all.mark,
                all.seed
            ),
            (53, 46, 6, 7, 9)
        );
        for (text, part) in [
            ("", "not KEY=VALUE"),
            ("rate=1mbit", "`for` is missing"),
            ("for=1s", "`rate` is missing"),
            ("rate=1mbit,for=1s,rate=2mbit", "given twice"),
            ("rate=1furlong,for=1s", "rate: "),
            ("rate=1mbit,for=1s,size=9000", "frames must have"),
            ("rate=1mbit,for=1s,size=9-8", "frames must have"),
            ("rate=1mbit,for=1s,pattern=bursts:0", "at least one"),
            ("rate=1mbit,for=1s,pattern=jazz", "constant, poisson"),
            ("rate=1mbit,for=1s,src=::1", "both be IPv4 or both"),
            ("rate=1mbit,for=1s,colour=red", "known: rate, for"),
        ] {
            let error = flow(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
