#!/usr/bin/env python3
"""Manual pages of libtraincoll from the comments of its headers, so that neither can say what the other does not.

usage: make_man.py FOLDER VERSION HEADER..."""
import pathlib
import re
import sys

PAGES = {
    "tr_group_join": ("join a group of peers, leave it, get memory from it",
                      ["tr_transport", "tr_policy", "tr_algorithm", "tr_join_options", "tr_group_join", "tr_group_attach",
                       "tr_group_leave", "tr_alloc", "tr_alloc_sparse", "tr_peer_id"]),
    "tr_state_add": ("what a peer that comes later gets from the others",
                     ["tr_state_add", "tr_state_add_gradual", "tr_state_ready", "tr_state_receive", "tr_state_receive_for", "tr_state_progress"]),
    "tr_round_begin": ("rounds: begin, wait, commit; whose data is in a result",
                       ["tr_round", "tr_round_begin", "tr_round_contributors", "tr_wait", "tr_wait_for", "tr_release", "tr_commit", "tr_round_commit", "tr_round_commit_for", "tr_progress",
                        "tr_contributors", "tr_run_elements"]),
    "tr_submit": ("collectives: all-reduce, reduce-scatter, all-gather, broadcast, barrier, send, receive",
                  ["tr_collective", "tr_dtype", "tr_reduce", "tr_codec", "tr_block", "tr_scope", "tr_op", "tr_submit", "tr_allreduce",
                   "tr_reduce_scatter", "tr_allgather", "tr_broadcast", "tr_barrier", "tr_send", "tr_recv",
                   "tr_block_range"]),
    "tr_stats_get": ("what a group does: its choice of algorithms, its counters, its links",
                     ["tr_explain", "tr_stats", "tr_stats_get", "tr_link", "tr_links"]),
    "tr_sync_create": ("training that talks rarely: local SGD, DiLoCo, streaming, eager, HDET",
                       ["tr_sync_mode", "tr_sync_weights", "tr_sync_tensor", "tr_sync_options", "tr_sync_complete", "tr_sync_merges", "tr_sync_create", "tr_sync_work",
                        "tr_sync_now", "tr_sync_start", "tr_sync_step", "tr_sync_resume", "tr_sync_steps", "tr_sync_sample", "tr_sync_outer", "tr_sync_momentum",
                        "tr_sync_ready", "tr_sync_lr_base", "tr_sync_follow", "tr_sync_origin", "tr_sync_races", "tr_sync_sound", "tr_sync_kept_bytes", "tr_sync_keep",
                        "tr_sync_bring", "tr_sync_destroy"]),
    "tr_domain_open": ("collectives inside a failure domain: the GPUs of a host, the ranks of an mpirun",
                       ["tr_domain_options", "tr_domain_open", "tr_domain_lead", "tr_domain_close", "tr_domain_rank", "tr_domain_size",
                        "tr_domain_round_begin", "tr_domain_allreduce", "tr_domain_progress", "tr_domain_commit", "tr_domain_op",
                        "tr_domain_inside"]),
    "tr_status_name": ("statuses and errors of all calls", ["tr_error", "tr_status_name", "tr_status_text"]),
    "tr_report": ("what traind tells and is told", ["tr_report", "tr_plan_now", "tr_assignment", "tr_assignment_get"]),
}
DECLARATION = re.compile(r"(?P<comment>(?:^/\*(?:[^*]|\*(?!/))*\*/\n)?)(?P<code>^(?:TR_API [^;]*;|(?:enum|struct) \w+ \{.*?\};))",
                         re.M | re.S)


def items(path):
    """{name: (comment as lines, declaration, header)}; a function may share its name with a struct, so those end in ()."""
    found, header = {}, pathlib.Path(path).read_text()
    for match in DECLARATION.finditer(header):
        code = match["code"]
        function = re.match(r"TR_API [^(]*?\b(\w+)\(", code)
        name = function[1] + "()" if function else re.match(r"(?:enum|struct) (\w+)", code)[1]
        text = re.sub(r"^/\*\s?|\s*\*/\s*$", "", match["comment"])
        found[name] = ([re.sub(r"^ \* ?", "", line) for line in text.split("\n")] if text.strip() else [], code, path)
    return found


def escape(line):
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line[:1] in (".", "'") else line


def prose(lines):
    """Paragraphs; indented lines stay as they are."""
    out, verbatim = [], False
    for line in lines:
        indented = line.startswith(("\t", "    "))
        if indented != verbatim and (line.strip() or verbatim):
            out.append(".in +4n\n.EX" if indented else ".EE\n.in")
            verbatim = indented
        if line.strip():
            out.append(escape(line.expandtabs(8)[8:] if indented and line.startswith("\t") else line.strip()))
        elif not verbatim:
            out.append(".PP")
    return out + ([".EE\n.in"] if verbatim else [])


def page(name, summary, names, found, version):
    functions = [n for n in names if n + "()" in found]
    chosen = [key for n in names for key in (n, n + "()") if key in found]
    headers = list(dict.fromkeys(found[key][2] for key in chosen))
    out = [f'.TH {name} 3 "" "libtraincoll {version}" "libtraincoll"', ".SH NAME",
           escape(", ".join(functions or names)) + " \\- " + escape(summary), ".SH SYNOPSIS", ".nf",
           *(f".B #include <{header}>" for header in headers), ""]
    for key in chosen:
        if key.endswith("()"):
            out += [escape(line.expandtabs(8)) for line in re.sub(r"^TR_API ", "", found[key][1]).split("\n")]
    out += [".fi", ".SH DESCRIPTION"]
    for key in chosen:
        comment, code, _ = found[key]
        if not comment and key.endswith("()"):
            continue
        out += [f".SS {escape(key)}"] + prose(comment)
        if not key.endswith("()"):
            out += [".PP", ".EX"] + [escape(line.expandtabs(8)) for line in code.split("\n")] + [".EE"]
    others = sorted(set(PAGES) - {name})
    return "\n".join(out + [".SH SEE ALSO", ",\n".join(f".BR {other} (3)" for other in others), ""])


def main():
    folder, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    found = {name: item for path in sys.argv[3:] for name, item in items(path).items()}
    listed = {n for _, names in PAGES.values() for n in names}
    missing = sorted(key for key in found if key.removesuffix("()") not in listed)
    unknown = sorted(n for n in listed if n not in found and n + "()" not in found)
    if missing or unknown:
        sys.exit(f"make_man.py: in no page: {missing}; not in the headers: {unknown}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (summary, names) in PAGES.items():
        (folder / f"{name}.3").write_text(page(name, summary, names, found, version))
        for other in names:
            if other + "()" in found and other != name:
                (folder / f"{other}.3").write_text(f".so man3/{name}.3\n")


main()
