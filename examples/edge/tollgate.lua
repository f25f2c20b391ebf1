-- Asks tollgate-server about a request, and sets what it answers as variables of the transaction.
local fields = { ["retry-after"] = "txn.tollgate_retry", ["ratelimit"] = "txn.tollgate_limit" }

core.register_action("tollgate", { "http-req" }, function(txn)
  local headers = {
    ["x-forwarded-method"] = { txn.sf:method() },
    ["x-forwarded-uri"] = { txn.sf:url() },
    ["x-forwarded-for"] = { txn.sf:src() },
  }
  -- Each header that rules name.
  for _, name in ipairs({ "x-api-key" }) do
    local value = txn.sf:req_hdr(name)
    if value and value ~= "" then headers[name] = { value } end
  end
  local client = core.httpclient()
  local asked, answer = pcall(client.get, client, { url = "http://127.0.0.1:8083/check", headers = headers, timeout = 20 })
  -- A server that is gone, or late, stops nobody.
  if not asked or not answer or not answer.status or answer.status == 0 then return end
  txn:set_var("txn.tollgate_status", answer.status)
  txn:set_var("txn.tollgate_problem", answer.body or "")
  for name, variable in pairs(fields) do
    local values = answer.headers and answer.headers[name]
    if values then txn:set_var(variable, values[0]) end
  end
end)
