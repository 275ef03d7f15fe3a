//! A port's egress: how its queues are shared out (`num_tc`, `map`, `queues`: tc-mqprio(8)), and
//! actions on what leaves it (`mirror`, `redirect`: tc-mirred(8)).

use softnet::tx::{MAX_CLASSES, QueueMap, TcQueues};
use softnet_engine::ActionSpec;
use softnet_engine::forward::{MirredDir, MirredMode};
use softnet_tc::Unset::{Required, Value};
use softnet_tc::{QueueMapError, check_queue_map};

use super::form::{Word, int, ints};
use super::key::{self, Key, keys, names};
use super::mqprio;
use super::table::{Item, Table};
use super::write::Writer;

/// The kernel's own limit (`MAX_TAP_QUEUES`).
const QUEUES_MAX: i64 = 256;

pub(super) static MIRRED: &[Key<MirredDir>] = keys! { MirredDir =>
    /// name of a port
    "to": Required("it", "\"p\""), "\"x\"";
    /// `"egress"` sends from that port, `"ingress"` acts as if that port had received it
    "dir": Value, "\"up\""
        => Word(
            &[("egress", MirredDir::Egress), ("ingress", MirredDir::Ingress)],
            |other| format!("{other:?} is no direction; use egress or ingress"),
        ),
        |dir| Some(dir);
};

/// Number of a port's queue pairs, and how they are shared out; none if that is wrong.
pub(super) fn queues(table: &Table<'_>) -> Option<(usize, QueueMap)> {
    let before = table.source.errors();
    let item = table.find("queues");
    let (number, ranges) = match item.map(|item| (item, item.as_integer(), item.as_list())) {
        None => (Some(1), None),
        Some((item, _, Some(ranges))) => (None, Some((item, ranges))),
        Some((item, Some(_), _)) => (item.number(1, QUEUES_MAX), None),
        Some((item, ..)) => return item.wrong_type("a number, or a list of count@offset"),
    };
    let classes = classes(table, ranges)?;
    let prio_tc_map = prio_tc_map(table, classes.len());
    if table.source.errors() > before {
        return None;
    }
    let last = classes.iter().map(|class| class.offset + class.count);
    let queues = number.unwrap_or_else(|| last.max().map_or(1, usize::from));
    let map = QueueMap {
        prio_tc_map,
        classes,
    };
    match check_queue_map(&map, queues) {
        Ok(()) => Some((queues, map)),
        Err(error) => {
            let key = match error {
                QueueMapError::Map { .. } => "map",
                _ => "queues",
            };
            table.problem(key, error.to_string())
        }
    }
}

fn classes(table: &Table<'_>, ranges: Option<(Item<'_>, Vec<Item<'_>>)>) -> Option<Vec<TcQueues>> {
    let (num_tc, (list, ranges)) = match (table.find("num_tc"), ranges) {
        (None, None) => return Some(Vec::new()),
        (Some(num_tc), None) => {
            let text = "the classes have no queues; add queues, as in queues = [\"1@0\", \"1@1\"]";
            return num_tc.problem(text);
        }
        (None, Some((list, ranges))) => {
            let n = ranges.len();
            let text = format!("ranges are those of traffic classes; add num_tc = {n}");
            return list.problem(text);
        }
        (Some(num_tc), Some(ranges)) => (num_tc, ranges),
    };
    let classes = num_tc.number::<usize>(1, MAX_CLASSES as i64);
    let n = ranges.len();
    if let Some(classes) = classes.filter(|&classes| classes != n) {
        let text = format!("there are {n} ranges for {classes} classes; give each one");
        list.problem::<()>(text);
    }
    let ranges: Vec<Option<TcQueues>> = ranges.into_iter().map(range).collect();
    ranges.into_iter().collect()
}

