#!/usr/bin/env python3
"""Records what Linux answers to the commands of control.commands.

Usage: SOFTNET_QEMU_KERNEL=PROGRAM record_control.py

PROGRAM is as in record.py. The commands are run twice: with the virtual machine's iproute2, and
with this machine's, since texts differ by version. Each recording is `control.iproute2-VERSION.txt`
in this folder: for each command its text after `$ `, what it printed, and `= EXIT CODE`.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ["tc", "ip", "bridge"]
MODULES = """llc stp bridge sch_tbf sch_htb sch_prio sch_codel sch_fq sch_fq_codel sch_mqprio_lib
sch_mqprio cls_u32 cls_flower cls_basic cls_matchall cls_fw em_cmp em_u32 em_meta act_gact
dummy""".split()
# Output goes through a file: programs that see a terminal use colours.
RUN = """run() {
  echo "$ $1"
  eval "$1" >/out 2>&1
  code=$?
  cat /out
  [ -z "$(tail -c 1 /out)" ] || echo
  echo "= $code"
}
# As compiled into a kernel that nobody configured, which is what Softnet does.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
ip link del dummy0
"""


def load(modules):
    return [f"mod {module}" for module in modules]


def script(commands, before):
    lines = [*before, RUN + "tc -V"]
    for line in commands:
        lines.append(f"echo '{line}'" if line.startswith("== ") else f"run {shlex.quote(line)}")
    return "\n".join(lines) + "\n"


def record(commands, before, start, files=()):
    """Runs the commands in the virtual machine after `start`; returns the recording and its version
    of iproute2."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(start + script(commands, before))
        file.flush()
        environment = os.environ | {"ADD": " ".join(files), "TIMEOUT": "1800"}
        command = [os.environ["SOFTNET_QEMU_KERNEL"], file.name]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    console = done.stdout.decode(errors="replace")
    kernel, version, text = re.search(
        r"== begin (\S+)\n.*?iproute2-([0-9.]+)[^\n]*\n(.*)== end", console, re.S
    ).groups()
    version = version.removesuffix(".0")
    return f"# Linux {kernel}, iproute2 {version}\n{text}", version


def own():
    """This machine's programs and their libraries."""
    files = {}
    for program in PROGRAMS:
        path = subprocess.check_output(["which", program], text=True).strip()
        files[program] = os.path.realpath(path)
        listed = subprocess.check_output(["ldd", path], text=True)
        for library in re.findall(r"(/\S+) \(0x", listed):
            files[os.path.basename(library)] = library
    loader = next(os.path.basename(name) for name in files if name.startswith("ld-"))
    return loader, list(files.values())


def recordings(commands, before):
    """Both recordings, with shell commands before them."""
    start = "".join(f'{program}() {{ {program}7 "$@"; }}\n' for program in PROGRAMS)
    yield record(commands, before, start)
    loader, files = own()
    start = "".join(
        f'{program}() {{ /{loader} --library-path / /{program} "$@"; }}\n' for program in PROGRAMS
    )
    yield record(commands, before, start, files)


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    commands = [line.rstrip("\n") for line in open(f"{HERE}/control.commands")]
    for text, version in recordings(commands, load(MODULES)):
        with open(f"{HERE}/control.iproute2-{version}.txt", "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
