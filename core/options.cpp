#include "core/options.h"

#include "core/options_table.h"
#include "core/options_text.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace cachealloc {

using namespace options_detail;

namespace {

// The two halves of an item at its first colon; without one the second half is empty.
struct Item {
    std::string_view key;
    std::string_view value;
};

Item split_item(std::string_view text) noexcept {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return {text, {}};
    return {text.substr(0, colon), text.substr(colon + 1)};
}

// Length of the item at the start of `text`: up to the next comma outside a list. A '[' that is
// not closed before the next '[' opens no list: a forgotten ']' costs one item, not all the rest.
std::size_t item_length(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ',') return i;
        if (text[i] != '[') continue;
        const std::size_t bracket = text.find_first_of("[]", i + 1);
        if (bracket != std::string_view::npos && text[bracket] == ']') i = bracket;
    }
    return text.size();
}

// Takes the first item off `text`, which is not empty.
std::string_view next_item(std::string_view& text) noexcept {
    const std::size_t length = item_length(text);
    const std::string_view item = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    return item;
}

std::string_view trim(std::string_view text) noexcept {
    while (!text.empty() && is_space(text.front()))
        text.remove_prefix(1);
    while (!text.empty() && is_space(text.back()))
        text.remove_suffix(1);
    return text;
}

// Each reader stores a value only when it is wholly good; else it returns what is wrong, in words.
constexpr std::string_view kGood;

std::string_view read_divisions_number(const Token& token, std::uint8_t& divisions) noexcept {
    std::uint64_t value = 0;
    if (!token.number(value)) return "not a whole number";
    if (value > kMaxDivisions) return "out of range";
    if (value != 0 && !std::has_single_bit(value)) return "not a power of two";
    divisions = static_cast<std::uint8_t>(value);
    return kGood;
}

// `list` is what stands between the brackets.
std::string_view read_divisions_list(std::string_view list, RoundupDivisions& result) noexcept {
    RoundupDivisions divisions{};
    bool first = true;
    std::size_t next = 0; // the interval above the entry before
    while (!list.empty()) {
        const std::string_view entry = next_item(list);
        if (trim(entry).empty()) continue;
        const Item item = split_item(entry);
        std::uint8_t value = 0;
        if (const auto wrong = read_divisions_number(Token(item.value), value); !wrong.empty())
            return wrong;
        const Token key(item.key);
        if (key.is(">")) {
            std::fill(divisions.begin() + static_cast<std::ptrdiff_t>(next), divisions.end(),
                      value);
        } else {
            std::uint64_t mib = 0;
            if (!key.number(mib) || !std::has_single_bit(mib)) return "MiB not a power of two";
            if (mib > kMaxIntervalMiB) return "MiB out of range";
            const std::size_t interval = roundup_interval(mib * Options::kMiB);
            if (first) std::fill_n(divisions.begin(), interval, value);
            divisions[interval] = value;
            next = interval + 1;
        }
        first = false;
    }
    if (first) return "an empty list";
    result = divisions;
    return kGood;
}

std::string_view read_divisions(std::string_view raw, RoundupDivisions& result) noexcept {
    const std::string_view text = trim(raw);
    if (!text.starts_with('[')) {
        std::uint8_t value = 0;
        const auto wrong = read_divisions_number(Token(text), value);
        if (wrong.empty()) result.fill(value);
        return wrong;
    }
    if (text.find(']') == std::string_view::npos) return "the list is not closed";
    if (text.find(']') != text.size() - 1) return "something follows the list";
    return read_divisions_list(text.substr(1, text.size() - 2), result);
}

// `large_segment`: what the text as a whole says of it.
std::string_view read_value(std::string_view raw, const Row& row, std::uint64_t large_segment,
                            Options& options) noexcept {
    if (row.type == OptionType::divisions)
        return read_divisions(raw, options.roundup_power2_divisions);
    const Token token(raw);
    if (token.empty()) return "no value";
    if (row.type == OptionType::integer) {
        std::uint64_t value = 0;
        if (row.may_be_unlimited && token.is(kUnlimitedWord)) {
            value = Options::kUnlimited;
        } else {
            if (!token.number(value)) return "not a whole number";
            const std::uint64_t least = row.at_least_large_segment ? large_segment : row.min;
            if (value < least || value > row.max) return "out of range";
        }
        row.store(options, value);
        return kGood;
    }
    if (row.type == OptionType::fraction) {
        std::uint64_t value = 0;
        if (!token.billionths(value)) return "not a number without a sign";
        if (value > row.max) return "out of range";
        row.store(options, value);
        return kGood;
    }
    if (row.type == OptionType::boolean) {
        const bool value = token.is("True");
        if (!value && !token.is("False")) return "not a truth value";
        row.store(options, value ? 1 : 0);
        return kGood;
    }
    const auto word = std::ranges::find_if(
        row.words, [&](std::string_view allowed) { return token.is(allowed); });
    if (word == row.words.end()) return "not known";
    row.store(options, static_cast<std::uint64_t>(word - row.words.begin()));
    return kGood;
}

