#include "core/record/trace_file.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/small_file.h"

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <sys/resource.h>
#include <sys/time.h>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::SectionType;

namespace {

constexpr std::uint64_t kPage = 4096;

std::vector<SectionPlan> two_sections() {
    return {{SectionType::events, trace::kChunkBytes, 64 * kPage, 16 * kPage, 16 * kPage},
            {SectionType::settings, 1, 5000, 0, 0}};
}

void limit_files(std::uint64_t bytes) {
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
}

std::uint64_t allocated_bytes(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512
                                            : 0;
}

} // namespace

TEST_CASE("trace file: a file that is laid out as planned", "[record]") {
    SmallFile small(two_sections());
    const trace::Header& header = small.file().header();
    CHECK(std::memcmp(header.magic, trace::kMagic, 8) == 0);
    CHECK(header.state == static_cast<std::uint32_t>(trace::RunState::starting));
    CHECK(header.section_count == 2);
    CHECK(header.file_bytes == (1 + 64 + 2) * kPage);
    CHECK(header.sections[0].offset == kPage);
    CHECK(header.sections[0].used == 16 * kPage);
    CHECK(header.sections[1].offset == 65 * kPage);
    CHECK(header.sections[1].length == 2 * kPage);
    CHECK(header.pid == static_cast<std::uint32_t>(getpid()));
    CHECK(small.space(0).ready() == 16 * kPage);
    CHECK(small.space(1).ready() == 2 * kPage);

    struct stat status {};
    REQUIRE(stat(small.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(static_cast<std::uint64_t>(status.st_size) == header.file_bytes);
    CHECK(allocated_bytes(small.path()) >= (1 + 16 + 2) * kPage);
}

TEST_CASE("trace file: it grows in steps, and has the space before it says so", "[record]") {
    SmallFile small(two_sections());
    SectionSpace& space = small.space(0);
    CHECK(small.file().grow(space, 16 * kPage));
    CHECK(space.ready() == 16 * kPage);
    CHECK(small.file().grow(space, 16 * kPage + 1));
    CHECK(space.ready() == 32 * kPage);
    CHECK(allocated_bytes(small.path()) >= (1 + 32 + 2) * kPage);
    space.data[32 * kPage - 1] = std::byte{7};
    CHECK(small.file().grow(space, 64 * kPage));
    CHECK(space.ready() == 64 * kPage);
    CHECK_FALSE(small.file().grow(space, 64 * kPage + 1));
    CHECK_FALSE(small.file().grow(small.space(1), 3 * kPage));
}

TEST_CASE("trace file: nothing that exists is opened, and a failure leaves nothing", "[record]") {
    const Folder folder;
    TraceFile file;
    const auto plans = two_sections();
    std::ofstream(folder / "there") << "text";
    CHECK(file.create((folder / "there").c_str(), plans) == EEXIST);
    CHECK(std::filesystem::file_size(folder / "there") == 4);
    std::filesystem::create_symlink(folder / "target", folder / "link");
    CHECK(file.create((folder / "link").c_str(), plans) == EEXIST);
    CHECK_FALSE(std::filesystem::exists(folder / "target"));
    CHECK(file.create((folder / "no/folder").c_str(), plans) == ENOENT);
    CHECK(file.create(std::string(TraceFile::kMaxPath, 'x').c_str(), plans) == ENAMETOOLONG);
    CHECK(file.create("/proc/self/trace", plans) != 0);
    CHECK(file.create((folder / "trace").c_str(), plans) == 0); // the object is as new
    CHECK(std::filesystem::file_size(folder / "trace") == 67 * kPage);
}

TEST_CASE("trace file: beyond the limit of file sizes there is an error, no signal", "[record]") {
    const Folder folder;
    const std::string path = folder / "trace";
    CHECK(in_child([&] {
              limit_files(66 * kPage);
              TraceFile file;
              return file.create(path.c_str(), two_sections());
          }) == EFBIG);
    CHECK_FALSE(std::filesystem::exists(path));

    CHECK(in_child([&] {
              TraceFile file;
              if (file.create(path.c_str(), two_sections()) != 0) return 1;
              limit_files(20 * kPage);
              SectionSpace& space = file.space(0);
              if (file.grow(space, 17 * kPage)) return 2;
              if (!space.capped() || space.ready() != 16 * kPage) return 3;
              limit_files(1000 * kPage);
              return file.grow(space, 17 * kPage) ? 4 : 0; // for good
          }) == 0);
}

TEST_CASE("trace file: a descriptor that became another file's is left alone", "[record]") {
    const Folder folder;
    const std::string other = folder / "other";
    CHECK(in_child([&] {
              TraceFile file;
              if (file.create((folder / "trace").c_str(), two_sections()) != 0) return 1;
              for (int i = 3; i < 1024; ++i)
                  close(i);
              const int mine = open(other.c_str(), O_RDWR | O_CREAT, 0600);
              for (int i = 512; i < 1024; ++i)
                  dup2(mine, i);
              if (file.grow(file.space(0), 17 * kPage)) return 2;
              return file.space(0).capped() ? 0 : 3;
          }) == 0);
    CHECK(allocated_bytes(other) == 0);
}

TEST_CASE("trace file: only its own name is taken away", "[record]") {
    const Folder folder;
    CHECK(in_child([&] {
              if (chdir((folder / "").c_str()) != 0) return 1;
              TraceFile file;
              if (file.create("trace", two_sections()) != 0) return 2;
              if (chdir("/") != 0) return 3;
              file.remove_name();
              if (std::filesystem::exists(folder / "trace")) return 4;
              std::ofstream(folder / "trace") << "somebody else's";
              file.remove_name();
              file.space(0).data[0] = std::byte{1}; // the mapping stays
              return std::filesystem::exists(folder / "trace") ? 0 : 5;
          }) == 0);
}

TEST_CASE("trace file: signals do not end an allocation", "[record]") {
    // tmpfs of older kernels gave up at any signal; others between extents, or never.
    const Folder folder(std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp");
    CHECK(in_child([&] {
              struct sigaction action {};
              action.sa_handler = [](int) {};
              sigaction(SIGALRM, &action, nullptr); // no SA_RESTART
              const itimerval storm{{0, 100}, {0, 100}};
              setitimer(ITIMER_REAL, &storm, nullptr);
              const std::vector<SectionPlan> plans = {
                  {SectionType::events, trace::kChunkBytes, 16 << 20, 4 << 20, 0}};
              TraceFile file;
              if (file.create((folder / "trace").c_str(), plans) != 0) return 1;
              for (std::uint64_t end = 4; end <= 16; end += 4) {
                  if (!file.grow(file.space(0), end << 20)) return 2;
              }
              return 0;
          }) == 0);
}
