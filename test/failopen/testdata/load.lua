-- The load of the long form, for wrk: completions of token ids, in groups that
-- share a prefix. Arguments: groups, prefix and tail in tokens, answer in
-- tokens, seed. The last line printed is the result as JSON, times in µs.
local groups, prefix, tail, answer
local begins, n = {}, 0

local function tokens(count)
  local ids = {}
  for i = 1, count do ids[i] = 10 + math.random(0, 29999) end
  return table.concat(ids, ",")
end

function init(args)
  groups, prefix, tail, answer = tonumber(args[1]), tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  math.randomseed(1) -- prefixes are those of every other run
  for g = 1, groups do begins[g] = tokens(prefix) end
  math.randomseed(tonumber(args[5])) -- tails are not
end

function request()
  n = n + 1
  local body = string.format('{"model":"sim","max_tokens":%d,"prompt":[%s,%s]}', answer, begins[n % groups + 1], tokens(tail))
  return wrk.format("POST", "/v1/completions", {["Content-Type"] = "application/json"}, body)
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"status":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,"p50":%d,"p99":%d,"max":%d}\n',
    summary.requests, e.status, e.connect, e.read, e.write, e.timeout,
    latency:percentile(50), latency:percentile(99), latency.max))
end
