#include "tools/commands/options.h"

#include "core/options.h"
#include "tools/commands/exit_codes.h"
#include "tools/commands/tables.h"

#include <fmt/format.h>

namespace cachealloc::tools {

bool check_conf(const std::string& conf, const char* where) {
    ParseReport report;
    static_cast<void>(parse_options(conf, report));
    for (std::size_t i = 0; i < report.size(); ++i)
        fmt::print(stderr, "cachealloc: {}: {}\n", where, report[i]);
    if (report.dropped() != 0)
        fmt::print(stderr, "cachealloc: {}: {} more like these\n", where, report.dropped());
    return report.mistakes() == 0;
}

int options_main(const std::string& conf, bool json) {
    const bool good = check_conf(conf, "--conf");
    ParseReport ignored;
    const Options options = parse_options(conf, ignored);
    if (json) {
        Json list = Json::array();
        for (std::size_t i = 0; i < option_count(); ++i) {
            const OptionInfo info = option_info(i);
            list.push_back({{"name", info.name},
                            {"default", info.default_text},
                            {"allowed", info.allowed},
                            {"meaning", info.meaning}});
        }
        print_json({{"options", std::move(list)}, {"conf", format_options(options)}});
    } else if (conf.empty()) {
        fmt::print("CACHEALLOC_CONF=key:value,key:value\n\n");
        for (std::size_t i = 0; i < option_count(); ++i) {
            const OptionInfo info = option_info(i);
            fmt::print("{}{}{}\n    {}\n", info.name,
                       info.allowed.empty() ? "" : ": " + info.allowed,
                       info.default_text.empty() ? "" : " (default " + info.default_text + ")",
                       info.meaning);
        }
    } else {
        fmt::print("{}\n", format_options(options));
    }
    return good ? kFine : kUsage;
}

} // namespace cachealloc::tools
