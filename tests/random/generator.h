// Makes programs out of seeds.
//
// Invariant: every operation of a program was legal for the Model at its place, so the program runs
// natively without a race, a deadlock or a use of dead memory. Where the wished operation lacks an
// order, the generator puts in what a careful programmer would: an event and a wait, or a wait of
// the host.
#pragma once

#include "tests/random/program.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace random_programs {

/// Which programs are made: everything, or what leads to one rule's place most often.
struct Profile {
    std::string_view name;
    std::string_view rule; ///< of core/order/rules.h that it aims at; empty: none
    /// Names and weights, `fill:8 free:6`; verbs that are not named have weight 0.
    std::string_view weights;
    std::string_view confs; ///< space-separated, one is drawn; empty: all sorts
    int streams = 4;        ///< at most
    int threads = 1;
    int devices = 1;
    bool per_thread = false;   ///< whether per-thread default streams are used
    bool free_running = false; ///< whether threads run at will
};

std::span<const Profile> profiles();
const Profile& everything();
/// The profile that aims at a rule; null if there is none.
const Profile* profile_for_rule(std::string_view rule);

Program generate(std::uint64_t seed, const Profile& profile);

} // namespace random_programs
