#!/usr/bin/env python3
"""Records what Linux answers to random commands of tc, valid and not.

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record_dialogues.py [--print]

As record_control.py, for commands from a grammar of the kinds that both know, by a fixed seed. After
each command is a dump of what it was about. Each recording is `dialogues.iproute2-VERSION.txt.gz`.
With --print, prints the commands only.
"""

import gzip
import random
import sys

from record_control import HERE, load, recordings

SECTIONS, COMMANDS = 28, 11
MODULES = """sch_tbf sch_htb sch_prio sch_codel sch_fq_codel sch_sfq sch_red sch_ingress cls_u32
cls_flower cls_basic cls_matchall cls_fw em_cmp em_nbyte em_u32 em_meta act_gact act_police
act_mirred act_skbedit act_vlan act_pedit act_csum act_skbmod act_simple ifb dummy""".split()
BEFORE = [
    *load(MODULES),
    "mkdir -p /etc/iproute2",
    r"printf '1 cmp\n2 nbyte\n3 u32\n4 meta\n' >/etc/iproute2/ematch_map",
    "ip7 link del ifb0",
    "ip7 link del ifb1",
]
START = [
    "ip link add d0 numtxqueues 1 type dummy",
    "ip link set d0 txqueuelen 1000",
    "ip link add d1 type ifb",
]

draw = random.Random(20261127)
some = draw.choice


def maybe(text, chance=0.5):
    return " " + text if draw.random() < chance else ""


def number(*usual):
    """Mostly a usual value; sometimes one at the edge or outside."""
    return some(usual) if draw.random() < 0.8 else some(("0", "1", "65535", "4294967295"))


RATES = ("1mbit", "10mbit", "1gbit", "300kbit", "8bit", "40gbit")


def rate():
    return some(RATES)


def htb_class():
    text = maybe(f"rate {rate()}", 0.93) + maybe(f"ceil {rate()}") + maybe(f"prio {some('0379')}")
    text += maybe(f"burst {some(('15k', '1600', '1'))}", 0.3)
    text += maybe(f"quantum {number('1514', '20000')}", 0.4)
    return "htb" + text


QDISCS = {
    "htb": lambda: maybe(f"default {number('10', '20')}") + maybe(f"r2q {number('10')}", 0.2)
    + maybe("direct_qlen 5", 0.1),
    "prio": lambda: maybe(f"bands {number('3', '4', '16', '17')}")
    + maybe("priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 " + some("0129"), 0.3),
    "fq_codel": lambda: maybe(f"limit {number('100', '1000')}")
    + maybe(f"flows {number('16', '1024', '65536', '65537')}", 0.4)
    + maybe(f"quantum {number('300', '1514')}", 0.3)
    + maybe(some(("ecn", "noecn")), 0.3) + maybe("target 2ms interval 20ms", 0.3)
    + maybe(f"memory_limit {some(('1mb', '0'))}", 0.2) + maybe("ce_threshold 1ms", 0.1),
    "pfifo": lambda: maybe(f"limit {number('10', '100')}"),
    "bfifo": lambda: maybe(f"limit {number('10000', '100')}"),
    "tbf": lambda: " rate 1mbit burst " + some(("10kb", "1600", "1")) + " limit "
    + number("30000", "3000") + maybe(f"peakrate {rate()} mtu 1600", 0.2),
    "codel": lambda: maybe(f"limit {number('10')}") + maybe("target 10ms"),
    "sfq": lambda: maybe(f"quantum {number('1514', '3000')}") + maybe(f"perturb {some('05')}"),
    "red": lambda: " limit 60000 min 5000 max 20000 avpkt 1000 burst "
    + some(("10", "20", "1")) + maybe("probability 0.1") + maybe("ecn"),
}
MAJORS = ["1:", "1:", "1:", "2:", "10:", "20:"]
CLASSES = ["1:1", "1:1", "1:2", "1:10", "1:20", "1:3", "2:1", "10:1"]


