//! tc-mqprio(8): priorities to traffic classes, and those to transmit queues.

use softnet::tx::{QueueMap, TcQueues};
use toml::Value;

use super::error::Problem;
use super::options::Options;

/// `num_tc`, `map` and `queues`.
pub(super) fn map(options: &Options<'_>) -> Result<QueueMap, Problem> {
    let what = "a number of traffic classes from 1 to 16";
    let num_tc = options.parsed("num_tc", what, |text| {
        text.parse().ok().filter(|n| (1..=16).contains(n))
    })?;
    let num_tc: usize = num_tc.ok_or_else(|| options.missing("num_tc", what))?;
    let what = "one range for each class, like [\"1@0\", \"3@1\"]";
    let queues = list(options, "queues", |value| range(value.as_str()?))?;
    let classes = queues.ok_or_else(|| options.missing("queues", what))?;
    let classes = classes.filter(|classes: &Vec<TcQueues>| classes.len() == num_tc);
    let Some(classes) = classes else {
        let text = format!("is not {what}");
        return Err(options.problem("queues", options.span_of("queues"), text));
    };
    let class = |value: &Value| {
        let class = u8::try_from(value.as_integer()?).ok()?;
        (usize::from(class) < num_tc).then_some(class)
    };
    let mut prio_tc_map = [0; 16];
    let given = list(options, "map", class)?.unwrap_or_else(|| Some(Vec::new()));
    let Some(given) = given.filter(|given| given.len() <= prio_tc_map.len()) else {
        let text = "is not a list of at most 16 classes, one for each priority";
        return Err(options.problem("map", options.span_of("map"), text));
    };
    prio_tc_map
        .iter_mut()
        .zip(given)
        .for_each(|(class, given)| *class = given);
    Ok(QueueMap {
        prio_tc_map,
        classes,
    })
}

/// A list at a key, if there is one; inside, none if something in it cannot be read.
#[allow(clippy::type_complexity, reason = "two ways to be absent")]
fn list<T>(
    options: &Options<'_>,
    key: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<Option<Vec<T>>>, Problem> {
    let Some((_, value)) = options.find(key) else {
        return Ok(None);
    };
    match value.get_ref() {
        Value::Array(values) => Ok(Some(values.iter().map(read).collect())),
        other => {
            let text = format!("is {}; give a list", other.type_str());
            Err(options.problem(key, value.span(), text))
        }
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
