#!/usr/bin/env python3
"""Runs cases of the kernel's tc test suite (tdc).

Usage: run_cases.py [--tc "PREFIX tc"] [--ip "PREFIX ip"] [--kind KIND] [--without ID,…] CASES.json…

A case is set-up commands, a command with the exit code that it must have, and a listing in which a
pattern must occur a number of times; in the suite's words, or in short ones (cmd, exit, verify,
match, count). Links of KIND (dummy) stand in for the suite's devices. Prints a line for each case
that fails, and how many passed; exits with 1 if one failed.
"""

import argparse
import json
import re
import subprocess
import sys

NETDEVSIM = re.compile(r'echo "1 1 ?(\d*)" > /sys/bus/netdevsim/new_device')
KINDS = "csum gact mirred pedit police simple skbedit skbmod vlan".split()

parser = argparse.ArgumentParser()
parser.add_argument("cases", nargs="+")
parser.add_argument("--tc", default="tc")
parser.add_argument("--ip", default="ip")
parser.add_argument("--kind", default="dummy")
parser.add_argument("--without", default="")
options = parser.parse_args()
DUMMY, ETH, OTHER = "tdc-dummy0", "tdc-eth0", "tdc-eth1"
NAMES = {
    "$TC": options.tc,
    "$IP": options.ip,
    "$DUMMY": DUMMY,
    "$ETH": ETH,
    "$DEV0": ETH,
    "$DEV1": OTHER,
    "$DEV2": DUMMY,
}


def run(command):
    """A command's exit code and what it printed."""
    if match := NETDEVSIM.match(command):
        count = match.group(1) or 1
        queues = f"numtxqueues {count} numrxqueues {count}"
        command = f"$IP link add dev $ETH {queues} type {options.kind}"
    elif "netdevsim/del_device" in command:
        command = "$IP link del dev $ETH"
    elif "link add" in command:
        command = command.replace("type dummy", f"type {options.kind}")
    for name, value in NAMES.items():
        command = command.replace(name, value)
    done = subprocess.run(
        ["timeout", "20", "sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


def clean():
    for name in (DUMMY, ETH, OTHER):
        run(f"$IP link del dev {name}")


def first(command):
    """A command without the exit codes that it may have."""
    return command[0] if isinstance(command, list) else command


def passes(case):
    setup = [first(command) for command in case.get("setup", [])]
    command = first(case.get("cmd") or case["cmdUnderTest"])
    clean()
    text = json.dumps(case)
    added = [name for name in ("$DUMMY",) if not any_adds(setup, name)]
    added += [name for name in ("$DEV1",) if name in text]
    for name in added:
        run(f"$IP link add dev {name} type {options.kind}")
        run(f"$IP link set dev {name} up")
    if "action" in text:
        for kind in KINDS:
            run(f"$TC actions flush action {kind}")
    for each in setup:
        run(each)
    code, said = run(command)
    listing = run(case.get("verify") or case["verifyCmd"])[1]
    pattern = case.get("match", case.get("matchPattern", ""))
    matches = len(re.findall(pattern, listing, re.M))
    clean()
    codes = case.get("exit", case.get("expExitCode", 0))
    codes = [int(code) for code in str(codes).split(",")]
    if code in codes and matches == int(case.get("count", case.get("matchCount", 0))):
        return True
    print(f"{case['id']} {case['name']}: exit code {code}, {matches} matches: {said.strip()}")
    return False


def any_adds(setup, name):
    return any("link add" in command and name in command for command in setup)


without = options.without.split(",")
passed = failed = 0
for path in options.cases:
    with open(path) as file:
        cases = [case for case in json.load(file) if case["id"] not in without]
    results = [passes(case) for case in cases]
    print(f"{path}: {sum(results)} passed, {len(results) - sum(results)} failed", flush=True)
    passed += sum(results)
    failed += len(results) - sum(results)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