def qdisc(device="d0"):
    verb = some(["add"] * 4 + ["replace"] * 2 + ["change", "del", "del"])
    if draw.random() < 0.15:
        return f"tc qdisc {some(('add', 'add', 'del'))} dev {device} {some(('clsact', 'ingress'))}"
    place = some(["root"] * 2 + [f"parent {some(CLASSES)}"] * 2)
    handle = maybe(f"handle {some(MAJORS)}", 0.8)
    if verb == "del":
        return f"tc qdisc del dev {device} {place}{maybe('handle ' + some(MAJORS), 0.3)}"
    kind = some(["htb"] * 3 + ["prio"] * 2 + list(QDISCS))
    return f"tc qdisc {verb} dev {device} {place}{handle} {kind}{QDISCS[kind]()}"


def tc_class(device="d0"):
    verb = some(["add"] * 5 + ["replace", "change", "del", "del"])
    if verb == "del":
        return f"tc class del dev {device} classid {some(CLASSES)}"
    parent = some(["1:"] * 3 + ["1:1"] * 3 + CLASSES)
    return f"tc class {verb} dev {device} parent {parent} classid {some(CLASSES)} {htb_class()}"


def control():
    return some(
        ["pass"] * 2
        + ["drop"] * 2
        + ["pipe"] * 2
        + ["reclassify", "continue", "trap", "goto chain 5", "jump 1", "jump 3", "goto chain 99"]
    )


def address():
    return f"02:00:00:00:00:0{some('123')}"


ACTIONS = {
    "gact": lambda: f"gact {control()}"
    + maybe(f"random {some(('determ', 'netrand'))} {some(('drop', 'pass', 'pipe'))} "
            + number("3", "10"), 0.3),
    "police": lambda: "police" + maybe(f"rate {rate()} burst {some(('10k', '1600', '0'))}", 0.9)
    + maybe(f"mtu {number('1500', '64kb')}", 0.2) + maybe(f"peakrate {rate()} mtu 1500", 0.15)
    + maybe(f"conform-exceed {some(('drop', 'pass', 'drop/pipe', 'continue/pass'))}")
    + maybe("pkts_rate 1000 pkts_burst 100", 0.1),
    "mirred": lambda: f"mirred {some(('egress', 'ingress'))} {some(('redirect', 'mirror'))} dev "
    + some(("d0", "d1", "d1", "nowhere")) + maybe(some(("pipe", "pass", "drop")), 0.2),
    "skbedit": lambda: "skbedit"
    + some((" mark 7", " mark 7/0xff", " priority 1:10", " queue_mapping 0",
            " queue_mapping 9", " ptype host", " inheritdsfield", ""))
    + maybe("mark 9", 0.2) + maybe(control(), 0.3),
    "vlan": lambda: "vlan " + some((
        "pop", "push id 5", "push id 4094 priority 3", "push id 6 protocol 802.1ad",
        "modify id 7", "modify id 7 priority 2", "push", "push id 4096", "pop_eth",
        "push_eth dst_mac 02:00:00:00:00:01 src_mac 02:00:00:00:00:02",
    )) + maybe(control(), 0.3),
    "pedit": lambda: "pedit " + some((
        "munge offset 0 u8 set 7", "munge offset 14 u16 set 0x1234 retain 0xff",
        "munge offset 4 u32 add 5", "munge offset 2 u8 clear", "munge offset 3 u16 set 1",
        "ex munge ip ttl dec", "ex munge ip ttl set 3", "ex munge ip src set 10.0.0.9",
        "ex munge eth dst set 02:00:00:00:00:07", "ex munge tcp dport set 80",
        "ex munge udp sport add 1", "munge ip tos set 4", "munge ip dst set 10.0.0.1/24",
        "ex munge ip6 hlim set 4", "ex munge ip tos set 4 munge ip ttl set 6",
        "munge offset 9 u8 set 1 at 4 0f 2",
    )) + maybe(control(), 0.3),
    "csum": lambda: "csum " + some((
        "ip", "tcp", "udp", "ip4h and tcp", "icmp", "igmp", "sctp", "udplite", "ip4h tcp udp",
    )) + maybe(control(), 0.3),
    "skbmod": lambda: "skbmod " + some((
        f"set dmac {address()}", f"set smac {address()}", "set etype 0x1234", "swap mac", "ecn",
        f"set dmac {address()} set smac {address()} set etype 0xbeef",
    )) + maybe(control(), 0.3),
    "simple": lambda: f"simple sdata {some(('hello', 'a-text', 'x' * 31, 'x' * 40))}"
    + maybe(control(), 0.3),
}


