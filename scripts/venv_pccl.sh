#!/bin/sh
# Makes build/venv-pccl with PCCL (PyPI: pypccl) for `make bench` to compare with; the wheel is for Python 3.12. Never fails: why
# PCCL cannot be used goes into build/venv-pccl.reason, and the tables print it. Tries again when that file is removed.
cd "$(dirname "$0")/.." || exit 1
venv=build/venv-pccl
[ ! -e $venv.reason ] || exit 0

give_up() {
	printf '%s\n' "$*" >$venv.reason
	exit 0
}

mkdir -p build
python=
for candidate in python3.12 "$HOME"/.pyenv/versions/3.12*/bin/python3; do
	if command -v "$candidate" >/dev/null; then
		python=$candidate
	fi
done
[ -n "$python" ] || give_up "not installed: its wheel is for Python 3.12, which is not here"
if ! [ -x $venv/bin/python ]; then
	"$python" -m venv $venv >$venv.log 2>&1 || give_up "not installed: $(tail -n 1 $venv.log)"
fi
timeout 300 $venv/bin/python -m pip install -q --disable-pip-version-check pypccl==1.0.0 numpy==2.4.1 >$venv.log 2>&1 ||
	give_up "not installed: $(grep -m 1 ERROR $venv.log)"
$venv/bin/python -c 'import pccl' >$venv.log 2>&1 && : >$venv.reason && exit 0
# A wheel that is installed but does not load: its first cause.
give_up "installed, but does not load: $(ldd $venv/lib/python3.*/site-packages/pccl/libpccl.so 2>&1 |
	sed -n "s/.*: \(version .* not found\) (required.*/\1/p; s/^\t*\(.* => not found\)/\1/p" | sort -u | tr '\n' ';')"
