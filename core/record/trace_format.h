// The recording of one process, byte by byte: what the recorder writes and the tools read.
//
// A file is one header page and the sections that its table names. Everything is little endian and
// naturally aligned; times are ticks of the clock that the header describes. The file is sparse
// where nothing was written yet, and a section's space is allocated before it is used, so that
// writing through the mapping never meets a full disk.
//
// Invariant of the history: a record whose sequence number is not the one its place calls for was
// never finished, or belongs to an older lap; readers skip it and count. Nothing else in the file
// needs to be trusted: readers check every offset, count and number they use.
//
//   section      content                                            kept by
//   events       overwriting ring of kChunkBytes chunks             one thread owns a chunk
//   live         hash table of the EventRecords of live memory      a lock a shard
//   stacks       hash table of StackSlots, each distinct stack once compare and swap
//   frames       the return addresses that StackSlots name          append only
//   modules      ModuleRecords, loads and unloads in order          append only
//   threads      ThreadRecords, by thread number                    its thread
//   devices      DeviceCounters, by device ordinal                  atomic additions
//   statistics   StatisticRecords, refreshed now and then           one writer at a time
//   settings     text pairs: name NUL value NUL ...                 append only
//
// A reader of version x.y reads every file of version x.z: fields and sections are only added, and
// unknown sections, kinds and types are skipped and counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cachealloc::trace {

inline constexpr char kMagic[8] = {'C', 'A', 'L', 'L', 'O', 'C', 'T', 'R'};
inline constexpr std::uint32_t kByteOrder = 0x01020304;
inline constexpr std::uint16_t kMajor = 1;
inline constexpr std::uint16_t kMinor = 0;
inline constexpr std::size_t kHeaderBytes = 4096;
inline constexpr std::size_t kMaxSections = 32;

enum class SectionType : std::uint32_t {
    none = 0,
    events = 1,
    live = 2,
    stacks = 3,
    frames = 4,
    modules = 5,
    threads = 6,
    devices = 7,
    statistics = 8,
    settings = 9,
};

struct Section {
    SectionType type;
    std::uint32_t stride;            ///< bytes of one element; 1 for text
    std::uint64_t offset;            ///< from the start of the file, a multiple of 4096
    std::uint64_t length;            ///< bytes set aside for it
    std::atomic<std::uint64_t> used; ///< bytes that may hold content; events: bytes allocated
};
static_assert(sizeof(Section) == 32);

enum class ClockKind : std::uint32_t { nanoseconds = 1, tsc = 2 };

/// One moment on both clocks. The distance of two of them gives the length of a tick.
struct ClockPair {
    std::uint64_t ticks;
    std::uint64_t realtime_ns; ///< CLOCK_REALTIME
};

enum class RunState : std::uint32_t {
    starting = 0,  ///< the file is not complete yet
    recording = 1, ///< the process runs, or ended without leaving through exit()
    clean_exit = 2,
    stopped = 3, ///< recording ended before the process did
};

/// What happened at least once; bits of Header::seen.
enum Seen : std::uint32_t {
    kOutOfMemory = 1,      ///< a request of the program failed for lack of memory
    kUnwinderReplaced = 2, ///< code was loaded where other code had been: libgcc unwinds since
    kRingCapped = 4,       ///< no space to let the ring grow: it overwrites earlier than asked
    kStackTableFull = 8,   ///< stacks_dropped says how often
    kLiveTableFull = 16,   ///< live_dropped says how often
    kModulesFull = 32,     ///< later modules are not in the log
};

struct Counters {
    std::atomic<std::uint64_t> next_claim;      ///< chunks ever claimed
    std::atomic<std::uint64_t> overwritten;     ///< records lost because the ring came round
    std::atomic<std::uint64_t> lost;            ///< events that found no chunk
    std::atomic<std::uint64_t> nested;          ///< events inside the recorder itself (signals)
    std::atomic<std::uint64_t> stacks_dropped;  ///< events whose stack found no room
    std::atomic<std::uint64_t> stacks_walked;   ///< captured by the walker
    std::atomic<std::uint64_t> stacks_unwound;  ///< captured by a full unwinder
    std::atomic<std::uint64_t> stacks_failed;   ///< no frame could be found
    std::atomic<std::uint64_t> stacks_differed; ///< test mode: walker and referee disagreed
    std::atomic<std::uint64_t> live_dropped;    ///< live memory that found no room in the table
    std::atomic<std::uint64_t> unknown_frees;   ///< frees of memory that the table did not hold
    std::atomic<std::uint64_t> live_records;    ///< entries of the live table
};
static_assert(sizeof(Counters) == 96);

