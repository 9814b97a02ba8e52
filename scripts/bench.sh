#!/bin/sh
# make bench: every part's figures beside its peers', as ratios from one run on one machine. A part whose peer is not
# installed says so and prints its own figure.
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
[ $# -eq 0 ] || shift
python=build/venv/bin/python
failed=0

part() {
	name=$1 script=$2
	shift 2
	$python scripts/bench_part.py "$name" $python "scripts/$script" --build "$build" "$@" || failed=1
}

echo "machine: $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)${OPENBLAS_CORETYPE:+, OPENBLAS_CORETYPE=$OPENBLAS_CORETYPE}"
part "launch, idle daemons, cost of a step" bench_launch.py
for threads in 1 2; do
	part "the trainer beside PyTorch, eager, threads $threads" bench_trainer.py --threads $threads
	part "the trainer beside PyTorch, compiled, threads $threads" bench_trainer.py --threads $threads --compile
done
part "two workers beside one" bench_mesh.py
part "the bubble of a pipeline, predicted and measured" bench_bubble.py
part "a plan beside its job: steps and memory" bench_plan.py
$python scripts/bench_part.py "the planner beside what Megatron-LM published" "$build/bin/planbench" || failed=1
part "steps in which a checkpoint is written" bench_checkpoint.py
$python scripts/bench_part.py "memory that one op adds" "$build/bin/memorybench" || failed=1
$python scripts/bench_part.py "kernels beside memcpy" "$build/bin/kernelbench" --best || failed=1
part "a newcomer" bench_newcomer.py
part "all-reduce of a GPU's memory" bench_nccl.py
part "all-reduce" bench_collectives.py "$@"
exit $failed
