//! A port's egress: how its queues are shared out (`num_tc`, `map`, `queues`: tc-mqprio(8)), and
//! actions on what leaves it (`mirror`, `redirect`: tc-mirred(8)).

use std::ops::Range;

use softnet::tx::{MAX_CLASSES, QueueMap, QueueMapError, TcQueues};
use softnet_engine::forward::{MirredDir, MirredMode};
use softnet_engine::{ActionSpec, PortSpec};
use softnet_io::DeviceSpec;
use toml::Spanned;

use super::error::Problem;
use super::file::{MirredTable, PortTable, Queues};
use super::range::{QUEUES_MAX, number};

/// How many queue pairs a port has, and how they are shared out.
pub(super) fn queues(table: &PortTable) -> Result<(usize, QueueMap), Problem> {
    let classes = classes(table)?;
    let queues = match &table.queues {
        None => 1,
        Some(value) => match value.get_ref() {
            Queues::Number(n) => {
                let value = Spanned::new(value.span(), *n);
                number("port.queues", &value, (1, QUEUES_MAX))?
            }
            Queues::Ranges(_) => classes
                .iter()
                .map(|c| usize::from(c.offset) + usize::from(c.count))
                .max()
                .unwrap_or(1),
        },
    };
    let map = QueueMap {
        prio_tc_map: prio_tc_map(table, classes.len())?,
        classes,
    };
    map.check(queues).map_err(|error| misfit(table, &error))?;
    Ok((queues, map))
}

/// A problem of the map as a whole, at the key it comes from.
fn misfit(table: &PortTable, error: &QueueMapError) -> Problem {
    let span = |value: Option<Range<usize>>| value.unwrap_or_else(|| table.name.span());
    let (key, span) = match error {
        QueueMapError::Map { .. } => ("port.map", span(table.map.as_ref().map(Spanned::span))),
        _ => (
            "port.queues",
            span(table.queues.as_ref().map(Spanned::span)),
        ),
    };
    Problem::new(span, key, error.to_string())
}

fn classes(table: &PortTable) -> Result<Vec<TcQueues>, Problem> {
    let ranges = match &table.queues {
        Some(value) => match value.get_ref() {
            Queues::Ranges(ranges) => Some((value.span(), ranges)),
            Queues::Number(_) => None,
        },
        None => None,
    };
    let (num_tc, (span, ranges)) = match (&table.num_tc, ranges) {
        (None, None) => return Ok(Vec::new()),
        (Some(num_tc), None) => {
            let text = "the classes have no queues; add queues, as in queues = [\"1@0\", \"1@1\"]";
            return Err(Problem::new(num_tc.span(), "port.num_tc", text));
        }
        (None, Some((span, ranges))) => {
            let text = format!(
                "ranges are those of traffic classes; add num_tc = {}",
                ranges.len()
            );
            return Err(Problem::new(span, "port.queues", text));
        }
        (Some(num_tc), Some(ranges)) => (num_tc, ranges),
    };
    let classes: usize = number("port.num_tc", num_tc, (1, MAX_CLASSES as i64))?;
    if ranges.len() != classes {
        let text = format!(
            "there are {} ranges for {classes} classes; give each one",
            ranges.len()
        );
        return Err(Problem::new(span, "port.queues", text));
    }
    ranges.iter().map(range).collect()
}

/// `count@offset`.
fn range(value: &Spanned<String>) -> Result<TcQueues, Problem> {
    let text = value.get_ref();
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    text.split_once('@')
        .filter(|(count, offset)| digits(count) && digits(offset))
        .and_then(|(count, offset)| {
            let range = TcQueues {
                count: count.parse().ok()?,
                offset: offset.parse().ok()?,
            };
            let end = i64::from(range.count) + i64::from(range.offset);
            (range.count > 0 && end <= QUEUES_MAX).then_some(range)
        })
        .ok_or_else(|| {
            let text = format!(
                "{text:?} is not a range of queues; write count@offset, as in \"2@1\" for queues \
                 1 and 2 of at most {QUEUES_MAX}"
            );
            Problem::new(value.span(), "port.queues", text)
        })
}

