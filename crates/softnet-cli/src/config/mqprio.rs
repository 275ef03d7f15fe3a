//! tc-mqprio(8): priorities to traffic classes, and those to transmit queues.

use softnet::tx::{QueueMap, TcQueues};

use super::table::{Item, Table};

/// `num_tc`, `map` and `queues`.
pub(super) fn map(table: &Table<'_>) -> Option<QueueMap> {
    let what = "a number of traffic classes from 1 to 16";
    let num_tc: Option<usize> = table.parsed("num_tc", what, |text| {
        text.parse().ok().filter(|n| (1..=16).contains(n))
    });
    if !table.has("num_tc") {
        table.missing::<()>("num_tc", what);
    }
    let what = "one range for each class, like [\"1@0\", \"3@1\"]";
    let queues = list(table, "queues", |item| range(item.as_text()?));
    if !table.has("queues") {
        table.missing::<()>("queues", what);
    }
    let is_good = |ranges: &Vec<_>| num_tc.is_none_or(|num_tc| ranges.len() == num_tc);
    let classes = queues.map(|queues| {
        let classes = queues.filter(is_good);
        classes.or_else(|| table.problem("queues", format!("is not {what}")))
    });
    let class = |item: Item<'_>| {
        let class = u8::try_from(item.as_integer()?).ok()?;
        num_tc
            .is_none_or(|num_tc| usize::from(class) < num_tc)
            .then_some(class)
    };
    let mut prio_tc_map = [0; 16];
    let given = list(table, "map", class).unwrap_or(Some(Vec::new()));
    match given.filter(|given| given.len() <= prio_tc_map.len()) {
        Some(given) => prio_tc_map[..given.len()].copy_from_slice(&given),
        None => {
            let text = "is not a list of at most 16 classes, one for each priority";
            table.problem::<()>("map", text);
        }
    }
    Some(QueueMap {
        prio_tc_map,
        classes: classes.flatten()?,
    })
}

/// A list at a key, if there is one; inside, none if something in it cannot be read.
#[allow(clippy::option_option, reason = "two ways to be absent")]
fn list<T>(
    table: &Table<'_>,
    key: &str,
    read: impl Fn(Item<'_>) -> Option<T>,
) -> Option<Option<Vec<T>>> {
    let item = table.find(key)?;
    match item.as_list() {
        Some(list) => Some(list.into_iter().map(read).collect()),
        None => item.problem(format!("is {}; give a list", item.is())),
    }
}

/// `count@offset`.
pub(super) fn range(text: &str) -> Option<TcQueues> {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let (count, offset) = text.split_once('@')?;
    (digits(count) && digits(offset)).then_some(())?;
    Some(TcQueues {
        count: count.parse().ok()?,
        offset: offset.parse().ok()?,
    })
}
