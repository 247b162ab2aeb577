// The part of the world that orders device work: who waits for whom, when work starts and ends.
#include <algorithm>

#include "world.h"

namespace simcuda {

void World::depend(const OpPtr& op, const OpPtr& before) {
    if (before == nullptr) {
        return;
    }
    if (before->done) {
        join(op->clock, before->clock);
        op->ready = std::max(op->ready, before->finish);
    } else {
        before->next.push_back(op);
        ++op->pending;
    }
}

std::vector<OpPtr> World::predecessors(const StreamPtr& s) {
    const ContextPtr& ctx = s->ctx;
    std::vector<OpPtr> before{s->last, ctx->barrier, owner_of(ctx)->barrier};
    if (s->kind == StreamKind::legacy) {
        // The legacy stream waits for all blocking streams, and they for it.
        for (const auto& other : ctx->streams) {
            if (other->blocking()) {
                before.push_back(other->last);
            }
        }
    } else if (s->blocking()) {
        before.push_back(ctx->legacy->last);
    }
    return before;
}

OpPtr World::submit(const StreamPtr& s, Work work, const OpPtr& also) {
    if (work.programmatic && s->front.op != nullptr && s->front.last == s->last) {
        return submit_programmatic(s, std::move(work));
    }
    auto before = predecessors(s);
    before.push_back(also);
    const bool kernel = work.kernel;
    const OpPtr op = submit_after(s->ctx, s, std::move(work), before, true);
    if (kernel) {
        s->front = {op, op, std::move(before)};
    }
    return op;
}

// The kernel comes behind what the one in front of it came behind. Its slot is its own, since its
// place on the stream no longer says what it is ordered with; a marker stands for both kernels on
// the stream, so that whatever follows comes behind both.
OpPtr World::submit_programmatic(const StreamPtr& s, Work work) {
    std::vector<OpPtr> after = predecessors(s);
    after.front() = nullptr; // the stream's own last
    after.insert(after.end(), s->front.after.begin(), s->front.after.end());
    std::vector<OpPtr> whole = after;
    const bool waits = work.waits_for_front;
    if (waits) {
        whole.push_back(s->front.op);
    }
    const std::uint32_t slot = take_slot();
    const OpPtr op = submit_after(s->ctx, s, std::move(work), whole, false, slot);
    give_slot(slot);
    if (waits) {
        op->early_clock = host_;
        op->early_after = after;
    }
    Work marker;
    marker.label = "the end of two kernels";
    marker.duration = 0;
    const OpPtr last = submit_after(s->ctx, s, std::move(marker), {s->last, op}, true);
    s->front = {last, op, std::move(after)};
    return last;
}

OpPtr World::submit_after(const ContextPtr& ctx, const StreamPtr& s, Work work,
                          const std::vector<OpPtr>& after, bool moves_stream, std::uint32_t slot) {
    auto op = std::make_shared<Op>();
    op->id = ++next_op_;
    op->label = std::make_shared<const std::string>(
        work.label +
        (s == nullptr                        ? ""
         : s->kind == StreamKind::legacy     ? " on the legacy stream"
         : s->kind == StreamKind::per_thread ? " on a per-thread stream"
                                             : " on stream ") +
        (s != nullptr && s->kind == StreamKind::created ? std::to_string(s->serial) : ""));
    op->work = std::move(work);
    op->ctx = ctx;
    op->ready = now_;
    op->clock = host_;
    for (const auto& before : after) {
        depend(op, before);
    }
    if (s != nullptr) {
        op->slot = slot == kNoSlot ? s->slot : slot;
        op->epoch = ++epochs_[op->slot];
        if (op->clock.size() <= op->slot) {
            op->clock.resize(op->slot + 1);
        }
        op->clock[op->slot] = op->epoch;
        if (moves_stream) {
            s->last = op;
        }
    }
    unfinished_[op->id] = op;
    ++activity_;
    start_if_ready(op);
    return op;
}

OpPtr World::all_of(const ContextPtr& ctx, const char* label, Work work) {
    work.label = label;
    work.duration = 0;
    std::vector<OpPtr> before{ctx->barrier, owner_of(ctx)->barrier};
    for (const auto& s : ctx->streams) {
        before.push_back(s->last);
    }
    for (const auto& green : ctx->greens) {
        before.push_back(green->barrier);
        for (const auto& s : green->streams) {
            before.push_back(s->last);
        }
    }
    const OpPtr op = submit_after(ctx, nullptr, std::move(work), before, false);
    join(op->clock, ctx->retired);
    for (const auto& green : ctx->greens) {
        join(op->clock, green->retired);
    }
    return op;
}

void World::add_barrier(const ContextPtr& ctx, const OpPtr& op) {
    Work w;
    w.label = "cuCtxWaitEvent";
    w.duration = 0;
    ctx->barrier = submit_after(ctx, nullptr, std::move(w), {op, ctx->barrier}, false);
}

void World::start_if_ready(const OpPtr& op) {
    if (op->started || op->pending > 0) {
        return;
    }
    const auto at = std::find(gated_.begin(), gated_.end(), op);
    if (op->work.gate && op->ctx->fault() == CUDA_SUCCESS && !op->work.gate()) {
        if (at == gated_.end()) {
            gated_.push_back(op);
        }
        return;
    }
    if (at != gated_.end()) {
        gated_.erase(at);
        op->ready = std::max(op->ready, now_);
    }
    op->started = true;
    if (op->work.awaits != 0) {
        // Whoever wrote the value is before this.
        const auto it = published_.find(op->work.awaits);
        if (it != published_.end()) {
            join(op->clock, it->second);
        }
    }
    Ns duration = op->work.duration;
    if (setting("progress") == static_cast<std::uint64_t>(Progress::random)) {
        duration = duration * (1 + random_() % 16) / 4;
    }
    op->finish = op->ready + duration;
    // Work without duration keeps its place among what ends at the same time: it was ready first.
    const std::uint64_t tie = duration == 0 ? op->id : (std::uint64_t{1} << 63) | (random_() >> 1);
    running_.emplace(std::make_pair(op->finish, tie), op);
}

void World::finish(const OpPtr& op) {
    check_accesses(op);
    if (op->work.effect && !op->work.host_code && op->ctx->fault() == CUDA_SUCCESS) {
        op->work.effect();
    }
    if (op->work.publishes != 0) {
        published_[op->work.publishes] = op->clock;
    }
    op->done = true;
    op->finish = std::max(op->finish, now_);
    unfinished_.erase(op->id);
    ++activity_;
    for (const auto& next : op->next) {
        join(next->clock, op->clock);
        next->ready = std::max(next->ready, op->finish);
        --next->pending;
        start_if_ready(next);
    }
    op->next.clear();
    op->work.effect = nullptr;
    op->work.gate = nullptr;
    op->early_after.clear();
    if (blocked_ > 0) {
        changed_.notify_all();
    }
}

namespace {

// Whether rights to mapped memory suffice: a kernel needs its own device's, a copy somebody's.
bool may_reach(const AddressMap& map, std::uintptr_t p, std::size_t bytes, bool kernel,
               int device) {
    for (std::uintptr_t at = p; at < p + bytes;) {
        const auto a = map.find(at);
        if (a->kind == Memory::mapped &&
            (a->reached_from.empty() || (kernel && a->reached_from.count(device) == 0))) {
            return false;
        }
        at = a->end();
    }
    return true;
}

// Whether kernels of the context may touch memory of another device: enabled peers do not share
// pools, whose access is a matter of their own.
bool reaches(const Context& ctx, const Allocation& a) {
    if (a.kind == Memory::pool) {
        if (a.pool == nullptr) {
            return false;
        }
        const auto it = a.pool->access.find(ctx.device);
        return it != a.pool->access.end() && it->second != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    }
    const Context& user = ctx.owner == nullptr ? ctx : *ctx.owner;
    return user.peers.count(a.ctx->id) != 0;
}

} // namespace

// What the operation touches must be memory that exists, and every earlier conflicting access must
// be ordered before it.
void World::check_accesses(const OpPtr& op) {
    if (op->work.kernel && settings["fault"] > 0 && --settings["fault"] == 0) {
        op->ctx->fault() = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    for (const OpPtr& before : op->early_after) {
        if (before != nullptr) {
            join(*op->early_clock, before->clock);
        }
    }
    for (const Access& a : op->work.accesses) {
        if (op->ctx->fault() != CUDA_SUCCESS) {
            return;
        }
        if (a.bytes == 0) {
            continue;
        }
        const auto allocation = map.find(a.begin);
        const bool covered = map.covers(a.begin, a.bytes);
        const bool device_address = std::any_of(devices.begin(), devices.end(), [&](const auto& d) {
            return d->memory.contains(a.begin);
        });
        if (!covered && (op->work.kernel || device_address || allocation != nullptr)) {
            error(*op->label + " (#" + std::to_string(op->id) + ") touches " +
                  std::to_string(a.bytes) + " bytes at " + std::to_string(a.begin) +
                  (allocation == nullptr ? " that belong to no allocation (freed or never there)"
                                         : " beyond the end of their allocation"));
            op->ctx->fault() = CUDA_ERROR_ILLEGAL_ADDRESS;
            return;
        }
        if (covered && !may_reach(map, a.begin, a.bytes, op->work.kernel, op->ctx->device)) {
            error(*op->label + " touches mapped memory without access rights");
            op->ctx->fault() = CUDA_ERROR_ILLEGAL_ADDRESS;
            return;
        }
        if (covered && op->work.kernel &&
            (allocation->kind == Memory::device || allocation->kind == Memory::imported ||
             allocation->kind == Memory::pool) &&
            allocation->device != op->ctx->device && !reaches(*op->ctx, *allocation)) {
            error(*op->label + " touches memory of device " + std::to_string(allocation->device) +
                  " without peer access");
            op->ctx->fault() = CUDA_ERROR_ILLEGAL_ADDRESS;
            return;
        }
        if (op->slot == kNoSlot) {
            continue;
        }
        const Stamp stamp{op->slot, op->epoch, op->id, op->label};
        const Clock& clock = a.early && op->early_clock ? *op->early_clock : op->clock;
        check_order(a.begin, a.bytes, a.write, stamp, clock);
    }
}

// Two accesses conflict where they touch the same memory, whichever mappings they go through.
void World::check_order(std::uintptr_t p, std::size_t bytes, bool write, const Stamp& stamp,
                        const Clock& clock) {
    const std::uintptr_t end = p + bytes;
    while (p < end) {
        const auto a = map.find(p);
        const bool mapped = a != nullptr && a->kind == Memory::mapped;
        const std::uintptr_t stop = mapped ? std::min(end, a->end()) : end;
        const std::uintptr_t shift = mapped ? a->identity - a->base : 0;
        for (Race r : oracle.access(p + shift, stop + shift, write, stamp, clock)) {
            r.begin -= shift;
            r.end -= shift;
            race(r);
        }
        if (mapped) {
            mapping_users.access(p, stop, write, stamp, clock);
        }
        p = stop;
    }
}

void World::host_unmaps(std::uintptr_t p, std::size_t bytes, const char* label) {
    const Stamp stamp{0, ++epochs_[0], ++next_op_, std::make_shared<const std::string>(label)};
    host_[0] = stamp.epoch;
    for (const Race& r : mapping_users.access(p, p + bytes, true, stamp, host_)) {
        race(r);
    }
}

void World::host_access(std::uintptr_t p, std::size_t bytes, bool write, const char* label) {
    const Stamp stamp{0, ++epochs_[0], ++next_op_, std::make_shared<const std::string>(label)};
    host_[0] = stamp.epoch;
    check_order(p, bytes, write, stamp, host_);
    if (write) {
        published_[p] = host_; // whoever waits for this value comes behind what the host knows
    }
}

std::uint32_t World::take_slot() {
    collect_slots();
    if (free_slots_.empty()) {
        epochs_.push_back(0);
        return static_cast<std::uint32_t>(epochs_.size() - 1);
    }
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
}

StreamPtr World::make_stream(const ContextPtr& ctx, StreamKind kind, unsigned flags, int priority) {
    auto s = std::make_shared<Stream>();
    s->serial = ++next_stream;
    s->ctx = ctx;
    s->kind = kind;
    s->flags = flags;
    s->priority = priority;
    s->slot = take_slot();
    ctx->streams.push_back(s);
    return s;
}

void World::retire_stream(const StreamPtr& s) {
    s->destroyed = true;
    collect_slots();
}

// A destroyed stream stays in its context's list while it has work; its slot is reused only when
// the host knows everything that it did, so that the new owner cannot vouch for the old one.
void World::collect_slots() {
    for (const auto& [handle, ctx] : contexts.all()) {
        auto& list = ctx->streams;
        const auto gone = std::stable_partition(
            list.begin(), list.end(), [](const StreamPtr& s) { return !s->destroyed || !idle(s); });
        for (auto it = gone; it != list.end(); ++it) {
            if ((*it)->last != nullptr) {
                join(ctx->retired, (*it)->last->clock);
            }
            retiring_.push_back((*it)->slot);
        }
        list.erase(gone, list.end());
    }
    const auto known =
        std::stable_partition(retiring_.begin(), retiring_.end(), [&](std::uint32_t slot) {
            return epochs_[slot] > (slot < host_.size() ? host_[slot] : 0);
        });
    free_slots_.insert(free_slots_.end(), known, retiring_.end());
    retiring_.erase(known, retiring_.end());
}

StreamPtr World::per_thread_stream(const ContextPtr& ctx) {
    auto& s = ctx->per_thread[self().serial];
    if (s == nullptr) {
        s = make_stream(ctx, StreamKind::per_thread, 0, 0);
    }
    return s;
}

} // namespace simcuda
