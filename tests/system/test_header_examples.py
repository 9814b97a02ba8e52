"""The examples at the head of the public headers: taken out of the comment, completed with what they leave open, compiled, and run against a
real memberd. So they stay true."""
import re
import subprocess

import pytest

from harness import Cluster
from stubs import BUILD, ROOT

LIBRARY = BUILD / "lib" / "libtraincoll.so"
HEAD = r"""
#include <stdio.h>
#include <stdlib.h>

#include "collectives/coll.h"
#include "collectives/domain.h"
#include "collectives/sync.h"

static void die(const char *text)
{
	fprintf(stderr, "%s\n", text);
	exit(1);
}
"""
COLL = HEAD + r"""
static const size_t count = 1000;

static void fill(float *x, unsigned index, unsigned contributors)
{
	(void)contributors;
	for (size_t i = 0; i < count; i++)
		x[i] = (float)(index + i);
}

static bool enough(const float *x, const struct tr_round *round)
{
	unsigned n = round->contributors;
	for (size_t i = 0; i < count; i++)
		if (x[i] != (float)(n * i + n * (n - 1) / 2))
			die("this is not the sum");
	printf("round %llu: %u\n", (unsigned long long)round->round, n);
	return round->round == 3;
}

int main(void)
{
	@EXAMPLE@
	return 0;
}
"""
SYNC = HEAD + r"""
static void inner_step(float *w, uint64_t step, unsigned index, unsigned contributors)
{
	(void)step;
	w[0] += (float)(index + 1) / (float)contributors;
}

int main(void)
{
	enum { rows = 2, columns = 3 };
	static float w[rows * columns];
	const double tokens = 10;
	struct tr_sync_now now = { 0 };
	struct tr_error error;
	tr_group *group;
	@EXAMPLE@
	printf("%llu steps, w", (unsigned long long)now.step);
	for (int i = 0; i < rows * columns; i++)
		printf(" %.9g", w[i]);
	printf("\n");
	tr_group_leave(group);
	return 0;
}
"""
DOMAIN = HEAD + r"""
static const size_t count = 1000;
static float x[1000];
static struct tr_join_options join_options = TR_JOIN_OPTIONS_INIT;

static void fill(float *at)
{
	at[0] = 1;
}

int main(void)
{
	tr_group *group = NULL;
	@EXAMPLE@
	return 0;
}
"""


@pytest.fixture
def cluster(tmp_path):
    if BUILD.name != "build":
        pytest.skip("a user's program links the plain library")
    cluster = Cluster(tmp_path, nodes=0)
    try:
        cluster.start_memberd()
        yield cluster
    finally:
        cluster.stop()


def example(header):
    """The indented lines of the header's first comment."""
    comment = (ROOT / "collectives" / header).read_text().split("*/", 1)[0]
    lines = [line[3:] for line in comment.split("\n") if line.startswith(" *\t")]
    assert len(lines) > 10
    return "\n\t".join(lines)


def replaced(text, old, new):
    assert text.count(old) == 1, f"{old}: {text}"
    return text.replace(old, new)


def compiled(source, folder, *flags):
    path = folder / "example.c"
    path.write_text(source)
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}", *flags, "-o", folder / "example", path,
                    f"-L{LIBRARY.parent}", "-ltraincoll", f"-Wl,-rpath,{LIBRARY.parent}"], check=True)
    return folder / "example"


def run(program, processes):
    running = [subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for _ in range(processes)]
    try:
        ends = [process.communicate(timeout=300) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert all(process.returncode == 0 for process in running), ends
    return [out for out, _ in ends]


def test_the_example_of_coll(cluster, tmp_path):
    """Four processes, as it says."""
    text = replaced(example("coll.h"), "127.0.0.1:7070", cluster.memberd.address)
    text = re.sub(r"\n(\s*)\.\.\.[^\n]*", r"\n\1if (enough(x, &round))\n\1\tbreak;", text, count=1)
    assert "..." not in text and "enough" in text
    outputs = run(compiled(COLL.replace("@EXAMPLE@", text), tmp_path), 4)
    assert outputs == ["round 1: 4\nround 2: 4\nround 3: 4\n"] * 4


def test_the_example_of_sync(cluster, tmp_path):
    """Two processes, as it says. Four times they go 5 steps, one by 1/2 a step and the other by 1, and take DiLoCo's outer step with the mean."""
    text = replaced(example("sync.h"), "options.inner_steps = 500;", "options.inner_steps = 5;\n\toptions.steps = 20;")
    text = replaced(text, "127.0.0.1:7300", cluster.memberd.address)
    assert text.count("join.size = 2;") == 1
    outputs = run(compiled(SYNC.replace("@EXAMPLE@", text), tmp_path), 2)
    assert outputs[0] == outputs[1]
    words = outputs[0].split()
    assert words[:3] == ["20", "steps,", "w"]
    w = v = 0.0
    for _ in range(4):
        v = 0.9 * v + 5 * (1 / 2 + 1) / 2
        w += 0.7 * (5 * (1 / 2 + 1) / 2 + 0.9 * v)
    assert [float(x) for x in words[3:]] == pytest.approx([w, 0, 0, 0, 0, 0], rel=1e-6)


def test_the_example_of_domain_compiles(tmp_path):
    """Its run needs an mpirun: tests/system/test_backend_mpi.py has one of its kind."""
    text = re.sub(r"\n(\s*)\.\.\.[^\n]*", r"\n\1break;", example("domain.h"), count=1)
    compiled(DOMAIN.replace("@EXAMPLE@", text), tmp_path, "-fsyntax-only")
