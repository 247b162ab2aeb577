#include "core/pool/best_fit_tree.h"

namespace cachealloc {

namespace {

bool before(const Block* a, const Block* b) {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
}

std::uint32_t priority(const Block* block) {
    std::uint32_t hash = block->index * 0x9E3779B1U;
    hash ^= hash >> 15;
    return hash * 0x85EBCA77U;
}

/// Divides `tree` into what comes before `pivot` and what comes after it.
void split(Block* tree, const Block* pivot, Block** low, Block** high) {
    while (tree != nullptr) {
        if (before(tree, pivot)) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = nullptr;
    *high = nullptr;
}

/// Joins two trees; all of `low` comes before all of `high`.
Block* join(Block* low, Block* high) {
    Block* root = nullptr;
    Block** link = &root;
    while (low != nullptr && high != nullptr) {
        if (priority(low) > priority(high)) {
            *link = low;
            link = &low->right;
            low = low->right;
        } else {
            *link = high;
            link = &high->left;
            high = high->left;
        }
    }
    *link = low != nullptr ? low : high;
    return root;
}

} // namespace

void BestFitTree::insert(Block* block) {
    Block** link = &root_;
    const std::uint32_t mine = priority(block);
    while (*link != nullptr && priority(*link) >= mine) {
        link = before(block, *link) ? &(*link)->left : &(*link)->right;
    }
    split(*link, block, &block->left, &block->right);
    *link = block;
}

void BestFitTree::erase(Block* block) {
    Block** link = &root_;
    while (*link != block)
        link = before(block, *link) ? &(*link)->left : &(*link)->right;
    *link = join(block->left, block->right);
    block->left = block->right = nullptr;
}

Block* BestFitTree::best_fit(std::uint64_t size) const {
    Block* best = nullptr;
    for (Block* at = root_; at != nullptr;) {
        if (at->size >= size) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return best;
}

Block* BestFitTree::next(const Block* block) const {
    Block* found = nullptr;
    for (Block* at = root_; at != nullptr;) {
        if (before(block, at)) {
            found = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return found;
}

Block* BestFitTree::largest() const {
    Block* at = root_;
    while (at != nullptr && at->right != nullptr)
        at = at->right;
    return at;
}

} // namespace cachealloc
