"""Params: every number that was found by trial, with its reason and the benchmark that sets it.

Work is counted in one unit: placing one transfer once, about a quarter of a microsecond. The
benchmarks are ``quality`` (the distribution, ``benchmarks/quality.py``), ``constructive`` and
``scale`` (named cases). What a step costs was measured on two cores; a factor of two either way
changes little.
"""

from typing import Final

# Larger than any time: nothing was found, or never.
NEVER: Final = 2**61
# A million, for numbers of this size.
MILLION: Final = 10**6

# --- how much work ------------------------------------------------------------------------------
# Units that an effort may spend after the first schedule: about 1 s, 10 s and a quarter of an hour.
BUDGET: Final = {"quick": 4 * MILLION, "normal": 40 * MILLION, "thorough": 4000 * MILLION}
# The gap for which it is worth spending all of that; a part of the work is worth that part of the
# gap. This one rule decides whether to go on, wherever more work might help (quality).
PATIENCE: Final = {**dict.fromkeys(("quick", "normal"), 0.3), "thorough": 0.0}
# What is little beside the rest: a large problem has a budget of so many times the work of judging
# one schedule of it (scale), one construction of the best counts of chunks takes such a part of the
# budget, a first look such a part of that (quality), and periods and baselines cut chunks no finer
# than to take such a part of some link's latency: a pipeline of finer ones is always a little
# faster, if only on paper.
PART: Final = 16
# Part of the work left that a strategy leaves to those that follow (quality).
KEPT_PART: Final = 4
# Runs that a second number of chunks must be worth: one number tells nothing about more (quality).
SECOND_TRY: Final = 2
# Units of any run, however small.
RUN_UNITS: Final = 500
# Elementary steps of insertion on calendars for a unit, and of booking one transfer.
STEPS: Final = 25
BOOK_STEPS: Final = 100
# Entries of a linear program that a solver looks at in one such step, at all of them in each of its
# iterations (quality).
ENTRIES_A_STEP: Final = 8
# Orders of the transfers of a staged AllReduce that are tried without a gain (presets).
SHAKES: Final = 100
# Passes over all chunks that ruin and recreate needs, for each of four starts (quality).
PASSES_EACH: Final = 250
# Units for each transfer: a greedy run, laying it in a tree or one such run through switches,
# laying it as a path, scheduling it by one key, re-timing and judging it, making it in plain Python
# (scale).
GREEDY_UNITS: Final = 2
TREE_UNITS: Final = 8
PATH_UNITS: Final = 64
LISTING_UNITS: Final = 12
OFFER_UNITS: Final = 4
# Transfers by passages through several switches for each of which there is a gap that others try.
GAPS_EACH: Final = 4096
PYTHON_UNITS: Final = 32

# --- how many chunks ----------------------------------------------------------------------------
# Chunks up to which more are tried whatever their latencies, and the most there are: beyond the
# first a chunk takes at least as long on some link as that link's latency (quality).
MANY_CHUNKS: Final = 64
MOST_CHUNKS: Final = 4096
# Of the numbers of chunks tried, the fewest within this part of the best is taken; times that
# differ by less than this part of a chunk's time on a link differ by rounding. Where each transfer
# has an overhead the times come from measurements, which are not better than the second.
CHUNK_TOLERANCE: Final = 1000
COSTLY_CHUNK_TOLERANCE: Final = 100
# Part of the gap that twice the chunks must close for still more to be tried: where they close
# less, something else is wrong with the schedule. By such a part of the best a variant may be
# behind to be run again.
GAP_PART: Final = 20
# A gap below which narrower cuts are not looked for, which takes longer than most searches.
NARROW_GAP: Final = 0.004

# --- routes -------------------------------------------------------------------------------------
# Equal-length passages kept per pair of GPUs and first link, for fabrics with many spines (scale).
PARALLEL_WAYS: Final = 4
# Passages through several switches are listed only while there are this many or fewer, unless the
# GPUs are not connected without them.
LONG_ROUTES: Final = 20_000
# Factors of the grids of ranks that are tried for symmetry.
GRID_FACTORS: Final = 3

# --- greedy runs --------------------------------------------------------------------------------
# How many seeds belong to each of the user's.
SEEDS: Final = 1009
# Speeds of routes that are told apart; what is slower still counts like the slowest.
SPEEDS: Final = 5

# --- trees and paths under prices ---------------------------------------------------------------
# How fast a price grows as load nears the target.
STEEPNESS: Final = 30.0
# Price of time: next to nothing balances best, more keeps ways short; tried in this order.
TIME_PRICES: Final = (1e-6, 0.1)
TIME_PRICE: Final = 1e-3
# Passes over all trees.
PASSES: Final = 6
# Chunks of an exchange, per GPU, beyond which paths are laid for one source of each orbit only.
LAID_PER_GPU: Final = 80
# Units of one pass over all paths beyond which those of one source are laid in batches, and times
# in tables of insertion beyond which those, of about two gigabytes, are not made.
PASS_WORK: Final = 20 * MILLION
# How much more than the target the fullest resource may hold for paths without relays to do.
DIRECT_TOLERANCE: Final = 0.01

# How much longer than half of the time each phase of a sum that goes back out may hold anything.
PHASE_TOLERANCE: Final = 0.03
# So many transfers less than a link could take are laid for such sums: the longer one is, the less
# often the next is there in time.
RESERVE: Final = 8.0

# --- ruin and recreate --------------------------------------------------------------------------
# Jobs that are taken out at once, at most.
MOST_REMOVED: Final = 10
# Power of the finishes whose norm is the energy: one that is 2 % earlier counts half.
EXPONENT: Final = 40.0
# Temperatures at the start and at the end, in parts of the finish.
HEATS: Final = (3e-3, 3e-5)
# Elementary steps, one to two tenths of a second, after which compiled code asks whether to go on.
SLICE: Final = 5 * MILLION

# --- scheduling ---------------------------------------------------------------------------------
# Rounds of justification.
JUSTIFICATIONS: Final = 3
# Part of the bound over which chunks are spread, and the weight of work left on other resources.
SPREAD: Final = 0.8
WORK_LEFT: Final = 0.3
# Least share of the highest load with which a resource is full.
SCARCE: Final = 0.9

# --- periods ------------------------------------------------------------------------------------
# GPUs from which on periods of copies are larger and every passage has one output: those of several
# must find all of them free at once, which is the harder the more there are (scale).
MANY_GPUS: Final = 64
