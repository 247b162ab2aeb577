// Takes all device memory in pieces, gives every other piece back, takes them again, then gives
// everything back and takes half of the device in one allocation. A pool must end where native
// does: memory that the program has freed is there for it again, in any size.
//
// stdout: counts, the same wherever it runs (pieces are a fixed share of what is free).
//   --pieces N (30)
#include "tests/apps/app.h"

#include <vector>

namespace {

constexpr std::size_t kGranule = 2 << 20;
constexpr std::size_t kTagBytes = 4096; // Written at both ends of a piece.

struct Piece {
    unsigned char* address = nullptr;
    int tag = 0;
};

std::size_t free_bytes() {
    std::size_t free_now = 0;
    std::size_t total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_now, &total));
    return free_now;
}

// A tagged piece, or a null one when the device is full; any other error ends the program.
Piece take(std::size_t bytes, int tag) {
    Piece piece;
    piece.tag = tag;
    cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&piece.address), bytes);
    if (error == cudaErrorMemoryAllocation) {
        REQUIRE_TRUE(cudaGetLastError() == cudaErrorMemoryAllocation);
        REQUIRE_TRUE(cudaGetLastError() == cudaSuccess); // Running out of memory is not sticky.
        piece.address = nullptr;
        return piece;
    }
    CUDA_CHECK(error);
    CUDA_CHECK(cudaMemset(piece.address, tag, kTagBytes));
    CUDA_CHECK(cudaMemset(piece.address + bytes - kTagBytes, tag, kTagBytes));
    return piece;
}

bool intact(const Piece& piece, std::size_t bytes) {
    std::vector<unsigned char> ends(2 * kTagBytes);
    CUDA_CHECK(cudaMemcpy(ends.data(), piece.address, kTagBytes, cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaMemcpy(ends.data() + kTagBytes, piece.address + bytes - kTagBytes, kTagBytes,
                          cudaMemcpyDeviceToHost));
    for (unsigned char byte : ends) {
        if (byte != static_cast<unsigned char>(piece.tag)) {
            return false;
        }
    }
    return true;
}

} // namespace

int main(int argc, char** argv) {
    int wanted = app::option(argc, argv, "--pieces", 30);
    CUDA_CHECK(cudaFree(nullptr));
    // About half a piece is left over: what the driver itself needs must not change the count.
    std::size_t available = free_bytes();
    double share = static_cast<double>(available) / (wanted + 0.5);
    std::size_t bytes = static_cast<std::size_t>(share) / kGranule * kGranule;
    REQUIRE_TRUE(bytes >= kGranule);

    std::vector<Piece> pieces;
    for (Piece piece = take(bytes, 1); piece.address;) {
        pieces.push_back(piece);
        piece = take(bytes, static_cast<int>(pieces.size()) + 1);
    }
    std::size_t got = pieces.size();

    std::size_t freed = 0;
    for (std::size_t i = 0; i < pieces.size(); i += 2) {
        CUDA_CHECK(cudaFree(pieces[i].address));
        pieces[i].address = nullptr;
        ++freed;
    }
    std::size_t again = 0;
    for (std::size_t i = 0; i < pieces.size(); i += 2) {
        pieces[i] = take(bytes, static_cast<int>(100 + i));
        again += pieces[i].address ? 1 : 0;
    }
    bool full = take(bytes, 99).address == nullptr;

    std::size_t damaged = 0;
    for (Piece& piece : pieces) {
        if (piece.address) {
            damaged += intact(piece, bytes) ? 0 : 1;
            CUDA_CHECK(cudaFree(piece.address));
        }
    }
    Piece half = take(bytes * (got / 2), 7);
    bool half_fits = half.address != nullptr && intact(half, bytes * (got / 2));
    CUDA_CHECK(cudaFree(half.address));

    std::printf("oom: %zu pieces, %zu freed, %zu taken again, %s, %zu damaged, half in one: %s\n",
                got, freed, again, full ? "full" : "NOT full", damaged, half_fits ? "yes" : "NO");
    bool right = got == available / bytes && again == freed && full && damaged == 0 && half_fits;
    return right ? 0 : 1;
}