using Message = FixedText<ParseReport::kMaxMessageBytes>;

void add_token(Message& message, std::string_view raw) noexcept {
    const Token token(raw);
    message.add_quoted(token.head());
    message.add(token.ellipsis());
}

// "; allowed: A; default: B"
void add_row(Message& message, const Row& row, const Options& options = {}) noexcept {
    ValueText allowed;
    add_allowed(allowed, row);
    Options defaults = options;
    set_default(row, defaults);
    ValueText standard;
    add_value(standard, row, defaults);
    message.add("; allowed: ");
    message.add(allowed.view());
    message.add("; default: ");
    message.add(standard.view());
}

void report_unknown(const Item& item, const Token& key, ParseReport& report) noexcept {
    Message message;
    if (key.is(kOffWord)) {
        message.add("option off ignored (value ");
        add_token(message, item.value);
        message.add("); allowed: only as the whole text, off and nothing else");
    } else {
        const Row& nearest = nearest_row(key);
        message.add("unknown option ");
        add_token(message, item.key);
        message.add(" (value ");
        add_token(message, item.value);
        message.add(") ignored; nearest known option: ");
        message.add(nearest.name);
        add_row(message, nearest);
    }
    report.add(true, message.view());
}

void report_duplicate(const Item& item, const Row& row, ParseReport& report) noexcept {
    Message message;
    message.add("option ");
    message.add(row.name);
    message.add(" is given more than once; the last one counts, value ");
    add_token(message, item.value);
    report.add(false, message.view());
}

void report_foreign(const Item& item, const Foreign& foreign, ParseReport& report) noexcept {
    Message message;
    message.add("option ");
    message.add(foreign.name);
    message.add(" (value ");
    add_token(message, item.value);
    message.add(") ignored: ");
    message.add(foreign.why);
    report.add(false, message.view());
}

void report_bad(const Item& item, const Row& row, std::string_view wrong, const Options& options,
                ParseReport& report) noexcept {
    Message message;
    message.add("option ");
    message.add(row.name);
    message.add(": value ");
    add_token(message, item.value);
    message.add(" cannot be used (");
    message.add(wrong);
    message.add("), the default is used");
    add_row(message, row, options);
    report.add(true, message.view());
}

// Parsed before all others, which it limits: the last one in the text that is given, as ever.
std::uint64_t find_large_segment(std::string_view text) noexcept {
    Options options;
    while (!text.empty()) {
        const Item item = split_item(next_item(text));
        const Token key(item.key);
        if (!key.is(kLargeSegment)) continue;
        const Row& row = *find_row(key);
        if (!read_value(item.value, row, 0, options).empty()) set_default(row, options);
    }
    return options.large_segment_size_mb;
}

} // namespace

std::size_t roundup_interval(std::uint64_t bytes) noexcept {
    const std::uint64_t mib = bytes / Options::kMiB;
    if (mib == 0) return 0;
    return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(mib)) - 1,
                                 RoundupDivisions{}.size() - 1);
}

std::uint64_t Options::slack_bytes(std::uint64_t live_peak_bytes) const noexcept {
    // Divided first: the product could overflow.
    const std::uint64_t share =
        live_peak_bytes / 100 * slack_percent + live_peak_bytes % 100 * slack_percent / 100;
    return std::max(slack_mb * kMiB, share);
}

void ParseReport::add(bool mistake, std::string_view line) noexcept {
    if (mistake) ++mistakes_;
    if (size_ == kMaxMessages) {
        ++dropped_;
        return;
    }
    Line& slot = lines_[size_++];
    slot.length = std::min(line.size(), slot.text.size());
    std::copy_n(line.data(), slot.length, slot.text.data());
}

Options parse_options(std::string_view text, ParseReport& report) noexcept {
    Options options;
    if (Token(text).is(kOffWord)) {
        options.off = true;
        return options;
    }
    options.large_segment_size_mb = find_large_segment(text);
    const std::uint64_t large_segment = options.large_segment_size_mb;
    for (const Row& row : rows()) {
        if (row.large_segment_by_default) set_default(row, options);
    }
    std::uint64_t seen = 0; // one bit a row
    while (!text.empty()) {
        const std::string_view raw = next_item(text);
        if (trim(raw).empty()) continue;
        const Item item = split_item(raw);
        const Token key(item.key);
        const Row* const row = find_row(key);
        if (const Foreign* const foreign = find_foreign(key)) {
            report_foreign(item, *foreign, report);
            continue;
        }
        if (row == nullptr) {
            report_unknown(item, key, report);
            continue;
        }
        const std::uint64_t bit = std::uint64_t{1} << (row - rows().data());
        if ((seen & bit) != 0) report_duplicate(item, *row, report);
        seen |= bit;
        if (const auto wrong = read_value(item.value, *row, large_segment, options);
            !wrong.empty()) {
            set_default(*row, options);
            report_bad(item, *row, wrong, options, report);
        }
    }
    return options;
}

} // namespace cachealloc