/// `count@offset`.
fn range(item: Item<'_>) -> Option<TcQueues> {
    let text = item.text()?;
    let fits = |range: &TcQueues| {
        let end = i64::from(range.count) + i64::from(range.offset);
        range.count > 0 && end <= QUEUES_MAX
    };
    mqprio::range(text).filter(fits).or_else(|| {
        item.problem(format!(
            "{text:?} is not a range of queues; write count@offset, as in \"2@1\" for queues 1 \
             and 2 of at most {QUEUES_MAX}"
        ))
    })
}

/// The class of each priority; those not given belong to class 0, as in tc.
fn prio_tc_map(table: &Table<'_>, classes: usize) -> [u8; 16] {
    let mut map = [0; 16];
    let item = table.find("map");
    let Some((item, given)) = item.and_then(|item| Some((item, item.list()?))) else {
        return map;
    };
    if classes == 0 {
        item.problem::<()>("there are no traffic classes; add num_tc and queues");
        return map;
    }
    if given.len() > map.len() {
        let n = given.len();
        let text = format!("there are {n} entries; give one for each of 16 priorities");
        item.problem::<()>(text);
    }
    for (class, value) in map.iter_mut().zip(given) {
        *class = value.number(0, classes as i64 - 1).unwrap_or(0);
    }
    map
}

pub(super) fn write_queues(w: &mut Writer, queues: usize, map: &QueueMap) {
    if map.classes.is_empty() {
        if queues != 1 {
            w.put("queues", int(queues));
        }
        return;
    }
    write_classes(w, map);
    let classes = map.classes.iter();
    let last = classes.map(|class| usize::from(class.offset + class.count));
    if last.max() != Some(queues) {
        w.remarks.push(format!(
            "{queues} queues, of which the last belong to no class"
        ));
    }
}

/// `num_tc`, `map` and `queues`, as of a port or of `mqprio`.
pub(super) fn write_classes(w: &mut Writer, map: &QueueMap) {
    w.put("num_tc", int(map.classes.len()));
    w.put("map", ints(&map.prio_tc_map));
    let range = |class: &TcQueues| format!("{}@{}", class.count, class.offset);
    w.put("queues", map.classes.iter().map(range).collect::<Vec<_>>());
}

/// The actions of one port, mirrors first: nothing comes after a redirect. `is_port` knows the
/// names of all ports.
pub(super) fn actions(table: &Table<'_>, is_port: &dyn Fn(&str) -> bool) -> Vec<ActionSpec> {
    let mirrors = table.find("mirror");
    let mirrors = mirrors.map(|item| item.one_or_more("a table or a list of tables"));
    let redirect = table.find("redirect");
    let redirect = redirect.and_then(|item| item.table("a table"));
    let mirrors = mirrors.into_iter().flatten();
    let tables = mirrors.map(|table| (MirredMode::Mirror, table));
    let tables = tables.chain(redirect.map(|table| (MirredMode::Redirect, table)));
    let action = |(mode, table): (MirredMode, Table<'_>)| {
        table.known(&names(MIRRED).collect::<Vec<_>>(), |_| "");
        let mut dir = MirredDir::Egress;
        key::read(MIRRED, &table, &mut dir, None);
        let to = table.find("to")?.port(is_port)?.to_owned();
        Some(ActionSpec { mode, dir, to })
    };
    tables.filter_map(action).collect()
}

pub(super) fn write_actions(w: &mut Writer, actions: &[ActionSpec]) {
    let of = |mode| {
        let actions = actions.iter().filter(move |action| action.mode == mode);
        actions.map(|action| {
            let to = ("to".to_owned(), action.to.as_str().into());
            let dir = key::values(MIRRED, &action.dir, None);
            toml::Value::Table(std::iter::once(to).chain(dir).collect())
        })
    };
    let mirrors: Vec<toml::Value> = of(MirredMode::Mirror).collect();
    if !mirrors.is_empty() {
        w.put("mirror", mirrors);
    }
    if let Some(redirect) = of(MirredMode::Redirect).next() {
        w.put("redirect", redirect);
    }
}

#[cfg(test)]
mod tests {
    use softnet_engine::PortOptions;
    use softnet_io::DeviceSpec;

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
