"""Schedules in compiled code: who moves, drawn at the addresses and with the arithmetic of ``schedules``."""

from __future__ import annotations

import numpy as np

from hushpoint._compiled import inner, loop
from hushpoint._keyed import uniforms_at
from hushpoint.noise import role_word
from hushpoint.schedules import Schedule

EVERYONE, CYCLIC, SINGLE, POISSON, FIXED = range(5)
_KINDS = {"all": EVERYONE, "cyclic": CYCLIC, "single": SINGLE, "poisson": POISSON, "fixed": FIXED}

ScheduleCode = tuple[int, float, int, np.uint32, int]
"""Kind, probability, sample size, the role of its draws, and the cap (-1: none)."""


def coded_schedule(schedule: Schedule) -> ScheduleCode | None:
    """A schedule for compiled code, or None if its next draw depends on more than the step."""
    kind, size = _KINDS.get(schedule.law), schedule.most_at_once
    if kind is None:
        return None
    if kind == FIXED and size == schedule.blocks:
        kind = EVERYONE
    cap = -1 if schedule.cap is None else schedule.cap
    return kind, schedule.probability, size, role_word("schedule"), cap


@inner
def draw_members(secure, schedule, step, participations, members, coins, room):
    """Write who moves in a step; returns how many, and the last that was drawn (-1: nobody, or all)."""
    kind, prob, size, role, cap = schedule
    items = participations.size
    drawn, last = 0, -1
    if kind == EVERYONE:
        for i in range(items):
            members[i] = i
        drawn = items
    elif kind == CYCLIC:
        members[0] = step % items
        drawn = 1
    elif kind == SINGLE:
        uniforms_at(secure, role, np.int64(0), step, coins[:1], room)
        members[0] = np.int64(coins[0] * items)
        drawn = 1
    else:
        uniforms_at(secure, role, np.int64(0), step, coins, room)
        threshold, attempt = prob, 0
        if kind == FIXED:
            threshold = _cut(coins, size)
            while threshold < 0:
                attempt += 1
                uniforms_at(secure, role, np.int64(attempt), step, coins, room)
                threshold = _cut(coins, size)
        for i in range(items):
            if coins[i] < threshold:
                members[drawn] = i
                drawn += 1
    if drawn > 0:
        last = members[drawn - 1]
    if cap < 0:
        return drawn, last
    free = 0
    for k in range(drawn):
        if participations[members[k]] < cap:
            members[free] = members[k]
            free += 1
    return free, last


@loop
def _cut(coins, size):
    """A number below which ``size`` of the coins lie, fewer than there are; -1 where equal ones leave none.

    Coins are uniform, so that a count of how many fall into each of as many cells as there are coins leaves only a few
    to compare.
    """
    cells = np.zeros(coins.size, dtype=np.int64)
    for i in range(coins.size):
        cells[np.int64(coins[i] * coins.size)] += 1
    below, cell = 0, 0
    while below + cells[cell] < size:
        below += cells[cell]
        cell += 1
    near = np.empty(cells[cell])
    count = 0
    for i in range(coins.size):
        if np.int64(coins[i] * coins.size) == cell:
            near[count] = coins[i]
            count += 1
    for k in range(1, count):  # sorted by insertion: there are only a few
        value, at = near[k], k
        while at > 0 and near[at - 1] > value:
            near[at] = near[at - 1]
            at -= 1
        near[at] = value
    last = near[size - below - 1]
    if size - below < count and near[size - below] == last:
        return -1.0
    return last + 2.0**-53  # of which coins are multiples
