-- Sends the requests of a file in turn. Each stands behind its length in 4 bytes, big endian, ready to go out.
local file = assert(io.open(FILE, "rb"))
local data = file:read("*a")
file:close()

local requests, count, at = {}, 0, 1
while at <= #data do
  local a, b, c, d = data:byte(at, at + 3)
  local size = ((a * 256 + b) * 256 + c) * 256 + d
  count = count + 1
  requests[count] = data:sub(at + 4, at + 3 + size)
  at = at + 4 + size
end

local last = 0
function request()
  last = last % count + 1
  return requests[last]
end
