#include "tools/commands/preload.h"

#include "tools/commands/text.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <unistd.h>

namespace cachealloc::tools {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libcachealloc.so";

bool is_sanitizer(std::string_view library) {
    const std::string_view name = base_name(library);
    return name.starts_with("libasan.so") || name.starts_with("libtsan.so") ||
           name.starts_with("liblsan.so") || name.starts_with("libclang_rt.");
}

bool is_program(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

/// The names of the libraries in a dynamic section.
void add_needed(Elf* elf, Elf_Scn* section, const GElf_Shdr& header,
                std::vector<std::string>& names) {
    const Elf_Data* const data = elf_getdata(section, nullptr);
    if (data == nullptr || header.sh_entsize == 0) return;
    for (int i = 0; static_cast<GElf_Xword>(i) < header.sh_size / header.sh_entsize; ++i) {
        GElf_Dyn entry;
        // libelf's function takes data that it may write, but only reads it.
        if (gelf_getdyn(const_cast<Elf_Data*>(data), i, &entry) == nullptr) return;
        if (entry.d_tag != DT_NEEDED) continue;
        const char* const name = elf_strptr(elf, header.sh_link, entry.d_un.d_val);
        if (name != nullptr) names.emplace_back(name);
    }
}

} // namespace

std::string preload_library() {
    std::error_code error;
    const fs::path tool = fs::read_symlink("/proc/self/exe", error);
    if (error) return {};
    const fs::path folder = tool.parent_path();
    for (const fs::path& place : {folder, folder.parent_path() / "lib"}) {
        const fs::path library = place / kLibrary;
        if (fs::is_regular_file(library, error)) return library.string();
    }
    return {};
}

std::string program_path(const std::string& command) {
    if (command.find('/') != std::string::npos) return is_program(command) ? command : "";
    const char* const set = std::getenv("PATH");
    std::string_view rest = set == nullptr ? "/bin:/usr/bin" : set;
    for (;;) {
        const std::size_t colon = rest.find(':');
        const std::string_view folder = rest.substr(0, colon);
        const fs::path path = fs::path(folder.empty() ? "." : folder) / command;
        if (is_program(path)) return path.string();
        if (colon == std::string_view::npos) return {};
        rest.remove_prefix(colon + 1);
    }
}

std::vector<std::string> sanitizer_runtimes(const std::string& path) {
    std::vector<std::string> names;
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || elf_version(EV_CURRENT) == EV_NONE) return names;
    {
        const std::unique_ptr<Elf, int (*)(Elf*)> elf(elf_begin(descriptor, ELF_C_READ, nullptr),
                                                      elf_end);
        Elf_Scn* section = nullptr;
        while (elf && (section = elf_nextscn(elf.get(), section)) != nullptr) {
            GElf_Shdr header;
            if (gelf_getshdr(section, &header) != nullptr && header.sh_type == SHT_DYNAMIC)
                add_needed(elf.get(), section, header, names);
        }
    }
    ::close(descriptor);
    std::erase_if(names, [](const std::string& name) { return !is_sanitizer(name); });
    return names;
}

std::string preload_text(const std::string& library, const std::vector<std::string>& sanitizers,
                         std::string_view before) {
    std::vector<std::string> first;
    std::vector<std::string> last;
    // The loader takes blanks and colons between names.
    while (!before.empty()) {
        const std::size_t end = std::min(before.find_first_of(" :"), before.size());
        const std::string_view name = before.substr(0, end);
        before.remove_prefix(std::min(end + 1, before.size()));
        if (name.empty() || base_name(name) == kLibrary) continue;
        (is_sanitizer(name) ? first : last).emplace_back(name);
    }
    for (const std::string& sanitizer : sanitizers) {
        const bool known = std::ranges::any_of(first, [&](const std::string& other) {
            const auto stem = [](std::string_view name) {
                return base_name(name).substr(0, base_name(name).find(".so"));
            };
            return stem(other) == stem(sanitizer);
        });
        if (!known) first.push_back(sanitizer);
    }
    first.push_back(library);
    first.insert(first.end(), last.begin(), last.end());
    return fmt::format("{}", fmt::join(first, ":"));
}

} // namespace cachealloc::tools