struct Header {
    char magic[8];
    std::uint32_t byte_order;
    std::uint16_t major;
    std::uint16_t minor;
    std::uint32_t header_bytes;
    std::uint32_t section_count;
    std::uint64_t file_bytes; ///< as laid out; the file may be shorter where it was cut
    std::uint32_t pid;
    ClockKind clock;
    ClockPair start;
    std::uint64_t identity;           ///< a random number: two files of one process differ
    std::atomic<std::uint32_t> state; ///< a RunState
    std::atomic<std::uint32_t> seen;  ///< Seen bits
    /// The latest moment that was noted, under a sequence lock: odd while being written.
    std::atomic<std::uint32_t> latest_sequence;
    std::uint32_t stack_depth; ///< frames kept of a stack at most
    std::atomic<std::uint64_t> latest_ticks;
    std::atomic<std::uint64_t> latest_realtime_ns;
    Counters counters;
    std::byte reserved_0[832];
    Section sections[kMaxSections];
    std::byte reserved_1[2048];
};
static_assert(sizeof(Header) == kHeaderBytes);
static_assert(offsetof(Header, state) == 64);
static_assert(offsetof(Header, counters) == 96);
static_assert(offsetof(Header, sections) == 1024);

// --- events -------------------------------------------------------------------------------------

enum class EventKind : std::uint8_t {
    none = 0,
    alloc = 1,          ///< memory was handed to the program
    free = 2,           ///< the program gave it back; `size`, `extra` and `stack` are the alloc's
    free_completed = 3, ///< pool memory freed before may be handed to anybody from now on
    segment_alloc = 4,  ///< the pool got memory from the driver; `size` its bytes
    segment_free = 5,   ///< and gave it back
    segment_map = 6,    ///< physical memory was put behind a part of an expandable segment
    segment_unmap = 7,
    out_of_memory = 8, ///< a request failed; `size` as asked for, `stream` the device's free bytes
    trim = 9,          ///< everything that could be given back was; `size` its bytes
    mark = 10,         ///< set by the program; `address` and `size` are its own
};

/// Whose memory an event is about. All but `pooled` is memory that the pool does not own.
enum class MemoryType : std::uint8_t {
    none = 0,
    pooled = 1,         ///< from the pool
    device = 2,         ///< cuMemAlloc that the driver served
    stream_ordered = 3, ///< cuMemAllocAsync that the driver served
    managed = 4,        ///< cuMemAllocManaged
    pinned = 5,         ///< host memory: cuMemAllocHost, cuMemHostAlloc, cuMemHostRegister
    array = 6,          ///< cuArrayCreate and the like; `address` is the handle
    pitched = 7,        ///< cuMemAllocPitch
    explicit_pool = 8,  ///< cuMemAllocFromPoolAsync
    physical = 9,       ///< cuMemCreate; `address` is the handle
    mapping = 10,       ///< cuMemMap: addresses in front of physical memory, no memory of its own
};
inline constexpr std::uint8_t kMemoryTypes = 11;

/// Where an address means something: two memories of one space never share an address.
/// `segment` is only for the live table's entries of segments, whose first block has their address.
enum class AddressSpace : std::uint8_t { device, host, array, physical, mapping, segment };

constexpr AddressSpace space_of(MemoryType type) {
    switch (type) {
    case MemoryType::pinned:
        return AddressSpace::host;
    case MemoryType::array:
        return AddressSpace::array;
    case MemoryType::physical:
        return AddressSpace::physical;
    case MemoryType::mapping:
        return AddressSpace::mapping;
    default:
        return AddressSpace::device;
    }
}

/// Whether it takes up memory of its device.
constexpr bool on_device(MemoryType type) {
    return type != MemoryType::none && type != MemoryType::pinned && type != MemoryType::mapping;
}

