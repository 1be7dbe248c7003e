// How a config is checked, and how the URL or the addresses in `servers` are parsed. `servers` may
// contain passwords, and in a malformed string they may be anywhere: error sentences say what is
// wrong and where, but never repeat a part of the string.
#include "redis/settings.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "base/structs.h"

namespace pkv::redis {

namespace {

constexpr uint32_t max_timeout_ms = 3'600'000;
constexpr uint64_t least_pipeline_bytes = 64 << 10, most_pipeline_bytes = 1 << 30;
constexpr size_t max_prefix_bytes = 64;

SecretText percent_decode(std::string_view text) {
  SecretText decoded(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      decoded.append(text[i]);
      continue;
    }
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text.size() - i < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      fail(PKV_INVALID_ARGUMENT,
           "servers: a %% in the user or password of the URL is not followed by two hex digits");
    decoded.append(static_cast<char>(byte));
    i += 2;
  }
  return decoded;
}

// Parses host, host:port, [IPv6] or [IPv6]:port.
Address parse_address(std::string_view text, size_t number) {
  constexpr int default_port = 6379;
  const bool bracketed = text.starts_with('[');
  const size_t bracket = bracketed ? text.find(']') : 0;
  const size_t colon = bracket == std::string_view::npos ? bracket : text.find(':', bracket);
  std::string_view host = text.substr(0, colon);
  if (bracketed && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!is_host(host) || bracketed != (host.find(':') != std::string_view::npos))
    fail(PKV_INVALID_ARGUMENT,
         "servers: address %zu, of %zu bytes, is not host:port (it is not shown, since it may "
         "contain a password)",
         number, text.size());
  if (colon == std::string_view::npos) return {std::string(host), default_port};
  const auto port = parse_number<int>(text.substr(colon + 1), 1, 65535);
  if (!port)
    fail(PKV_INVALID_ARGUMENT, "servers: the port of address %zu is not a number from 1 to 65535",
         number);
  return {std::string(host), *port};
}

bool is_tls_scheme(std::string_view name) { return name == "rediss" || name == "valkeys"; }

// Parses [user]:password.
void parse_credentials(std::string_view credentials, Settings& settings) {
  if (credentials.find_first_of("/?#@[] ") != std::string_view::npos)
    fail(PKV_INVALID_ARGUMENT,
         "servers: / ? # @ [ ] and spaces in the user or password of the URL must be written as "
         "%%XX");
  const size_t colon = credentials.find(':');
  settings.user = percent_decode(credentials.substr(0, colon));
  if (colon != std::string_view::npos)
    settings.password = percent_decode(credentials.substr(colon + 1));
}

// Takes the scheme, the credentials and the database out of a URL,
// redis://[[user]:password@]hosts[/database], and returns the hosts. A string without a scheme
// contains only hosts.
std::string_view parse_url(std::string_view url, Settings& settings, bool& tls) {
  const size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return url;
  const std::string_view name = url.substr(0, scheme);
  tls = tls || is_tls_scheme(name);
  if (name != "redis" && name != "valkey" && !is_tls_scheme(name))
    fail(PKV_INVALID_ARGUMENT,
         "servers: a URL begins with redis://, rediss://, valkey:// or valkeys://, and not with "
         "the %zu bytes "
         "that stand here before ://",
         scheme);
  url.remove_prefix(scheme + 3);
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    parse_credentials(url.substr(0, at), settings);
    url.remove_prefix(at + 1);
  }
  if (const size_t slash = url.find('/'); slash != std::string_view::npos) {
    const std::string_view database = url.substr(slash + 1);
    constexpr uint32_t max_database = 1'000'000;
    const auto number = parse_number<uint32_t>(database.empty() ? "0" : database, 0, max_database);
    if (!number)
      fail(PKV_INVALID_ARGUMENT, "servers: the database after / is not a number from 0 to %u",
           max_database);
    settings.database = *number;
    url = url.substr(0, slash);
  }
  return url;
}

void parse_addresses(std::string_view hosts, std::vector<Address>& servers) {
  for (size_t comma = 0; comma != std::string_view::npos;) {
    comma = hosts.find(',');
    if (servers.size() == max_servers)
      fail(PKV_INVALID_ARGUMENT, "servers: more than %zu addresses", max_servers);
    servers.push_back(parse_address(hosts.substr(0, comma), servers.size() + 1));
    if (comma != std::string_view::npos) hosts.remove_prefix(comma + 1);
  }
}

