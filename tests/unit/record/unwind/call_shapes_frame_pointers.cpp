// Compiled with -fno-omit-frame-pointer.
#define SHAPES_CALL call_with_frame_pointers
#define SHAPES_OTHER call_plain
#include "tests/unit/record/unwind/call_shapes.inc"
