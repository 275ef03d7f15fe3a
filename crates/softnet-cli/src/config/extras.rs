//! Tables that a qdisc or class of any kind may have: `stab` (tc-stab(8)) and `estimator` (tc(8)).

use std::time::Duration;

use softnet_tc::{EstimatorSpec, Handle, SizeOptions, SizeTable, TreeSpec};

use super::table::Table;
use super::units;

/// Gives a qdisc that is in the tree what its table says.
pub(super) fn of_qdisc(tree: &mut TreeSpec, handle: Handle, table: &Table<'_>) {
    if let Some(stab) = nested(table, "stab").and_then(|table| size_table(&table))
        && let Err(error) = tree.set_stab(handle, Some(stab))
    {
        table.problem::<()>("stab", error.to_string());
    }
    estimator(tree, handle, table);
}

/// Lets the rate of a qdisc or class that is in the tree be estimated, if its table says so.
pub(super) fn estimator(tree: &mut TreeSpec, name: Handle, table: &Table<'_>) {
    if let Some(spec) = nested(table, "estimator").and_then(|table| estimator_spec(&table))
        && let Err(error) = tree.set_estimator(name, spec)
    {
        table.problem::<()>("estimator", error.to_string());
    }
}

/// The table at a key.
fn nested<'t>(table: &'t Table<'_>, key: &'t str) -> Option<Table<'t>> {
    let item = table.find(key)?;
    let table = item.as_table();
    table.or_else(|| item.problem(format!("is {}; give a table", item.is())))
}

fn size_table(table: &Table<'_>) -> Option<SizeTable> {
    let before = table.source.errors();
    let keys = ["mtu", "tsize", "mpu", "overhead", "linklayer"];
    table.only(&[], "stab", &keys);
    let number = |key| table.parsed(key, "a number from 0 to 4294967295", |t| t.parse().ok());
    let overhead = table.parsed("overhead", "a number of bytes, perhaps negative", |text| {
        text.parse().ok()
    });
    let options = SizeOptions {
        mtu: number("mtu").unwrap_or_default(),
        tsize: number("tsize").unwrap_or_default(),
        mpu: number("mpu").unwrap_or_default(),
        overhead: overhead.unwrap_or_default(),
        linklayer: table.linklayer(),
    };
    if table.source.errors() > before {
        return None;
    }
    let made = SizeTable::new(&options);
    made.map_or_else(|error| table.problem("tsize", error.to_string()), Some)
}

fn estimator_spec(table: &Table<'_>) -> Option<EstimatorSpec> {
    table.only(&[], "estimator", &["interval", "average"]);
    let time = |key, what| table.required(key, units::time, what);
    let interval = time("interval", "the time between samples, like \"1s\"");
    let average = time("average", "the average's time constant, like \"8s\"");
    let [interval, average] = [interval?, average?].map(Duration::from_nanos);
    let made = EstimatorSpec::from_times(interval, average);
    made.map_or_else(|error| table.problem("average", error.to_string()), Some)
}

#[cfg(test)]
mod tests {
    use super::super::parse_tree;
    use softnet_tc::{EstimatorSpec, QdiscSpec, TreeSpec};

    fn read(text: &str) -> Result<TreeSpec, String> {
        match parse_tree("x.toml", text) {
            Ok(QdiscSpec::Tree(tree)) => Ok(tree),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    const ONE: &str =
        r#"qdisc = { kind = "pfifo", stab = { overhead = -4, linklayer = "adsl" } }"#;

    const HTB: &str = r#"
[[qdisc]]
handle = "1:"
kind = "htb"
estimator = { interval = "250ms", average = "1s" }

[qdisc.stab]
mpu = 64

[[class]]
classid = "1:10"
rate = "10mbit"
estimator = { interval = "1s", average = "8s" }

[[qdisc]]
parent = "1:10"
kind = "pfifo"
"#;

    #[test]
    fn size_tables_and_estimators() {
        let tree = read(ONE).expect("valid");
        let stab = tree.root().and_then(|root| root.stab.clone());
        let stab = stab.expect("a size table");
        assert_eq!((stab.spec().overhead, stab.spec().tsize), (-4, 512));
        assert_eq!([52, 53].map(|len| stab.size(len)), [53, 106]);
        let tree = read(HTB).expect("valid");
        let estimator = |name: &str| tree.estimator(name.parse().expect("a name"));
        assert_eq!(estimator("1:"), EstimatorSpec::new(-2, 2).ok());
        assert_eq!(estimator("1:10"), EstimatorSpec::new(0, 3).ok());
        assert_eq!(estimator("8001:"), None);
        let root = tree.root().expect("a root");
        assert_eq!(root.stab.as_ref().map(|stab| stab.size(1)), Some(64));
        let port = format!("[[port]]\nname = \"p\"\ndriver = \"null\"\n{ONE}");
        let config = super::super::parse("x.toml", &port).expect("valid");
        assert!(
            matches!(&config.links.ports[0].qdisc, QdiscSpec::Tree(tree) if tree.root().is_some())
        );
    }

    #[test]
    fn problems_name_the_key() {
        for (from, to, problem) in [
            (
                "mpu = 64",
                "mpu = 0",
                "7:1: key `qdisc.stab.tsize`: a size table needs one of",
            ),
            (
                "mpu = 64",
                "mpu = \"x\"",
                "key `qdisc.stab.mpu`: \"x\" is not a number from 0",
            ),
            (
                "mpu = 64",
                "mpus = 64",
                "key `qdisc.stab.mpus`: is not an option of stab; did you mean `mpu`? its",
            ),
            (
                "kind = \"pfifo\"",
                "kind = \"pfifo\"\nstab = { mpu = 64 }",
                "18:8: key `qdisc.stab`: STAB not supported on a non root",
            ),
            (
                "\"250ms\"",
                "\"9s\"",
                "5:42: key `qdisc.estimator.average`: an estimator's interval",
            ),
            (
                ", average = \"8s\"",
                "",
                "13:13: key `class.estimator.average`: is missing; add the",
            ),
            (
                "kind = \"htb\"",
                "kind = \"mq\"",
                "5:13: key `qdisc.estimator`: Cannot attach rate estimator to a multi-queue root",
            ),
        ] {
            assert!(HTB.contains(from), "{from}");
            let said = read(&HTB.replacen(from, to, 1)).expect_err(to);
            assert!(said.contains(problem), "{to}: {said}");
        }
    }
}
