// Makes the recordings that export_test.py reads the exports of, and the exports.
//
//     export_case make KIND SEED EVENTS FILE    a recording; what is to be expected on stdout
//     export_case export FORMAT COST DEVICE FROM TO FILE OUTPUT
#include "tests/tools/exports/scene.h"
#include "tools/exports/export.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

using cachealloc::tests::Scene;

int make(const std::string& kind, std::uint64_t seed, std::uint64_t events,
         const std::string& file) {
    Scene scene(seed);
    if (kind == "wrapped") {
        scene.builder().ring_chunks(6);
    }
    for (std::uint64_t step = 0; step < events; ++step) {
        if (kind == "lossy") {
            // A stretch of events now and then leaves its marks in the live table alone.
            if (step % 97 == 90) {
                scene.builder().lose();
            } else if (step % 97 == 96) {
                scene.builder().unlose();
            }
        }
        if (kind == "nonsense" && step % 3 == 0) {
            scene.nonsense();
        } else {
            scene.step();
        }
    }
    scene.builder().unlose();
    std::vector<std::byte> bytes = scene.builder().bytes();
    if (kind == "damaged") {
        for (std::uint64_t change = 0; change < events / 20; ++change) {
            // Not the header: then there would be no recording.
            const std::size_t place =
                cachealloc::trace::kHeaderBytes +
                scene.random()() % (bytes.size() - cachealloc::trace::kHeaderBytes);
            bytes[place] = static_cast<std::byte>(scene.random()());
        }
    }
    std::ofstream stream(file, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    std::puts(scene.expectation().c_str());
    return stream ? 0 : 1;
}

int write(char** arguments) {
    cachealloc::tools::ExportOptions options;
    if (!cachealloc::tools::parse_export_format(arguments[0], options.format) ||
        !cachealloc::tools::parse_export_cost(arguments[1], options.cost)) {
        return 64;
    }
    options.device = std::atoi(arguments[2]);
    options.from_seconds = std::atof(arguments[3]);
    options.to_seconds = std::atof(arguments[4]);
    options.file = arguments[5];
    options.output = arguments[6];
    return cachealloc::tools::export_main(options);
}

} // namespace

int main(int count, char** arguments) {
    if (count == 6 && std::strcmp(arguments[1], "make") == 0) {
        return make(arguments[2], std::strtoull(arguments[3], nullptr, 10),
                    std::strtoull(arguments[4], nullptr, 10), arguments[5]);
    }
    if (count == 9 && std::strcmp(arguments[1], "export") == 0) {
        return write(arguments + 2);
    }
    std::fputs("see the head of export_case.cpp\n", stderr);
    return 64;
}