// Reads the TLS options. Options that would have no effect are refused, since the caller expects an
// effect.
TlsOptions read_tls_options(const pkv_redis_config& config, bool tls) {
  const struct {
    const char *name, *value;
  } texts[] = {{"tls_ca_file", config.tls_ca_file},
               {"tls_ca_directory", config.tls_ca_directory},
               {"tls_certificate_file", config.tls_certificate_file},
               {"tls_key_file", config.tls_key_file},
               {"tls_server_name", config.tls_server_name}};
  for (const auto& text : texts) {
    if (text.value == nullptr) continue;
    if (!tls)
      fail(PKV_INVALID_ARGUMENT, "%s is given, but servers is no rediss:// URL and tls is 0",
           text.name);
    if (text.value[0] == '\0')
      fail(PKV_INVALID_ARGUMENT, "%s is empty; NULL means none", text.name);
  }
  if (!tls && config.tls_insecure_no_verify != 0)
    fail(PKV_INVALID_ARGUMENT,
         "tls_insecure_no_verify is 1, but servers is no rediss:// URL and tls is 0");
  if (config.tls_insecure_no_verify != 0 &&
      (config.tls_ca_file != nullptr || config.tls_ca_directory != nullptr))
    fail(PKV_INVALID_ARGUMENT,
         "tls_insecure_no_verify is 1, so nothing would be checked with tls_ca_file or "
         "tls_ca_directory");
  if ((config.tls_certificate_file != nullptr) != (config.tls_key_file != nullptr))
    fail(PKV_INVALID_ARGUMENT,
         "tls_certificate_file and tls_key_file are given together or not at all");
  if (config.tls_server_name != nullptr && !is_host(config.tls_server_name))
    fail(PKV_INVALID_ARGUMENT, "tls_server_name is neither a host name nor an address");
  return {config.tls_ca_file,  config.tls_ca_directory, config.tls_certificate_file,
          config.tls_key_file, config.tls_server_name,  config.tls_insecure_no_verify == 0};
}

std::chrono::milliseconds read_timeout(uint32_t milliseconds, uint32_t otherwise,
                                       const char* name) {
  if (milliseconds > max_timeout_ms)
    fail(PKV_INVALID_ARGUMENT, "%s is %u; it must be at most %u", name, milliseconds,
         max_timeout_ms);
  return std::chrono::milliseconds(milliseconds != 0 ? milliseconds : otherwise);
}

}  // namespace

Settings read_settings(const pkv_redis_config* from) {
  const pkv_redis_config config = read_struct(from, "config");
  Settings settings;
  settings.connect_timeout = read_timeout(config.connect_timeout_ms, 500, "connect_timeout_ms");
  settings.command_timeout = read_timeout(config.command_timeout_ms, 1000, "command_timeout_ms");
  settings.ttl_seconds = config.ttl_seconds;
  if (config.reserved != 0) fail(PKV_INVALID_ARGUMENT, "reserved is %u, not 0", config.reserved);
  check_flag(config.connect_later, "connect_later");
  settings.connect_later = config.connect_later == 1;
  settings.max_pipeline_bytes =
      config.max_pipeline_bytes != 0 ? config.max_pipeline_bytes : 8 << 20;
  if (settings.max_pipeline_bytes < least_pipeline_bytes ||
      settings.max_pipeline_bytes > most_pipeline_bytes)
    fail(PKV_INVALID_ARGUMENT, "max_pipeline_bytes is %llu; it must be %llu to %llu",
         llu(config.max_pipeline_bytes), llu(least_pipeline_bytes), llu(most_pipeline_bytes));
  settings.prefix = config.key_prefix != nullptr ? config.key_prefix : "pagedkv:";
  if (settings.prefix.size() > max_prefix_bytes)
    fail(PKV_INVALID_ARGUMENT, "key_prefix has %zu bytes; it must have at most %zu",
         settings.prefix.size(), max_prefix_bytes);

  check_flag(config.tls, "tls");
  check_flag(config.tls_insecure_no_verify, "tls_insecure_no_verify");
  const char* const servers = config.servers != nullptr ? config.servers : "127.0.0.1:6379";
  bool tls = config.tls == 1;
  parse_addresses(parse_url(servers, settings, tls), settings.servers);
  if (config.user != nullptr) settings.user = SecretText(std::string_view(config.user));
  if (config.password != nullptr) settings.password = SecretText(std::string_view(config.password));
  if (!settings.user.empty() && settings.password.empty())
    fail(PKV_INVALID_ARGUMENT, "a user without a password");
  const TlsOptions options = read_tls_options(config, tls);
  if (tls) settings.tls = std::make_unique<const TlsContext>(options);
  return settings;
}

}  // namespace pkv::redis
