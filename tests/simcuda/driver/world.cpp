#include "world.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace simcuda {

namespace {

const std::map<std::string, std::uint64_t>& defaults() {
    static const std::map<std::string, std::uint64_t> table{
        {"seed", 1},         // of every choice
        {"devices", 1},      // how many
        {"memory_mb", 4096}, // physical memory of each device
        {"progress", 0},     // lazy 0, eager 1, random 2
        {"driver", 13000},   // what cuDriverGetVersion says
        {"call_ns", 500},    // virtual host time of one call
        {"kernel_ns", 2000}, // of a kernel whose twin does not say
        {"copy_mb_per_ms", 50},
        {"vmm", 1},          // whether memory can be mapped into reserved addresses
        {"expect_races", 0}, // findings do not change the exit status
        {"deadlock_s", 20},  // real time without any progress
        {"fault", 0},        // the n-th kernel from now faults
    };
    return table;
}

} // namespace

World& World::get() {
    static World* const world = new World; // never destroyed: threads may outlive main
    return *world;
}

World::World() : settings(defaults()) {
    const char* text = std::getenv("SIMCUDA");
    std::string rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
        const auto comma = std::min(rest.find(','), rest.size());
        const std::string item = rest.substr(0, comma);
        rest.erase(0, comma + 1);
        const auto colon = item.find(':');
        const std::string key = item.substr(0, colon);
        const std::string value = colon == std::string::npos ? "1" : item.substr(colon + 1);
        const auto it = settings.find(key);
        if (it == settings.end()) {
            std::fprintf(stderr, "simcuda: unknown setting \"%s\" in SIMCUDA\n", key.c_str());
            continue;
        }
        it->second = value == "lazy"     ? 0
                     : value == "eager"  ? 1
                     : value == "random" ? 2
                                         : std::strtoull(value.c_str(), nullptr, 0);
    }
    random_.seed(settings["seed"]);
    host_.assign(1, 0);
}

void World::init() {
    if (initialised) {
        return;
    }
    pthread_atfork(nullptr, nullptr, [] { World::get().forked = true; });
    for (std::uint64_t i = 0; i < setting("devices"); ++i) {
        auto device = std::make_unique<Device>(setting("memory_mb") << 20);
        device->index = static_cast<int>(i);
        auto pool = std::make_shared<Pool>();
        pool->device = device->index;
        pool->is_default = true;
        pools.add(pool);
        device->default_pool = pool;
        device->current_pool = pool;
        devices.push_back(std::move(device));
    }
    initialised = true;
}

std::uint64_t World::setting(const char* key) const {
    const auto it = settings.find(key);
    return it == settings.end() ? 0 : it->second;
}

void World::tick() {
    now_ += setting("call_ns");
    ++activity_;
    if (blocked_ > 0) {
        changed_.notify_all();
    }
    switch (static_cast<Progress>(setting("progress"))) {
    case Progress::lazy:
        break;
    case Progress::eager:
        while (step()) {
        }
        break;
    case Progress::random: {
        const auto dice = random_() % 8;
        if (dice < 3) {
            catch_up();
        } else if (dice == 3) {
            for (auto n = random_() % 8; n > 0 && step(); --n) {
            }
        }
        break;
    }
    }
}

void World::run_until(Ns t) {
    for (;;) {
        while (!running_.empty() && running_.begin()->first.first <= t) {
            step();
        }
        // A gate that holds now starts work that may be due as well.
        const auto before = running_.size();
        const auto gated = gated_;
        for (const auto& op : gated) {
            start_if_ready(op);
        }
        if (running_.size() == before) {
            break;
        }
    }
    now_ = std::max(now_, t);
}

bool World::step() {
    const auto gated = gated_;
    for (const auto& op : gated) {
        start_if_ready(op);
    }
    if (callbacks_running_ > 0) {
        // Give the program's callback a moment, so that runs stay the same from time to time; a
        // callback that waits for the device must not stop it, though.
        changed_.wait_for(*self().lock, std::chrono::milliseconds(20),
                          [&] { return callbacks_running_ == 0; });
    }
    if (running_.empty()) {
        return false;
    }
    const auto first = running_.begin();
    const OpPtr op = first->second;
    now_ = std::max(now_, first->first.first);
    running_.erase(first);
    if (op->work.host_code) {
        run_host_code(op);
    } else {
        finish(op);
    }
    return true;
}

