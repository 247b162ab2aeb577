#include "tools/symbols/module_symbols.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

namespace cachealloc::tools {
namespace {

/// Whether the file begins as programs and libraries of this kind of machine do. libdw would also
/// unpack compressed files, however large what comes out.
bool is_program(int descriptor) {
    std::array<unsigned char, sizeof(Elf64_Ehdr)> bytes;
    if (pread(descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        return false;
    }
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
           (header.e_type == ET_EXEC || header.e_type == ET_DYN);
}

/// Recorded build-ids are cut at 32 bytes.
bool same_build(std::span<const std::uint8_t> recorded, std::span<const std::uint8_t> found) {
    constexpr std::size_t kLongestRecorded = 32;
    const std::size_t length = std::min(found.size(), kLongestRecorded);
    return recorded.size() == length && std::equal(recorded.begin(), recorded.end(), found.begin());
}

} // namespace

ModuleSymbols::ModuleSymbols(const SymbolSearch& search, std::string_view path,
                             std::span<const std::uint8_t> build_id)
    : debug_path_(debug_info_path(search)) {
    debug_path_text_ = debug_path_.data();
    callbacks_.find_elf = dwfl_build_id_find_elf;
    callbacks_.find_debuginfo = dwfl_standard_find_debuginfo;
    callbacks_.section_address = dwfl_offline_section_address;
    callbacks_.debuginfo_path = &debug_path_text_;
    for (const std::string& candidate : module_candidates(search, path, build_id)) {
        OpenFile file = OpenFile::open(candidate);
        if (!file.is_open()) {
            continue;
        }
        const std::string refused = file_;
        const std::string refused_id = file_build_id_;
        file_ = candidate;
        file_build_id_.clear();
        const Failure failure = open(std::move(file), build_id);
        if (failure == Failure::none) {
            failure_ = failure;
            return;
        }
        if (failure_ != Failure::missing) {
            // The first file refused is the one to speak of: it lies where the module lay.
            file_ = refused;
            file_build_id_ = refused_id;
        } else {
            failure_ = failure;
        }
    }
    if (debuginfod_in_use() && !build_id.empty() && ask_servers(path, build_id) == Failure::none) {
        failure_ = Failure::none;
    }
}

void ModuleSymbols::start_session() {
    session_.reset(dwfl_begin(&callbacks_));
    module_ = nullptr;
    if (session_ != nullptr) {
        dwfl_report_begin(session_.get());
    }
}

ModuleSymbols::Failure ModuleSymbols::open(OpenFile file, std::span<const std::uint8_t> build_id) {
    if (!is_program(file.descriptor())) {
        return Failure::unreadable;
    }
    start_session();
    if (session_ == nullptr) {
        return Failure::unreadable;
    }
    const std::string path = file.path();
    // Addresses of the session are those of the file: nothing is added to them.
    Dwfl_Module* module =
        dwfl_report_elf(session_.get(), path.c_str(), path.c_str(), file.descriptor(), 0, true);
    if (module != nullptr) {
        file.release();
    }
    return accept(module, build_id);
}

ModuleSymbols::Failure ModuleSymbols::ask_servers(std::string_view path,
                                                  std::span<const std::uint8_t> build_id) {
    start_session();
    if (session_ == nullptr) {
        return Failure::unreadable;
    }
    // Where the file's addresses end is not known before it is there.
    constexpr std::uint64_t kEnd = std::uint64_t{1} << 47;
    const std::string name(path);
    Dwfl_Module* module = dwfl_report_module(session_.get(), name.c_str(), 0, kEnd);
    if (module == nullptr ||
        dwfl_module_report_build_id(module, build_id.data(), build_id.size(), 0) != 0) {
        return Failure::missing;
    }
    const Failure failure = accept(module, build_id);
    if (failure == Failure::none) {
        const char* found = nullptr;
        dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, &found, nullptr);
        file_ = found != nullptr ? found : "";
    }
    return failure;
}

ModuleSymbols::Failure ModuleSymbols::accept(Dwfl_Module* module,
                                             std::span<const std::uint8_t> build_id) {
    GElf_Addr bias = 0;
    if (module == nullptr || dwfl_report_end(session_.get(), nullptr, nullptr) != 0 ||
        dwfl_module_getelf(module, &bias) == nullptr) {
        return Failure::unreadable;
    }
    const unsigned char* bytes = nullptr;
    GElf_Addr where = 0;
    const int length = dwfl_module_build_id(module, &bytes, &where);
    const std::span<const std::uint8_t> found(bytes,
                                              length > 0 ? static_cast<std::size_t>(length) : 0);
    file_build_id_ = hexadecimal(found);
    if (!build_id.empty() && !same_build(build_id, found)) {
        return Failure::mismatch;
    }
    verified_ = !build_id.empty();
    module_ = module;
    bias_ = bias;
    return Failure::none;
}

bool ModuleSymbols::has_lines() {
    if (!lines_read_) {
        lines_read_ = true;
        Dwarf_Addr bias = 0;
        if (Dwarf* dwarf = dwfl_module_getdwarf(module_, &bias)) {
            lines_bias_ = bias;
            lines_.emplace(dwarf);
        }
    }
    return lines_.has_value();
}

const ElfSymbols& ModuleSymbols::symbols() {
    if (!symbols_) {
        symbols_.emplace(module_);
    }
    return *symbols_;
}

std::vector<RawFrame> ModuleSymbols::frames(std::uint64_t place) {
    const std::uint64_t address = place + bias_;
    const auto symbol = symbols().find(address);
    const bool complete = symbols().complete();
    std::vector<RawFrame> frames;
    if (has_lines()) {
        frames = lines_->frames(address - lines_bias_, symbol && complete ? symbol->name : nullptr);
    }
    if (frames.empty() && symbol) {
        RawFrame& frame = frames.emplace_back();
        frame.function = demangled(symbol->name);
        if (!complete) {
            // Where only exported functions have names, the offset tells parts of one apart.
            std::array<char, 24> offset;
            std::snprintf(offset.data(), offset.size(), "+0x%llx",
                          static_cast<unsigned long long>(symbol->offset));
            frame.function += offset.data();
        }
    }
    return frames;
}

} // namespace cachealloc::tools
