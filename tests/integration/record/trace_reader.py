"""Reads a recording, for tests: written from the byte layout alone, shares no code with the tools."""

import struct
from collections import namedtuple

HEADER = struct.Struct("<8sIHHIIQIIQQQIIIIQQ12Q")
COUNTERS = ("next_claim overwritten lost nested stacks_dropped stacks_walked stacks_unwound "
            "stacks_failed stacks_differed live_dropped unknown_frees live_records").split()
SECTION = struct.Struct("<IIQQQ")
SECTIONS = "none events live stacks frames modules threads devices statistics settings".split()
RECORD = struct.Struct("<QQQQQIIBBBBIIBBH")
DEVICE = struct.Struct("<7qQ64s2Q")
KINDS = ("none alloc free free_completed segment_alloc segment_free segment_map segment_unmap "
         "out_of_memory trim mark").split()
MEMORY = ("none pooled device stream_ordered managed pinned array pitched explicit_pool physical "
          "mapping").split()
SPACES = {"pinned": "host", "array": "array", "physical": "physical", "mapping": "mapping"}
STATES = "starting recording clean_exit stopped".split()
SETTLED, STREAM_ORDERED, PASSED, LARGE, SECOND = 1, 2, 4, 16, 32

Event = namedtuple("Event", "sequence time address size stream stack thread kind memory device "
                            "flags extra free_stack pool call check")
Device = namedtuple("Device", "live live_peak live_pooled reserved reserved_peak host host_peak "
                              "total name live_peak_time reserved_peak_time")


def text(raw):
    return raw.split(b"\0")[0].decode()


def event(raw):
    fields = Event(*RECORD.unpack(raw))
    return fields._replace(kind=KINDS[fields.kind], memory=MEMORY[fields.memory])


def space(one):
    return SPACES.get(one.memory, "device")


class Trace:
    """Everything of one file. `events` are in the order of their times."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.raw = file.read()
        fields = HEADER.unpack_from(self.raw)
        assert fields[0] == b"CALLOCTR" and fields[1] == 0x01020304 and fields[2] == 1, fields[:4]
        self.pid, self.state, self.seen = fields[7], STATES[fields[12]], fields[13]
        self.counters = dict(zip(COUNTERS, fields[18:]))
        self.sections = {}
        for i in range(fields[5]):
            kind, stride, offset, length, used = SECTION.unpack_from(self.raw, 1024 + 32 * i)
            self.sections[SECTIONS[kind]] = (stride, offset, min(used, length))
        self.events = sorted(self._events(), key=lambda one: (one.time, one.sequence))
        self.live = [one for one in map(event, self._elements("live")) if one.sequence]
        self.devices = [Device(*DEVICE.unpack(raw[:DEVICE.size]))
                        for raw in self._elements("devices")]
        self.statistics = {text(raw[:48]): struct.unpack_from("<Q", raw, 48)[0]
                           for raw in self._elements("statistics") if raw[0]}
        words = self._bytes("settings").split(b"\0")
        self.settings = {name.decode(): value.decode(errors="replace")
                         for name, value in zip(words[0::2], words[1::2]) if name}

    def _bytes(self, name):
        _, offset, used = self.sections[name]
        return self.raw[offset:offset + used]

    def _elements(self, name):
        stride, content = self.sections[name][0], self._bytes(name)
        for at in range(0, len(content) - stride + 1, stride):
            yield content[at:at + stride]

    def _events(self):
        content = self._bytes("events")
        for at in range(0, len(content) - 4095, 4096):
            claim, = struct.unpack_from("<Q", content, at)
            if claim == 0:
                continue
            for index in range(63):
                one = event(content[at + 64 * (index + 1):at + 64 * (index + 2)])
                if one.sequence == claim * 64 + index + 1:
                    yield one

    def of_kind(self, *kinds):
        return [one for one in self.events if one.kind in kinds]
