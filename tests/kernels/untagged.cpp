// Has a symbol that check_symbols.py must find: an inline function that is emitted as a weak symbol
// with no architecture in its name.
namespace {
struct Tagged {};
}  // namespace

inline int shared_by_all(int x) { return x + 1; }

template <class T>
int kept_apart(int x) {
  return x + 2;
}

int use(int x) { return shared_by_all(x) + kept_apart<Tagged>(x); }
