//! Trees that are changed as a whole, as by a reload: what members of the group are told.

use softnet_tc::TreeSpec;

use super::*;
use crate::nl::Replies;

impl World {
    fn tree(&self) -> TreeSpec {
        let engine = self.engine.lock().unwrap();
        engine.read_tree(1, |tree, _| tree.spec().clone()).unwrap()
    }

    /// Makes the tree of link 1 each of these, and returns what is told of it in the end.
    fn reload(&mut self, trees: &[&TreeSpec]) -> Vec<String> {
        for tree in trees {
            self.engine.lock().unwrap().set_tree(1, tree).unwrap();
        }
        let mut replies = Replies::unasked();
        self.rtnl.changes(&mut replies);
        let events = replies.events().iter();
        let told = events.flat_map(|event| {
            assert_eq!(event.group, RTNLGRP_TC);
            lines(event.message.as_bytes())
        });
        told.collect()
    }
}

#[test]
fn what_a_reload_changes_of_a_tree_is_told() {
    let mut world = World::new();
    let none_yet = world.tree();
    world.qdisc(ADD, 1, ("root", "1:"), "htb", &htb).unwrap();
    world.class(ADD, 1, "1:", "1:1", &rate(1000)).unwrap();
    world.class(ADD, 1, "1:", "1:2", &rate(1000)).unwrap();
    world
        .qdisc(ADD, 1, ("1:1", "10:"), "pfifo", &limit(5))
        .unwrap();
    let filter = TcMsg {
        handle: 9,
        info: 1 << 16 | 0x0300,
        ..at(1, "1:", "")
    };
    let fw = |class: u32| {
        move |out: &mut Message<'_>| {
            out.put_str(TCA_KIND, "fw");
            out.nest(TCA_OPTIONS, |out| out.put_u32(1, class));
        }
    };
    world
        .ask(RTM_NEWTFILTER, ADD, filter, &fw(0x1_0001))
        .unwrap();
    let first = world.tree();
    world
        .qdisc(CHANGE, 1, ("1:1", "10:"), "pfifo", &limit(6))
        .unwrap();
    world.class(CHANGE, 1, "1:", "1:2", &rate(2000)).unwrap();
    let changed = world.tree();
    world
        .ask(RTM_NEWTFILTER, NLM_F_CREATE, filter, &fw(0x1_0002))
        .unwrap();
    let filtered = world.tree();
    world.ask(RTM_DELTFILTER, 0, filter, &none).unwrap();
    world
        .ask(RTM_DELTCLASS, 0, at(1, "", "1:1"), &none)
        .unwrap();
    world.class(ADD, 1, "1:", "1:3", &rate(1000)).unwrap();
    let other = world.tree();
    world
        .qdisc(REPLACE, 1, ("root", "1:"), "prio", &prio(3))
        .unwrap_err();
    world.del(1, "root", "", "").unwrap();
    world
        .qdisc(ADD, 1, ("root", "1:"), "prio", &prio(3))
        .unwrap();
    let prio = world.tree();
    world.engine.lock().unwrap().set_tree(1, &none_yet).unwrap();
    world.reload(&[]);

    let all = [
        "1 replaced htb 1: root refcnt 2",
        "1 replaced pfifo 10: parent 1:1",
        "1 htb 1:1 root leaf 10:",
        "1 htb 1:2 root",
        "chain 1: chain 0",
        "filter 1: 3 1 fw chain 0 9",
    ];
    assert_eq!(world.reload(&[&first]), all);
    assert_eq!(world.reload(&[&first]), [""; 0]);
    let told = world.reload(&[&changed]);
    assert_eq!(told, ["1 pfifo 10: parent 1:1", "1 htb 1:2 root"]);
    let told = world.reload(&[&filtered]);
    assert_eq!(told, ["filter 1: 3 1 fw chain 0 9"]);
    // As by a reload that fails.
    assert_eq!(world.reload(&[&prio, &none_yet, &filtered]), [""; 0]);
    let gone = [
        "deleted 1: 3 1 fw chain 0 9",
        "deleted chain 1: chain 0",
        "1 deleted pfifo 10: parent 1:1",
        "1 deleted htb 1:1 root leaf 10:",
        "1 htb 1:3 root",
    ];
    assert_eq!(world.reload(&[&other]), gone);
    // What is below a qdisc that goes, goes without a word.
    let told = world.reload(&[&prio]);
    let replaced = ["1 deleted htb 1: root", "1 replaced prio 1: root refcnt 2"];
    assert_eq!(told, replaced);
    let told = world.reload(&[&none_yet]);
    assert_eq!(told, ["1 deleted prio 1: root"]);
}
