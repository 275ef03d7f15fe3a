//! Names of what filters are at.

use super::*;

/// `TC_H_ROOT` is a class of the qdisc `ffff:`, of which `ingress` has all and `clsact` two.
#[test]
fn root_names_a_class_of_the_hooks_qdisc() {
    let of_all = of_kind("matchall", 0x1_0001);
    let hooked = |kind: &str| {
        let mut world = World::new();
        let name = ("ffff:fff1", "ffff:");
        world.qdisc(ADD, 1, name, kind, &none).unwrap();
        world
    };
    let mut world = hooked("ingress");
    world.filter(ADD, named("root", 1, 3, 0), &of_all).unwrap();
    let shown = [
        "filter ffff: 3 1 matchall chain 0 -",
        "filter ffff: 3 1 matchall chain 0 1",
    ];
    for parent in ["root", "ffff:fff2", "ffff:"] {
        assert_eq!(world.filters(at(1, parent, ""), &none), shown);
    }
    world
        .ask(RTM_DELTFILTER, 0, at(1, "root", ""), &none)
        .unwrap();
    let told = [
        "deleted ffff: 3 1 matchall chain 0 -",
        "deleted chain ffff: chain 0",
    ];
    assert_eq!(world.told, told);
    let mut world = hooked("clsact");
    let refused = world.filter(ADD, named("root", 1, 3, 0), &of_all);
    let refused = refused.unwrap_err();
    assert!(
        refused.starts_with("Specified class doesn't exist"),
        "{refused}"
    );
    assert!(world.filters(at(1, "root", ""), &none).is_empty());
}
