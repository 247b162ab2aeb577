// Writes the sample recordings: write_samples FOLDER [NAME...]; NAME.trace each, all without a
// name.
#include "tests/fuzz/sample_traces.h"

#include <algorithm>
#include <cstdio>
#include <string>

int main(int argc, char** argv) {
    using cachealloc::tests::SampleTrace;
    if (argc < 2) {
        std::fputs("usage: write_samples FOLDER [NAME...]\n", stderr);
        return 2;
    }
    for (const SampleTrace& sample : cachealloc::tests::sample_traces()) {
        const auto wanted = [&](const char* name) { return sample.name == name; };
        if (argc > 2 && std::none_of(argv + 2, argv + argc, wanted)) continue;
        const std::string path = std::string(argv[1]) + "/" + std::string(sample.name) + ".trace";
        const std::vector<std::byte> bytes = sample.make();
        std::FILE* const file = std::fopen(path.c_str(), "wb");
        if (file == nullptr || std::fwrite(bytes.data(), bytes.size(), 1, file) != 1 ||
            std::fclose(file) != 0) {
            std::perror(path.c_str());
            return 1;
        }
    }
    return 0;
}
