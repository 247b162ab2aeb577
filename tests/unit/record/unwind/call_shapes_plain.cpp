#define SHAPES_CALL call_plain
#define SHAPES_OTHER call_with_frame_pointers
#include "tests/unit/record/unwind/call_shapes.inc"
