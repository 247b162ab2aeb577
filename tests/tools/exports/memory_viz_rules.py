"""What pytorch.org/memory_viz and torch.cuda._memory_viz ask of a snapshot, rule by rule.

check(bytes) raises AssertionError at the first rule that is broken, else returns the snapshot.
"""

import pickle
import pickletools

# The opcodes that the page's own reader knows; it stops at others.
OPCODES = {"PROTO", "FRAME", "MARK", "STOP", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "APPEND",
           "APPENDS", "SETITEM", "SETITEMS", "DICT", "LIST", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
           "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
           "SHORT_BINUNICODE", "BINUNICODE", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT",
           "MEMOIZE"}
EXACT = 1 << 53  # integers beyond are not exact in the page
BATCH = 1000

BLOCK_ACTIONS = {"alloc", "free_requested", "free_completed"}
SEGMENT_ACTIONS = {"segment_alloc", "segment_free", "segment_map", "segment_unmap"}
STATES = {"active_allocated", "active_pending_free", "inactive"}


def check_opcodes(data):
    """Known opcodes only, protocol 4, no batch too large, no number too long."""
    marks = []  # values since each mark
    pops = {"TUPLE2": 1, "MEMOIZE": 0}
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        assert name in OPCODES, f"the page does not know {name}"
        if name == "PROTO":
            assert argument == 4
        elif name == "MARK":
            marks.append(0)
        elif name == "APPENDS":
            assert 1 <= marks.pop() <= BATCH, "a batch too large for one call"
        elif name == "SETITEMS":
            assert 2 <= marks.pop() <= 2 * BATCH
        elif name in pops:
            if marks:
                marks[-1] -= pops[name]
        elif name not in ("STOP", "FRAME"):
            if name == "LONG1":
                assert -EXACT < argument < EXACT
                assert -2 ** 31 > argument or argument >= 2 ** 31, "a BININT would have done"
            if marks:
                marks[-1] += 1
    assert not marks


def is_int(value):
    return type(value) is int and 0 <= value < EXACT


def check_frames(frames):
    assert type(frames) is list
    for frame in frames:
        assert type(frame["name"]) is str and frame["name"]
        assert type(frame["filename"]) is str and frame["filename"]
        assert type(frame["line"]) is int


def check_pool(pool):
    assert type(pool) is tuple and len(pool) == 2 and all(is_int(part) for part in pool)


def check_segment(segment):
    for key in ("device", "address", "total_size", "allocated_size", "active_size",
                "requested_size", "stream"):
        assert is_int(segment[key]), key
    assert segment["total_size"] > 0
    assert segment["segment_type"] in ("large", "small")
    assert type(segment["is_expandable"]) is bool
    check_pool(segment["segment_pool_id"])
    check_frames(segment["frames"])
    at = segment["address"]
    sums = dict.fromkeys(("allocated_size", "active_size", "requested_size"), 0)
    for block in segment["blocks"]:
        assert block["address"] == at, "blocks must tile their segment in order"
        assert is_int(block["size"]) and block["size"] > 0
        assert block["state"] in STATES
        # The page has no default for it where there are frames.
        assert is_int(block["requested_size"]) and block["requested_size"] <= block["size"]
        check_frames(block["frames"])
        at += block["size"]
        if block["state"] != "inactive":
            sums["active_size"] += block["size"]
            sums["requested_size"] += block["requested_size"]
            if block["state"] == "active_allocated":
                sums["allocated_size"] += block["size"]
        else:
            assert block["requested_size"] == 0
    assert at == segment["address"] + segment["total_size"], "blocks must fill their segment"
    for key, value in sums.items():
        assert segment[key] == value, key


def check_segments(segments):
    ends = {}
    for segment in segments:
        check_segment(segment)
        assert segment["address"] >= ends.get(segment["device"], 0), "by address, without overlap"
        ends[segment["device"]] = segment["address"] + segment["total_size"]


def check_event(event):
    action = event["action"]
    assert action in BLOCK_ACTIONS | SEGMENT_ACTIONS | {"oom", "snapshot"}, action
    assert is_int(event["size"]) and is_int(event["stream"]) and is_int(event["time_us"])
    assert event["compile_context"] == "N/A"
    assert ("addr" in event) == (action != "oom")
    if action == "oom":
        assert is_int(event["device_free"])
    else:
        assert is_int(event["addr"])
    if action in BLOCK_ACTIONS | SEGMENT_ACTIONS:
        check_pool(event["pool_id"])
    if "user_metadata" in event:
        assert type(event["user_metadata"]) is str
    if "frames" in event:
        check_frames(event["frames"])
    assert "category" not in event, "the page fails on categories"


