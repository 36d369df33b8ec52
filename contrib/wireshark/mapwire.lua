-- Wireshark dissector for mapwire: the datagrams that ranks on different hosts exchange over UDP.
--
-- Use: wireshark -X lua_script:mapwire.lua FILE, or copy this file to ~/.local/lib/wireshark/plugins.
-- It recognises datagrams by their content on any UDP port. The layouts are those of firmware/seal/src/wire.rs (envelopes) and of
-- firmware/wire/src/{link,header,packet,payload,signal,control}.rs. All numbers are little endian.

local mapwire = Proto("mapwire", "mapwire")
local F = {}

local TYPES = { [1] = "initiate", [2] = "respond", [3] = "cookie", [4] = "sealed", [5] = "plain" }
local LINK_KINDS = { [1] = "hello", [2] = "welcome", [3] = "data", [4] = "ack", [5] = "again" }
local KINDS = {
  [1] = "store", [2] = "fetch request", [3] = "fetch reply", [4] = "fetch refused",
  [5] = "store refused", [6] = "handler", [7] = "nothing", [8] = "atomic",
}
local CONTROLS = {
  [1] = "import request", [2] = "import cancel", [3] = "import granted", [4] = "import refused",
  [5] = "revoked", [6] = "released", [7] = "goodbye",
}
local REFUSALS = {
  [1] = "no such export", [2] = "the key does not open the export", [3] = "the export was revoked",
  [4] = "the range passes the end of the export", [5] = "the import was not granted this right",
  [6] = "the exporter does not let this importer in", [7] = "longer than the receiver takes at once",
  [8] = "nothing is exported under this name", [9] = "the receiver has no room now",
}
local SIGNAL_OPS = { [0] = "set", [1] = "add", [2] = "or" }
local ATOMIC_OPS = { [1] = "add", [2] = "swap", [3] = "compare-swap" }
local RIGHTS = { [1] = "store", [2] = "fetch", [3] = "store+fetch" }

-- Bytes of the handshake's datagrams and of the fixed parts.
local HANDSHAKE_BYTES = { [1] = 104, [2] = 85, [3] = 72 }
local SEALED_FRONT, SEALED_BACK, PLAIN_FRONT = 16, 16, 12
local LINK_BYTES, PACKET_BYTES = 36, 48
local MAX_ACK_RANGES = 16

-- Declares a field of the protocol: its kind of value, its name behind "mapwire.", its label.
local function declare(kind, name, ...)
  F[name] = ProtoField[kind]("mapwire." .. name, ...)
end

