#include "tests/random/program.h"

#include <charconv>
#include <iterator>

namespace random_programs {

namespace {

struct Row {
    std::string_view name;
    std::string_view arguments;
};
constexpr Row kRows[] = {
#define VERB(name, arguments, meaning) {#name, arguments},
#include "tests/random/verbs.def"
#undef VERB
};

const Row& row(Verb verb) {
    return kRows[static_cast<std::size_t>(verb)];
}

/// Takes the next word off the front.
std::string_view word(std::string_view& rest) {
    const std::size_t begin = rest.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) {
        rest = {};
        return {};
    }
    const std::size_t end = std::min(rest.find_first_of(" \t\r", begin), rest.size());
    const std::string_view found = rest.substr(begin, end - begin);
    rest.remove_prefix(end);
    return found;
}

bool number(std::string_view text, std::int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

/// How many objects an argument of this kind may name; 0: any number not below 0.
std::int64_t limit(char kind) {
    switch (kind) {
    case 'b':
        return kBlocks;
    case 's':
        return kStreams;
    case 'e':
        return kEvents;
    case 'g':
        return kGraphs;
    case 'h':
        return kHosts;
    case 'f':
        return kFlags;
    case 'd':
        return kDevices;
    case 't':
        return 256;
    default:
        return 0;
    }
}

bool parse_argument(std::string_view text, char kind, std::int64_t& value) {
    if (kind == 's' && (text == "p" || text == "q")) {
        value = text == "p" ? kPerThread : kPerThreadEntry;
        return true;
    }
    const bool named = kind != 'n' && kind != 't';
    if (named) {
        if (text.empty() || text.front() != kind) return false;
        text.remove_prefix(1);
    }
    return number(text, value) && value >= 0 && (limit(kind) == 0 || value < limit(kind));
}

bool parse_operation(std::string_view line, Operation& operation) {
    std::int64_t thread = 0;
    if (!number(word(line), thread) || thread < 0 || thread >= kThreads) return false;
    operation.thread = static_cast<int>(thread);
    const std::string_view name = word(line);
    std::size_t verb = 0;
    while (verb < std::size(kRows) && kRows[verb].name != name)
        ++verb;
    if (verb == std::size(kRows)) return false;
    operation.verb = static_cast<Verb>(verb);
    for (std::size_t i = 0; i < kRows[verb].arguments.size(); ++i) {
        if (!parse_argument(word(line), kRows[verb].arguments[i], operation.args[i])) return false;
    }
    return word(line).empty();
}

/// `key value`: the settings of the whole program.
bool parse_setting(std::string_view line, Program& program) {
    const std::string_view key = word(line);
    const std::string_view value = word(line);
    if (key == "conf") {
        program.conf = value;
    } else if (key == "sim") {
        program.sim = value;
    } else if (key == "off") {
        program.off = value;
    } else if (key == "free_running") {
        program.free_running = true;
    } else if (key == "seed") {
        std::int64_t seed = 0;
        if (!number(value, seed)) return false;
        program.seed = static_cast<std::uint64_t>(seed);
    } else {
        return false;
    }
    return word(line).empty();
}

} // namespace

Lean lean_of(const Program& program) {
    if (program.conf.find("free:sync") != std::string::npos) return Lean::all;
    if (program.conf.find("free:auto") == std::string::npos) return Lean::nothing;
    return program.conf.find("order:finished") == std::string::npos ? Lean::work : Lean::results;
}

bool keeps_to_itself(const Operation& o) {
    constexpr std::string_view kVerbs =
        " stream destroy event unevent record wait malloc free malloc_async free_async fill copy "
        "memset d2d sync sync_event sync_device advance ";
    std::string verb(" ");
    verb.append(name_of(o.verb)).append(" ");
    if (kVerbs.find(verb) == std::string_view::npos) return false;
    const std::string_view kinds = arguments_of(o.verb);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (kinds[i] == 's' && o.args[i] < 0) continue;
        if (kinds[i] == 's' && o.args[i] == kLegacy) return false;
        if (kinds[i] != 'n' && kinds[i] != 't' && owner_of(o.args[i]) != o.thread) return false;
    }
    return true;
}

std::string_view arguments_of(Verb verb) {
    return row(verb).arguments;
}

std::string_view name_of(Verb verb) {
    return row(verb).name;
}

std::string to_text(const Operation& operation) {
    std::string text = std::to_string(operation.thread);
    text.append(" ").append(name_of(operation.verb));
    const std::string_view kinds = arguments_of(operation.verb);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        text += ' ';
        if (kinds[i] == 's' && operation.args[i] < 0) {
            text += operation.args[i] == kPerThread ? 'p' : 'q';
            continue;
        }
        if (kinds[i] != 'n' && kinds[i] != 't') text += kinds[i];
        text += std::to_string(operation.args[i]);
    }
    return text;
}

std::string to_text(const Program& program) {
    std::string text = "seed " + std::to_string(program.seed) + "\n";
    if (!program.conf.empty()) text += "conf " + program.conf + "\n";
    if (!program.sim.empty()) text += "sim " + program.sim + "\n";
    if (!program.off.empty()) text += "off " + program.off + "\n";
    if (program.free_running) text += "free_running\n";
    for (const Operation& operation : program.operations)
        text += to_text(operation) + "\n";
    return text;
}

std::optional<Program> parse_program(std::string_view text, std::string* error) {
    Program program;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        line = line.substr(0, line.find('#'));
        std::string_view rest = line;
        const std::string_view first = word(rest);
        if (first.empty()) continue;
        const bool is_operation = first.front() >= '0' && first.front() <= '9';
        Operation operation;
        if (is_operation ? !parse_operation(line, operation) : !parse_setting(line, program)) {
            if (error != nullptr) *error = "cannot be read: " + std::string(line);
            return std::nullopt;
        }
        if (is_operation) program.operations.push_back(operation);
    }
    return program;
}

} // namespace random_programs
