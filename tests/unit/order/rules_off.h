#pragma once

#include "core/order/rules.h"

#include <initializer_list>

/// Switches rules off for a scope.
class RulesOff {
  public:
    RulesOff(std::initializer_list<cachealloc::Rule> rules) {
        std::uint32_t bits = 0;
        for (const cachealloc::Rule rule : rules)
            bits |= 1U << static_cast<std::uint32_t>(rule);
        cachealloc::g_rules_off = bits;
    }
    ~RulesOff() { cachealloc::g_rules_off = 0; }
    RulesOff(const RulesOff&) = delete;
    RulesOff& operator=(const RulesOff&) = delete;
};
