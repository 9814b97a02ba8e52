"""What stands above the tables of docs/results/README.md: how to read them, data, settings, what has been run."""
import plan

TEXT = """# Experiments

Made by `make experiments` (scripts/experiments) out of [runs/](runs/), which has one file a run: settings, commit, machine, seed, curves, validation loss, tokens,
bytes, rounds, time. Do not edit this page. `make experiments` runs what is missing and can be stopped and called again; `make experiments-tables` makes this page
anew. Of {wanted} runs {there} have been done.

A study, that is a section below, is a file of scripts/experiments/studies: its arms, what is claimed of them, and `extra`, what was measured apart from these runs:
bytes on the wire (wire.py), times (timing.py; on an idle machine), what machines that come and go and long links cost (the last sections, which train nothing in earnest).

## How to read it

*Validation loss*: nats a byte on held-out text that no run trains on, the same {windows} windows of {context} bytes for all, at the last step, of the outer parameters
(what a job saves). *Spread*: least and greatest of the seeds. *Against the first*: mean over seeds of the loss relative to the table's first arm with the same seed,
which has the same initial weights and the same batches. A claim is judged on what is there, and says of how many seeds. *Sent by a worker*: over the whole run, headers and signs of life of
its group included, through shared memory where workers share a machine, as here (tr_stats). *Resumed*: the run was stopped and went on from a checkpoint, which holds the AdamW moments of
one worker for all. CPU is of all workers together; these runs share the machine with other work, so their times say nothing.

## What is trained

Unless an arm says otherwise: a GPT of {layers} layers, {width} wide, {heads} heads, on bytes, context {context}: {parameters:,} parameters; {steps} steps of
{batch} tokens, {tokens:.2f} M in all, {per_parameter:.1f} a parameter, less than one pass over the text. AdamW: learning rate {lr:g} after {warmup} steps, by a cosine to {min_lr:g}; betas {beta1:g} and {beta2:g},
weight decay {weight_decay:g}, clip {clip:g}. Outer settings are the papers' (docs/job-file.md has them as defaults): DiLoCo 0.7 and Nesterov 0.9, streaming 0.4, 0.9 and alpha 0.5;
with them workers have a learning rate of 0.0007. Batch, learning rates and beta2 were tuned in short runs with one seed, learning rates in whole ones too: the first table below. Data parallel is one worker with the whole batch: the same arithmetic as several
that sum their gradients at every step, but for the order of the sums.

The text (16.5 MB, sha256 {text:.12}..., put together by scripts/experiments/text.py from Debian packages): the King James Bible (bible-kjv-text, 4.4 MB), the Jargon File (jargon-text, 1.7),
the Devil's Dictionary (dict-devil, 0.4), a quarter of GCIDE, Webster's dictionary of 1913 for the most part (dict-gcide, 10.0). Of pieces of 16 KiB every 32nd is held out.

"""


def text(there, runs, kept):
    train, model = plan.TRAIN, plan.MODEL
    parameters, tokens = plan.parameters_of(model), train["steps"] * train["batch_tokens"]
    whole = TEXT.format(wanted=len(runs), there=len(there), windows=train["eval_sequences"], parameters=parameters, batch=train["batch_tokens"],
                        tokens=tokens / 1e6, per_parameter=tokens / parameters, text=plan.TEXT, **model,
                        **{key: train[key] for key in ("steps", "lr", "warmup", "min_lr", "beta1", "beta2", "weight_decay", "clip")})
    results = [kept.get(run) for run in there]
    machines = sorted({f"{result['machine']['cpu']}, {result['machine']['cores']} cores, Linux {result['machine']['kernel']}" for result in results})
    commits = sorted({result["commit"] for result in results})
    if results:
        whole += f"Machine: {'; '.join(machines)}. Commits: {', '.join(commits)}.\n\n"
    missing = [f"{run.arm.name} {run.seed}" for run in runs if run not in there]
    if missing:
        whole += f"Missing (arm and seed): {', '.join(missing)}.\n\n"
    return whole
