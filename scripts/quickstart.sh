#!/bin/sh
# One memberd and three traind on loopback train configs/quickstart.yaml; the last line says how it went.
#
#	scripts/quickstart.sh [BUILD [--set KEY=VALUE]...]      (`make quickstart` builds first)
set -eu

cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -eq 0 ] || shift
trainctl=$build/bin/trainctl
folder=$PWD/$build/quickstart
case $build in /*) folder=$build/quickstart ;; esac
home=$folder/home
cluster=$home/cluster
began=$(date +%s)

fail() {
	echo "quickstart: failed: $*" >&2
	exit 1
}

# Every process of the cluster carries its folder in its environment.
processes_left() {
	for environ in /proc/[0-9]*/environ; do
		if tr '\0' '\n' 2>/dev/null <"$environ" | grep -qxF "TRAIND_CLUSTER=$cluster"; then
			echo "$environ" | tr -dc '0-9'
			echo
		fi
	done 2>/dev/null
}

# field NAME: of status.json; keys are unique there, quotes in strings are escaped.
field() {
	sed -n "s/.*\"$1\":\(\"[^\"]*\"\|[^,}]*\).*/\1/p" "$folder/status.json" | tr -d '"'
}

figure() {
	value=$(field "$1")
	case $value in '' | null) fail "status --json has no $1" ;; esac
	printf "$2" "$value"
}

[ -x "$trainctl" ] || fail "no $trainctl; 'make quickstart' builds it first"
unset TRAIND_ADDRESS
export TRAIND_HOME="$home"
mkdir -p "$folder"
[ ! -e "$cluster/cluster.json" ] || "$trainctl" down >/dev/null || fail "an earlier cluster in $home does not end"
rm -rf "$home" "$folder/run"
trap '"$trainctl" down >/dev/null 2>&1 || true' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

up=$("$trainctl" up --nodes 3) || fail "the cluster did not come up"
printf '%s\n' "$up" | grep -v '^next: ' # what is next comes by itself here
trap : INT # trainctl asks what Ctrl-C means
code=0
"$trainctl" launch configs/quickstart.yaml --set "checkpoint.dir=$folder/run" "$@" || code=$?
trap 'exit 130' INT
case $code in 5 | 129 | 130 | 143) exit "$code" ;; esac
[ "$code" = 0 ] || fail "trainctl launch ended with code $code; the logs are in $cluster/*/log"
job=$("$trainctl" jobs --json | sed -n 's/^\[{"id":\([0-9]*\).*/\1/p')
"$trainctl" status "$job" --json >"$folder/status.json" || fail "no status of job $job"
"$trainctl" down || fail "the cluster did not end"
trap - EXIT HUP INT TERM
left=$(processes_left | tr '\n' ' ')
[ -z "$left" ] || fail "processes are left: $left"

steps=$(field step)
[ "$steps" = "$(field steps)" ] || fail "the job was left at step $steps of $(field steps), and its cluster has been ended"
peers=$(grep -o '"state":"finished"' "$folder/status.json" | wc -l)
[ "$peers" = 3 ] || fail "$peers peers have finished, not 3"
checkpoint=$(figure checkpoint %s)
[ -s "$checkpoint/model.safetensors" ] || fail "no checkpoint in $checkpoint"
first=$(figure first_loss %.3f)
last=$(figure loss %.3f)
validation=$(figure val_loss %.3f)
rate=$(figure tokens_per_s %.0f)
seconds=$(($(date +%s) - began))
echo "quickstart: ok steps=$steps peers=$peers loss=$first->$last val_loss=$validation tokens_per_s=$rate seconds=$seconds checkpoint=$checkpoint"
