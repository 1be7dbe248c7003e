#include "engine/memory/pool.h"

namespace pkv {
template class BasicPool<StdAtomics>;
}
