#!/usr/bin/env python3
"""Records what tc tells Linux about qdiscs and classes, and what Linux answers, for
crates/softnet-rtnl.

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record_options.py FILE

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
MODULES = """sch_tbf sch_prio sch_codel sch_fq sch_fq_codel sch_mqprio_lib sch_mqprio sch_htb
dummy""".split()
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
    groups = list(kinds())
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
