#!/bin/sh
# Installs the Debian packages that a set of tasks needs, with apt, as root or through sudo. Quiet and
# fast when all is there. Elsewhere: one line that lists what to install.
#
#	scripts/deps.sh [build] [test] [check] [fuzz] [bench] [ci]      (no argument: build)
set -eu

packages_of() {
	case $1 in
	build) echo gcc libc6-dev make pkg-config protobuf-compiler protobuf-c-compiler libprotobuf-c-dev \
		libuv1-dev libraft-dev libnghttp2-dev libssl-dev libyaml-dev libhwloc-dev libxxhash-dev \
		libopenblas-dev libdnnl-dev libpcre2-dev zlib1g-dev jargon-text ;;
	test) packages_of build; echo g++ git iproute2 libcmocka-dev openssl procps python3 python3-venv ;;
	check) packages_of test; echo clang-14 clang-tidy-14 clang-format-14 shellcheck ;;
	fuzz) packages_of test; echo clang-14 libclang-rt-14-dev ;;
	bench) packages_of test; echo openmpi-bin libopenmpi-dev libgloo-dev ;;
	ci) packages_of check; echo openmpi-bin libopenmpi-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static ;;
	*) echo "deps: unknown set '$1', allowed: build test check fuzz bench ci" >&2; exit 2 ;;
	esac
}

[ $# -gt 0 ] || set -- build
wanted=
for set_name in "$@"; do
	wanted="$wanted $(packages_of "$set_name")"
done
wanted=$(printf '%s\n' $wanted | sort -u)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	# Another system: what counts is whether the tools and libraries are there under any name.
	if command -v pkg-config >/dev/null && command -v protoc-c >/dev/null &&
		pkg-config --exists libuv raft libprotobuf-c libnghttp2 hwloc libxxhash openssl libpcre2-8; then
		exit 0
	fi
	echo "deps: no apt here; install what Debian 12 calls:" $wanted >&2
	exit 1
fi

# ${Provides} as well: libblas, pkg-config and others are met by other packages.
present=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Provides}\n' 2>/dev/null |
	sed -n 's/^installed //p' | sed 's/([^)]*)//g' | tr ', ' '\n\n' | sort -u)
missing=$(printf '%s\n' "$present" "$present" "$wanted" | sort | uniq -u)
# Slim images leave out /usr/share/doc, where the text is that the quickstart learns from.
text=/usr/share/doc/jargon-text/jargon.txt.gz
[ -e $text ] || missing=$(printf '%s\n' $missing jargon-text | sort -u)
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null && ! [ -t 0 ]; then
		echo "deps: not root and no sudo without a password; as root: apt-get install" $missing >&2
		exit 1
	fi
	as_root=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "deps: installing" $missing
install_missing() {
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends --reinstall \
		-o DPkg::Lock::Timeout=300 -o DPkg::Options::=--path-include="${text%/*}/*" $missing >"$log" 2>&1
}
# The lists may be absent (a fresh image) or old; then refresh them and try once more.
install_missing || { $as_root apt-get update -q >"$log" 2>&1 && install_missing; } || {
	tail -n 15 "$log" >&2
	echo "deps: apt-get failed; by hand: apt-get install" $missing >&2
	exit 1
}