/// The class of each priority; those not given belong to class 0, as in tc.
fn prio_tc_map(table: &PortTable, classes: usize) -> Result<[u8; 16], Problem> {
    let mut map = [0; 16];
    let Some(value) = &table.map else {
        return Ok(map);
    };
    let given = value.get_ref();
    if classes == 0 {
        let text = "there are no traffic classes; add num_tc and queues";
        return Err(Problem::new(value.span(), "port.map", text));
    }
    if given.len() > map.len() {
        let text = format!(
            "there are {} entries; give one for each of 16 priorities",
            given.len()
        );
        return Err(Problem::new(value.span(), "port.map", text));
    }
    for (class, value) in map.iter_mut().zip(given) {
        *class = number("port.map", value, (0, classes as i64 - 1))?;
    }
    Ok(map)
}

/// The actions of one port, mirrors first: nothing comes after a redirect. `ports` are all of the
/// file.
pub(super) fn actions(
    table: &PortTable,
    ports: &[PortSpec<DeviceSpec>],
) -> Result<Vec<ActionSpec>, Problem> {
    let mut actions = Vec::new();
    let mirrors = table.mirror.iter().flat_map(|m| &m.0);
    for mirror in mirrors {
        actions.push(action("port.mirror", MirredMode::Mirror, mirror, ports)?);
    }
    if let Some(redirect) = &table.redirect {
        actions.push(action(
            "port.redirect",
            MirredMode::Redirect,
            redirect,
            ports,
        )?);
    }
    Ok(actions)
}

fn action(
    key: &str,
    mode: MirredMode,
    table: &MirredTable,
    ports: &[PortSpec<DeviceSpec>],
) -> Result<ActionSpec, Problem> {
    let dir = match &table.dir {
        None => MirredDir::Egress,
        Some(dir) => match dir.get_ref().as_str() {
            "egress" => MirredDir::Egress,
            "ingress" => MirredDir::Ingress,
            other => {
                let text = format!("{other:?} is no direction; use egress or ingress");
                return Err(Problem::new(dir.span(), format!("{key}.dir"), text));
            }
        },
    };
    let to = table.to.get_ref().clone();
    if !ports.iter().any(|port| port.settings.name == to) {
        let text = format!("there is no port {to:?}; add a [[port]] of that name or correct it");
        return Err(Problem::new(table.to.span(), format!("{key}.to"), text));
    }
    Ok(ActionSpec { mode, dir, to })
}

#[cfg(test)]
mod tests {
    use softnet_engine::PortOptions;

    use super::super::parse;
    use super::*;

