#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

/// A recorded sequence of allocations and frees, read from a file of one of two forms: calls
/// (`op,id,bytes,...`) or buffers with their life times (`id,lower,upper,size`).
struct RecordedProgram {
    struct Event {
        bool allocates;
        std::uint32_t id;
        std::uint64_t bytes; ///< as asked for
    };
    std::vector<Event> events;
    std::uint32_t ids = 0;
    std::uint64_t allocations = 0;

    /// The text of a file, unpacked if it ends in .gz; empty if it cannot be read.
    static std::string text_of(const std::string& path) {
        std::string text;
        if (!std::ifstream(path)) return text;
        const bool packed = path.ends_with(".gz");
        FILE* const file = popen(((packed ? "zcat '" : "cat '") + path + "'").c_str(), "r");
        char part[65536];
        for (std::size_t n = 0; (n = fread(part, 1, sizeof part, file)) > 0;)
            text.append(part, n);
        pclose(file);
        return text;
    }

    static RecordedProgram read(const std::string& path) {
        RecordedProgram program;
        std::istringstream lines(text_of(path));
        std::string line;
        std::getline(lines, line);
        const bool calls = line.starts_with("op,");
        std::map<std::string, std::uint32_t> live;
        std::multimap<std::pair<std::uint64_t, int>, Event> steps; // frees first
        while (std::getline(lines, line)) {
            std::vector<std::string> field;
            std::istringstream fields(line);
            for (std::string part; std::getline(fields, part, ',');)
                field.push_back(part);
            if (calls && field[0] == "a") {
                live[field[1]] = program.ids;
                program.add({true, program.ids++, std::stoull(field[2])});
            } else if (calls) {
                program.add({false, live[field[1]], 0});
            } else {
                const std::uint32_t id = program.ids++;
                steps.insert({{std::stoull(field[1]), 1}, {true, id, std::stoull(field[3])}});
                steps.insert({{std::stoull(field[2]), 0}, {false, id, 0}});
            }
        }
        for (const auto& [when, step] : steps)
            program.add(step);
        return program;
    }

  private:
    void add(Event event) {
        events.push_back(event);
        if (event.allocates) ++allocations;
    }
};
