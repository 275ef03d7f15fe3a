//! pyroute2 (PyPI): links, trees and filters over its own netlink.

use super::common::{has_program, text};
use super::{Daemon, succeeded, venv};

const PACKAGE: &str = "pyroute2==0.9.4";

const SCRIPT: &str = r#"
from pyroute2 import IPRoute

ETH_P_IP = 0x0800
with IPRoute() as ip:
    port = ip.link_lookup(ifname="p0")[0]
    ip.link("add", ifname="v0", kind="dummy")
    new = ip.link_lookup(ifname="v0")[0]
    ip.link("set", index=new, mtu=1400, state="up")
    link = ip.get_links(new)[0]
    assert link.get_attr("IFLA_MTU") == 1400, link
    ip.tc("add", "htb", port, 0x10000, default=0x20)
    ip.tc("add-class", "htb", port, 0x10001, parent=0x10000, rate="10mbit", burst=15000)
    ip.tc("add-class", "htb", port, 0x10020, parent=0x10001, rate="1mbit", burst=15000, prio=1)
    ip.tc("add", "sfq", port, 0x200000, parent=0x10020, perturb=10)
    ip.tc("add-filter", "u32", port, parent=0x10000, prio=10, protocol=ETH_P_IP,
          target=0x10020, keys=["0x0006/0x00ff+8", "0x0000/0xffc0+2"])
    kinds = sorted(q.get_attr("TCA_KIND") for q in ip.get_qdiscs(port))
    assert kinds == ["htb", "sfq"], kinds
    assert len(ip.get_classes(port)) >= 2
    filters = [f for f in ip.get_filters(port, parent=0x10000) if f["handle"] & 0xfff]
    assert len(filters) == 1 and filters[0].get_attr("TCA_KIND") == "u32", filters
    ip.tc("add", "ingress", port, 0xffff0000)
    ip.tc("del", "ingress", port, 0xffff0000)
    ip.tc("del", index=port, handle=0, parent=0xffffffff)
    ip.link("del", index=new)
print("done")
"#;

#[test]
fn links_trees_and_filters() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let Some(bin) = venv("pyroute2", PACKAGE) else {
        return;
    };
    let daemon = Daemon::with_port("pyroute2");
    let script = daemon.scratch.file("script.py", SCRIPT);
    let python = bin.join("python3");
    let mut command = daemon.exec(python.to_str().expect("a path"));
    let output = command.arg(script).output().expect("softnet");
    let said = succeeded(&output, &text(&output.stderr));
    assert!(said.contains("done"), "{said}");
    daemon.stop();
}