/// Bits of EventRecord::flags.
enum EventFlag : std::uint8_t {
    kSettled = 1,       ///< free: at once fit for reuse, no free_completed follows
    kStreamOrdered = 2, ///< alloc, free: by a stream-ordered call; `stream` is its handle
    kPassed = 4,        ///< alloc: the driver served it although the pool was asked
    kCutStack = 8,      ///< the stack goes on beyond what was kept
    kLarge = 16,        ///< segment_*: holds large blocks
    kSecond = 32,       ///< segment_map, segment_unmap: of memory that is mapped elsewhere as well
};

/// Which function of the driver the program called; the names are in call_name().
enum class CallName : std::uint8_t {
    none = 0,
    mem_alloc = 1,
    mem_free = 2,
    mem_alloc_async = 3,
    mem_free_async = 4,
    mem_alloc_from_pool_async = 5,
    mem_alloc_managed = 6,
    mem_alloc_pitch = 7,
    mem_alloc_host = 8,
    mem_free_host = 9,
    mem_host_register = 10,
    mem_host_unregister = 11,
    array_create = 12,
    array_destroy = 13,
    mem_create = 14,
    mem_release = 15,
    mem_map = 16,
    mem_unmap = 17,
    context_end = 18, ///< the context was destroyed or reset, and its memory with it
    trim = 19,
};

struct EventRecord {
    std::atomic<std::uint64_t> sequence; ///< written last; see event_sequence()
    std::uint64_t time;
    std::uint64_t address;
    std::uint64_t size; ///< bytes asked for
    std::uint64_t stream;
    std::uint32_t stack;  ///< a stack's number, 0 for none
    std::uint32_t thread; ///< a thread's number, 0 for none
    EventKind kind;
    MemoryType memory;
    std::uint8_t device; ///< ordinal
    std::uint8_t flags;
    std::uint32_t extra;      ///< bytes handed out beyond `size` (rounding)
    std::uint32_t free_stack; ///< free: where it was freed, 0 unless asked for
    std::uint8_t pool;        ///< number of the context's pool, 255 for none or beyond
    CallName call;
    std::uint16_t check; ///< check_word() of the rest
};
static_assert(sizeof(EventRecord) == 64);
static_assert(offsetof(EventRecord, stack) == 40 && offsetof(EventRecord, kind) == 48);
static_assert(offsetof(EventRecord, extra) == 52 && offsetof(EventRecord, check) == 62);

inline constexpr std::size_t kChunkBytes = 4096;
inline constexpr std::uint32_t kChunkRecords = kChunkBytes / sizeof(EventRecord) - 1;

enum class ChunkState : std::uint32_t { unused = 0, writing = 1, complete = 2 };

struct ChunkHeader {
    std::atomic<std::uint64_t> claim; ///< its number plus one, in the order of claiming; 0: never
    std::atomic<ChunkState> state;
    std::uint32_t thread;
    std::atomic<std::uint64_t> owner; ///< of no use to readers: who may write here; 0: nobody
    std::byte reserved[40];
};
static_assert(sizeof(ChunkHeader) == 64);

struct Chunk {
    ChunkHeader header;
    EventRecord records[kChunkRecords]; ///< one thread's, in the order of their times
};
static_assert(sizeof(Chunk) == kChunkBytes);

/// The sequence number of record `index` of the chunk with that ChunkHeader::claim.
constexpr std::uint64_t event_sequence(std::uint64_t claim, std::uint32_t index) {
    return claim * 64 + index + 1;
}
/// The sequence of an entry of the live table whose event found no chunk (Counters::lost).
inline constexpr std::uint64_t kLostSequence = ~std::uint64_t{0};

/// A digest of everything in the record but itself.
inline std::uint16_t check_word(const EventRecord& record) {
    const std::uint64_t kinds = std::uint64_t{static_cast<std::uint8_t>(record.kind)} |
                                std::uint64_t{static_cast<std::uint8_t>(record.memory)} << 8 |
                                std::uint64_t{record.device} << 16 |
                                std::uint64_t{record.flags} << 24 |
                                std::uint64_t{record.extra} << 32;
    const std::uint64_t tail = std::uint64_t{record.free_stack} | std::uint64_t{record.pool} << 32 |
                               std::uint64_t{static_cast<std::uint8_t>(record.call)} << 40;
    std::uint64_t sum = record.sequence.load(std::memory_order_relaxed) ^ record.time;
    sum = (sum ^ (record.address << 1 | record.address >> 63)) * 0x9e3779b97f4a7c15;
    sum ^= record.size ^ (record.stream << 7 | record.stream >> 57);
    sum ^= std::uint64_t{record.stack} << 32 | record.thread;
    sum = (sum ^ (kinds << 3 | kinds >> 61) ^ tail) * 0xc2b2ae3d27d4eb4f;
    return static_cast<std::uint16_t>(sum >> 48);
}

