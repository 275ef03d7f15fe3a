# Read by `run` and `long`.
#
# A first build is shorter without notes for the next one (incremental compilation), and with few
# units of code, each of which has copies of what is inlined. Where there are notes, they are used:
# cargo would compile everything again without.
before=${CARGO_TARGET_DIR:-target}/debug/incremental
if [ -z "$(ls -A "$before" 2>/dev/null)" ]; then
  export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=4
fi
