#!/bin/sh
# Makes the Python environment of the tests: build/venv, from the pinned scripts/requirements-*.txt, and the
# gRPC stubs in build/venv/stubs, from proto/. Does nothing when both are as the files say.
#
#	scripts/venv.sh [torch | stubs]		torch: PyTorch too (the CPU build, about 200 MB), and Hugging Face's libraries and tiktoken
#						where pip finds them; stubs: those alone, in the environment that is there
set -eu
cd "$(dirname "$0")/.."
venv=build/venv

fail() {
	echo "venv: $*" >&2
	exit 1
}

# Whether the environment was made from this text and for this place.
stamped() {
	[ -x $venv/bin/python ] && [ "$(cat "$venv/$1.stamp" 2>/dev/null)" = "$2" ]
}

make_venv() {
	rm -rf $venv
	mkdir -p build
	# python3 may be without venv (Debian's without python3-venv), or pyenv's, or someone else's.
	for python in "${PYTHON:-python3}" /usr/bin/python3; do
		"$python" -m venv $venv >build/venv.log 2>&1 && return
		rm -rf $venv
	done
	tail -n 5 build/venv.log >&2
	fail "no python3 can make an environment; on Debian: apt-get install python3-venv"
}

install_requirements() {
	echo "venv: installing $(sed -n '/^#/!p' "$1" | tr '\n' ' ')"
	file=$1
	shift
	$venv/bin/python -m pip install -q --disable-pip-version-check -r "$file" "$@" >build/venv.log 2>&1
}

base_stamp="$PWD $(cksum <scripts/requirements-test.txt)"
if [ "${1:-}" = stubs ]; then
	[ -x $venv/bin/python ] || fail "there is no $venv yet: run scripts/venv.sh"
elif ! stamped base "$base_stamp"; then
	make_venv
	install_requirements scripts/requirements-test.txt || {
		tail -n 10 build/venv.log >&2
		fail "pip failed"
	}
	printf '%s\n' "$base_stamp" >$venv/base.stamp
fi

stubs_stamp=$(find proto -name '*.proto' -exec cat {} + | cksum)
if ! stamped stubs "$stubs_stamp"; then
	rm -rf $venv/stubs
	mkdir -p $venv/stubs
	find proto -name '*.proto' -exec $venv/bin/python -m grpc_tools.protoc -Iproto --python_out=$venv/stubs \
		--grpc_python_out=$venv/stubs {} +
	printf '%s\n' "$stubs_stamp" >$venv/stubs.stamp
fi

torch_stamp="$base_stamp $(cksum <scripts/requirements-torch.txt)"
if [ "${1:-}" = torch ] && ! stamped torch "$torch_stamp"; then
	# Where pip's own configuration knows no CPU build, PyTorch's index does.
	install_requirements scripts/requirements-torch.txt ||
		install_requirements scripts/requirements-torch.txt \
			--extra-index-url https://download.pytorch.org/whl/cpu || {
		tail -n 10 build/venv.log >&2
		fail "pip could not install PyTorch"
	}
	printf '%s\n' "$torch_stamp" >$venv/torch.stamp
fi

# A stage of its own: tests that need them are skipped where they cannot be installed.
hf_stamp="$torch_stamp $(cksum <scripts/requirements-huggingface.txt)"
if [ "${1:-}" = torch ] && ! stamped huggingface "$hf_stamp"; then
	if install_requirements scripts/requirements-huggingface.txt; then
		printf '%s\n' "$hf_stamp" >$venv/huggingface.stamp
	else
		echo "venv: without Hugging Face's libraries and tiktoken, their tests are skipped: $(tail -n 1 build/venv.log)"
	fi
fi
