// A random program as data: what the generator makes, the model judges, the interpreter runs and
// the shrinker cuts down.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace random_programs {

enum class Verb : std::uint8_t {
#define VERB(name, arguments, meaning) name,
#include "tests/random/verbs.def"
#undef VERB
};

/// How many objects of a kind a program may name; names are used again after the object's end.
constexpr int kThreads = 4;
constexpr int kStreams = 8; ///< 1 .. 7 are created ones
constexpr int kEvents = 4;
constexpr int kBlocks = 12;
constexpr int kGraphs = 2;
constexpr int kPinned = 3; ///< host buffers 0 .. 2
constexpr int kHosts = 5;  ///< 3 and 4 are pageable
constexpr int kFlags = 4;
constexpr int kDevices = 2;

constexpr std::int64_t kLegacy = 0;
constexpr std::int64_t kPerThread = -1;      ///< `p`
constexpr std::int64_t kPerThreadEntry = -2; ///< `q`

constexpr std::size_t kArguments = 4;

struct Operation {
    int thread = 0;
    Verb verb = Verb::advance;
    std::array<std::int64_t, kArguments> args{};

    bool operator==(const Operation&) const = default;
};

struct Program {
    std::uint64_t seed = 0; ///< what it was made from, for messages
    std::string conf;       ///< CACHEALLOC_CONF
    std::string sim;        ///< SIMCUDA
    std::string off;        ///< CACHEALLOC_TEST_DISABLE
    /// Threads run at will instead of in the order written; each has streams, events and blocks of
    /// its own (owner_of()) and no legacy stream.
    bool free_running = false;
    std::vector<Operation> operations;
};

/// How far a program may rely on what cudaFree natively waits for, given what the shim is told.
enum class Lean {
    nothing, ///< free:async
    results, ///< free:auto: what was copied to the host is there, events and streams are ready
    work,    ///< the same while reuse goes by fences: and later work comes behind it
    all,     ///< free:sync
};
Lean lean_of(const Program& program);

/// The thread that may use what has this name in a free-running program.
constexpr int owner_of(std::int64_t name) {
    return static_cast<int>(name % kThreads);
}

/// Whether the operation may stand in a free-running program, if it is legal otherwise.
bool keeps_to_itself(const Operation& operation);

/// One letter per argument, see verbs.def.
std::string_view arguments_of(Verb verb);
std::string_view name_of(Verb verb);

/// One operation as a line without its end: `<thread> <verb> <arguments>`.
std::string to_text(const Operation& operation);

/// The whole program: lines of settings, then a line an operation. `#` begins a comment.
std::string to_text(const Program& program);

/// The reverse. Null and a message if a line cannot be read.
std::optional<Program> parse_program(std::string_view text, std::string* error);

} // namespace random_programs
