# The element loops are written for the vectoriser; -O3 turns it on. Floating point stays strict, so that bits are the
# same on every machine.
CFLAGS_collectives_kernels_reduce := -O3 -fno-fast-math -ffp-contract=off
