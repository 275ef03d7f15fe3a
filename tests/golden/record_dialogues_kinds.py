#!/usr/bin/env python3
"""As record_dialogues.py, of the kinds that its grammar has not, and with all options of each.

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record_dialogues_kinds.py [--print]

Each recording is `dialogues-kinds.iproute2-VERSION.txt.gz`. The kernel of the virtual machine has
no dualpi2.
"""

import record_dialogues as base
from record_dialogues import draw, maybe, number, some

SEED, SECTIONS, COMMANDS = 20261128, 32, 10
MODULES = """sch_fq sch_drr sch_ets sch_hfsc sch_qfq sch_cake sch_netem sch_pie sch_fq_pie
sch_multiq sch_mqprio_lib sch_mqprio""".split()
# The root of each section in turn. Those with classes of their own have more to say.
ROOTS = """fq drr ets hfsc qfq cake netem pie fq_pie multiq mq mqprio drr hfsc qfq ets""".split()
CLASSFUL = "drr ets hfsc qfq netem multiq mq mqprio cake_mq".split()
WITH_QUEUES = ["multiq", "mq", "mqprio", "cake_mq"]


def words(options, most=3):
    """Some of the options, in some order."""
    return "".join(f" {option}" for option in draw.sample(options, draw.randrange(most + 1)))


def time(*usual):
    return some(usual) if draw.random() < 0.8 else some(("0", "1us", "3s", "4294967295us"))


def rate():
    return some(("10mbit", "1mbit", "1gbit", "300kbit", "40gbit", "8bit", "0"))


def percent():
    return some(("1%", "10%", "25%", "100%", "0%", "0.1%", "101%"))


def numbers(values, most):
    return " ".join(some(values) for _ in range(draw.randrange(1, most + 1)))


def fq():
    return words([
        f"limit {number('100', '10000')}", f"flow_limit {number('10', '100')}",
        f"quantum {number('1514', '3028', '1048577')}",
        f"initial_quantum {number('15140', '1048576', '1048577')}", f"maxrate {rate()}",
        f"buckets {some(('1', '2', '3', '256', '262144', '262145', '0'))}", "pacing", "nopacing",
        f"refill_delay {time('20ms')}", f"timer_slack {time('20us')}",
        f"low_rate_threshold {rate()}", f"orphan_mask {number('255')}",
        f"ce_threshold {time('2ms')}", f"horizon {time('10s')}", "horizon_cap", "horizon_drop",
    ], 5)


def ets():
    quanta = numbers(("1514", "3000", "1", "0", "4294967295"), some((2, 3, 4, 17)))
    bands = numbers("0123", some((3, 16, 17)))
    return words([
        f"bands {some(('1', '2', '3', '4', '8', '16', '17', '0'))}",
        f"strict {some(('0', '1', '2', '3', '16', '17'))}", f"quanta {quanta}", f"priomap {bands}",
    ])


def cake():
    return words([
        some((f"bandwidth {rate()}", "unlimited", "autorate-ingress")),
        some((f"rtt {time('50ms', '200us')}", "datacentre", "regional", "interplanetary")),
        some(("besteffort", "diffserv3", "diffserv4", "diffserv8", "precedence")),
        some(("flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost",
              "dual-dsthost", "triple-isolate")),
        some(("wash", "nowash")), some(("split-gso", "no-split-gso")),
        some(("ack-filter", "ack-filter-aggressive", "no-ack-filter")),
        f"memlimit {some(('1mb', '0', '100', '4294967295'))}", f"fwmark {some(('0xff', '0', '7'))}",
        some(("ptm", "atm", "noatm")),
        some(("conservative", "raw", "ethernet", "pppoe-vcmux", "bridged-ptm", "docsis")),
        f"overhead {some(('44', '-64', '-65', '256', '257', '0', '18'))}",
        f"mpu {some(('64', '0', '256', '257'))}", some(("ingress", "egress")),
    ], 6)


def netem():
    return words([
        f"limit {number('10', '1000')}",
        f"delay {time('10ms', '100ms')}" + maybe(f"{time('1ms', '5ms')}" + maybe(percent())),
        some((f"loss random {percent()}", f"loss {percent()} {percent()}",
              f"loss state {percent()} {percent()}", "loss state 1% 20% 30% 40% 5%",
              "loss gemodel 1% 10% 70% 0.1%", f"loss gemodel {percent()}")) + maybe("ecn", 0.2),
        f"duplicate {percent()}" + maybe(percent(), 0.3), f"duplicate {percent()}",
        f"corrupt {percent()}" + maybe(percent(), 0.3),
        f"delay 5ms reorder {percent()}" + maybe(percent()) + maybe(f"gap {number('5')}"),
        f"rate {rate()}" + maybe(some(("20", "-5", "20 100", "20 100 -5", "0 0 0"))),
        f"slot {time('1ms')}" + maybe(time("5ms")) + maybe("packets 10") + maybe("bytes 9000"),
    ], 3)


