"""Reads a recording straight from the bytes that core/record/trace_format.h lays out, with nothing of
the tool: what tests hold against it. Trusts the file to be well formed. Standard library only.
"""

import mmap
import struct
from collections import namedtuple

SECTIONS = {1: "events", 2: "live", 3: "stacks", 4: "frames", 5: "modules", 6: "threads",
            7: "devices", 8: "statistics", 9: "settings"}
STATES = ("starting", "recording", "clean_exit", "stopped")
COUNTERS = ("next_claim", "overwritten", "lost", "nested", "stacks_dropped", "stacks_walked",
            "stacks_unwound", "stacks_failed", "stacks_differed", "live_dropped", "unknown_frees",
            "live_records")
KINDS = {1: "alloc", 2: "free", 3: "free_completed", 4: "segment_alloc", 5: "segment_free",
         6: "segment_map", 7: "segment_unmap", 8: "out_of_memory", 9: "trim", 10: "mark"}
CUT_STACK = 8
CHUNK, RECORDS = 4096, 63
MASK = (1 << 64) - 1

Event = namedtuple("Event", "sequence time address size stream stack thread kind memory device flags "
                            "extra free_stack pool call check")
EVENT = struct.Struct("<QQQQQIIBBBBIIBBH")
Section = namedtuple("Section", "stride offset length used")


def check_word(event):
    """The digest of trace_format.h, written again."""
    kinds = event.kind | event.memory << 8 | event.device << 16 | event.flags << 24 | event.extra << 32
    tail = event.free_stack | event.pool << 32 | event.call << 40
    total = event.sequence ^ event.time
    total = (total ^ (event.address << 1 & MASK | event.address >> 63)) * 0x9e3779b97f4a7c15 & MASK
    total ^= event.size ^ (event.stream << 7 & MASK | event.stream >> 57)
    total ^= event.stack << 32 | event.thread
    total = (total ^ (kinds << 3 & MASK | kinds >> 61) ^ tail) * 0xc2b2ae3d27d4eb4f & MASK
    return total >> 48


class RawTrace:
    """`events`: what was finished, in the order of time; `torn`: records begun and not finished, or
    whose check word is wrong."""

    def __init__(self, path):
        with open(path, "rb") as file:  # mapped: most of it was never written
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert self.bytes[:8] == b"CALLOCTR", "no recording"
        self.major, self.minor = struct.unpack_from("<HH", self.bytes, 12)
        count, = struct.unpack_from("<I", self.bytes, 20)
        self.pid, = struct.unpack_from("<I", self.bytes, 32)
        state, self.seen = struct.unpack_from("<II", self.bytes, 64)
        self.state = STATES[state]
        self.stack_depth, = struct.unpack_from("<I", self.bytes, 76)
        self.counters = dict(zip(COUNTERS, struct.unpack_from("<12Q", self.bytes, 96)))
        self.sections = {}
        for index in range(count):
            kind, *rest = struct.unpack_from("<IIQQQ", self.bytes, 1024 + 32 * index)
            self.sections[SECTIONS.get(kind, kind)] = Section(*rest)
        self.events, self.torn = self._events()

    def _events(self):
        section = self.sections["events"]
        events, torn = [], 0
        for chunk in range(section.offset, section.offset + section.used, CHUNK):
            claim, = struct.unpack_from("<Q", self.bytes, chunk)
            if claim == 0:
                continue
            behind_hole = 0
            for index in range(RECORDS):
                event = Event._make(EVENT.unpack_from(self.bytes, chunk + 64 * (index + 1)))
                if event.sequence != claim * 64 + index + 1:
                    behind_hole += 1
                    continue
                torn += behind_hole + (event.check != check_word(event))
                behind_hole = 0
                if event.check == check_word(event):
                    events.append(event)
        events.sort(key=lambda event: (event.time, event.sequence))
        return events, torn

    def of_kind(self, name):
        return [event for event in self.events if KINDS.get(event.kind) == name]

    def elements(self, name, layout):
        section = self.sections[name]
        for at in range(section.offset, section.offset + section.used, section.stride):
            yield layout.unpack_from(self.bytes, at)

    def stack(self, number):
        """(return addresses, innermost first; whether it was cut) of a stack's number."""
        section = self.sections["stacks"]
        _, first, count, flags = struct.unpack_from("<QIHH", self.bytes,
                                                    section.offset + section.stride * (number - 1))
        at = self.sections["frames"].offset + 8 * (first - 1)
        return list(struct.unpack_from(f"<{count}Q", self.bytes, at)), bool(flags & CUT_STACK)

    def threads(self):
        """{number: (os id, name)}"""
        layout = struct.Struct("<IIQQ24s16x")
        return {number: (os_id, name.split(b"\0")[0].decode(errors="replace"))
                for number, os_id, _, _, name in self.elements("threads", layout) if number}

    def settings(self):
        section = self.sections["settings"]
        text = self.bytes[section.offset:section.offset + section.used].split(b"\0")
        return dict(zip(text[::2], text[1::2]))