class Memory:
    """Segments and blocks as the page keeps them while it replays the events backwards."""

    def __init__(self, segments):
        # Length and stream by address.
        self.segments = {s["address"]: (s["total_size"], s["stream"]) for s in segments}
        # For each block, whether its free was requested.
        self.blocks = {b["address"]: b["state"] == "active_pending_free"
                       for s in segments for b in s["blocks"] if b["state"] != "inactive"}

    def containing(self, address, size):
        for start, (length, _) in self.segments.items():
            if start <= address and address + size <= start + length:
                return start
        return None

    def revert(self, event):
        action, address, size = event["action"], event.get("addr"), event["size"]
        if action == "alloc":
            assert self.blocks.pop(address) is False, "alloc of a block that was not live"
        elif action == "free_requested":
            assert self.blocks[address] is True  # the page fails if it is not there
            self.blocks[address] = False
        elif action == "free_completed":
            assert address not in self.blocks, "completed while it is live"
            assert self.containing(address, size) is not None, "a block outside of any segment"
            self.blocks[address] = True
        elif action in ("segment_free", "segment_unmap"):
            for start, (length, _) in self.segments.items():
                assert address + size <= start or start + length <= address, "segments overlap"
            self.segments[address] = (size, event["stream"])
            if action == "segment_unmap":
                self.merge(address)
        elif action == "segment_alloc":
            assert self.segments.pop(address) == (size, event["stream"])
        elif action == "segment_map":
            start = self.containing(address, size)
            assert start is not None, "mapped outside of any segment"
            length, stream = self.segments.pop(start)
            if start < address:
                self.segments[start] = (address - start, stream)
            if address + size < start + length:
                self.segments[address + size] = (start + length - address - size, stream)
        if action in ("segment_alloc", "segment_map"):
            for block in self.blocks:
                assert not address <= block < address + size, "a block before its segment"

    def merge(self, address):
        """The page joins neighbours of one stream, whatever they are."""
        length, stream = self.segments[address]
        after = self.segments.get(address + length)
        if after is not None and after[1] == stream:
            self.segments[address] = (length + after[0], stream)
            del self.segments[address + length]
        for start, (before, other) in list(self.segments.items()):
            if start + before == address and other == stream:
                self.segments[start] = (before + self.segments.pop(address)[0], stream)


def check_replay(segments, events):
    memory = Memory(segments)
    for event in reversed(events):
        memory.revert(event)
    # No block of the first moment lies outside of its segments.
    for address in memory.blocks:
        assert memory.containing(address, 1) is not None
    # Forwards, each address is allocated and freed in turn.
    state = dict(memory.blocks)
    for event in events:
        address = event.get("addr")
        if event["action"] == "alloc":
            assert address not in state, "allocated twice"
            state[address] = False
        elif event["action"] == "free_requested":
            assert state[address] is False
            state[address] = True
        elif event["action"] == "free_completed":
            assert state.pop(address) is True


def check(data):
    check_opcodes(data)
    snapshot = pickle.loads(data)
    assert type(snapshot["segments"]) is list and type(snapshot["device_traces"]) is list
    check_segments(snapshot["segments"])
    for device, events in enumerate(snapshot["device_traces"]):
        times = []
        for event in events:
            check_event(event)
            times.append(event["time_us"])
        assert times == sorted(times)
        if events:
            assert events[-1]["action"] == "snapshot" and events[-1]["addr"] == 0
        check_replay([s for s in snapshot["segments"] if s["device"] == device], events)
    for segment in snapshot["segments"]:
        assert segment["device"] < len(snapshot["device_traces"])
    settings = snapshot["allocator_settings"]
    for key, kind in (("PYTORCH_CUDA_ALLOC_CONF", str), ("max_split_size", int),
                      ("garbage_collection_threshold", float), ("expandable_segments", bool),
                      ("roundup_power2_divisions", dict), ("cachealloc", dict)):
        assert type(settings[key]) is kind, key
    assert len(settings["roundup_power2_divisions"]) == 16
    assert snapshot["external_annotations"] == []
    return snapshot
