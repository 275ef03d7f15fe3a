#!/usr/bin/env python3
"""Runs cases of the kernel's tc test suite (tdc).

Usage: run_cases.py [--tc "PREFIX tc"] [--ip "PREFIX ip"] [--kind KIND] CASES.json…

A case is set-up commands, a command with the exit code that it must have, and a listing in which a
pattern must occur a number of times. Links of KIND (dummy) stand in for the suite's devices. Prints
a line for each case that fails; exits with 1 if one did.
"""

import argparse
import json
import re
import subprocess
import sys

DUMMY, OTHER = "tdc-dummy0", "tdc-eth0"
NETDEVSIM = re.compile(r'echo "1 1 ?(\d*)" > /sys/bus/netdevsim/new_device')

parser = argparse.ArgumentParser()
parser.add_argument("cases", nargs="+")
parser.add_argument("--tc", default="tc")
parser.add_argument("--ip", default="ip")
parser.add_argument("--kind", default="dummy")
options = parser.parse_args()
NAMES = {
    "$TC": options.tc,
    "$IP": options.ip,
    "$DUMMY": DUMMY,
    "$ETH": OTHER,
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
        ["timeout", "10", "sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


def clean():
    for name in (DUMMY, OTHER):
        run(f"$IP link del dev {name}")


def first(command):
    """A command without the exit codes that it may have."""
    return command[0] if isinstance(command, list) else command


def passes(case):
    setup = [first(command) for command in case.get("setup", [])]
    command = first(case["cmdUnderTest"])
    clean()
    if not any("link add" in command or "netdevsim" in command for command in setup):
        run(f"$IP link add dev $DUMMY type {options.kind}")
    if "$DEV1" in " ".join([*setup, command]):
        run(f"$IP link add dev $ETH type {options.kind}")
    for each in setup:
        run(each)
    code, said = run(command)
    listing = run(case["verifyCmd"])[1]
    matches = len(re.findall(case.get("matchPattern", ""), listing, re.M | re.S))
    clean()
    codes = [int(code) for code in str(case["expExitCode"]).split(",")]
    if code in codes and matches == int(case.get("matchCount", 0)):
        return True
    print(f"{case['id']} {case['name']}: exit code {code}, {matches} matches: {said.strip()}")
    return False


failed = 0
for path in options.cases:
    with open(path) as file:
        results = [passes(case) for case in json.load(file)]
    print(f"{path}: {len(results)} cases, {sum(results)} pass")
    failed += len(results) - sum(results)
sys.exit(failed > 0)