def action():
    kind = some(["gact"] * 2 + list(ACTIONS))
    if draw.random() < 0.1:
        return f"action {kind} index {some('123')}"
    return f"action {ACTIONS[kind]()}" + maybe(f"index {some('1123')}", 0.2) + maybe(
        f"cookie {some(('c0ffee', '00', 'a' * 32))}", 0.1
    )


MATCHES = {
    "matchall": lambda: "",
    "fw": lambda: "",
    "flower": lambda: "".join(draw.sample([
        " ip_proto tcp", " ip_proto udp", " dst_ip 10.0.0.0/8", " src_ip 10.0.0.7", " dst_port 80",
        " src_port 1000-2000", f" dst_mac {address()}", " ip_ttl 4", " ip_tos 0x10/0xfc", " vlan_id 5",
        " vlan_prio 8", " tcp_flags 0x2/0x3", " dst_ip fd00::1", " type 8", " code 0", " arp_op request",
        " ip_flags frag", " skip_hw", " vlan_ethtype ipv4", " src_port 2000-1000", " num_of_vlans 2",
    ], draw.randrange(4))),
    "u32": lambda: some((
        " match ip dst 10.0.0.1", " match ip sport 53 0xffff match ip protocol 17 0xff",
        " match u8 1 ff at 9", " match u32 0x0a000000 0xff000000 at nexthdr+4", " divisor 16",
        " divisor 3", " ht 800: match u16 1 ffff at 2", " link 1: match u8 6 ff at 9", " match mark 4 0xff",
        " link 1: hashkey mask 0xff at 12 match u8 6 ff at 9", " ht 7: match u8 1 ff at 1", "",
        " match ip6 dst fd00::/16", " offset at 0 mask 0f00 shift 6 match u8 0 0 at 0",
        " ht 1:3: match u8 1 ff at 1", " match u8 1 ff at -4",
    )),
    "basic": lambda: some((
        "", " match 'cmp(u8 at 9 layer network eq 6)'", " match 'u32(u32 5 0xff at 4)'",
        " match 'meta(priority gt 3)'", " match 'meta(pkt_len lt 100) and meta(fwmark eq 5)'",
        " match 'not u32(u8 6 0xff at 9) or cmp(u16 at 2 layer transport gt 80)'",
        " match 'nbyte(\"abc\" at 0 layer network)'", " match 'not (meta(priority eq 1) and cmp(u8 at 1 eq 2))'",
        " match 'cmp(u32 at 0 layer link mask 0xff lt 3)'", " match 'meta(random gt 3)'",
    )),
}
PROTOCOLS = ["ip"] * 5 + ["all"] * 2 + ["ipv6", "arp", "802.1q"]


