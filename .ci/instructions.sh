#!/usr/bin/env bash
# Instructions of one packet from `transmit` to a driver that frees it, counted by callgrind.
# Without an argument: fails if one differs by more than 2 % from docs/results/instructions.md.
# With `print`: the table's rows.
set -euo pipefail
cd "$(dirname "$0")/.."
table=docs/results/instructions.md
# Without the flag of .cargo/config.toml (which any other takes the place of): what fills the space
# before branches would be counted, and changes with all that lies before it.
export RUSTFLAGS=-Cdebuginfo=1 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/instructions"
cargo build --release --locked -q -p softnet-instructions
program="$CARGO_TARGET_DIR/release/transmit_loop"

# What a run of the program executes, all threads.
total() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 |
    awk '/Collected/ { print $4; seen = 1 } END { exit !seen }'
}

# For each packet (or pair of them) between two counts.
each() {
  local many few
  many=$(total 9600 "$@")
  few=$(total 3200 "$@")
  echo $(((many - few) / 6400))
}

rc=0
qdiscs="noqueue pfifo bfifo pfifo_head_drop pfifo_fast prio tbf tbf-parallel codel fq_codel fq"
for qdisc in $qdiscs tree htb htb-parallel; do
  alone=$(each "$qdisc")
  list=$(each "$qdisc" list)
  # A device without a queue adopts nothing.
  adopted=-
  [ "$qdisc" = noqueue ] || adopted=$(($(each "$qdisc" adopted) - alone))
  row="| \`$qdisc\` | $alone | $list | $adopted |"
  if [ "${1:-}" = print ]; then
    echo "$row"
    continue
  fi
  paste -d'|' <(grep -F "| \`$qdisc\` |" "$table" || echo '|||||') <(echo "$row") |
    awk -F'|' '
      function differs(then, now) { return (now - then) ^ 2 > (0.02 * then) ^ 2 }
      {
        for (i = 3; i <= 5; i++) bad = bad || differs($i + 0, $(i + 6) + 0)
        gsub(/[` ]/, "", $8)
        printf "%-18s alone %d (%d), list %d (%d), adopted %d (%d)%s\n", $8, $9, $3, $10, $4,
          $11, $5, bad ? ": more than 2 % apart" : ""
      }
      END { exit bad }' || rc=1
done
exit "$rc"