    fn port(rest: &str) -> Result<PortOptions<DeviceSpec>, String> {
        let text = format!("[[port]]\nname = \"a\"\ndriver = \"null\"\n{rest}\n");
        parse("x.toml", &text)
            .map(|config| config.links.ports[0].options.clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn classes_in_the_words_of_tc() {
        let port = port("num_tc = 2\nmap = [0, 0, 1]\nqueues = [\"1@0\", \"3@1\"]");
        let port = port.expect("valid");
        assert_eq!(port.queues, 4);
        let map = &port.map;
        assert_eq!(map.prio_tc_map[..4], [0, 0, 1, 0]);
        let ranges = [(1, 0), (3, 1)].map(|(count, offset)| TcQueues { count, offset });
        assert_eq!(map.classes, ranges);
        assert_eq!(
            self::port("queues = 3").expect("valid").map,
            QueueMap::default()
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let cases = [
            (
                "num_tc = 2",
                "x.toml:4:10: key `port.num_tc`: the classes have no queues; ",
            ),
            (
                "num_tc = 2\nqueues = 4",
                "x.toml:4:10: key `port.num_tc`: the classes have no queues; ",
            ),
            (
                "queues = [\"1@0\"]",
                "x.toml:4:10: key `port.queues`: ranges are those of traffic classes; add num_tc \
                 = 1",
            ),
            (
                "num_tc = 17\nqueues = []",
                "x.toml:4:10: key `port.num_tc`: 17 is out of range; use 1 to 16",
            ),
            (
                "num_tc = 2\nqueues = [\"1@0\"]",
                "x.toml:5:10: key `port.queues`: there are 1 ranges for 2 classes; give each one",
            ),
            (
                "num_tc = 1\nqueues = [\"1\"]",
                "x.toml:5:11: key `port.queues`: \"1\" is not a range of queues; ",
            ),
            (
                "num_tc = 1\nqueues = [\"0@1\"]",
                "x.toml:5:11: key `port.queues`: \"0@1\" is not a range of queues; ",
            ),
            (
                "num_tc = 1\nqueues = [\"200@100\"]",
                "x.toml:5:11: key `port.queues`: \"200@100\" is not a range of queues; ",
            ),
            (
                "num_tc = 1\nqueues = [\"+1@0\"]",
                "x.toml:5:11: key `port.queues`: \"+1@0\" is not a range of queues; ",
            ),
            (
                "num_tc = 2\nqueues = [\"2@0\", \"1@1\"]",
                "x.toml:5:10: key `port.queues`: classes 0 and 1 share queues; ",
            ),
            (
                "num_tc = 1\nqueues = [\"1@0\"]\nmap = [1]",
                "x.toml:6:8: key `port.map`: 1 is out of range; use 0 to 0",
            ),
            (
                "map = [0]",
                "x.toml:4:7: key `port.map`: there are no traffic classes; ",
            ),
            (
                "queues = \"2\"",
                "x.toml:4:10: key `port.queues`: is the string \"2\"; use a number, or a list of \
                 count@offset",
            ),
            (
                "mirror = { to = \"b\" }",
                "x.toml:4:17: key `port.mirror.to`: there is no port \"b\"; ",
            ),
            (
                "redirect = { to = \"a\", dir = \"up\" }",
                "x.toml:4:30: key `port.redirect.dir`: \"up\" is no direction; ",
            ),
            (
                "mirror = { dir = \"egress\" }",
                "x.toml:4:10: key `port.mirror.to`: is missing; add it",
            ),
        ];
        for (rest, expected) in cases {
            let error = port(rest).expect_err(rest);
            assert!(error.starts_with(expected), "{rest}\n{error}");
        }
        let many = format!("num_tc = 1\nqueues = [\"1@0\"]\nmap = {:?}", [0; 17]);
        assert!(
            port(&many)
                .expect_err("17")
                .contains("there are 17 entries")
        );
    }

    #[test]
    fn actions_name_ports_wherever_they_are_in_the_file() {
        let text = "[[port]]\nname = \"a\"\ndriver = \"null\"\nredirect = { to = \"c\", dir = \
                    \"ingress\" }\n\
                    mirror = [{ to = \"b\" }, { to = \"a\", dir = \"egress\" }]\n\
                    [[port]]\nname = \"b\"\ndriver = \"null\"\nmirror = { to = \"a\" }\n\
                    [[port]]\nname = \"c\"\ndriver = \"null\"\n";
        let ports = parse("x.toml", text).expect("valid").links.ports;
        let action = |mode, dir, to: &str| ActionSpec {
            mode,
            dir,
            to: to.into(),
        };
        use MirredDir::{Egress, Ingress};
        use MirredMode::{Mirror, Redirect};
        let a = [
            action(Mirror, Egress, "b"),
            action(Mirror, Egress, "a"),
            action(Redirect, Ingress, "c"),
        ];
        assert_eq!(ports[0].actions, a);
        assert_eq!(ports[1].actions, [action(Mirror, Egress, "a")]);
        assert!(ports[2].actions.is_empty());
    }
}
