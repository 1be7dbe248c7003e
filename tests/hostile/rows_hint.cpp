// The rows of hint.h. A hint may come while its session is in a batch.
#include <pagedkv/hint.h>

#include "matrix.h"

namespace hostile {

namespace {

// Adds the misuse of a hint, which is an argument of both functions.
void add_hints(Function& row, size_t at) {
  const auto with = in_struct<pkv_hint>(at);
  row.cases.insert(row.cases.end(),
                   {with(WITH(it.end = 0), invalid), with(WITH(it.first = 2, it.end = 1), invalid),
                    with(WITH(it.first = UINT64_MAX, it.end = 1), invalid),
                    with(WITH(it.duration_ms = UINT64_MAX), fine),
                    with(WITH(it.retention = PKV_RETENTION_LOW), fine)});
  for (int action = PKV_HINT_SET_RETENTION; action <= PKV_HINT_DROP; action++)
    if (action != PKV_HINT_EXPECT_RETURN)
      row.cases.push_back(with(WITH(set_enum(it.action, action)), fine));
  // Fields that an action does not use.
  for (const pkv_hint_action action :
       {PKV_HINT_PIN, PKV_HINT_UNPIN, PKV_HINT_PREFETCH, PKV_HINT_STORE})
    row.cases.push_back(with(WITH(it.action = action, it.first = 1), invalid));
  for (const pkv_hint_action action :
       {PKV_HINT_PIN, PKV_HINT_UNPIN, PKV_HINT_STORE, PKV_HINT_DEMOTE, PKV_HINT_DROP})
    row.cases.push_back(with(WITH(it.action = action, it.retention = PKV_RETENTION_HIGH), invalid));
  for (const pkv_hint_action action :
       {PKV_HINT_UNPIN, PKV_HINT_STORE, PKV_HINT_DEMOTE, PKV_HINT_DROP})
    row.cases.push_back(with(WITH(it.action = action, it.duration_ms = 1), invalid));
}

}  // namespace

std::vector<Function> hint_rows() {
  const Arg cache = handle(Handle::cache),
            hint = config_in<pkv_hint>([](World&) {
              return made<pkv_hint>({.action = PKV_HINT_SET_RETENTION, .end = PKV_TO_END});
            }),
            result = optional(struct_out(sizeof(pkv_hint_result)));
  Function text{ROW(pkv_hint_prompt), {cache, text_in('p'), hint, result}, text_cases(1)};
  add_hints(text, 2);
  const auto of_text = in_struct<pkv_hint>(2);
  for (const Case& each :
       {of_text(WITH(it.end = 21), range), of_text(WITH(it.first = 21), range),
        of_text(WITH(it.end = UINT64_MAX - 1), range), of_text(WITH(it.first = UINT64_MAX), range),
        of_text(WITH(it.end = 16), fine),
        of_text(WITH(it.action = PKV_HINT_EXPECT_RETURN, it.end = 0), invalid)})
    text.cases.push_back(each);

  Function session{ROW(pkv_hint_session), {handle(Handle::session), hint, result}};
  add_hints(session, 1);
  const auto of_session = in_struct<pkv_hint>(1);
  for (const Case& each : {of_session(WITH(it.end = UINT64_MAX - 1), fine),
                           of_session(WITH(it.first = UINT64_MAX), fine),
                           of_session(WITH(it.action = PKV_HINT_DROP, it.end = 16), invalid),
                           of_session(WITH(it.action = PKV_HINT_EXPECT_RETURN), invalid),
                           of_session(WITH(it.action = PKV_HINT_EXPECT_RETURN, it.end = 0), fine)})
    session.cases.push_back(each);
  return {text, session};
}

}  // namespace hostile
