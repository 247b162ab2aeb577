// A TraceFile with the sections that a test asks for.
#pragma once

#include "core/record/trace_file.h"

#include "tests/unit/record/recording.h"

#include <cstdlib>
#include <memory>
#include <vector>

namespace cachealloc::test {

class SmallFile {
  public:
    explicit SmallFile(const std::vector<SectionPlan>& plans) {
        if (file_->create((folder_ / "trace").c_str(), plans) != 0) std::abort();
    }
    TraceFile& file() { return *file_; }
    SectionSpace& space(std::size_t index) { return file_->space(index); }
    trace::Counters& counters() { return file_->header().counters; }
    std::string path() const { return folder_ / "trace"; }

  private:
    Folder folder_;
    std::unique_ptr<TraceFile> file_ = std::make_unique<TraceFile>(); // its mapping stays
};

} // namespace cachealloc::test
