-- The common part of the scripts that decide: the clock, writing rows, and the rule of token buckets.
--
-- ARGV[1] is the time ('' is the server's), ARGV[2] is '1' to write nothing.
-- Lua's numbers are doubles, exact below 2^53. Larger numbers are split in two, or only compared.

local floor, fmod, max, min = math.floor, math.fmod, math.max, math.min
local fmt = string.format
local FOR_EVER = 2 ^ 52

local now
local real = ARGV[1] == ''
if real then
  local time = redis.call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
else
  now = tonumber(ARGV[1])
end

-- Returns the rows of some of the keys. MGET finds nothing at a key that holds no text, such as a list. That is an
-- error and no missing row: otherwise a nonce that was used could be used again.
local function read(from, to)
  local rows, missing = redis.call('MGET', unpack(KEYS, from, to)), {}
  for i, row in ipairs(rows) do
    if not row then missing[#missing + 1] = KEYS[from + i - 1] end
  end
  if #missing > 0 then assert(redis.call('EXISTS', unpack(missing)) == 0, 'CORRUPT type') end
  return rows
end

-- Returns the milliseconds that Redis keeps a row: a second longer than the row matters, so that none is removed too
-- early. Formats the number here, because Redis would write it with decimals.
local function keep(till)
  return fmt('%d', till - now + 1000)
end

local function write(key, row, till, kept)
  if till <= now then
    redis.call('DEL', key)
  elseif till >= FOR_EVER or not real then
    redis.call('SET', key, row)
  else
    redis.call('SET', key, row, 'PX', kept or keep(till))
  end
end

-- Returns x / r rounded up, and the excess that comes from rounding.
local function ceil_div(x, r)
  local rest = fmod(x, r)
  if rest == 0 then return x / r, 0 end
  return (x - rest) / r + 1, r - rest
end

-- Returns x * to / from rounded down, bit by bit, because the product may be too large to be exact.
local function rescale(x, to, from)
  local rest, bits, whole = fmod(x, from), 1, 0
  local result = (x - rest) / from * to
  while bits * 2 <= to do bits = bits * 2 end
  local left = 0
  while bits >= 1 do
    whole = whole * 2
    if left >= from - left then left, whole = left - (from - left), whole + 1 else left = left * 2 end
    if to >= bits then
      to = to - bits
      if left >= from - rest then left, whole = left - (from - rest), whole + 1 else left = left + rest end
    end
    bits = bits / 2
  end
  return result + whole
end

-- Takes `cost` tokens from the bucket of this row, whose arguments begin at `at`. Returns true if the call may pass,
-- and the row to write and its time if there is one.
local function take(row, at, cost)
  local capacity, unit = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local refill, overdraw = tonumber(ARGV[at + 2]), ARGV[at + 3] == '1'
  local full = capacity * unit
  local before = full
  if row then
    local level, of, since, till = string.match(row, '^(%-?%d+) (%d+) (%d+) (%d+)$')
    assert(level, 'CORRUPT bucket')
    if tonumber(till) > now then
      level, of = tonumber(level), tonumber(of)
      if of ~= unit then
        level = level < 0 and -rescale(-level, unit, of) or rescale(level, unit, of)
      end
      level = max(-full, min(full, level))
      local elapsed = max(0, now - tonumber(since))
      -- First the debt is repaid and then the bucket filled: as one sum the number may be too large.
      if level < 0 then
        local millis, over = ceil_div(-level, refill)
        if elapsed < millis then
          level, elapsed = level + elapsed * refill, 0
        else
          level, elapsed = over, elapsed - millis
        end
      end
      before = min(full, level + elapsed * refill)
    end
  end
  local pass, after = true, before
  if cost < 0 then
    after = min(full, before - cost * unit - tonumber(ARGV[at + 4]) * unit)
  else
    local wanted = cost * unit
    pass = before >= wanted
    if pass or (overdraw and wanted <= full) then after = max(-full, before - wanted) end
  end
  if after == before then return pass end
  local millis, level = 0, after
  if level < 0 then millis, level = ceil_div(-level, refill) end
  if level < full then millis = millis + (ceil_div(full - level, refill)) end
  local till = now + millis
  return pass, fmt('%d %d %d %d', after, unit, now, till), till
end
