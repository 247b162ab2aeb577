// What libFuzzer does at random, here in full: each file cut at every 512 bytes, each byte of
// header and section table spoilt, and many random changes whose seeds are printed on a failure.
// Nothing may be thrown but a TraceError; the sanitizer builds see the rest.
#include "tests/fuzz/consume.h"
#include "tests/fuzz/mutations.h"
#include "tests/fuzz/sample_traces.h"
#include "tests/tools/temporary_file.h"

#include "core/record/trace_format.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <fcntl.h>
#include <iterator>
#include <unistd.h>

using namespace cachealloc::tests;
using cachealloc::trace::Header;

namespace {

/// Standard output, and but for sanitizers standard error, go nowhere.
class Quiet {
  public:
    Quiet() : nowhere_(open("/dev/null", O_WRONLY)) {
        for (std::size_t i = 0; i < std::size(kStreams); ++i) {
            std::fflush(nullptr);
            kept_[i] = dup(kStreams[i]);
            dup2(nowhere_, kStreams[i]);
        }
    }
    ~Quiet() {
        for (std::size_t i = 0; i < std::size(kStreams); ++i) {
            std::fflush(nullptr);
            dup2(kept_[i], kStreams[i]);
            close(kept_[i]);
        }
        close(nowhere_);
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;

  private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static constexpr int kStreams[] = {STDOUT_FILENO};
#else
    static constexpr int kStreams[] = {STDOUT_FILENO, STDERR_FILENO};
#endif
    int nowhere_;
    int kept_[std::size(kStreams)];
};

/// Each call takes the next of the choices.
bool consumed(const std::vector<std::byte>& bytes) {
    static std::uint64_t choice = 0;
    const TemporaryFile file(bytes);
    const Quiet quiet;
    return consume(file.path(), choice++ % kChoices);
}

} // namespace

TEST_CASE("samples are read, or refused for what they are") {
    for (const SampleTrace& sample : sample_traces()) {
        INFO(sample.name);
        const std::vector<std::byte> bytes = sample.make();
        for (std::uint64_t choice = 0; choice < kChoices; ++choice)
            CHECK(consumed(bytes) == sample.readable);
    }
}

TEST_CASE("a file cut anywhere is refused or read in part") {
    for (const SampleTrace& sample : sample_traces()) {
        std::vector<std::byte> bytes = sample.make();
        for (std::size_t length = bytes.size() / 512 * 512;; length -= 512) {
            INFO(sample.name << " cut to " << length);
            bytes.resize(length);
            CHECK_NOTHROW(consumed(bytes));
            if (length == 0) break;
        }
    }
}

TEST_CASE("each byte of the header may be wrong") {
    const std::vector<std::byte> bytes = sample_traces().back().make();
    const std::size_t sections_end = offsetof(Header, sections) + sizeof(Header::sections) / 2;
    for (std::size_t at = 0; at < sections_end; ++at) {
        if (at == sizeof(Header::counters) + offsetof(Header, counters))
            at = offsetof(Header, sections);
        for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
            INFO("byte " << at << " xor " << flip);
            std::vector<std::byte> spoilt = bytes;
            spoilt[at] ^= static_cast<std::byte>(flip);
            CHECK_NOTHROW(consumed(spoilt));
        }
    }
}

TEST_CASE("random changes do no harm") {
    for (const SampleTrace& sample : sample_traces()) {
        const std::vector<std::byte> bytes = sample.make();
        for (std::uint64_t seed = 1; seed <= 200; ++seed) {
            INFO(sample.name << " seed " << seed);
            FuzzRandom random(seed);
            std::vector<std::byte> spoilt = bytes;
            for (std::uint64_t i = 0; i <= random.below(6); ++i)
                mutate(spoilt, random);
            CHECK_NOTHROW(consumed(spoilt));
        }
    }
}
