#!/usr/bin/env bash
# Instructions of one packet from `transmit` to a driver that frees it, counted by callgrind.
# Without an argument: fails if one differs by more than 3 % from docs/results/instructions.md.
# With `print`: the table's rows.
set -euo pipefail
cd "$(dirname "$0")/.."
table=docs/results/instructions.md
cargo build --release --locked -q -p softnet-bench --bin transmit_loop
program="${CARGO_TARGET_DIR:-target}/release/transmit_loop"

# What a run of the program executes, all threads.
total() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 |
    awk '/Collected/ { print $4; seen = 1 } END { exit !seen }'
}

# For each packet (or pair of them) between two counts.
each() {
  local many few
  many=$(total 30000 "$@")
  few=$(total 10000 "$@")
  echo $(((many - few) / 20000))
}

rc=0
# A device without a queue is in the table, and not compared.
qdiscs="pfifo pfifo_fast tbf prio tree"
for qdisc in ${1:+none} $qdiscs; do
  alone=$(each "$qdisc")
  if [ "$qdisc" = none ]; then
    adopted=-
  else
    adopted=$(($(each "$qdisc" adopted) - alone))
  fi
  if [ "${1:-}" = print ]; then
    echo "| \`$qdisc\` | $alone | $adopted |"
    continue
  fi
  awk -F'|' -v qdisc="$qdisc" -v alone="$alone" -v adopted="$adopted" '
    function differs(now, then) { return now != then && (now - then) ^ 2 > (0.03 * then) ^ 2 }
    { name = $2; gsub(/[` ]/, "", name) }
    name == qdisc {
      seen = 1
      bad = differs(alone, $3 + 0) || adopted != "-" && differs(adopted, $4 + 0)
      printf "%-10s alone %4d (%d), adopted %4s (%s)%s\n", qdisc, alone, $3, adopted, $4 + 0,
        bad ? ": more than 3 % apart" : ""
    }
    END { exit !seen || bad }' "$table" || rc=1
done
exit "$rc"
