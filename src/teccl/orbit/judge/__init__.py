"""The judge of orbit schedules: whether all images together are correct, from one chunk an orbit.

It shares no code with what plans or times orbit schedules; the page on orbits has the proof that
looking at the first chunk of each orbit, and at one link of each orbit, is enough.
"""

from teccl.orbit.judge.judgement import verify_orbit

__all__ = ["verify_orbit"]