declare("uint8", "type", "Type", base.DEC, TYPES)
declare("uint16", "length", "Length")
declare("uint16", "node", "Sender's node")
declare("uint32", "job", "Job", base.HEX)
declare("uint8", "handshake.version", "Version")
declare("uint16", "handshake.to", "Receiver's node")
declare("bool", "handshake.continues", "Sender has a session")
declare("uint32", "session", "Session index", base.HEX)
declare("bytes", "handshake.body", "Noise message or cookie")
declare("bytes", "handshake.code", "Code by the job's secret")
declare("uint64", "counter", "Counter")
declare("bytes", "sealed", "Sealed link datagram")
declare("bytes", "tag", "Tag")
declare("uint8", "link.version", "Version")
declare("uint8", "link.kind", "Kind", base.DEC, LINK_KINDS)
declare("uint8", "link.path", "Path")
declare("uint32", "link.expected", "Expects sequence number")
declare("uint64", "link.epoch", "Sender's epoch", base.HEX)
declare("uint64", "link.peer_epoch", "Receiver's epoch", base.HEX)
declare("uint64", "link.number", "Transmission number")
declare("uint64", "link.challenge", "Challenge", base.HEX)
declare("uint32", "link.sequence", "Sequence number")
declare("uint32", "ack.delay_ns", "Delay (ns)")
declare("uint32", "ack.ranges", "Ranges")
declare("uint64", "ack.first", "First")
declare("uint64", "ack.last", "Last")
declare("uint8", "packet.version", "Version")
declare("uint8", "packet.kind", "Kind", base.DEC, KINDS)
declare("uint16", "packet.flags", "Flags", base.HEX)
declare("bool", "packet.last", "Last of its message", 16, nil, 0x1)
declare("bool", "packet.notify", "Notify", 16, nil, 0x2)
declare("bool", "packet.signal", "Carries a signal", 16, nil, 0x4)
declare("uint32", "packet.length", "Payload length")
declare("uint32", "packet.sequence", "Sequence number in the header")
declare("bytes", "packet.key", "Key")
declare("uint32", "packet.export", "Export")
declare("uint32", "packet.message", "Message")
declare("uint32", "packet.fetch", "Fetch")
declare("uint32", "packet.handler", "Handler")
declare("uint16", "packet.to", "Receiving process")
declare("uint16", "packet.from", "Sending process")
declare("uint64", "packet.offset", "Offset", base.HEX)
declare("uint64", "packet.reason", "Reason", base.DEC, REFUSALS)
declare("bytes", "packet.data", "Data")
declare("uint64", "fetch.bytes", "Bytes wanted")
declare("bytes", "packet.reply_key", "Reply key")
declare("uint64", "refused.offset", "Offset of the store", base.HEX)
declare("uint64", "refused.bytes", "Bytes of the store")
declare("uint64", "refused.count", "Messages told of")
declare("uint64", "signal.offset", "Signal offset", base.HEX)
declare("uint8", "signal.op", "Signal operation", base.DEC, SIGNAL_OPS)
declare("uint64", "signal.value", "Signal value", base.HEX)
declare("uint8", "atomic.width", "Width (bytes)")
declare("uint8", "atomic.op", "Operation", base.DEC, ATOMIC_OPS)
declare("uint64", "atomic.operand", "Operand", base.HEX)
declare("uint64", "atomic.expected", "Expected value", base.HEX)
declare("uint8", "control.version", "Version")
declare("uint8", "control.kind", "Kind", base.DEC, CONTROLS)
declare("uint16", "control.flags", "Flags", base.HEX)
declare("uint32", "control.request", "Request")
declare("uint32", "control.export", "Export")
declare("uint32", "control.rights", "Rights", base.DEC, RIGHTS)
declare("uint32", "control.name_bytes", "Name length")
declare("bytes", "control.key", "Key")
declare("bytes", "control.token", "Token")
declare("uint64", "control.length", "Bytes of the export")
declare("uint64", "control.mapped_offset", "Mapped offset", base.HEX)
declare("uint64", "control.mapped_bytes", "Mapped bytes")
declare("uint32", "control.reason", "Reason", base.DEC, REFUSALS)
declare("string", "control.name", "Name", base.UNICODE)

