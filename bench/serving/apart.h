// Computes prompts in some processes and decodes in others, in real time, and compares that with as
// many processes that do both.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "options.h"
#include "trace.h"

namespace pkv::serve {

struct ApartFigures {
  std::string name;
  size_t requests = 0, tokens = 0;
  uint64_t sent_bytes = 0;  // keys and values on sockets
  double wall_seconds = 0;
  std::vector<float> first_token_seconds;
  std::vector<float> wait_seconds;  // for each later token of a request
};

// Plays the trace twice: with options.prefill + options.decode processes that do both, and with
// that many of each kind. Throws if a process fails.
std::vector<ApartFigures> run_apart(const Options& options, const Trace& trace);

std::string comparison(const std::vector<ApartFigures>& runs);
nlohmann::json to_json(const ApartFigures& figures);

}  // namespace pkv::serve
