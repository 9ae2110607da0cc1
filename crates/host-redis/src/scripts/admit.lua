-- Decides about counters, limits and nonces in one step, as `decide` in core::admission does.
--
-- KEYS: a row for each counter, each limit, each nonce, in this order.
-- ARGV: the time ('' is the server's), '1' to write nothing, '1' if the nonces do not depend on each other, the
--   number of counters, the number of limits; then for each
--   counter: window_secs limit by
--   limit: kind shadow cost, and
--     for a bucket: capacity unit refill overdraw, and what is given back beyond its capacity
--     for a window: window_secs limit
--     for a delay: the number of stages, and for each: delay reset_timer batch_size repetitions
--   nonce: ttl_ms
-- Returns the time, '1' if all passed, and the rows as they were found. The rule in core makes the caller's answer
-- from these; the script only decides what to write.
--
-- Nothing is written before everything is decided, so an error changes nothing.

local nkeys = #KEYS
local peek, each = ARGV[2] == '1', ARGV[3] == '1'
local ncounters, nlimits = tonumber(ARGV[4]), tonumber(ARGV[5])

local answer = {0, 0}
local stored = {}
for from = 1, nkeys, 1000 do
  local part = read(from, min(from + 999, nkeys))
  for i, row in ipairs(part) do
    stored[KEYS[from + i - 1]] = row
    answer[from + i + 1] = row
  end
end

-- After a failover the new server's clock may be behind. The time is never before a window that has begun.
for i = 1, ncounters + nlimits do
  local row = stored[KEYS[i]]
  local start = row and string.match(row, '^w (%d+)')
  if start then now = max(now, tonumber(start) * 1000) end
end
local second = floor(now / 1000)

-- Rows to write, and the times until which they matter.
local rows, untils = {}, {}
local function get(key)
  return rows[key] or stored[key]
end
local function put(key, row, till)
  rows[key], untils[key] = row, till
end

-- Numbers below 2^64 are kept as billions and the rest. Sums stop at the largest number.
local function wide(text)
  return tonumber(string.sub(text, 1, -10)) or 0, tonumber(string.sub(text, -9))
end
local function narrow(high, low)
  if high > 0 then return fmt('%d%09d', high, low) end
  return fmt('%d', low)
end
local function add(ah, al, bh, bl)
  local high, low = ah + bh, al + bl
  if low >= 1e9 then high, low = high + 1, low - 1e9 end
  if high > 18446744073 or (high == 18446744073 and low > 709551615) then
    return 18446744073, 709551615
  end
  return high, low
end
local function subtract(ah, al, bh, bl)
  local high, low = ah - bh, al - bl
  if low < 0 then high, low = high - 1, low + 1e9 end
  if high < 0 then return 0, 0 end
  return high, low
end
local function within(ah, al, bh, bl)
  return ah < bh or (ah == bh and al <= bl)
end

-- Returns the start of the window, and its count.
local function window_of(key, secs)
  local start = floor(second / secs) * secs
  local row = get(key)
  if row then
    local from, count = string.match(row, '^w (%d+) (%d+) %d+$')
    assert(from, 'CORRUPT window')
    if tonumber(from) == start then return start, wide(count) end
  end
  return start, 0, 0
end
local function window_row(start, secs, high, low)
  local till = (start + secs + min(secs, 60)) * 1000
  return fmt('w %d %s %d', start, narrow(high, low), till), till
end

-- Each rule returns true if the call may pass, the row to write and its time if there is one, and the place of
-- the next limit's arguments.

local function bucket(key, at, cost)
  local pass, row, till = take(get(key), at, cost)
  return pass, row, till, at + 5
end

local function window(key, at, cost)
  local secs = tonumber(ARGV[at])
  local limit_high, limit_low = wide(ARGV[at + 1])
  local start, high, low = window_of(key, secs)
  local by_high, by_low = wide((string.gsub(cost, '^-', '')))
  local pass = true
  local after_high, after_low
  if string.sub(cost, 1, 1) == '-' then
    after_high, after_low = subtract(high, low, by_high, by_low)
  else
    after_high, after_low = add(high, low, by_high, by_low)
    pass = within(after_high, after_low, limit_high, limit_low)
  end
  if not pass or (after_high == high and after_low == low) then return pass, nil, nil, at + 2 end
  local row, till = window_row(start, secs, after_high, after_low)
  return pass, row, till, at + 2
end

local function delay(key, at, cost)
  local stages = tonumber(ARGV[at])
  local after = at + 1 + 4 * stages
  local counter, timer = 0, 0
  local row = get(key)
  if row then
    local stored_counter, stored_timer = string.match(row, '^(%d+) (%-?%d+)$')
    assert(stored_counter, 'CORRUPT delay')
    counter, timer = tonumber(stored_counter), tonumber(stored_timer)
  end
  local start = 0
  for stage = at + 1, after - 1, 4 do
    local batch = tonumber(ARGV[stage + 2])
    local finish = start + batch * tonumber(ARGV[stage + 3])
    if counter < finish then
      if fmod(counter - start, batch) == 0 then timer = timer + tonumber(ARGV[stage]) end
      if second < timer then return false, nil, nil, after end
      if cost == 0 then return true, nil, nil, after end
      if ARGV[stage + 1] == '1' then timer = second end
      return true, fmt('%d %d', counter + 1, timer), FOR_EVER, after
    end
    start = finish
  end
  return false, nil, nil, after
end

local function limit(key, at)
  local kind, cost = ARGV[at], ARGV[at + 2]
  if kind == 'b' then return bucket(key, at + 3, tonumber(cost)) end
  if kind == 'w' then return window(key, at + 3, cost) end
  return delay(key, at + 3, tonumber(cost))
end

local passed, at = true, 6
for i = 1, ncounters do
  local secs = tonumber(ARGV[at])
  local start, high, low = window_of(KEYS[i], secs)
  high, low = add(high, low, wide(ARGV[at + 2]))
  put(KEYS[i], window_row(start, secs, high, low))
  if not within(high, low, wide(ARGV[at + 1])) then passed = false end
  at = at + 3
end
local counted, counted_untils = rows, untils
rows, untils = {}, {}

local refused = {}
for i = ncounters + 1, ncounters + nlimits do
  local pass, row, till, next = limit(KEYS[i], at)
  if row then put(KEYS[i], row, till) end
  if not pass then
    refused[#refused + 1] = {KEYS[i], at}
    -- A shadow rule refuses nothing.
    if ARGV[at + 1] ~= '1' then passed = false end
  end
  at = next
end

local replayed = false
for i = ncounters + nlimits + 1, nkeys do
  local key = KEYS[i]
  local row = get(key)
  if row then
    local till = string.match(row, '^%d+ (%d+)$')
    assert(till, 'CORRUPT nonce')
    row = tonumber(till) > now
  end
  if row then
    replayed, passed = true, false
  else
    local till = now + tonumber(ARGV[at])
    put(key, fmt('%d %d', second, till), till)
  end
  at = at + 1
end

-- All or nothing. Limits that refused still take what a refusal costs, unless a replay was refused.
if not passed and not each then
  rows, untils = {}, {}
  if not replayed then
    for _, it in ipairs(refused) do
      local pass, row, till = limit(it[1], it[2])
      if row and not pass then put(it[1], row, till) end
    end
  end
end

if not peek then
  for key, row in pairs(counted) do write(key, row, counted_untils[key]) end
  for key, row in pairs(rows) do write(key, row, untils[key]) end
end

answer[1] = now
answer[2] = passed and 1 or 0
return answer
