#!/usr/bin/env python3
"""Records what tc tells Linux about qdiscs and classes, and what Linux answers, for
crates/softnet-rtnl.

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record_options.py FILE [KIND…]

PROGRAM as for record.py. FILE gets for each command:

    $ the command, with the payload of TCA_OPTIONS where another one was sent than tc's
    > kind and payload of TCA_OPTIONS as sent; - if there is none
    = errno, and text of the extended ACK
    < payload of TCA_OPTIONS as the kernel shows it afterwards; - if there is none
    x length of TCA_XSTATS, if there are some

A command of an empty line begins with a device that has no qdisc.
"""

import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = """sch_netem sch_tbf sch_prio sch_codel sch_fq sch_fq_codel sch_mqprio_lib sch_mqprio
sch_htb sch_drr sch_ets sch_qfq sch_hfsc sch_multiq dummy""".split()
OWN = ["netem", "drr", "ets", "qfq", "hfsc", "multiq"]
NEWQDISC, NEWTCLASS, OPTIONS, XSTATS = 36, 40, 2, 4


def attribute(kind, payload):
    padding = bytes(-len(payload) % 4)
    return struct.pack("<HH", 4 + len(payload), kind) + payload + padding


def u32(kind, value):
    return attribute(kind, struct.pack("<I", value))


def ratespec(rate, linklayer=1, cell_log=0, overhead=0, mpu=0):
    return struct.pack("<BBHhHI", cell_log, linklayer, overhead, 0, mpu, rate)


def tbf(rate, peak=None, limit=10000, buffer=200000, mtu=0, **more):
    specs = ratespec(rate, **more) + (ratespec(peak) if peak else bytes(12))
    return attribute(1, specs + struct.pack("<III", limit, buffer, mtu))


def htb_class(rate, ceil, buffer=200000, cbuffer=200000, quantum=0, prio=0, **more):
    specs = ratespec(rate, **more) + ratespec(ceil, **more)
    return attribute(1, specs + struct.pack("<IIIII", buffer, cbuffer, quantum, 0, prio))