def tc_filter(place):
    verb = some(["add"] * 6 + ["replace"] * 2 + ["change", "del", "del", "get"])
    kind = some(["u32"] * 2 + ["flower"] * 2 + list(MATCHES))
    where = f"tc filter {verb} dev d0 {place}"
    where += maybe(f"protocol {some(PROTOCOLS)}", 0.9) + maybe(f"prio {some('1122357')}", 0.8)
    where += maybe(f"chain {some(('0', '5', '7'))}", 0.15)
    handles = ("1", "2", "7") if kind != "u32" else ("800::801", "1:", "800::5", "2:", "1:3:5")
    handle = maybe(f"handle {some(handles)}", 0.9 if kind == "fw" or verb == "get" else 0.3)
    if verb in ("del", "get"):
        return where + (handle + " " + kind if verb == "get" else maybe(f"{handle} {kind}".strip()))
    target = maybe(f"classid {some(CLASSES)}", 0.6 if "parent 1:" in place else 0.2)
    actions = [action() for _ in range(some((0, 1, 1, 1, 2, 3)))]
    # One that refers to another of the same list keeps Linux trying again for ever.
    if sum(" index " in action for action in actions) > 1:
        actions = actions[:1]
    actions = "".join(f" {action}" for action in actions)
    return f"{where}{handle} {kind}{MATCHES[kind]()}{target}{actions}"


def tc_chain(place):
    verb = some(("add", "add", "del"))
    template = maybe("protocol ip flower ip_proto tcp dst_ip 0.0.0.0/8", 0.4) if verb == "add" else ""
    return f"tc chain {verb} dev d0 {place} chain {some(('0', '5', '5', '7'))}{template}"


def shared(kinds):
    """A command about actions without filters."""
    kind = some(kinds)
    verb = some(["add"] * 5 + ["replace", "change", "get", "del", "flush"])
    if verb == "flush":
        return f"tc actions flush action {kind}", kind
    if verb in ("get", "del"):
        return f"tc actions {verb} action {kind} index {some('1123')}", kind
    of = maybe(f"index {some('1123')}", 0.9 if verb != "add" else 0.6)
    return f"tc actions {verb} action {ACTIONS[kind]()}{of}", kind


def section(number):
    lines, flush = [f"== dialogue {number}", *START], set()
    subject = ("tree", "filters", "hooks", "actions")[number % 4]
    place = "parent 1:"
    if subject == "filters":
        kind = some(("prio", "htb"))
        lines.append(f"tc qdisc add dev d0 root handle 1: {kind}")
        if kind == "htb":
            lines.append("tc class add dev d0 parent 1: classid 1:1 htb rate 1mbit")
    elif subject == "tree":
        lines.append(f"tc qdisc add dev d0 root handle 1: {some(('htb', 'htb', 'prio'))}")
    else:
        lines.append("tc qdisc add dev d0 clsact")
        place = some(("ingress", "egress"))
    kinds = draw.sample(list(ACTIONS), 2)
    for _ in range(COMMANDS):
        chance = draw.random()
        if subject == "tree":
            if chance < 0.5:
                lines += [qdisc(), "tc qdisc show dev d0"]
            elif chance < 0.85:
                lines += [tc_class(), "tc class show dev d0"]
            else:
                lines += [tc_filter("parent 1:"), "tc filter show dev d0 parent 1:"]
        elif subject == "actions" and chance < 0.6:
            command, kind = shared(kinds)
            flush.add(kind)
            lines += [command, f"tc actions ls action {kind}"]
        elif chance < 0.1:
            lines += [tc_chain(place), f"tc chain show dev d0 {place}"]
        else:
            lines += [tc_filter(place), f"tc filter show dev d0 {place}"]
    if subject == "tree":
        lines += ["tc -d qdisc show dev d0", "tc -d class show dev d0"]
    elif number % 3 == 0:
        lines.append(f"tc -j filter show dev d0 {place}")
    lines += ["ip link del d0", "ip link del d1"]
    lines += [f"tc actions flush action {kind}" for kind in sorted(flush)]
    return lines


def record(usage, name, commands, before):
    """Records them, or prints them if that is asked for."""
    if sys.argv[1:] == ["--print"]:
        print("\n".join(commands))
        return
    if len(sys.argv) != 1:
        sys.exit(usage)
    for text, version in recordings(commands, before):
        with open(f"{HERE}/{name}.iproute2-{version}.txt.gz", "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))


def main():
    commands = [line for number in range(1, SECTIONS + 1) for line in section(number)]
    record(__doc__, "dialogues", commands, BEFORE)


if __name__ == "__main__":
    main()