local all = {}
for _, field in pairs(F) do
  all[#all + 1] = field
end
mapwire.fields = all

local malformed = ProtoExpert.new("mapwire.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local cut = ProtoExpert.new("mapwire.cut", "The capture has only the begin of this datagram", expert.group.UNDECODED,
  expert.severity.NOTE)
mapwire.experts = { malformed, cut }

-- Reads fields one after the other. What is not there is marked once: cut by the capture, or malformed.
local Reader = {}
Reader.__index = Reader

local function reader(tvb, at, tree)
  return setmetatable({ tvb = tvb, at = at, tree = tree, ended = false }, Reader)
end

-- Whether `bytes` more are there.
function Reader:has(bytes)
  if self.ended then
    return false
  end
  if self.at + bytes <= self.tvb:len() then
    return true
  end
  self.ended = true
  if self.at + bytes <= self.tvb:reported_len() then
    self.tree:add_proto_expert_info(cut)
  else
    self:wrong("it ends before its fields do")
  end
  return false
end

function Reader:wrong(why)
  if self.marked then
    return
  end
  self.marked = true
  self.tree:add_proto_expert_info(malformed, "Malformed: " .. why)
end

-- Bytes up to the end of the datagram as it was sent.
function Reader:rest()
  return math.max(self.tvb:reported_len() - self.at, 0)
end

-- Adds the next `bytes` as field `name`; gives their range, or nil where they are not there.
function Reader:take(name, bytes)
  if not self:has(bytes) then
    return nil
  end
  local range = self.tvb(self.at, bytes)
  if name then
    self.tree:add_le(F[name], range)
  end
  self.at = self.at + bytes
  return range
end

-- The same, as a number; only for up to four bytes.
function Reader:number(name, bytes)
  local range = self:take(name, bytes)
  return range and range:le_uint()
end

-- The same, as text of an unsigned number of eight bytes.
function Reader:long(name, format)
  local range = self:take(name, 8)
  if not range then
    return "?"
  end
  local value = range:le_uint64()
  return format == "hex" and "0x" .. (value:tohex():gsub("^0+(.)", "%1")) or tostring(value)
end

-- Adds `bytes` of data, or as many of them as were captured.
function Reader:data(name, bytes)
  local there = math.min(bytes, math.max(self.tvb:len() - self.at, 0))
  if there > 0 then
    self.tree:add(F[name], self.tvb(self.at, there))
    self.at = self.at + there
  end
  if there < bytes then
    self:has(bytes - there)
  end
end

-- Each kind of control message, behind its version, kind and flags. Gives what the summary says.
local control_bodies = {
  [1] = function(r, flags)
    local request = r:number("control.request", 4)
    r:number("control.rights", 4)
    local bytes = r:number("control.name_bytes", 4)
    r:take(flags % 2 == 1 and "control.token" or nil, 16)
    if not bytes or bytes == 0 or not r:has(bytes) then
      return ""
    end
    local range = r.tvb(r.at, bytes)
    r.tree:add_packet_field(F["control.name"], range, ENC_UTF_8)
    r.at = r.at + bytes
    return string.format(" %d of %q", request, range:string(ENC_UTF_8))
  end,
  [2] = function(r)
    return string.format(" %s", r:number("control.request", 4) or "?")
  end,
  [3] = function(r, flags)
    local request, export = r:number("control.request", 4), r:number("control.export", 4)
    r:number("control.rights", 4)
    r:take("control.key", 16)
    local length = r:long("control.length")
    local direct = flags % 2 == 1
    r:take(direct and "control.mapped_offset" or nil, 8)
    r:take(direct and "control.mapped_bytes" or nil, 8)
    return string.format(" %s: export %s, %s bytes", request or "?", export or "?", length)
  end,
  [4] = function(r)
    local request, reason = r:number("control.request", 4), r:number("control.reason", 4)
    return string.format(" %s: %s", request or "?", REFUSALS[reason] or "?")
  end,
  [5] = function(r)
    return string.format(": export %s", r:number("control.export", 4) or "?")
  end,
  [6] = function(r)
    local export = r:number("control.export", 4)
    r:take("control.key", 16)
    return string.format(": export %s", export or "?")
  end,
  [7] = function()
    return ""
  end,
}

local function dissect_control(r, parent)
  r.tree = parent:add(mapwire, r.tvb(r.at), "Control message")
  r:number("control.version", 1)
  local kind = r:number("control.kind", 1)
  local flags = r:number("control.flags", 2)
  local body = control_bodies[kind]
  if not flags then
    return "control message"
  end
  if not body then
    r:wrong("control message of kind " .. kind)
    return "control message"
  end
  return CONTROLS[kind] .. body(r, flags)
end

-- A signal: offset with the operation in its low three bits, then the value.
local function dissect_signal(r)
  if not r:has(16) then
    return ""
  end
  local place = r.tvb(r.at, 8)
  local op = place(0, 1):uint() % 8
  local offset = place:le_uint64() - UInt64(op)
  r.tree:add(F["signal.offset"], place, offset)
  r.tree:add(F["signal.op"], place(0, 1), op)
  r.at = r.at + 8
  return string.format(", signal %s at 0x%s", r:long("signal.value", "hex"), (offset:tohex():gsub("^0+(.)", "%1")))
end

-- Each kind of packet: `export`, `message` and `offset` say what the header's fields are, `payload` reads what follows it.
local packet_bodies = {
  [1] = {
    message = "packet.message", export = "packet.export", offset = "packet.offset", key = "packet.key",
    payload = function(r, h)
      local signal = math.floor(h.flags / 4) % 2 == 1
      local bytes = math.max(h.length - (signal and 16 or 0), 0)
      r:data("packet.data", bytes)
      return string.format("store %d bytes to export %d at %s", bytes, h.export, h.offset) .. (signal and dissect_signal(r) or "")
    end,
  },
  [2] = {
    message = "packet.fetch", export = "packet.export", offset = "packet.offset", key = "packet.key",
    payload = function(r, h)
      local bytes = r:long("fetch.bytes")
      r:take("packet.reply_key", 16)
      return string.format("fetch %d: %s bytes of export %d at %s", h.message, bytes, h.export, h.offset)
    end,
  },
  [3] = {
    message = "packet.fetch", offset = "packet.offset", key = "packet.reply_key",
    payload = function(r, h)
      r:data("packet.data", h.length)
      return string.format("%d bytes for fetch %d at %s", h.length, h.message, h.offset)
    end,
  },
  [4] = {
    message = "packet.fetch", offset = "packet.reason", key = "packet.reply_key",
    payload = function(_, h)
      return string.format("fetch %d refused: %s", h.message, h.reason)
    end,
  },
  [5] = {
    message = "packet.message", export = "packet.export", offset = "packet.reason",
    payload = function(r, h)
      local offset, bytes = r:long("refused.offset", "hex"), r:long("refused.bytes")
      r:long("refused.count")
      return string.format("store of %s bytes to export %d at %s refused: %s", bytes, h.export, offset, h.reason)
    end,
  },
  [6] = {
    message = "packet.handler", export = "processes",
    payload = function(r, h, tree)
      if h.message == 0 then
        return dissect_control(r, tree)
      end
      r:data("packet.data", h.length)
      return string.format("%d bytes for handler %d", h.length, h.message)
    end,
  },
  [7] = {
    payload = function()
      return "nothing"
    end,
  },
  [8] = {
    message = "packet.fetch", export = "packet.export", offset = "packet.offset", key = "packet.key",
    payload = function(r, h)
      r:number("atomic.width", 1)
      local op = r:number("atomic.op", 1)
      r:take(nil, 6)
      r:long("atomic.operand")
      r:take(op == 3 and "atomic.expected" or nil, 8)
      r:take("packet.reply_key", 16)
      return string.format("%s to export %d at %s", ATOMIC_OPS[op] or "?", h.export, h.offset)
    end,
  },
}

local function dissect_packet(r, parent)
  local tree = parent:add(mapwire, r.tvb(r.at), "Packet")
  r.tree = tree
  if not r:has(PACKET_BYTES) then
    return "packet"
  end
  local version = r:number("packet.version", 1)
  local kind = r:number("packet.kind", 1)
  local h = { flags = r.tvb(r.at, 2):le_uint() }
  local flags = tree:add_le(F["packet.flags"], r.tvb(r.at, 2))
  for _, name in ipairs({ "packet.last", "packet.notify", "packet.signal" }) do
    flags:add_le(F[name], r.tvb(r.at, 2))
  end
  r:take(nil, 2)
  h.length = r:number("packet.length", 4)
  r:number("packet.sequence", 4)
  r:take(nil, 4)
  local body = packet_bodies[kind]
  if version ~= 1 or not body then
    r:wrong(string.format("packet of version %d and kind %d", version, kind))
    return "packet"
  end
  r:take(body.key, 16)
  if body.export == "processes" then
    r:number("packet.to", 2)
    r:number("packet.from", 2)
  else
    h.export = r:number(body.export, 4)
  end
  h.message = r:number(body.message, 4)
  h.reason = REFUSALS[r.tvb(r.at, 4):le_uint()] or "?"
  h.offset = r:long(body.offset, "hex")
  if r:rest() ~= h.length then
    r:wrong(string.format("its header tells of %d bytes of payload, and %d follow", h.length, r:rest()))
  end
  return body.payload(r, h, tree)
end

local function dissect_ack(r, parent)
  r.tree = parent:add(mapwire, r.tvb(r.at), "Ack")
  r:number("ack.delay_ns", 4)
  local count = r:number("ack.ranges", 4)
  if not count then
    return ""
  end
  if count > MAX_ACK_RANGES then
    r:wrong(string.format("%d ranges: at most %d", count, MAX_ACK_RANGES))
    return ""
  end
  local words = {}
  for _ = 1, count do
    local first, last = r:long("ack.first"), r:long("ack.last")
    words[#words + 1] = first == last and first or first .. "-" .. last
  end
  if not r.ended and r:rest() > 0 then
    r:wrong(string.format("%d bytes follow its last range", r:rest()))
  end
  return table.concat(words, ",")
end

-- The datagram of a link from `at` on. Gives a summary.
local function dissect_link(tvb, at, parent)
  local tree = parent:add(mapwire, tvb(at, math.min(LINK_BYTES, tvb:len() - at)), "Link")
  local r = reader(tvb, at, tree)
  local version = r:number("link.version", 1)
  local kind = r:number("link.kind", 1)
  local path = r:number("link.path", 1)
  r:take(nil, 1)
  r:number("link.expected", 4)
  r:long("link.epoch")
  r:long("link.peer_epoch")
  local greeting = kind == 1 or kind == 2
  local number = r:long(greeting and "link.challenge" or "link.number", greeting and "hex" or nil)
  local sequence = r:number(kind == 3 and "link.sequence" or nil, 4)
  if r.ended then
    return "link"
  end
  if version ~= 1 or not LINK_KINDS[kind] then
    r:wrong(string.format("link of version %d and kind %d", version, kind))
    return "link"
  end
  local summary = string.format("%s %s", LINK_KINDS[kind], number)
  if path > 0 then
    summary = summary .. " path " .. path
  end
  if kind == 3 then
    return string.format("%s seq %d: %s", summary, sequence, r:rest() > 0 and dissect_packet(r, parent) or "")
  elseif kind == 4 then
    return string.format("%s of %s", summary, r:rest() > 0 and dissect_ack(r, parent) or "")
  elseif r:rest() > 0 then
    r:wrong(string.format("%d bytes follow its header", r:rest()))
  end
  return summary
end

local function dissect_handshake(r, kind)
  r:number("handshake.version", 1)
  local from, to = r:number("node", 2), r:number("handshake.to", 2)
  r:take("handshake.continues", 1)
  r:take(nil, 1)
  r:number("job", 4)
  r:number("session", 4)
  r:data("handshake.body", HANDSHAKE_BYTES[kind] - 32)
  r:take("handshake.code", 16)
  return string.format("%s %s > %s", TYPES[kind], from or "?", to or "?")
end

local function dissect_sealed(r)
  r:take(nil, 1)
  r:number("length", 2)
  local session = r:number("session", 4)
  local counter = r:long("counter")
  local bytes = math.max(r:rest() - SEALED_BACK, 0)
  r:data("sealed", bytes)
  r:take("tag", SEALED_BACK)
  return string.format("sealed %s for session 0x%x, %d bytes", counter, session or 0, bytes)
end

function mapwire.dissector(tvb, pinfo, root)
  if tvb:len() < PLAIN_FRONT then
    return 0
  end
  local kind = tvb(0, 1):uint()
  if not TYPES[kind] then
    return 0
  end
  pinfo.cols.protocol = "mapwire"
  local tree = root:add(mapwire, tvb(), "mapwire")
  local r = reader(tvb, 0, tree:add(mapwire, tvb(), "Envelope"))
  r:number("type", 1)
  local summary
  if kind <= 3 then
    summary = dissect_handshake(r, kind)
  elseif kind == 4 then
    summary = dissect_sealed(r)
  else
    r:take(nil, 1)
    r:number("length", 2)
    local node = r:number("node", 2)
    r:take(nil, 2)
    r:number("job", 4)
    r.tree:set_len(PLAIN_FRONT)
    summary = string.format("node %d: %s", node, tvb:len() > PLAIN_FRONT and dissect_link(tvb, PLAIN_FRONT, tree) or "nothing")
  end
  pinfo.cols.info = summary
  tree:append_text(", " .. summary)
  return tvb:len()
end

-- Whether a datagram of any UDP port is one of these. Sealed datagrams say little of themselves: their length, a session index other
-- than 0 and a counter below 2^48.
local function is_mapwire(tvb)
  local length = tvb:reported_len()
  if tvb:len() < PLAIN_FRONT + 4 then
    return false
  end
  local kind, second = tvb(0, 1):uint(), tvb(1, 1):uint()
  if HANDSHAKE_BYTES[kind] then
    return second == 2 and length == HANDSHAKE_BYTES[kind]
  elseif kind == 4 then
    return length >= SEALED_FRONT + LINK_BYTES + SEALED_BACK and tvb:len() >= SEALED_FRONT and second == 0
      and tvb(2, 2):le_uint() == length
      and tvb(4, 4):uint() ~= 0 and tvb(14, 2):uint() == 0
  elseif kind == 5 then
    local at = PLAIN_FRONT
    return length >= at + LINK_BYTES and second == 0 and tvb(2, 2):le_uint() == length and tvb(at, 1):uint() == 1 and LINK_KINDS[tvb(at + 1, 1):uint()] ~= nil
      and tvb(at + 3, 1):uint() == 0
  end
  return false
end

mapwire:register_heuristic("udp", function(tvb, pinfo, root)
  if not is_mapwire(tvb) then
    return false
  end
  mapwire.dissector(tvb, pinfo, root)
  return true
end)

-- For "Decode As".
DissectorTable.get("udp.port"):add_for_decode_as(mapwire)