def law():
    """Options of pie and fq_pie."""
    return [
        f"limit {number('100', '1000')}", f"target {time('20ms', '5ms')}",
        f"alpha {number('2', '5', '32')}", f"beta {number('20', '32')}", "ecn", "noecn",
        "bytemode", "nobytemode", "dq_rate_estimator", "no_dq_rate_estimator",
    ]


def updates():
    """Multiples of the ticks of every kernel's clock."""
    return f" tupdate {some(('20ms', '20ms', '40ms', '1s'))}"


def fq_pie():
    return words(law() + [
        f"flows {some(('16', '1024', '65536', '65537', '0', '1'))}",
        f"quantum {number('300', '1514', '1048576', '1048577')}",
        f"memory_limit {some(('1mb', '0', '100'))}", f"ecn_prob {some(('0', '20', '100', '101'))}",
    ], 4) + updates()


def red():
    return " limit " + number("60000", "400000") + " avpkt " + some(("1000", "1500", "1")) + words([
        "min 5000 max 20000", "min 20000 max 5000", "burst 10", "burst 55", "burst 1",
        "probability 0.1", "probability 1", "probability 0", "ecn", "harddrop", "nodrop",
        "adaptive", "bandwidth 10mbit",
    ], 5)


def sfq():
    return words([
        f"limit {number('127', '1000')}", f"perturb {some(('0', '5', '-1', '2147483647'))}",
        f"quantum {number('1514', '3000')}", f"flows {number('20', '127', '65407')}",
        f"depth {number('10', '127', '128')}",
        f"divisor {some(('64', '512', '65536', '100', '1'))}",
        "headdrop", "redflowlimit 100000 min 8000 max 60000 probability 0.2", "ecn", "harddrop",
        "redflowlimit 10000 avpkt 500 burst 30 ecn",
    ], 4)


def tbf():
    return " rate " + rate() + words([
        f"burst {some(('10kb', '1600', '1', '0', '10kb/8'))}", f"limit {number('30000', '3000')}",
        f"latency {time('50ms')}", f"peakrate {rate()} mtu {number('1600', '64kb')}",
        f"mpu {number('64')}", f"overhead {number('14')}", "linklayer atm", "linklayer ethernet",
    ], 6)


def mqprio():
    tcs = some(("1", "2", "3", "4", "4", "5", "16", "17", "0"))
    queues = some(("4@0", "2@0 2@2", "1@0 1@1 2@2", "1@0 1@1 1@2 1@3", "2@2 2@0", "2@0 2@1",
                   "2@0 3@2", "0@0 4@0", "5@0", "1@4"))
    return words([f"num_tc {tcs}", f"map {numbers('01230', 16)}", f"queues {queues}"]) + maybe(
        f"num_tc {len(queues.split())} map {numbers('0', 16)} queues {queues}"
    ) + maybe(f"hw {some('00012')}", 0.9) + maybe("mode channel", 0.1) + maybe("fp E P", 0.1)


QDISCS = {
    **base.QDISCS,
    "fq": fq, "ets": ets, "cake": cake, "netem": netem, "fq_pie": fq_pie, "red": red, "sfq": sfq,
    "tbf": tbf, "mqprio": mqprio,
    "pie": lambda: words(law(), 4) + updates(),
    "hfsc": lambda: maybe(f"default {some(('1', '10', '0', 'ffff', '10000'))}", 0.6),
    "drr": lambda: "", "qfq": lambda: "", "multiq": lambda: "", "mq": lambda: "",
    "cake_mq": lambda: "", "pfifo_fast": lambda: "", "noqueue": lambda: "",
    "pfifo_head_drop": lambda: maybe(f"limit {number('10')}"),
}
MAJORS = ["10:", "20:", "30:", "1:", "ffff:", "0:"]
MINORS = ["1:1"] * 4 + ["1:2"] * 4 + ["1:3", "1:10", "10:1"] * 2 + [
    "1:4", "1:5", "1:ffff", "2:1", "20:1",
]


def qdisc(root):
    """About the root, mostly as it is, or about what is below it."""
    if draw.random() < (0.4 if root in CLASSFUL else 0.75):
        verb = some(["change"] * 6 + ["replace"] * 4 + ["add", "link", "del"])
        place, handle = "root", maybe(f"handle {some(['1:'] * 4 + MAJORS)}")
        kind = root if draw.random() < 0.85 else some(list(QDISCS))
    else:
        verb = some(["add"] * 4 + ["replace"] * 3 + ["change"] * 2 + ["del"] * 2 + ["link"])
        place = some([f"parent {some(MINORS)}"] * 9 + ["parent 1:", ""])
        handle = maybe(f"handle {some(MAJORS)}", 0.6 if place else 1)
        kind = some([root] * 4 + list(QDISCS))
    text = f"tc qdisc {verb} dev d0 {place}{handle}"
    if verb == "del":
        return text + maybe(some((root, "pfifo")), 0.2)
    extra = maybe("stab overhead 24 mpu 64", 0.04) + maybe("estimator 1s 8s", 0.04)
    return f"{text}{extra} {kind}{QDISCS[kind]()}"


