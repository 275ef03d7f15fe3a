#!/usr/bin/env python3
"""As record_options.py, of sfq, red, pie and fq_pie: writes options-aqm.txt. (The kernel of the
virtual machine has no dualpi2.)

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record_aqm_options.py FILE
"""

import struct

import record_options
from record_options import add, attribute, change, replace, u32


def sfq(quantum=0, perturb=0, limit=0, divisor=0, flows=0, more=b""):
    return struct.pack("<IiIII", quantum, perturb, limit, divisor, flows) + more


def more(depth=0, headdrop=0, qmin=0, qmax=0, wlog=0, plog=0, cell=0, flags=0, max_p=0):
    numbers = struct.pack("<IIIII", depth, headdrop, 7, qmin, qmax)
    return numbers + struct.pack("<BBBBI", wlog, plog, cell, flags, max_p) + bytes(24)


def sfqs():
    yield [add("sfq"), change("sfq limit 5"), replace("sfq limit 9")]
    for rest in [
        "limit 8",
        "limit 2 depth 1 flows 1",
        "limit 3000 flows 20 depth 10",
        "limit 3000 flows 200 divisor 64",
        "perturb 10 quantum 3000",
        "divisor 512",
        "divisor 513",
        "depth 200 headdrop",
        "redflowlimit 100000 min 8000 max 60000 probability 0.2 ecn headdrop",
        "redflowlimit 100000 min 8000 max 60000 avpkt 500 burst 30 ecn harddrop limit 3000",
        "flows 1 depth 1",
    ]:
        yield [add(f"sfq {rest}")]
    for options in [
        b"",
        bytes(19),
        sfq(),
        sfq(quantum=1),
        sfq(quantum=1 << 31),
        sfq(perturb=-1),
        sfq(perturb=2147483647),
        sfq(divisor=1 << 17),
        sfq(divisor=1 << 16, flows=1 << 30, limit=1 << 31),
        sfq(flows=1),
        sfq(more=more()[:50]),
        sfq(more=more()),
        sfq(more=more(headdrop=256)),
        sfq(more=more(flags=0xF9)),
        sfq(more=more(qmin=100, qmax=50)),
        sfq(more=more(qmin=0, qmax=1 << 31)),
        sfq(more=more(qmin=1 << 30, qmax=1 << 30, wlog=2)),
        sfq(more=more(qmin=100, qmax=200, wlog=3, plog=5)),
        sfq(more=more(qmin=100, qmax=200, wlog=3, plog=40, cell=3, max_p=12345)),
        sfq(more=more(qmin=100, qmax=100, cell=32)),
        sfq(more=more(qmin=0, qmax=100, wlog=3)),
    ]:
        yield [add("sfq limit 10", options)]


def red(limit=60000, qmin=5000, qmax=15000, wlog=4, plog=18, cell=4, flags=0):
    numbers = struct.pack("<III", limit, qmin, qmax)
    return attribute(1, numbers + struct.pack("<BBBB", wlog, plog, cell, flags))


STAB = attribute(2, bytes(range(32)) * 8)


def bits(value, selector):
    return attribute(4, struct.pack("<II", value, selector))


def reds():
    yield [
        add("red limit 1M avpkt 1500 min 100K max 300K"),
        change("red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 ecn"),
        change("red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 ecn nodrop"),
        change("red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 harddrop"),
        change("red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 adaptive"),
        change("red limit 9000 avpkt 100 bandwidth 100mbit probability 0.1"),
        replace("red limit 500000 avpkt 1000"),
        change("red limit 400000 avpkt 1000 nodrop"),
    ]
    yield [add("red limit 400000 avpkt 1000 ecn nodrop harddrop adaptive")]
    for options in [
        b"",
        red(),
        STAB,
        red() + STAB,
        red() + attribute(2, bytes(255)),
        red() + attribute(2, bytes([32]) * 256),
        red(limit=0) + STAB,
        red(qmin=15001) + STAB,
        red(wlog=20) + STAB,
        red(cell=32) + STAB,
        red(plog=40) + STAB,
        red() + STAB + u32(3, 77),
        red(flags=7) + STAB,
        red(flags=8) + STAB,
        red(flags=0xF1) + STAB,
        red(flags=1) + STAB + bits(1, 1),
        red() + STAB + bits(9, 15),
        red() + STAB + bits(8, 15),
        red() + STAB + bits(8, 7),
        red() + STAB + bits(16, 16),
        red() + STAB + attribute(4, bytes(4)),
        red() + STAB + u32(5, 0),
        red() + STAB + u32(7, 1),
        attribute(1, bytes(15)) + STAB,
    ]:
        yield [add("red limit 400000 avpkt 1000", options)]
    yield [
        add("red limit 400000 avpkt 1000", red() + STAB + bits(9, 15)),
        change("red limit 400000 avpkt 1000", red(flags=2) + STAB),
        change("red limit 400000 avpkt 1000", red() + STAB + bits(0, 8)),
        change("red limit 400000 avpkt 1000", red() + STAB + bits(0, 15)),
    ]


def pies():
    # Of 20 ms and 40 ms: multiples of the ticks of every kernel's clock.
    yield [
        add("pie tupdate 20ms"),
        change("pie limit 500 target 20ms"),
        change("pie ecn bytemode alpha 5 beta 30"),
        change("pie noecn nobytemode dq_rate_estimator tupdate 40ms"),
        change("pie"),
        replace("pie limit 9 no_dq_rate_estimator"),
    ]
    for options in [
        u32(1, 0),
        u32(1, 20),
        u32(1, 4000000),
        u32(2, 0),
        u32(3, 0),
        u32(4, 4294967295),
        u32(5, 4294967295),
        u32(6, 1),
        attribute(1, b"\1"),
        attribute(2, struct.pack("<Q", 77)),
        u32(9, 1),
    ]:
        yield [add("pie tupdate 20ms", u32(3, 20000) + options)]


def fq_pies():
    yield [
        add("fq_pie tupdate 20ms"),
        change("fq_pie limit 500 target 20ms memory_limit 1m"),
        change("fq_pie ecn bytemode alpha 5 beta 30 quantum 300 ecn_prob 20"),
        change("fq_pie noecn nobytemode dq_rate_estimator tupdate 40ms"),
        change("fq_pie"),
        change("fq_pie flows 12"),
        replace("fq_pie limit 9 tupdate 20ms"),
    ]
    yield [add("fq_pie flows 65536 tupdate 20ms")]
    yield [add("fq_pie flows 65537")]


def kinds():
    yield from sfqs()
    yield from reds()
    yield from pies()
    yield from fq_pies()


if __name__ == "__main__":
    record_options.kinds = kinds
    record_options.MODULES = "sch_sfq sch_red sch_pie sch_fq_pie dummy".split()
    record_options.main()
