-- The whole life of a cache from LuaJIT: the library is opened at run time, and its declarations
-- are the headers, run through a C preprocessor.
--
-- usage: luajit minimal.lua
-- with PAGEDKV_LIBRARY naming the library, or one that is installed, and $CC or cc
local ffi = require("ffi")

local here = arg[0]:match("^(.*)/") or "."
local include = here .. "/../../include"
local preprocessor = io.popen(
  (os.getenv("CC") or "cc") .. " -std=c99 -E -P -I '" .. include .. "' -x c '" .. include ..
  "/pagedkv/pagedkv.h'")
ffi.cdef(preprocessor:read("*a"))
preprocessor:close()
local pkv = ffi.load(os.getenv("PAGEDKV_LIBRARY") or "libpagedkv.so.1")

local function check(status)
  if status == ffi.C.PKV_OK then return end
  error(ffi.string(pkv.pkv_status_name(status)) .. ": " .. ffi.string(pkv.pkv_last_error()), 2)
end

local layers, query_heads, kv_heads, dim, tokens = 2, 4, 2, 32, 20

-- A struct with its struct_size. Fields that are not given are 0, the default.
local function struct(name, fields)
  fields.struct_size = ffi.sizeof(name)
  return ffi.new(name, fields)
end

local model = struct("pkv_layer_group",
  {layers = layers, query_heads = query_heads, kv_heads = kv_heads, key_dim = dim,
   blocks = 64})
local config = struct("pkv_cache_config", {groups = model})

local out_cache = ffi.new("pkv_cache[1]")
local out_session = ffi.new("pkv_session[1]")
local out_batch = ffi.new("pkv_batch[1]")
check(pkv.pkv_cache_create(config, out_cache))
local cache = out_cache[0]
check(pkv.pkv_session_open(cache, nil, out_session))
local session = out_session[0]

-- All keys alike: attention gives the mean of the values so far.
local function rows(heads) return ffi.new("float[?]", tokens * heads * dim) end
local k, v = rows(kv_heads), rows(kv_heads)
local q, out = rows(query_heads), rows(query_heads)
for token = 0, tokens - 1 do
  for element = 0, kv_heads * dim - 1 do v[token * kv_heads * dim + element] = token + element end
end
local function tensor(data) return ffi.new("pkv_tensor", {data, ffi.C.PKV_F32}) end
local keys, values, queries, outputs = tensor(k), tensor(v), tensor(q), tensor(out)

local ids = ffi.new("int32_t[?]", tokens)
for token = 0, tokens - 1 do ids[token] = 100 + token end
check(pkv.pkv_batch_begin(cache, 1, out_session, ffi.new("uint32_t[1]", tokens), out_batch))
local batch = out_batch[0]
for layer = 0, layers - 1 do
  check(pkv.pkv_batch_write(batch, layer, keys, values))
  check(pkv.pkv_batch_attend(batch, layer, nil, queries, outputs, nil))
end
check(pkv.pkv_batch_commit(batch, tokens, ids))

local worst = 0
for token = 0, tokens - 1 do
  for head = 0, query_heads - 1 do
    for d = 0, dim - 1 do
      local kv_head = math.floor(head / (query_heads / kv_heads))
      local expected = token / 2 + kv_head * dim + d
      worst = math.max(worst, math.abs(out[(token * query_heads + head) * dim + d] - expected))
    end
  end
end
-- Means of up to 20 values below 83: weights and sums are rounded to 24 bits some 22 times.
assert(worst < 22 * 83 / 2 ^ 24, "outputs are off by " .. worst)

local length = ffi.new("uint64_t[1]")
check(pkv.pkv_session_get_length(session, length))
assert(length[0] == tokens)

-- A call that fails says why, and changes nothing.
local status = pkv.pkv_session_trim(session, tokens + 1)
assert(status ~= ffi.C.PKV_OK)
local ok, sentence = pcall(check, status)
assert(not ok)
local mean = out[(tokens - 1) * query_heads * dim]
print(("token %d attends to %d tokens: %.2f (expected %.2f)"):format(
  tokens - 1, tokens, mean, (tokens - 1) / 2))
print("refused, as it should be: " .. sentence:gsub("^.-: ", ""))

check(pkv.pkv_cache_destroy(cache)) -- closes the session as well
status = pkv.pkv_session_get_length(session, length)
assert(status == ffi.C.PKV_STALE_HANDLE, "a closed session is still there")