def rate_table(rate, cell_log, mpu=0, atm=False):
    """The table of transmission times of tc before 3.9, in ticks of 64 ns."""
    sizes = [max((slot + 1) << cell_log, mpu) for slot in range(256)]
    if atm:
        sizes = [-(-size // 48) * 53 for size in sizes]
    return struct.pack("<256I", *(size * 1000000000 // rate // 64 for size in sizes))


def prio(bands, priomap):
    return struct.pack("<i16B", bands, *priomap)


def mqprio(num_tc, priomap, hw, queues, rest=b""):
    counts = [count for count, _ in queues] + [0] * (16 - len(queues))
    offsets = [offset for _, offset in queues] + [0] * (16 - len(queues))
    options = struct.pack("<B16BB16H16H", num_tc, *priomap, hw, *counts, *offsets)
    return options + (bytes(-len(options) % 4) + rest if rest else b"")


MAP = [1, 2, 2, 2, 1, 2, 0, 0] + [1] * 8
FIRST = [0] * 16


def add(rest, options=None):
    return ("qdisc add dev d0 root handle 1: " + rest, options)


def change(rest, options=None):
    return ("qdisc change dev d0 root handle 1: " + rest, options)


def replace(rest, options=None):
    return ("qdisc replace dev d0 root handle 1: " + rest, options)


def klass(verb, rest, options=None):
    return (f"class {verb} dev d0 {rest}", options)


def kinds():
    """Groups of commands; the commands of a group change the same qdisc."""
    for kind in "pfifo", "bfifo", "pfifo_head_drop":
        yield [add(kind), change(f"{kind} limit 7"), change(kind), replace(kind)]
        yield [add(f"{kind} limit 3"), add(kind)]
        yield [add(f"{kind} limit 1", b"\1\0")]
        yield [add(f"{kind} limit 1", b"")]
        yield [add(f"{kind} limit 1", b"\1\0\0\0\2\0\0\0")]
        yield [add(f"{kind} limit 0"), change(f"{kind} limit 4294967295")]
    yield [add("pfifo_fast"), change("pfifo_fast"), replace("pfifo_fast")]
    yield [add("pfifo_fast", b"\1\0\0\0"), change("pfifo_fast", b"\1\0\0\0")]
    yield [add("noqueue")]
    yield [add("noqueue", b"\1\0\0\0")]
    yield [add("mq")]
    yield [add("mq", b"\1\0\0\0"), change("mq", b"\1\0\0\0")]
    yield from tbfs()
    yield from prios()
    yield from mqprios()
    yield from codels()
    yield from fq_codels()
    yield from fqs()
    yield from htbs()
    yield from netems()
    yield from drrs()
    yield from etss()
    yield from qfqs()
    yield from hfscs()
    yield from multiqs()


def netem_options(*rest, latency=0, limit=10, loss=0, gap=0, duplicate=0, jitter=0):
    """`struct tc_netem_qopt`, and a seed behind other attributes."""
    qopt = struct.pack("<6I", latency, limit, loss, gap, duplicate, jitter)
    return qopt + b"".join(rest) + attribute(14, struct.pack("<Q", 5))


def netems():
    def slot(low, high, packets=0, size=0, delay=0, jitter=0):
        return attribute(12, struct.pack("<qqiiqq", low, high, packets, size, delay, jitter))

    def time64(kind, time):
        return attribute(kind, struct.pack("<q", time))

    def model(kind, *numbers):
        return attribute(5, attribute(kind, struct.pack(f"<{len(numbers)}I", *numbers)))

    yield [add("netem seed 1"), change("netem")]
    yield [
        add("netem delay 100ms 10ms 25% seed 1"),
        change("netem loss 1% 25% seed 1"),
        change("netem rate 8mbit 20 100 -5"),
        change("netem duplicate 2% 10% corrupt 0.1% 5%"),
        change("netem delay 5ms reorder 25% 50% gap 4"),
        change("netem delay 5ms reorder 25%"),
        change("netem loss state 1% 20% 30% 40% 5%"),
        change("netem loss gemodel 1% 10% 70% 0.1% ecn"),
        change("netem slot 1ms 5ms packets 10 bytes 9000"),
        change("netem slot 800us"),
        change("netem limit 7 seed 18446744073709551615"),
        change("netem rate 40gbit"),
        change("netem loss state 1%"),
        change("netem loss gemodel 1%"),
        change("netem rate 1kbit"),
        replace("netem delay 7s 3s"),
    ]
    for rest in [
        "seed 1 limit 0",
        "seed 1 delay 200000s",
        "seed 1 delay 1ms 2147483648ns",
        "seed 1 loss 100%",
        "seed 1 delay 9300000s",
        "seed 1 loss random 10%",
        "seed 1 rate 34359738360bit",
        "seed 1 rate 34359738368bit 2147483647 4294967295 -2147483648",
    ]:
        yield [add("netem " + rest)]
    for options in [
        b"\0" * 20,
        netem_options(latency=1, jitter=4294967295),
        netem_options(latency=1000, gap=3),
        netem_options(attribute(2, b"")),
        netem_options(attribute(2, b"\1")),
        netem_options(attribute(2, b"\1\0\2\0\3")),
        netem_options(attribute(13, b"")),
        netem_options(time64(10, -1)),
        netem_options(time64(11, -1)),
        netem_options(time64(10, 1000), latency=5),
        netem_options(time64(11, 5000000000)),
        netem_options(slot(-1, 5)),
        netem_options(slot(5, -1)),
        netem_options(slot(6, 5)),
        netem_options(slot(5, 6, delay=-1)),
        netem_options(slot(5, 6, jitter=-1)),
        netem_options(slot(5, 6, -1)),
        netem_options(slot(5, 6, 0, -1)),
        netem_options(slot(0, 0, 3, 4)),
        netem_options(slot(0, 0, 0, 0, 7, 8)),
        netem_options(slot(1, 1, 2147483647, 2147483647, 1, 3000000000)),
        netem_options(model(1, 1, 2, 3, 4, 5)),
        netem_options(model(1, 1, 2, 3, 4)),
        netem_options(model(2, 1, 2, 3, 4, 5)),
        netem_options(model(2, 1, 2, 3)),
        netem_options(model(3, 1)),
        netem_options(attribute(5, b"")),
        netem_options(attribute(5, b"\1\2")),
        netem_options(attribute(1, bytes(8))),
        netem_options(attribute(1, struct.pack("<4I", 1, 2, 3, 4))),
        netem_options(attribute(3, struct.pack("<I", 1))),
        netem_options(attribute(4, struct.pack("<2I", 1, 2))),
        netem_options(attribute(6, struct.pack("<Ii", 1, 2))),
        netem_options(
            attribute(6, struct.pack("<IiIi", 1000, 2, 3, 4)), attribute(8, struct.pack("<Q", 7))
        ),
        netem_options(u32(7, 1)),
        netem_options(u32(7, 0)),
        netem_options(attribute(7, b"\1")),
        netem_options(attribute(14, b"\1\2\3\4")),
        netem_options(attribute(99, b"\1")),
    ]:
        yield [add("netem seed 5", options), change("netem seed 6")]


def tbfs():
    yield [
        add("tbf rate 1mbit burst 10k limit 30k"),
        change("tbf rate 2mbit burst 5k latency 70ms"),
        change("tbf rate 100mbit burst 32k limit 1m peakrate 150mbit mtu 2000"),
        change("tbf rate 8kbit burst 1600 limit 5000"),
    ]
    for rest in [
        "rate 40gbit burst 1m limit 10m",
        "rate 40gbit burst 1m limit 10m peakrate 80gbit mtu 64k",
        "rate 1gbit burst 4k limit 1m peakrate 40gbit mtu 9000",
        "rate 34359738368bit burst 1m limit 10m",
        "rate 34359738360bit burst 1m limit 10m",
        "rate 33mbit burst 1541 limit 10k",
        "rate 3333333bit burst 15415 limit 10k",
        "rate 1mbit burst 10k limit 30k overhead 14",
        "rate 1mbit burst 10k limit 30k overhead 9 mpu 64 linklayer atm",
        "rate 1mbit burst 10k limit 30k overhead 9 linklayer ethernet",
        "rate 1mbit burst 10k/8 limit 30k",
        "rate 1mbit burst 10k limit 30k peakrate 500kbit mtu 2000",
        "rate 1mbit burst 10k limit 30k peakrate 1mbit mtu 2000",
        "rate 1mbit burst 10k limit 30k peakrate 2mbit mtu 100",
        "rate 1mbit burst 1 limit 30k",
        "rate 1bps burst 100 limit 3000000",
        "rate 1tbit burst 16m limit 30m",
        "rate 8tbit burst 16m limit 30m",
        "rate 1mbit burst 100 limit 1000",
    ]:
        yield [add("tbf " + rest)]
    plain = "tbf rate 1mbit burst 10k limit 30k"
    for options in [
        b"",
        b"\4\0\1\0",
        attribute(1, bytes(35)),
        attribute(1, bytes(36)),
        u32(6, 10000),
        tbf(0),
        tbf(0) + u32(6, 0),
        tbf(125000),
        tbf(125000, buffer=0),
        tbf(125000, buffer=0) + u32(6, 10000),
        tbf(125000) + u32(6, 0),
        tbf(125000, buffer=1),
        tbf(125000, peak=250000, mtu=100000),
        tbf(125000, peak=250000),
        tbf(125000, peak=250000, mtu=5) + u32(7, 2000),
        tbf(125000, peak=250000) + u32(7, 0),
        tbf(125000, linklayer=0),
        tbf(125000, linklayer=3),
        tbf(125000, linklayer=0x12),
        tbf(125000, linklayer=0, cell_log=3) + attribute(2, rate_table(125000, 3)),
        tbf(125000, linklayer=0, cell_log=3) + attribute(2, rate_table(125000, 3, atm=True)),
        tbf(125000, linklayer=0, cell_log=3, mpu=64)
        + attribute(2, rate_table(125000, 3, mpu=64, atm=True)),
        tbf(125000, linklayer=0, cell_log=0) + attribute(2, rate_table(125000, 0, atm=True)),
        tbf(125000, linklayer=0, cell_log=32) + attribute(2, rate_table(125000, 3, atm=True)),
        tbf(125000, linklayer=0, cell_log=3) + attribute(2, rate_table(125000, 3)[:1000]),
        tbf(125000, linklayer=0, cell_log=3) + attribute(2, bytes(1024)),
        tbf(125000, linklayer=0, cell_log=3) + attribute(2, bytes(1028)),
        tbf(25000000, linklayer=0, cell_log=3)
        + attribute(2, rate_table(25000000, 3, atm=True)),
        tbf(125000, overhead=65535, buffer=1000),
        tbf(125000) + attribute(4, struct.pack("<Q", 5 << 32)) + u32(6, 10000),
        tbf(125000) + attribute(4, struct.pack("<I", 5)),
        tbf(125000, peak=250000) + attribute(5, struct.pack("<Q", 5 << 32)) + u32(7, 9000),
        tbf(125000) + attribute(5, struct.pack("<Q", 5 << 32)) + u32(7, 9000),
        tbf(125000) + attribute(9, b"\1"),
        tbf(125000) + b"\1\0\2\0",
    ]:
        yield [add(plain, options)]
    yield [add(plain), change(plain, tbf(125000, limit=0)), change(plain, tbf(0))]


def prios():
    yield [
        add("prio"),
        change("prio bands 5"),
        change("prio bands 4 priomap 0 0 1 1 2 2 3 3 0 0 1 1 2 2 3 3"),
        change("prio bands 2"),
        replace("prio"),
    ]
    for bands in 0, 1, 2, 16, 17, -1, 1 << 30:
        yield [add("prio", prio(bands, [0] * 16))]
    for options in b"", prio(3, MAP)[:19], prio(3, MAP) + b"\1\2\3\4", prio(2, MAP):
        yield [add("prio", options)]
    yield [add("prio"), change("prio", b"\3\0"), change("prio", prio(2, [1] * 16))]


def mqprios():
    maps = "map 0 0 0 0 1 1 1 1"
    for rest in [
        f"num_tc 2 {maps} queues 1@0 1@1 hw 0",
        f"num_tc 2 {maps} queues 2@0 2@2 hw 0",
        f"num_tc 2 {maps} queues 2@2 2@0 hw 0",
        f"num_tc 2 {maps} queues 3@0 2@2 hw 0",
        f"num_tc 2 {maps} queues 2@0 3@2 hw 0",
        f"num_tc 2 {maps} queues 2@0 1@4 hw 0",
        f"num_tc 2 {maps} queues 2@0 0@2 hw 0",
        f"num_tc 2 {maps} hw 0",
        "hw 0",
        "",
        "num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 4@0 hw 0",
        "num_tc 4 map 0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3 queues 1@0 1@1 1@2 1@3 hw 0",
        f"num_tc 2 {maps} queues 1@0 1@1 hw 1",
        f"num_tc 2 {maps} queues 1@0 1@1",
        f"num_tc 2 {maps} queues 1@0 1@1 hw 1 mode channel",
        f"num_tc 2 {maps} queues 1@0 1@1 hw 0 fp E P",
        f"num_tc 2 {maps} queues 1@0 1@1 hw 1 fp E P",
    ]:
        yield [add("mqprio " + rest)]
    plain = "mqprio num_tc 1 map 0 queues 4@0 hw 0"
    for options in [
        b"",
        mqprio(1, FIRST, 0, [(4, 0)])[:81],
        mqprio(1, FIRST, 0, [(4, 0)]),
        mqprio(1, FIRST, 0, [(4, 0)]) + b"\0\0",
        mqprio(0, FIRST, 0, []),
        mqprio(17, FIRST, 0, []),
        mqprio(255, FIRST, 0, []),
        mqprio(2, [2] + [0] * 15, 0, [(1, 0), (1, 1)]),
        mqprio(1, FIRST, 0, [(0, 0)]),
        mqprio(1, FIRST, 0, [(5, 0)]),
        mqprio(1, FIRST, 0, [(65535, 65535)]),
        mqprio(1, FIRST, 0, [(1, 4)]),
        mqprio(1, FIRST, 2, [(4, 0)]),
        mqprio(0, FIRST, 1, []),
        mqprio(1, FIRST, 0, [(4, 0)], attribute(1, b"\0\0")),
        mqprio(1, FIRST, 0, [(4, 0)], attribute(1, b"\0")),
        mqprio(1, FIRST, 0, [(4, 0)], b"\4\0\1"),
        mqprio(1, FIRST, 0, [(4, 0)], attribute(9, b"\0")),
    ]:
        yield [add(plain, options)]
    yield [add(plain), change(plain), replace(plain)]


def codels():
    yield [
        add("codel"),
        change("codel limit 500 target 10ms"),
        change("codel ecn interval 30ms"),
        change("codel noecn ce_threshold 1ms"),
        change("codel"),
        replace("codel limit 9"),
    ]
    for options in [
        b"",
        u32(1, 0),
        u32(1, 4294967295),
        u32(1, 4995) + u32(3, 7),
        u32(2, 0),
        u32(3, 0),
        u32(3, 1),
        u32(3, 2),
        u32(4, 2),
        u32(5, 0),
        u32(5, 4294967295),
        u32(5, 4294966),
        u32(5, 4398046),
        attribute(1, b"\1"),
        u32(1, 1) + u32(1, 5000),
        u32(6, 0),
        attribute(2, struct.pack("<Q", 77)),
    ]:
        yield [add("codel limit 10", options)]


def fq_codels():
    yield [
        add("fq_codel"),
        change("fq_codel limit 500 target 10ms memory_limit 1m"),
        change("fq_codel noecn interval 30ms drop_batch 8 quantum 300"),
        change("fq_codel ecn ce_threshold 1ms"),
        change("fq_codel ce_threshold_selector 3/3"),
        change("fq_codel"),
        change("fq_codel flows 12"),
        replace("fq_codel limit 9"),
        replace("fq_codel flows 1024"),
    ]
    yield [add("fq_codel flows 65536 quantum 1048576")]
    yield [add("fq_codel flows 65537")]
    yield [add("fq_codel flows 0")]
    for options in [
        b"",
        u32(1, 0),
        u32(2, 0),
        u32(3, 0),
        u32(4, 7),
        u32(6, 0),
        u32(6, 255),
        u32(6, 1 << 20),
        u32(6, (1 << 20) + 1),
        u32(6, 4294967295),
        u32(7, 4294967295),
        u32(7, 4398046),
        u32(8, 0),
        u32(8, 4294967295),
        u32(9, 0),
        u32(9, 4294967295),
        attribute(10, b"\3"),
        attribute(11, b"\3"),
        attribute(10, b"\3") + attribute(11, b"\3") + u32(7, 0),
        attribute(11, b""),
        u32(1, 4294967295),
        u32(12, 1),
    ]:
        yield [add("fq_codel limit 10", options)]


def fqs():
    yield [
        add("fq"),
        change("fq limit 500 flow_limit 10"),
        change("fq quantum 1000 initial_quantum 5000 maxrate 1mbit"),
        change("fq buckets 2048 orphan_mask 255 nopacing"),
        change("fq pacing low_rate_threshold 1mbit refill_delay 100ms"),
        change("fq ce_threshold 2ms timer_slack 5us horizon 1s horizon_cap"),
        change("fq bands 3 priomap 0 0 0 0 0 0 0 0 1 1 1 1 2 2 2 2 weights 600000 200000 70000"),
        change("fq horizon_drop offload_horizon 0"),
        change("fq"),
        replace("fq limit 9"),
    ]
    for rest in [
        "maxrate 34359738360bit",
        "defrate 1mbit",
        "offload_horizon 10ms",
        "buckets 1",
        "buckets 262144",
        "buckets 524288",
        "buckets 100",
        "quantum 1048576",
        "quantum 1048577",
        "initial_quantum 2147483647",
        "initial_quantum 2147483648",
        "timer_slack 1s",
        "low_rate_threshold 0",
        "maxrate 0",
    ]:
        yield [add("fq " + rest)]
    for options in [
        b"",
        u32(1, 0) + u32(2, 0),
        u32(3, 0),
        u32(3, 255),
        u32(3, 1),
        u32(4, 0),
        u32(5, 2),
        u32(7, 0),
        u32(8, 0),
        u32(8, 19),
        u32(8, 20) + u32(3, 0),
        u32(3, 0) + u32(5, 2),
        u32(10, 0),
        u32(10, 4294967295),
        u32(12, 4294967295),
        u32(12, 0),
        u32(13, 4294967295),
        u32(14, 0),
        u32(14, 4294967295),
        attribute(15, b"\0"),
        u32(9, 8000),
        u32(4, 1 << 20),
        u32(4, (1 << 20) + 1),
        attribute(16, prio(3, MAP[:15] + [255])),
        attribute(15, b"\1\0\0\0"),
        attribute(16, prio(2, MAP)),
        attribute(16, prio(3, MAP)[:19]),
        attribute(16, prio(3, MAP) + b"\0\0\0\0"),
        attribute(17, struct.pack("<3i", 16384, 16384, 16384)),
        attribute(17, struct.pack("<3i", 16384, -1, 16384)),
        attribute(17, struct.pack("<3i", 16384, 1 << 30, (1 << 31) - 1)),
        attribute(17, struct.pack("<2i", 16384, 16384)),
        u32(18, 1),
        u32(19, 1),
        u32(0x8000 | 14, 5),
        attribute(13, b"\1"),
        attribute(1, b"\1"),
    ]:
        yield [add("fq limit 10", options)]


def htbs():
    yield [
        add("htb"),
        klass("add", "parent 1: classid 1:1 htb rate 10mbit"),
        klass("add", "parent 1:1 classid 1:10 htb rate 1mbit ceil 5mbit prio 3 quantum 2000"),
        klass("change", "parent 1:1 classid 1:10 htb rate 2mbit burst 20k cburst 30k"),
        klass("change", "parent 1: classid 1:1 htb rate 20mbit quantum 3000 prio 5"),
        klass("add", "parent 1:10 classid 1:100 htb rate 64kbit"),
        klass("change", "parent 1:1 classid 1:10 htb rate 2mbit"),
        klass("replace", "parent 1:10 classid 1:100 htb rate 40gbit ceil 100gbit burst 1m"),
        klass("replace", "parent 1:10 classid 1:100 htb rate 1mbit overhead 9 mpu 64"),
        klass("add", "parent 1:10 classid 1:102 htb rate 1mbit linklayer atm overhead 9"),
        klass("add", "parent 1: classid 1:2 htb rate 10mbit quantum 1"),
        klass("add", "parent 1: classid 1:2 htb rate 10mbit"),
        klass("add", "parent 1: classid 1:3 htb rate 1tbit burst 1m cburst 1m"),
        klass("add", "parent 1: classid 1:6 htb rate 1gbit prio 9"),
        klass("add", "parent 1: classid 1:7 htb rate 33333333bit burst 1541 cburst 15415"),
        klass("add", "parent 1: classid 1:8 htb rate 34359738368bit ceil 34359738360bit"),
        klass("add", "parent 1: classid 1:9 htb rate 10mbit ceil 1mbit"),
        change("htb default 5"),
        replace("htb default 5"),
    ]
    for rest in [
        "default 10",
        "default ffff r2q 1",
        "default 10 r2q 0",
        "direct_qlen 5",
        "direct_qlen 0",
        "offload",
        "default 10 r2q 5 direct_qlen 100",
    ]:
        yield [add("htb " + rest)]
    glob = struct.pack("<IIIII", 3, 10, 0, 0, 0)
    for options in [
        b"",
        attribute(2, glob),
        attribute(2, glob[:16]),
        attribute(2, glob + glob),
        attribute(2, struct.pack("<IIIII", 2, 10, 0, 0, 0)),
        attribute(2, struct.pack("<IIIII", 0x30011, 10, 0, 0, 0)),
        attribute(2, struct.pack("<IIIII", 3, 10, 0x10, 7, 9)),
        attribute(2, glob) + attribute(5, b"\1"),
        attribute(2, glob) + attribute(9, b""),
        attribute(2, glob) + attribute(9, b"\1"),
        attribute(1, bytes(44)),
    ]:
        yield [add("htb", options)]
    plain = "parent 1: classid 1:1 htb rate 1mbit"
    for options in [
        b"",
        attribute(1, bytes(43)),
        attribute(2, glob),
        htb_class(0, 125000),
        htb_class(125000, 0),
        htb_class(125000, 250000),
        htb_class(125000, 250000, prio=8),
        htb_class(125000, 250000, prio=4294967295),
        htb_class(125000, 250000, quantum=4294967295),
        htb_class(125000, 250000, buffer=0, cbuffer=0),
        htb_class(125000, 250000, buffer=4294967250, cbuffer=4294967250),
        htb_class(1, 1, buffer=15625000, cbuffer=31250000),
        htb_class(4294967295, 4294967295),
        htb_class(125000, 250000, linklayer=0),
        htb_class(125000, 125000, linklayer=0, cell_log=3)
        + attribute(4, rate_table(125000, 3, atm=True))
        + attribute(3, rate_table(125000, 3, atm=True)),
        htb_class(125000, 125000, linklayer=0, cell_log=3)
        + attribute(4, rate_table(125000, 3))
        + attribute(3, rate_table(125000, 3)),
        htb_class(125000, 250000) + attribute(6, struct.pack("<Q", 5 << 32)),
        htb_class(125000, 250000) + attribute(7, struct.pack("<Q", 5 << 32)),
        htb_class(125000, 250000) + attribute(6, struct.pack("<Q", 5)),
        htb_class(125000, 250000) + attribute(6, struct.pack("<I", 5)),
        htb_class(125000, 250000) + attribute(4, bytes(1025)),
        htb_class(125000, 250000) + attribute(9, b""),
    ]:
        yield [add("htb"), klass("add", plain, options)]
    yield [add("prio"), klass("add", "parent 1: classid 1:1 htb rate 1mbit")]


def multiqs():
    yield [add("multiq"), change("multiq"), replace("multiq")]
    for options in b"", b"\1\0\0\0", b"\1\0", b"\7\0\7\0\7\0\7\0":
        yield [add("multiq", options)]
    yield [add("multiq"), klass("add", "parent 1: classid 1:9 htb rate 1mbit")]


def drrs():
    yield [
        add("drr"),
        klass("add", "parent 1: classid 1:1 drr"),
        klass("add", "parent 1: classid 1:2 drr quantum 300"),
        klass("change", "parent 1: classid 1:2 drr"),
        klass("change", "parent 1: classid 1:2 drr quantum 9000"),
        klass("replace", "parent 1: classid 1:2 drr quantum 70"),
        klass("add", "parent 1:1 classid 1:3 drr"),
        klass("add", "parent 1:77 classid 1:4 drr"),
        klass("add", "parent 1: classid 1:5 drr quantum 0"),
        change("drr"),
    ]
    yield [add("drr", b"\1\0\0\0")]
    yield [add("drr", b"")]
    for options in [
        b"",
        u32(1, 0),
        u32(1, 1),
        u32(1, 4294967295),
        attribute(1, b"\1\0"),
        u32(2, 1),
        u32(1, 5) + b"\4\0\1\0",
        b"\7",
    ]:
        yield [add("drr"), klass("add", "parent 1: classid 1:1 drr", options)]
    yield [
        add("drr"),
        klass("add", "parent 1: classid 1:1 drr quantum 5"),
        klass("change", "parent 1: classid 1:1 drr", b""),
        klass("change", "parent 1: classid 1:1 drr", u32(1, 0)),
        klass("add", "parent 1: classid 1:1 drr"),
        klass("change", "parent 1: classid 1:2 drr"),
    ]


def nested(kind, *parts):
    return attribute(0x8000 | kind, b"".join(parts))


def u8(kind, value):
    return attribute(kind, bytes([value]))


def etss():
    yield [
        add("ets bands 3"),
        change("ets bands 5 strict 2 quanta 1000 2000"),
        change("ets strict 3 quanta 4000 3000 priomap 4 3 2 1 0"),
        klass("change", "classid 1:4 ets quantum 700"),
        klass("change", "classid 1:4 ets"),
        klass("change", "classid 1:2 ets quantum 700"),
        klass("change", "classid 1:9 ets quantum 700"),
        klass("add", "parent 1: classid 1:9 ets quantum 700"),
        klass("replace", "classid 1:5 ets quantum 800"),
        change("ets bands 2"),
        replace("ets bands 16 strict 16"),
    ]
    for rest in [
        "bands 1",
        "bands 16",
        "strict 16",
        "bands 4 strict 1 quanta 10 20 priomap 0 1 2 3 3 3 3 3 3 3 3 3 3 3 3 3",
        "quanta 4294967295",
        "bands 4 priomap 0 0 0 0",
    ]:
        yield [add("ets " + rest)]
    plain = "ets bands 3"
    bands = u8(1, 3)
    quantum = lambda value: u32(4, value)
    band = lambda value: u8(6, value)
    for options in [
        b"",
        u8(1, 0),
        u8(1, 16),
        u8(1, 17),
        bands,
        bands + u8(2, 0),
        bands + u8(2, 3),
        bands + u8(2, 4),
        bands + nested(3),
        bands + nested(3, quantum(0)),
        bands + nested(3, quantum(1), quantum(2)),
        bands + nested(3, quantum(1), quantum(2), quantum(3), quantum(4)),
        bands + u8(2, 2) + nested(3, quantum(1), quantum(2)),
        bands + nested(3, u8(4, 1)),
        bands + nested(3, band(1)),
        bands + attribute(3, quantum(1)),
        bands + nested(5),
        bands + nested(5, *[band(1)] * 16),
        bands + nested(5, *[band(1)] * 17),
        bands + nested(5, band(3)),
        bands + nested(5, quantum(1)),
        bands + nested(5, band(2), band(0), band(1)),
        bands + attribute(5, band(1)),
        u8(2, 1),
        attribute(1, b"\3\0"),
        bands + u8(7, 1),
        bands + quantum(5),
        bands + b"\1",
    ]:
        yield [add(plain, options)]
    for options in [
        b"",
        quantum(0),
        quantum(9),
        quantum(4294967295),
        attribute(4, b"\1"),
        u8(1, 3),
        u8(9, 3),
        attribute(0x8004, b"\1\0\0\0"),
    ]:
        yield [add(plain), klass("change", "classid 1:2 ets quantum 5", options)]


def qfqs():
    yield [
        add("qfq"),
        klass("add", "parent 1: classid 1:1 qfq"),
        klass("add", "parent 1: classid 1:2 qfq weight 300 maxpkt 2000"),
        klass("change", "parent 1: classid 1:2 qfq weight 10"),
        klass("change", "parent 1: classid 1:2 qfq maxpkt 3000"),
        klass("change", "parent 1: classid 1:2 qfq"),
        klass("add", "parent 1: classid 1:3 qfq weight 1000"),
        klass("add", "parent 1: classid 1:4 qfq weight 700"),
        klass("add", "parent 1: classid 1:5 qfq weight 1024 maxpkt 65536"),
        klass("add", "parent 1: classid 1:6 qfq weight 1 maxpkt 512"),
        klass("add", "parent 1: classid 1:7 qfq weight 1025"),
        klass("add", "parent 1: classid 1:7 qfq weight 0"),
        klass("add", "parent 1: classid 1:7 qfq maxpkt 511"),
        klass("add", "parent 1: classid 1:7 qfq maxpkt 65537"),
        klass("add", "parent 1:1 classid 1:8 qfq"),
        change("qfq"),
    ]
    yield [add("qfq", b"\1\0\0\0")]
    for options in [
        b"",
        u32(1, 0),
        u32(1, 513),
        u32(1, 1023),
        u32(2, 512),
        attribute(1, b"\1\0"),
        u32(3, 1),
    ]:
        yield [add("qfq"), klass("add", "parent 1: classid 1:1 qfq", options)]
    heavy = [klass("add", f"parent 1: classid 1:{n:x} qfq weight 1024") for n in range(1, 67)]
    yield [add("qfq"), *heavy, klass("change", "classid 1:1 qfq weight 1")]


def hfscs():
    yield [
        add("hfsc"),
        klass("add", "parent 1: classid 1:1 hfsc rt rate 20000 ls rate 10000"),
        klass("add", "parent 1:1 classid 1:10 hfsc rt umax 1540 dmax 5ms rate 10000 ls rate 1000"),
        klass("add", "parent 1:1 classid 1:11 hfsc sc m1 3mbit d 10ms m2 1mbit ul rate 2mbit"),
        klass("add", "parent 1:1 classid 1:12 hfsc rt m2 1mbit"),
        klass("add", "parent 1:12 classid 1:120 hfsc ls m2 1mbit"),
        klass("change", "parent 1:1 classid 1:12 hfsc ls m2 5mbit"),
        klass("change", "parent 1:1 classid 1:11 hfsc ul rate 3mbit"),
        klass("change", "classid 1:11 hfsc rt m2 7mbit"),
        klass("change", "parent 1: classid 1:11 hfsc rt m2 7mbit"),
        klass("replace", "parent 1:1 classid 1:11 hfsc ls m1 1mbit d 3s m2 40gbit"),
        klass("add", "parent 1: classid 1:2 hfsc ul rate 2mbit"),
        klass("add", "parent 1:99 classid 1:2 hfsc sc rate 2mbit"),
        klass("add", "root classid 1:2 hfsc sc rate 2mbit"),
        klass("change", "root classid 1: hfsc ls rate 2mbit"),
        change("hfsc default 20"),
        change("hfsc"),
        replace("hfsc default ffff"),
    ]
    for rest in "", " default 0", " default 10", " default ffff":
        yield [add("hfsc" + rest)]
    for options in b"", b"\1", b"\1\0", b"\1\0\2\0":
        yield [add("hfsc", options), change("hfsc default 3", options)]
    curve = lambda kind, m1=0, d=0, m2=0: attribute(kind, struct.pack("<III", m1, d, m2))
    for options in [
        b"",
        curve(1),
        curve(1, m2=1),
        curve(1, m1=1),
        curve(2, m2=1),
        curve(3, m2=1),
        curve(2, m2=1) + curve(3, m2=5),
        curve(2, m2=1) + curve(3),
        curve(1, 5000000, 10000, 70) + curve(2, 7, 0xFFFFFFFF, 0xFFFFFFFF),
        curve(1, 333, 77, 123456789) + curve(2, 1, 1, 1) + curve(3, 1000003, 3, 3),
        attribute(1, bytes(11)),
        attribute(1, struct.pack("<IIII", 1, 2, 3, 4)),
        u32(4, 1),
        curve(2, m2=1) + u32(4, 1),
    ]:
        yield [add("hfsc"), klass("add", "parent 1: classid 1:1 hfsc ls m2 1mbit", options)]


def attributes(data):
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("<HH", data)
        if not 4 <= length <= len(data):
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def messages(data):
    while len(data) >= 16:
        length, kind, flags = struct.unpack_from("<IHH", data)
        yield kind, flags, data[16:length]
        data = data[(length + 3) & ~3 :]


def shown(payload):
    return payload.hex() or "empty" if payload is not None else "-"


def entry(command, options, lines):
    """What the file says of a command, from what was printed while it ran."""
    handle, out = None, []
    for line in lines:
        if not line.startswith("@"):
            continue
        for kind, flags, body in messages(bytes.fromhex(line[3:].strip())):
            if kind in (NEWQDISC, NEWTCLASS) and line[1] == ">":
                handle = body[8:12]
                attrs = attributes(body[20:])
                name = attrs[1].rstrip(b"\0").decode()
                out.append(f"> {name} {shown(attrs.get(OPTIONS))}")
            elif kind == 2 and handle is not None and not any(o[0] == "=" for o in out):
                (errno,) = struct.unpack_from("<i", body)
                # With NLM_F_CAPPED of the request only the header is there.
                skip = 20 if flags & 0x100 else 4 + struct.unpack_from("<I", body, 4)[0]
                text = attributes(body[(skip + 3) & ~3 :]).get(1, b"").rstrip(b"\0").decode()
                out.append(f"= {-errno} {text}".rstrip())
            elif kind in (NEWQDISC, NEWTCLASS) and line[1] == "<" and body[8:12] == handle:
                attrs = attributes(body[20:])
                out.append(f"< {shown(attrs.get(OPTIONS))}")
                if XSTATS in attrs:
                    out.append(f"x {len(attrs[XSTATS])}")
    if not out:
        print(f"tc sent nothing: {command}", file=sys.stderr)
        return ""
    head = f"$ {command}" + (f" | {shown(options)}" if options is not None else "")
    return "\n".join([head, *out]) + "\n"


def main():
    program, target = os.environ["SOFTNET_QEMU_KERNEL"], sys.argv[1]
    # Of the kinds that are named, or of all but those that have a file of their own.
    named = sys.argv[2:]
    kind = lambda group: group[0][0].split("handle 1: ")[-1].split()[0]
    is_meant = lambda group: kind(group) in named if named else kind(group) not in OWN
    groups = [group for group in kinds() if is_meant(group)]
    with tempfile.TemporaryDirectory() as folder:
        library, script = folder + "/dialogue.so", folder + "/script"
        source = HERE + "/dialogue.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O", "-o", library, source], check=True)
        with open(script, "w") as file:
            for module in MODULES:
                file.write(f"mod {module}\n")
            file.write("ip7 link add d0 numtxqueues 4 type dummy\n")
            file.write("echo 1 >/proc/sys/net/ipv6/conf/d0/disable_ipv6\n")
            file.write("ip7 link set d0 arp off up\n")
            for group, commands in enumerate(groups):
                file.write("tc7 qdisc del dev d0 root 2>/dev/null\n")
                for number, (command, options) in enumerate(commands):
                    variable = f"OPTIONS={options.hex()} " if options is not None else ""
                    what = "class" if command.startswith("class") else "qdisc"
                    file.write(f"echo '@@ {group} {number}'\nexport LD_PRELOAD=/dialogue.so\n")
                    file.write(f"{variable}tc7 {command} 2>&1\n")
                    file.write(f"tc7 {what} show dev d0 >/tmp/shown\nunset LD_PRELOAD\n")
                    file.write("grep '^@' /tmp/shown\n")
        env = dict(os.environ, ADD=library, TIMEOUT="900")
        run = subprocess.run([program, script], env=env, stdout=subprocess.PIPE, check=True)
    lines, current = {}, None
    for line in run.stdout.decode(errors="replace").splitlines(keepends=True):
        if line.startswith("@@ "):
            current = lines.setdefault(tuple(map(int, line.split()[1:])), [])
        elif current is not None:
            current.append(line)
    with open(target, "w") as file:
        for group, commands in enumerate(groups):
            for number, (command, options) in enumerate(commands):
                file.write(entry(command, options, lines[group, number]))
            file.write("\n")


if __name__ == "__main__":
    main()
