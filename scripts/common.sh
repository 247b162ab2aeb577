# shellcheck shell=bash
# Shared by setup, quickstart and test; sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
toolkit=$root/.toolkit/nvidia/cu13 # where setup installs a toolkit; ignored by git

say() { printf '== %s\n' "$*"; }
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Prints the first nvcc of CUDA >= 12.5; fails when there is none. CACHEALLOC_TOOLKIT=wheels looks
# at no other toolkit than the one in .toolkit/.
find_nvcc() {
    local nvcc version candidates=("$toolkit/bin/nvcc")
    if [[ ${CACHEALLOC_TOOLKIT:-} != wheels ]]; then
        candidates=("${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-/nonexistent}/bin/nvcc"
            /usr/local/cuda/bin/nvcc "$toolkit/bin/nvcc")
    fi
    for nvcc in "${candidates[@]}"; do
        [[ -x $nvcc ]] || continue
        version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p') || continue
        if [[ -n $version && $(printf '%s\n' 12.5 "$version" | sort -V | head -n 1) == 12.5 ]]; then
            printf '%s\n' "$nvcc"
            return
        fi
    done
    return 1
}

# configure PRESET [build]: sets up the machine, to build only or to test too, then configures
# build/PRESET with the toolkit found.
configure() {
    "$root/scripts/setup" "${@:2}"
    CUDACXX=$(find_nvcc)
    export CUDACXX
    say "configuring build/$1 with $CUDACXX"
    (cd "$root" && cmake --preset "$1" -DCMAKE_CUDA_COMPILER="$CUDACXX" >/dev/null)
}

have_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }
