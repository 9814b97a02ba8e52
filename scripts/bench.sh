#!/bin/sh
# make bench: every part's figures beside its peers', as ratios from one run on one machine. A part whose peer is not
# installed says so and prints its own figure.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
python=build/venv/bin/python
failed=0

part() {
	echo "== $1"
	shift
	"$@" || { echo "bench: failed: $*"; failed=1; }
}

echo "machine: $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
part "launch, idle daemons, cost of a step" $python scripts/bench_launch.py --build "$build"
for script in scripts/bench_trainer.py scripts/bench_data_parallel.py scripts/bench_collectives.py; do
	[ -f "$script" ] && part "$script" $python "$script"
done
exit $failed