def curve():
    return some((
        f"rate {rate()}", f"m2 {rate()}", f"m1 {rate()} d {time('10ms')} m2 {rate()}",
        f"umax 1500 dmax {time('20ms')} rate {rate()}", f"d {time('10ms')} m2 {rate()}",
    ))


CLASSES = {
    "htb": base.htb_class,
    "drr": lambda: "drr" + maybe(f"quantum {number('1514', '300')}", 0.6),
    "qfq": lambda: "qfq" + words([
        f"weight {some(('1', '10', '300', '1023', '1024', '1025', '0'))}",
        f"maxpkt {some(('1514', '512', '511', '65536', '65537', '3000'))}",
    ], 2),
    "hfsc": lambda: "hfsc" + words([
        f"{some(('rt', 'sc'))} {curve()}", f"ls {curve()}", f"sc {curve()}", f"ul {curve()}",
    ]),
    "ets": lambda: "ets" + maybe(f"quantum {number('1514', '3000')}", 0.8),
}


def tc_class(root):
    verb = some(["add"] * 5 + ["replace", "change", "change", "del", "del"])
    # Not added is one of the qdisc's own name, which Softnet has none of.
    name = some(MINORS * 2 + ["1:" if verb == "del" else "1:8001", "7:1"])
    parent = some([" parent 1:"] * 4 + [f" parent {some(MINORS)}"] * 2 + [" root", ""])
    if verb == "del":
        return f"tc class del dev d0{some(('', '', parent))} classid {name}"
    kind = root if draw.random() < 0.9 else some(list(CLASSES))
    # Kinds without options of classes are named alone.
    options = CLASSES.get(kind, lambda: kind)()
    estimator = maybe("estimator 1s 8s", 0.04)
    return f"tc class {verb} dev d0{parent} classid {name}{estimator} {options}"


def tc_filter():
    verb = some(["add"] * 6 + ["replace", "del", "del"])
    place = some(["parent 1:"] * 7 + [f"parent {some(MINORS)}", "parent 10:", "root", ""])
    where = f"tc filter {verb} dev d0 {place} protocol {some(('ip', 'all'))} prio {some('1234')}"
    if verb == "del":
        return where
    kind = some(("matchall", "u32 match u8 0 0", "handle 7 fw", "basic", "flower ip_proto tcp"))
    action = maybe(some(("action drop", "action pass", "action skbedit priority 1:2")), 0.2)
    return f"{where} {kind}{maybe(f'classid {some(MINORS)}', 0.9)}{action}"


def first(root):
    """The root, and classes for a start."""
    lines = [f"tc qdisc add dev d0 root handle 1: {root}"]
    usual = {
        "netem": " delay 10ms", "pie": " tupdate 20ms", "fq_pie": " tupdate 20ms",
        "ets": f" bands {some('345')} strict {some('012')}", "hfsc": " default 2",
        "mqprio": " num_tc 2 map 0 1 queues 2@0 2@2 hw 0",
    }
    lines[0] += usual.get(root, "")
    if root in ("drr", "hfsc", "qfq"):
        curves = " ls rate 1mbit" if root == "hfsc" else ""
        for minor in "12":
            lines.append(f"tc class add dev d0 parent 1: classid 1:{minor} {root}{curves}")
    return lines


def section(number):
    root = ROOTS[number % len(ROOTS)]
    if root == "mq" and number >= len(ROOTS):
        root = "cake_mq"
    queues = 4 if root in WITH_QUEUES else 1
    lines = [
        f"== kinds {number} {root}",
        f"ip link add d0 numtxqueues {queues} type dummy",
        "ip link set d0 txqueuelen 1000",
        *first(root),
    ]
    # Filters of fq_pie are Softnet's alone.
    qdiscs, classes = (0.4, 0.8) if root in CLASSES else (0.75, 1 if root == "fq_pie" else 0.85)
    for _ in range(COMMANDS):
        chance = draw.random()
        if chance < qdiscs:
            lines += [qdisc(root), "tc qdisc show dev d0"]
            if lines[-2] == "tc qdisc del dev d0 root":
                lines += first(root)
        elif chance < classes:
            lines += [tc_class(root), "tc class show dev d0"]
        else:
            lines += [tc_filter(), "tc filter show dev d0"]
    lines += ["tc -s -d qdisc show dev d0", "tc -s -d class show dev d0"]
    return [*lines, "ip link del d0"]


def commands(sections=SECTIONS, seed=SEED):
    draw.seed(seed)
    return [line for number in range(sections) for line in section(number)]


def main():
    before = [*base.load(MODULES), *base.BEFORE]
    base.record(__doc__, "dialogues-kinds", commands(), before)


if __name__ == "__main__":
    main()
