// A libFuzzer target over everything that the tool does with a recording. The bytes lie in a file
// in memory, since the reader reads files.
#include "tests/fuzz/consume.h"
#include "tests/fuzz/mutations.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

class MemoryFile {
  public:
    MemoryFile() : descriptor_(memfd_create("fuzzed.trace", 0)) {
        if (descriptor_ < 0) std::abort();
    }
    void set(const std::uint8_t* data, std::size_t size) {
        if (ftruncate(descriptor_, 0) != 0) std::abort();
        std::size_t done = 0;
        while (done < size) {
            const ssize_t wrote =
                pwrite(descriptor_, data + done, size - done, static_cast<off_t>(done));
            if (wrote <= 0) std::abort();
            done += static_cast<std::size_t>(wrote);
        }
    }
    [[nodiscard]] std::string path() const {
        return "/proc/self/fd/" + std::to_string(descriptor_);
    }

  private:
    int descriptor_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static MemoryFile file;
    file.set(data, size);
    std::uint64_t choice = size;
    for (std::size_t i = 0; i < size; i += 61)
        choice = choice * 31 + data[i];
    cachealloc::tests::consume(file.path(), choice % cachealloc::tests::kChoices);
    return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t room);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t room, unsigned seed) {
    cachealloc::tests::FuzzRandom random(seed);
    if (random.below(8) == 0) return LLVMFuzzerMutate(data, size, room);
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), data, size);
    for (std::uint64_t i = 0; i <= random.below(4); ++i)
        cachealloc::tests::mutate(bytes, random);
    const std::size_t kept = bytes.size() < room ? bytes.size() : room;
    std::memcpy(data, bytes.data(), kept);
    return kept;
}
