"""Compiled run of a program's control flow; see `flow`."""

import numpy as np

from teccl._kernels import kernel


@kernel
def completed(
    first, first_wait, wait_block, wait_number, published, count, out, into, depth, num_connections
):
    """Let blocks advance until none can.

    Parameters
    ----------
    first
        Each block's first action, and the end of the last.
    first_wait, wait_block, wait_number
        Where an action's waits stand, and blocks and published numbers that they are for.
    published
        The number that an action publishes, -1 for none.
    count
        Chunks that it moves.
    out, into
        Connections that it sends on and receives on, -1 for none.
    depth
        Chunks that fit a connection.
    num_connections
        How many there are.

    Returns
    -------
    order, place
        Actions in the order in which they completed, and how many of each block did.
    """
    num_blocks = len(first) - 1
    order = np.empty(len(count), dtype=np.int64)
    done = 0
    place = np.zeros(num_blocks, dtype=np.int64)
    moved = np.zeros(num_blocks, dtype=np.int64)
    latest = np.full(num_blocks, -1)
    queued = np.zeros(num_connections, dtype=np.int64)
    # Who waits: for progress of a block (a chain), for data on a connection, for room on one.
    for_progress = np.full(num_blocks, -1)
    next_waiting = np.full(num_blocks, -1)
    for_data = np.full(num_connections, -1)
    for_room = np.full(num_connections, -1)
    # A block stands here or waits for one thing, never both.
    ready = np.arange(num_blocks - 1, -1, -1)
    num_ready = num_blocks
    while num_ready:
        num_ready -= 1
        block = ready[num_ready]
        waiting = False
        for action in range(first[block] + place[block], first[block + 1]):
            if moved[block] == 0:
                for i in range(first_wait[action], first_wait[action + 1]):
                    target = wait_block[i]
                    if latest[target] < wait_number[i]:
                        next_waiting[block] = for_progress[target]
                        for_progress[target] = block
                        waiting = True
                        break
                if waiting:
                    break
            sends, receives = out[action], into[action]
            while (sends >= 0 or receives >= 0) and moved[block] < count[action]:
                # Chunks pass one by one, but nobody else can tell.
                able = count[action] - moved[block]
                if receives >= 0:
                    able = min(able, queued[receives])
                    if able == 0:
                        for_data[receives] = block
                if able and sends >= 0:
                    able = min(able, depth - queued[sends])
                    if able == 0:
                        for_room[sends] = block
                if able == 0:
                    waiting = True
                    break
                moved[block] += able
                if receives >= 0:
                    queued[receives] -= able
                    if for_room[receives] >= 0:
                        ready[num_ready] = for_room[receives]
                        num_ready += 1
                        for_room[receives] = -1
                if sends >= 0:
                    queued[sends] += able
                    if for_data[sends] >= 0:
                        ready[num_ready] = for_data[sends]
                        num_ready += 1
                        for_data[sends] = -1
            if waiting:
                break
            moved[block] = 0
            order[done] = action
            done += 1
            place[block] += 1
            if published[action] >= 0:
                latest[block] = published[action]
                while for_progress[block] >= 0:
                    ready[num_ready] = for_progress[block]
                    for_progress[block] = next_waiting[for_progress[block]]
                    num_ready += 1
    return order[:done], place