void World::wait_for(const std::function<bool()>& condition) {
    if (condition()) {
        return;
    }
    ++blocked_;
    Lock& lock = *self().lock;
    auto moved = std::chrono::steady_clock::now();
    auto seen = activity_;
    while (!condition()) {
        if (step()) {
            if (setting("progress") == static_cast<std::uint64_t>(Progress::random) &&
                random_() % 4 == 0) {
                lock.unlock();
                std::this_thread::yield();
                lock.lock();
            }
            continue;
        }
        changed_.wait_for(lock, std::chrono::milliseconds(200));
        const auto at = std::chrono::steady_clock::now();
        if (activity_ != seen) {
            seen = activity_;
            moved = at;
        } else if (at - moved > std::chrono::seconds(setting("deadlock_s"))) {
            std::fprintf(stderr,
                         "simcuda: deadlock: %llu host threads wait, %zu operations cannot start\n",
                         static_cast<unsigned long long>(blocked_), unfinished_.size());
            for (const auto& [id, op] : unfinished_) {
                std::fprintf(stderr, "simcuda:   #%llu %s%s\n", static_cast<unsigned long long>(id),
                             op->label->c_str(), op->pending == 0 ? " (its gate is shut)" : "");
            }
            std::fflush(nullptr);
            _exit(87);
        }
    }
    --blocked_;
}

void World::wait(const OpPtr& op) {
    if (op == nullptr) {
        return;
    }
    wait_for([&] { return op->done; });
    host_learns(op->clock);
}

// The program's callbacks run on a thread of their own, as a driver's do, and without the lock.
void World::run_host_code(const OpPtr& op) {
    callbacks_.push_back(op);
    ++callbacks_running_;
    if (!callback_thread_started_) {
        callback_thread_started_ = true;
        std::thread([this] { callback_thread(); }).detach();
    }
    callback_ready_.notify_one();
}

void World::callback_thread() {
    self().in_callback = true;
    Lock lock(mutex);
    self().lock = &lock;
    for (;;) {
        callback_ready_.wait(lock, [&] { return !callbacks_.empty(); });
        const OpPtr op = callbacks_.front();
        callbacks_.pop_front();
        lock.unlock();
        op->work.effect();
        lock.lock();
        --callbacks_running_;
        ++activity_;
        // What the callback saw, the host knows.
        host_learns(op->clock);
        finish(op);
        changed_.notify_all();
    }
}

OpPtr World::pending_user(std::uintptr_t p, std::size_t bytes) const {
    for (const auto& [id, op] : unfinished_) {
        for (const Access& a : op->work.accesses) {
            if (a.begin < p + bytes && p < a.begin + a.bytes) {
                return op;
            }
        }
    }
    return nullptr;
}

void World::race(const Race& r) {
    if (++races > 20) {
        return;
    }
    std::fprintf(stderr,
                 "simcuda: race: %s (#%llu) %s [%#zx, %#zx) that %s (#%llu) %s, and nothing orders "
                 "them\n",
                 r.later.label->c_str(), static_cast<unsigned long long>(r.later.op),
                 r.later_writes ? "writes" : "reads", static_cast<std::size_t>(r.begin),
                 static_cast<std::size_t>(r.end), r.earlier.label->c_str(),
                 static_cast<unsigned long long>(r.earlier.op),
                 r.earlier_writes ? "wrote" : "read");
}

void World::error(const std::string& what) {
    if (++errors <= 20) {
        std::fprintf(stderr, "simcuda: error: %s\n", what.c_str());
    }
}

namespace {

// The thread's default streams end with it; their work goes on.
struct ThreadEnd {
    std::uint64_t serial = 0;
    ~ThreadEnd() {
        World& w = World::get();
        if (w.forked) {
            return;
        }
        Lock hold(w.mutex);
        for (const auto& [handle, ctx] : w.contexts.all()) {
            const auto it = ctx->per_thread.find(serial);
            if (it != ctx->per_thread.end()) {
                w.retire_stream(it->second);
                ctx->per_thread.erase(it);
            }
        }
    }
};

} // namespace

ThreadState& self() {
    thread_local ThreadState* state = nullptr;
    if (state == nullptr) {
        static std::mutex registering;
        const std::lock_guard<std::mutex> hold(registering);
        auto& threads = World::get().threads;
        threads.push_back(std::make_unique<ThreadState>(threads.size() + 1));
        state = threads.back().get();
        thread_local ThreadEnd end;
        end.serial = state->serial;
    }
    return *state;
}

} // namespace simcuda
