"""docs/results/README.md and its plots, out of the runs that are kept. Says how many seeds each figure has, and what is missing."""
import claims
import plan
import plot
import preface

TABLE_HEAD = "| arm | seeds | tokens | validation loss | spread | against the first | sent by a worker | CPU |\n|---|---|---|---|---|---|---|---|\n"


def found_of(study, kept):
    """{arm's name: {seed: result}} of what has been run."""
    seeds = getattr(study, "SEEDS", plan.SEEDS)
    runs = {arm.name: {seed: kept.get(plan.Run(arm, seed, plan.settings_of(arm, seed))) for seed in seeds} for arm in study.ARMS}
    return {name: {seed: result for seed, result in by_seed.items() if result} for name, by_seed in runs.items()}


def losses_of(found):
    return {name: {seed: result["val_loss"] for seed, result in by_seed.items()} for name, by_seed in found.items()}


def tokens_of(found):
    """Of runs that were not resumed: those before a stop are not known."""
    return {name: {seed: result["tokens"] for seed, result in by_seed.items() if not result["resumed"]} for name, by_seed in found.items()}


def tokens_text(results):
    known = [result["tokens"] / 1e6 for result in results if not result["resumed"]]
    if not known:
        return "not known"
    least, most = min(known), max(known)
    return f"{least:.1f} M" if most < 1.005 * least else f"{least:.1f} to {most:.1f} M"


def bytes_text(count):
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def sent_text(results):
    """Of runs that were not resumed: what was sent before a stop is not known."""
    whole = [sent for result in results for sent in result["sent"] if not sent["from_step"] and sent["workers"]]
    return bytes_text(claims.mean((sent["tcp_bytes"] + sent["shm_bytes"]) / sent["workers"] for sent in whole)) if whole else "not known"


def row_of(arm, first, found, wanted):
    results = list(found[arm.name].values())
    if not results:
        return f"| {arm.name} | 0 of {wanted} | | | | | | |\n"
    losses = [result["val_loss"] for result in results]
    pairs = claims.common(losses_of(found), arm, first)
    against = f"{claims.mean(a / b - 1 for a, b in pairs):+.2%}" if pairs and arm != first else ""
    spread = f"{min(losses):.4f} to {max(losses):.4f}" if len(losses) > 1 else ""
    known = [result["cpu_s"] for result in results if result["cpu_s"] is not None]
    cpu = f"{claims.mean(known) / 60:.0f} min" if known else "not known"
    mark = " (resumed)" if any(result["resumed"] for result in results) else ""
    return f"| {arm.name}{mark} | {len(results)} of {wanted} | {tokens_text(results)} | {claims.mean(losses):.4f} | {spread} | {against} | {sent_text(results)} | {cpu} |\n"


def claims_text(study, losses, tokens):
    lines = []
    for claim in getattr(study, "CLAIMS", []):
        verdict = claim.judge(losses, tokens)
        values = ", ".join(f"{value:+.2%}" for value in verdict.values)
        lines.append(f"* {verdict.words}: **{verdict.standing}**" + (f" ({values})" if values else "") + "\n")
    return "".join(lines)


def section(study, kept, folder, facts):
    name = study.__name__.removeprefix("studies.")
    found = found_of(study, kept)
    wanted = len(getattr(study, "SEEDS", plan.SEEDS))
    out = [f"## {study.TITLE}\n\n", (study.__doc__ or "").strip(), "\n\n"]
    if hasattr(study, "NOTES"):
        out += [study.NOTES, "\n\n"]
    if study.ARMS:
        out += [TABLE_HEAD, *[row_of(arm, study.ARMS[0], found, wanted) for arm in study.ARMS], "\n"]
    told = claims_text(study, losses_of(found), tokens_of(found))
    out += [told, "\n"] if told else []
    out += [study.extra(facts)] if hasattr(study, "extra") else []
    picture = folder / f"{name}.svg"
    if plot.draw(picture, study, found):
        out.append(f"![{study.TITLE}]({picture.name})\n\n")
    else:
        picture.unlink(missing_ok=True)
    return "".join(out)


def write(folder, found_studies, kept, facts=None):
    """`facts`: the folder of what is measured apart from runs; else the same."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = plan.runs(found_studies)
    there = [run for run in runs if kept.has(run)]
    parts = [preface.text(there, runs, kept), *[section(study, kept, folder, facts or folder) for study in found_studies]]
    (folder / "README.md").write_text("".join(parts).rstrip() + "\n")
