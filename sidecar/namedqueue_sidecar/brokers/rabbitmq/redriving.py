"""One redrive: passes over the dead letters until there is nothing more to send back.

A pass ends early when so many letters have arrived since it began that jobs of this redrive may be
among them. Then it reads on to the end without sending anything, and counts.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

from namedqueue_sidecar.brokers.port import Course
from namedqueue_sidecar.brokers.rabbitmq.transit import MOST_AT_ONCE, Transit
from namedqueue_sidecar.brokers.rabbitmq.walking import Letter, Walk

WINDOW: Final = 2 * MOST_AT_ONCE
"""Letters that the broker gives out ahead."""

_LONGEST_PASS: Final = 600.0
"""Seconds after which letters that are not chosen are given back: brokers wait half an hour."""

_GLANCE: Final = 1.0

Walks: TypeAlias = Callable[[], AbstractAsyncContextManager[Walk]]


class Redriving:
    """Moves chosen letters through the redrive stage."""

    def __init__(self, walks: Walks, transit: Transit, course: Course) -> None:
        self._walks = walks
        self._transit = transit
        self._course = course
        self._suspicious = course.wary

    async def run(self) -> None:
        """Finish what an earlier run has begun, then send letter after letter."""
        await self._remove_copies()
        await self._send_on([])
        self._course.resumed(self._transit.done)
        while self._course.at_once > 0 and await self._pass():
            pass
        await self._course.ended()
        await self._transit.forget()

    async def _remove_copies(self) -> None:
        """Remove the letters whose jobs are on their way, before those can leave our sight.

        Their last reader was killed, so they are among those that were read before. Who else reads
        letters may have them in hand, and so has a killed one until the broker knows.
        """
        while self._transit.resumes:
            async with self._walks() as walk:
                async for letter in walk.letters():
                    if letter.fresh:
                        break
                    if self._is_copy(letter):
                        await walk.remove(letter)
            if not walk.others_read:
                return
            await asyncio.sleep(_GLANCE)

    def _is_copy(self, letter: Letter) -> bool:
        return not letter.fresh and self._transit.has_moved(letter.key, once=not letter.named)

    async def _pass(self) -> bool:
        """Send what there is, and tell whether to look again."""
        course, batch = self._course, list[Letter]()
        back = sent = copies = 0
        over = asyncio.get_running_loop().time() + _LONGEST_PASS
        counting = cut_short = False
        async with self._walks() as walk:
            async for letter in walk.letters():
                if self._is_copy(letter):
                    await walk.remove(letter)
                    copies += 1
                elif letter.record.job.redrive == course.name:
                    back += 1
                elif not counting and course.chooses(letter.record):
                    batch.append(letter)
                if not batch or len(batch) < min(course.at_once, MOST_AT_ONCE):
                    continue
                await self._move(walk, batch)
                sent, batch = sent + len(batch), []
                cut_short = asyncio.get_running_loop().time() > over
                if course.at_once <= 0 or cut_short:
                    break
                counting = await self._many_arrived(walk)
            if course.at_once > 0:
                await self._move(walk, batch)
                sent += len(batch)
        course.came_back(back)
        if not sent and walk.others_read:
            await asyncio.sleep(_GLANCE)
        return bool(sent or copies or counting or cut_short or walk.others_read)

    async def _move(self, walk: Walk, batch: list[Letter]) -> None:
        """Publish, remove once that is safe, and let go once that is sure."""
        most = self._course.most_ready
        if batch and most is not None:
            room = max(0, most - await self._transit.ready_in_main())
            if room < len(batch):
                self._course.full()
                del batch[room:]
        if not batch:
            return
        sends = self._course.sends
        await self._transit.put([(each.key, sends(each.record)) for each in batch])
        for letter in batch:
            await walk.remove(letter)
        await self._send_on(batch)

    async def _send_on(self, batch: list[Letter]) -> None:
        if self._transit.waiting:
            await self._transit.count()
        while self._transit.waiting:
            jobs = await self._course.release(self._transit.waiting)
            self._transit.let_go(jobs)
        self._course.sent([letter.record for letter in batch])

    async def _many_arrived(self, walk: Walk) -> bool:
        if self._suspicious is None:
            return False
        arrived = await walk.arrivals()
        if arrived < self._suspicious:
            return False
        self._suspicious = 2 * arrived
        walk.go_on_to_the_end()
        return True
