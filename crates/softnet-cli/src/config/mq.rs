//! `kind = "mq"` and the tables below it: what each transmit queue has. A queue's class is its
//! number plus 1, as in tc: `parent = "1:2"` is queue 1.

use softnet_tc::{Handle, QdiscSpec, TreeSpec};
use toml::Spanned;

use super::check::QUEUES_MAX;
use super::error::Problem;
use super::file::OptionTable;
use super::options::Options;
use super::{qdisc, tree};

/// Reads `mq` at the root of a list of tables, and the qdiscs and filters below it.
pub(super) fn spec(
    prefix: &str,
    root: &Options<'_>,
    others: &[Options<'_>],
    filters: &[Spanned<OptionTable>],
    mtu: u32,
) -> Result<QdiscSpec, Problem> {
    let mut mq = match qdisc::spec(root, mtu)? {
        QdiscSpec::Mq(mq) => mq,
        other => return Ok(other),
    };
    let name = tree::handle(root, "handle")?.unwrap_or(Handle::new(1, 0));
    let mut queues: Vec<TreeSpec> = Vec::new();
    for options in others {
        let Some(parent) = tree::handle(options, "parent")? else {
            let text = "is missing; add the class that the qdisc is for, like \"1:2\"";
            return Err(options.problem("parent", options.span.clone(), text));
        };
        if parent.qdisc() != name {
            let below = below(&mut queues, parent).ok_or_else(|| {
                let text = "is not a class of a qdisc above";
                options.problem("parent", options.span_of("parent"), text)
            })?;
            tree::put(below, parent, options, mtu)?;
            continue;
        }
        let queue = usize::from(parent.minor());
        let last = usize::try_from(QUEUES_MAX).unwrap_or(usize::MAX);
        if queue == 0 || queue > last {
            let text = format!("is not a queue; they are 1 to {QUEUES_MAX} below mq");
            return Err(options.problem("parent", options.span_of("parent"), text));
        }
        if queues.len() < queue {
            queues.resize_with(queue, TreeSpec::new);
        }
        tree::put(&mut queues[queue - 1], Handle::ROOT, options, mtu)?;
    }
    let path = format!("{prefix}filter");
    for table in filters {
        let options = Options {
            table: table.get_ref(),
            span: table.span(),
            path: &path,
        };
        let class = match tree::handle(&options, "classid")? {
            Some(class) => Some(class),
            None => tree::handle(&options, "flowid")?,
        };
        let tree = class
            .and_then(|class| below(&mut queues, class))
            .ok_or_else(|| {
                let text = "is not a class of a qdisc above";
                options.problem("flowid", options.span_of("flowid"), text)
            })?;
        tree::add_filter(tree, &options)?;
    }
    mq.children = queues
        .into_iter()
        .map(|tree| {
            if tree.is_empty() {
                QdiscSpec::default()
            } else {
                QdiscSpec::Tree(tree)
            }
        })
        .collect();
    Ok(QdiscSpec::Mq(mq))
}

/// The tree that has the qdisc of this class.
fn below(queues: &mut [TreeSpec], class: Handle) -> Option<&mut TreeSpec> {
    queues
        .iter_mut()
        .find(|tree| tree.node(class.qdisc()).is_some())
}

#[cfg(test)]
mod tests {
    use softnet_tc::QdiscSpec;

    use super::super::parse_tree;

    const MQ: &str = r#"
        [[qdisc]]
        kind = "mq"
        handle = "1:"
        [[qdisc]]
        parent = "1:2"
        handle = "20:"
        kind = "tbf"
        rate = "1mbit"
        burst = "10k"
        limit = "10k"
        [[qdisc]]
        parent = "20:1"
        kind = "pfifo"
        limit = 7
    "#;

    #[test]
    fn each_queue_has_its_own_tree() {
        let spec = parse_tree("x.toml", MQ).expect("valid");
        let QdiscSpec::Mq(mq) = &spec else {
            panic!("{spec:?}");
        };
        assert_eq!(mq.children.len(), 2);
        assert_eq!(mq.child(0), &QdiscSpec::default());
        assert_eq!(mq.child(7), &QdiscSpec::default());
        let QdiscSpec::Tree(tree) = mq.child(1) else {
            panic!("{mq:?}");
        };
        assert_eq!((tree.kind(), tree.nodes().len()), ("tbf", 2));
        assert_eq!((spec.kind(), spec.queues(4)), ("mq", 4));
    }

    #[test]
    fn wrong_places_are_named() {
        for (from, to, part) in [
            ("1:2", "1:0", "is not a queue"),
            ("1:2", "1:9999", "is not a queue"),
            ("20:1", "30:1", "is not a class"),
            (
                "kind = \"pfifo\"\n        limit = 7",
                "kind = \"mq\"",
                "root",
            ),
        ] {
            let text = MQ.replace(from, to);
            let error = parse_tree("x.toml", &text).expect_err(to).to_string();
            assert!(error.contains(part), "{to}: {error}");
        }
    }
}
