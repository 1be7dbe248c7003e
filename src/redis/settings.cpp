#include "redis/settings.h"

#include <charconv>
#include <cstring>
#include <string_view>

#include "base/status.h"
#include "base/structs.h"

namespace pkv::redis {

namespace {

constexpr uint32_t longest_timeout = 3'600'000;
constexpr uint64_t least_pipeline = 64 << 10, largest_pipeline = 1 << 30;
constexpr size_t longest_prefix = 64;

// Passwords stand in these texts: sentences show none of them as a whole.
template <class Number>
Number parse_number(std::string_view text, Number least, Number most, const char* what) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    fail(PKV_INVALID_ARGUMENT, "servers: %s is '%.*s', not a number from %lld to %lld", what, static_cast<int>(std::min<size_t>(text.size(), 40)),
         text.data(), static_cast<long long>(least), static_cast<long long>(most));
  return value;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text.size() - i < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      fail(PKV_INVALID_ARGUMENT, "servers: a %% in the user or password of the URL that two hex digits do not follow");
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

// host, host:port, [IPv6] or [IPv6]:port
Address parse_address(std::string_view text) {
  constexpr int default_port = 6379;
  const size_t bracket = text.starts_with('[') ? text.find(']') : 0;
  const size_t colon = bracket == std::string_view::npos ? bracket : text.find(':', bracket);
  std::string_view host = text.substr(0, colon);
  if (bracket > 0 && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("[]/@ ") != std::string_view::npos)
    fail(PKV_INVALID_ARGUMENT, "servers: '%.*s' is not host:port", static_cast<int>(std::min<size_t>(text.size(), 100)), text.data());
  return {std::string(host), colon == std::string_view::npos ? default_port : parse_number<int>(text.substr(colon + 1), 1, 65535, "a port")};
}

// Takes the credentials and the database out of redis://[[user]:password@]hosts[/database]; leaves the hosts.
std::string_view parse_url(std::string_view url, Settings& settings) {
  if (url.starts_with("rediss://") || url.starts_with("valkeys://"))
    fail(PKV_UNSUPPORTED, "servers: TLS is not built in; connect to a local TLS proxy (stunnel, say)");
  const size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return url;
  if (const std::string_view name = url.substr(0, scheme); name != "redis" && name != "valkey")
    fail(PKV_INVALID_ARGUMENT, "servers: a URL begins with redis:// or valkey://, not '%.*s'", static_cast<int>(std::min<size_t>(scheme, 40)),
         name.data());
  url.remove_prefix(scheme + 3);
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    const std::string_view credentials = url.substr(0, at);
    const size_t colon = credentials.find(':');
    settings.user = percent_decoded(credentials.substr(0, colon));
    if (colon != std::string_view::npos) settings.password = percent_decoded(credentials.substr(colon + 1));
    url.remove_prefix(at + 1);
  }
  if (const size_t slash = url.find('/'); slash != std::string_view::npos) {
    if (slash + 1 < url.size()) settings.database = parse_number<uint32_t>(url.substr(slash + 1), 0, 1'000'000, "the database");
    url = url.substr(0, slash);
  }
  return url;
}

std::chrono::milliseconds checked_timeout(uint32_t milliseconds, const char* name) {
  if (milliseconds == 0 || milliseconds > longest_timeout)
    fail(PKV_INVALID_ARGUMENT, "%s is %u; 1 to %u are possible", name, milliseconds, longest_timeout);
  return std::chrono::milliseconds(milliseconds);
}

}  // namespace

pkv_redis_config default_config() {
  pkv_redis_config config{};
  config.struct_size = sizeof config;
  config.connect_timeout_ms = 500;
  config.command_timeout_ms = 1000;
  config.servers = "127.0.0.1:6379";
  config.key_prefix = "pagedkv:";
  config.pipeline_bytes = 8 << 20;
  return config;
}

Settings read_settings(const pkv_redis_config* from) {
  const pkv_redis_config config = read_struct(from, default_config(), "config");
  Settings settings;
  settings.connect_timeout = checked_timeout(config.connect_timeout_ms, "connect_timeout_ms");
  settings.command_timeout = checked_timeout(config.command_timeout_ms, "command_timeout_ms");
  settings.ttl_seconds = config.ttl_seconds;
  if (config.reserved != 0) fail(PKV_INVALID_ARGUMENT, "reserved is %u, not 0", config.reserved);
  settings.connect_later = config.connect_later == 1;
  if (config.connect_later > 1) fail(PKV_INVALID_ARGUMENT, "connect_later is %u, not 0 or 1", config.connect_later);
  if (config.pipeline_bytes < least_pipeline || config.pipeline_bytes > largest_pipeline)
    fail(PKV_INVALID_ARGUMENT, "pipeline_bytes is %llu; %llu to %llu are possible", (unsigned long long)config.pipeline_bytes,
         (unsigned long long)least_pipeline, (unsigned long long)largest_pipeline);
  settings.pipeline_bytes = config.pipeline_bytes;
  settings.prefix = config.key_prefix != nullptr ? config.key_prefix : "";
  if (settings.prefix.size() > longest_prefix)
    fail(PKV_INVALID_ARGUMENT, "key_prefix has %zu bytes; at most %zu are possible", settings.prefix.size(), longest_prefix);

  if (config.servers == nullptr) fail(PKV_INVALID_ARGUMENT, "servers is NULL");
  std::string_view hosts = parse_url(config.servers, settings);
  for (size_t comma = 0; comma != std::string_view::npos; hosts.remove_prefix(comma == std::string_view::npos ? 0 : comma + 1)) {
    comma = hosts.find(',');
    settings.servers.push_back(parse_address(hosts.substr(0, comma)));
  }
  if (config.user != nullptr) settings.user = config.user;
  if (config.password != nullptr) settings.password = config.password;
  if (!settings.user.empty() && settings.password.empty()) fail(PKV_INVALID_ARGUMENT, "a user without a password");
  return settings;
}

}  // namespace pkv::redis