/// An entry of the live table is the EventRecord of the allocation, or the segment_alloc or
/// segment_map of a segment that the pool holds; its `sequence` is 0 where the slot is free. The
/// table is cut into kLiveShards equal shards.
inline constexpr std::uint32_t kLiveShards = 64;

// --- stacks -------------------------------------------------------------------------------------

/// A stack's number is its slot's index plus one.
struct StackSlot {
    std::atomic<std::uint64_t> hash;  ///< 0: free
    std::atomic<std::uint32_t> first; ///< its first frame's index in `frames` plus one; 0: unready
    std::uint16_t frames;             ///< innermost first
    std::uint16_t flags;              ///< kCutStack
    std::uint32_t modules;            ///< ModuleRecords in the log when it was first seen
    std::uint32_t reserved;
    std::atomic<std::uint64_t> allocations; ///< exact for the whole run, as are the bytes
    std::atomic<std::uint64_t> bytes;
};
static_assert(sizeof(StackSlot) == 40);

/// A frame is the address that the call returns to (the place itself for the frame that a signal
/// interrupted, which nothing tells apart); readers subtract 1 to find the call.
using Frame = std::uint64_t;

enum class ModuleChange : std::uint32_t { none = 0, load = 1, unload = 2 };

struct ModuleRecord {
    std::uint64_t time;
    std::uint64_t bias;  ///< address of a place less its address in the file
    std::uint64_t start; ///< its mapping, [start, end)
    std::uint64_t end;
    ModuleChange change;
    std::uint16_t build_id_bytes; ///< 0: it has none
    std::uint16_t path_bytes;
    std::uint8_t build_id[32];
    std::uint32_t flags; ///< kOwnModule
    std::uint32_t reserved;
    char path[944]; ///< not ended by NUL; cut at its front where it is longer
};
static_assert(sizeof(ModuleRecord) == 1024);
/// ModuleRecord::flags: the recorder's own library, whose frames readers leave out.
inline constexpr std::uint32_t kOwnModule = 1;

// --- the rest -----------------------------------------------------------------------------------

struct ThreadRecord {
    std::uint32_t number; ///< its place in the section plus one; never used again
    std::uint32_t os_id;
    std::uint64_t start;
    std::atomic<std::uint64_t> end; ///< 0: runs, or ended with the process
    char name[24];                  ///< ended by NUL, as last seen
    std::uint64_t reserved[2];
};
static_assert(sizeof(ThreadRecord) == 64);

/// Bytes on one device, kept in batches a thread: exact while one thread allocates and at events of
/// 64 KiB and more, else within 64 KiB a thread.
struct DeviceCounters {
    std::atomic<std::int64_t> live; ///< requested, all types with on_device(), a CUDA program's own
    std::atomic<std::int64_t> live_peak;
    std::atomic<std::int64_t> live_pooled;
    std::atomic<std::int64_t> reserved; ///< pool segments
    std::atomic<std::int64_t> reserved_peak;
    std::atomic<std::int64_t> host; ///< pinned
    std::atomic<std::int64_t> host_peak;
    std::uint64_t total; ///< the device's memory
    char name[64];       ///< ended by NUL
    std::atomic<std::uint64_t> live_peak_time;
    std::atomic<std::uint64_t> reserved_peak_time;
    std::uint64_t unused[6];
};
static_assert(sizeof(DeviceCounters) == 192);
inline constexpr std::uint32_t kDevices = 64;

struct StatisticRecord {
    char name[48]; ///< ended by NUL
    std::atomic<std::uint64_t> value;
    std::atomic<std::uint64_t> time; ///< when it was noted
};
static_assert(sizeof(StatisticRecord) == 64);

/// "cuMemAlloc" and so on; "" for what is not in CallName.
const char* call_name(CallName call);
/// "alloc", "free_completed" ..; "pooled", "managed" ..; "" for what is not known.
const char* kind_name(EventKind kind);
const char* memory_name(MemoryType type);

} // namespace cachealloc::trace
