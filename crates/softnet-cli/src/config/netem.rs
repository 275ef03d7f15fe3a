//! Options of `netem` that no form says: distributions, models of loss, and numbers with a sign.

use softnet_tc::units::percent_text;
use softnet_tc::{Distribution, LossModel, NetemSpec};
use toml::Value;

use super::form::{int, ints};
use super::table::{Item, Table};
use super::units;
use super::write::Writer;

/// The form of a distribution, for messages.
const TABLE: &str = "\"normal\", \"pareto\", \"paretonormal\" or a list of 1 to 16384 numbers from \
                     -32768 to 32767";

/// Reads them, and says what follows from the others: one in one packet may be reordered where
/// nothing else is said, and slots have one length.
pub(super) fn read(table: &Table<'_>, spec: &mut NetemSpec) {
    spec.distribution = distribution(table, "distribution");
    spec.slot_distribution = distribution(table, "slot_distribution");
    if let Some([p13, p31, p32, p23, p14]) = probabilities(table, "loss_state", "five") {
        spec.loss_model = LossModel::State([p13, p31, p32, p14, p23]);
    }
    if let Some([p, r, lost_in_bad, lost_in_good]) = probabilities(table, "loss_gemodel", "four") {
        let received_in_bad = u32::MAX - lost_in_bad;
        spec.loss_model = LossModel::Gemodel([p, r, received_in_bad, lost_in_good]);
    }
    if let (true, Some(item)) = (table.has("loss_state"), table.find("loss_gemodel")) {
        item.problem::<()>("a packet is lost by one model; keep this or loss_state");
    }
    spec.packet_overhead = signed(table, "packet_overhead");
    spec.cell_overhead = signed(table, "cell_overhead");
    spec.seed = table.parsed("seed", "a number from 0 to 18446744073709551615", |text| {
        text.parse().ok()
    });
    if spec.reorder > 0 && !table.has("gap") {
        spec.gap = 1;
    }
    if table.has("gap") && !table.has("reorder") && spec.gap > 0 {
        spec.reorder = u32::MAX;
    }
    if table.has("slot_min") && !table.has("slot_max") {
        spec.slot.max = spec.slot.min;
    }
}

fn distribution(table: &Table<'_>, key: &str) -> Option<Distribution> {
    let item = table.find(key)?;
    let numbers = |list: Vec<Item<'_>>| {
        let numbers = list
            .iter()
            .map(|item| i16::try_from(item.as_integer()?).ok());
        Distribution::new(numbers.collect::<Option<Vec<i16>>>()?)
    };
    let found = match (item.as_text(), item.as_list()) {
        (Some(name), _) => Distribution::named(name),
        (_, Some(list)) => numbers(list),
        _ => None,
    };
    found.or_else(|| item.problem(format!("is not {TABLE}")))
}

fn probabilities<const N: usize>(table: &Table<'_>, key: &str, count: &str) -> Option<[u32; N]> {
    let item = table.find(key)?;
    let read = |item: Item<'_>| item.quantity(units::percent);
    let list = item.list()?;
    if list.len() != N {
        return item.problem(format!(
            "is not a list of {count} probabilities, like \"1%\""
        ));
    }
    let list: Option<Vec<u32>> = list
        .into_iter()
        .map(|item| u32::try_from(read(item)?).ok())
        .collect();
    list?.try_into().ok()
}

fn signed(table: &Table<'_>, key: &str) -> i32 {
    let what = "a number of bytes from -2147483648 to 2147483647";
    let number = table.parsed(key, what, |text| text.parse().ok());
    number.unwrap_or_default()
}

/// Writes them.
pub(super) fn write(w: &mut Writer, spec: &NetemSpec) {
    let of = |table: &Distribution| match table.name() {
        Some(name) => Value::from(name),
        None => ints(table.numbers()),
    };
    if let Some(table) = &spec.distribution {
        w.put("distribution", of(table));
    }
    if let Some(table) = &spec.slot_distribution {
        w.put("slot_distribution", of(table));
    }
    let list = |numbers: &[u32]| {
        let texts = numbers.iter().map(|&n| percent_text(n.into()).into());
        Value::Array(texts.collect())
    };
    match spec.loss_model {
        LossModel::Random => {}
        LossModel::State([p13, p31, p32, p14, p23]) => {
            w.put("loss_state", list(&[p13, p31, p32, p23, p14]));
        }
        LossModel::Gemodel([p, r, received_in_bad, lost_in_good]) => {
            let list = list(&[p, r, u32::MAX - received_in_bad, lost_in_good]);
            w.put("loss_gemodel", list);
        }
    }
    if spec.packet_overhead != 0 {
        w.put("packet_overhead", int(spec.packet_overhead));
    }
    if spec.cell_overhead != 0 {
        w.put("cell_overhead", int(spec.cell_overhead));
    }
    if let Some(seed) = spec.seed {
        // TOML has no number above 2^63.
        let seed = i64::try_from(seed).map_or_else(|_| seed.to_string().into(), Value::Integer);
        w.put("seed", seed);
    }
}
