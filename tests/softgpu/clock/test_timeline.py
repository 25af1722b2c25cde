"""Order of events, and time that moves only with them."""

from __future__ import annotations

import pytest

from hsakit.softgpu.clock import Timeline


def test_events_come_in_order_of_time_and_those_of_an_instant_in_order_of_asking():
    timeline, seen = Timeline(), []
    for when, name in ((30, "d"), (10, "a"), (20, "b"), (20, "c")):
        timeline.at(when, lambda name=name: seen.append((timeline.now, name)))
    assert timeline.next == 10
    timeline.run()
    assert seen == [(10, "a"), (20, "b"), (20, "c"), (30, "d")]
    assert (timeline.next, timeline.now, timeline.advance()) == (None, 30, False)


def test_what_an_event_asks_for_at_its_own_instant_comes_after_what_was_asked_before():
    timeline, seen = Timeline(), []
    timeline.at(5, lambda: timeline.at(5, lambda: seen.append("late")))
    timeline.at(5, lambda: seen.append("early"))
    timeline.run()
    assert seen == ["early", "late"]


def test_a_cancelled_event_does_not_happen_and_does_not_move_time():
    timeline, seen = Timeline(), []
    first = timeline.at(5, lambda: seen.append(1))
    timeline.at(9, lambda: seen.append(2))
    first.cancel()
    assert not timeline.idle and timeline.next == 9
    timeline.run()
    first.cancel()
    assert (seen, timeline.now) == ([2], 9) and timeline.idle


def test_whether_it_is_idle_may_be_asked_from_anywhere():
    """The answer takes nothing out, not even what was cancelled: another thread may be about to."""
    timeline = Timeline()
    timeline.at(5, print).cancel()
    before = list(timeline._heap)
    assert timeline.idle and timeline._heap == before


def test_the_past_is_refused_and_nothing_is_skipped():
    timeline = Timeline()
    timeline.skip_to(100)
    with pytest.raises(ValueError, match="past"):
        timeline.at(99, lambda: None)
    timeline.at(200, lambda: None)
    with pytest.raises(ValueError, match="next event"):
        timeline.skip_to(201)
    timeline.skip_to(200)
    assert timeline.now == 200
