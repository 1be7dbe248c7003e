// The rows of hint.h. A hint may come while its session is in a batch.
#include <pagedkv/hint.h>

#include "matrix.h"

namespace hostile {

namespace {

// Adds the misuse of a hint, which is an argument of both functions.
void add_hints(Function& row, size_t at) {
  const auto with = in_struct<pkv_hint>(at);
  row.cases.insert(
      row.cases.end(),
      {with(WITH(set_enum(it.action, 0)), invalid), with(WITH(set_enum(it.action, 9)), invalid),
       with(WITH(set_enum(it.action, -1)), invalid), with(WITH(set_enum(it.retention, 2)), invalid),
       with(WITH(set_enum(it.retention, -2)), invalid), with(WITH(it.reserved = 1), invalid),
       with(WITH(it.first = 2, it.end = 1), invalid),
       with(WITH(it.first = UINT64_MAX, it.end = 1), invalid),
       with(WITH(it.duration_ms = UINT64_MAX), fine),
       with(WITH(it.retention = PKV_RETENTION_LOW), fine)});
  for (int action = PKV_HINT_RETAIN; action <= PKV_HINT_DROP; action++)
    if (action != PKV_HINT_RETURN)
      row.cases.push_back(with(WITH(set_enum(it.action, action), it.end = 16), fine));
}

}  // namespace

std::vector<Function> hint_rows() {
  const Arg cache = handle(Handle::cache), salt = optional(in<char>({'p'})),
            tokens = in<int32_t>(std::vector<int32_t>(20, 1)),
            hint = config_in<pkv_hint>(
                [](World&) { return made<pkv_hint>({.action = PKV_HINT_RETAIN}); }),
            result = optional(struct_out(sizeof(pkv_hint_result)));
  Function text{ROW(pkv_hint_text), {cache, salt, number(1), number(20), tokens, hint, result}};
  text.args[1].misuses.front().wanted = invalid;  // NULL comes with a size here
  text.cases = {{"salt NULL, size 0", set(1, 0, 2, 0), fine},
                {"salt too long", set(2, 257), invalid},
                {"all salts", set(1, 0, 2, PKV_ALL_SALTS), invalid},
                {"no tokens", set(3, 0, 4, 0), fine},
                {"SIZE_MAX tokens", set(3, SIZE_MAX), overflow}};
  add_hints(text, 5);
  const auto of_text = in_struct<pkv_hint>(5);
  for (const Case& each :
       {of_text(WITH(it.end = 21), range), of_text(WITH(it.first = 21), range),
        of_text(WITH(it.end = UINT64_MAX), range), of_text(WITH(it.first = UINT64_MAX), range),
        of_text(WITH(it.action = PKV_HINT_RETURN), invalid)})
    text.cases.push_back(each);

  Function session{ROW(pkv_hint_session), {handle(Handle::session), hint, result}};
  add_hints(session, 1);
  const auto of_session = in_struct<pkv_hint>(1);
  for (const Case& each :
       {of_session(WITH(it.end = UINT64_MAX), fine), of_session(WITH(it.first = UINT64_MAX), fine),
        of_session(WITH(it.action = PKV_HINT_RETURN), fine)})
    session.cases.push_back(each);
  return {text, session};
}

}  // namespace hostile
