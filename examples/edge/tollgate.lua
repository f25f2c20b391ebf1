-- Asks tollgate-server about a request, and answers it with a denial as it is.
local shown = { ["ratelimit"] = "txn.tollgate_limit", ["ratelimit-policy"] = "txn.tollgate_policy" }
local of_denial = { "content-type", "cache-control", "retry-after", "ratelimit", "ratelimit-policy" }

core.register_action("tollgate", { "http-req" }, function(txn)
  local of_client = txn.http:req_get_headers()
  local headers = {
    ["x-forwarded-method"] = { txn.sf:method() },
    ["x-forwarded-uri"] = { txn.sf:url() },
    ["x-forwarded-host"] = of_client["host"],
    ["x-forwarded-for"] = { txn.sf:src() },
  }
  -- Those that make a preflight, which no rule counts, and each header that rules name.
  for _, name in ipairs({ "origin", "access-control-request-method", "x-api-key" }) do
    -- All of its lines: req_hdr would be the last one alone, and a new one each time a new client.
    headers[name] = of_client[name]
  end
  local client = core.httpclient()
  local asked, answer = pcall(client.get, client, { url = "http://127.0.0.1:8083/check", headers = headers, timeout = 20 })
  -- A server that is gone, or late, stops nobody.
  if not asked or not answer or not answer.status or answer.status == 0 then return end
  local field = function(name)
    local values = answer.headers and answer.headers[name]
    return values and values[0]
  end
  if answer.status < 300 then
    for name, variable in pairs(shown) do
      if field(name) then txn:set_var(variable, field(name)) end
    end
    return
  end
  -- HAProxy itself says 503 of a server that is gone. A denial is of this type, with any status.
  if field("content-type") ~= "application/problem+json" then return end
  local denial = txn:reply({ status = answer.status, body = answer.body or "" })
  for _, name in ipairs(of_denial) do
    if field(name) then denial:add_header(name, field(name)) end
  end
  txn:done(denial)
end)
