#pragma once

#include <string>

namespace cachealloc::tools {

/// `cachealloc options`: what CACHEALLOC_CONF may say. With `conf`, what that text comes to; what
/// is wrong in it is said on standard error, and the exit code is kUsage.
int options_main(const std::string& conf, bool json);

/// Says on standard error what is wrong in `conf`, a line each; false if something is. `where`
/// names it: "CACHEALLOC_CONF" or "--conf".
bool check_conf(const std::string& conf, const char* where);

} // namespace cachealloc::tools
